//! Disks, SSDs and processors as servers.

use zc_core::{u64_from_usize, usize_from_u64};
use zc_policy::{Kind, Policy};

use super::profile::{DiskProfile, SsdProfile};
use super::server::Server;

/// Block size of a disk's write memory.
const MEMORY_BLOCK_BYTES: u64 = 4096;
/// A write into memory.
const MEMORY_NS: u64 = 50_000;
/// Bound on the background work of a disk; beyond it writes wait.
const OWED_MAX_NS: u64 = 500_000_000;
/// Seek from one track to the next.
const TRACK_NS: u64 = 1_000_000;
/// Share of its stroke that a disk's data take.
const STROKE: f64 = 0.5;
/// Divisor of seek distances for writes from memory, which are sorted.
const SORTED: u64 = 4;

/// One disk's arm.
#[derive(Debug, Clone, Copy, Default)]
struct Arm {
    server: Server,
    /// Position of the head, in bytes of its disk.
    at: u64,
}

/// One disk's part of a request.
#[derive(Debug, Clone, Copy)]
struct Part {
    arm: usize,
    /// In bytes of the disk.
    at: u64,
    bytes: u64,
}

/// A disk or an array, over whose disks the volume's bytes are spread chunk after chunk.
#[derive(Debug)]
pub(super) struct Disks {
    profile: DiskProfile,
    arms: Vec<Arm>,
    memory: Option<Box<dyn Policy>>,
    /// Bytes of the volumes.
    span: u64,
    /// State of the generator of where the platters are.
    turns: u64,
    log_bytes: u64,
}

const fn share(bytes: u64, per_s: u64) -> u64 {
    bytes * 1000 / (if per_s / 1_000_000 == 0 { 1 } else { per_s / 1_000_000 })
}

impl Disks {
    /// `memory_scale` reduces the write memory in proportion to the volume.
    pub(super) fn new(profile: DiskProfile, span: u64, memory_scale: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and smaller")]
        let memory = (profile.write_memory_bytes as f64 * memory_scale) as u64 / MEMORY_BLOCK_BYTES;
        let arms = vec![Arm::default(); usize_from_u64(u64::from(profile.spindles.max(1)))];
        let memory = (memory > 0).then(|| Kind::Lru.build(usize_from_u64(memory), Vec::new));
        Self { profile, arms, memory, span: span.max(1), turns: 0, log_bytes: 0 }
    }

    fn spindles(&self) -> u64 {
        u64::from(self.profile.spindles.max(1))
    }

    /// The parts of a range of the volume, in its order.
    fn parts(&self, place: u64, bytes: u64) -> impl Iterator<Item = Part> + use<> {
        let (chunk_bytes, spindles) = (self.profile.chunk_bytes.max(1), self.spindles());
        let end = place + bytes;
        (place / chunk_bytes..end.div_ceil(chunk_bytes)).map(move |chunk| {
            let from = place.max(chunk * chunk_bytes);
            let to = end.min((chunk + 1) * chunk_bytes);
            Part {
                arm: usize_from_u64(chunk % spindles),
                at: chunk / spindles * chunk_bytes + from % chunk_bytes,
                bytes: to - from,
            }
        })
    }

    /// Returns the distance that is passed without a seek: a track, on a store's log, which has headers between
    /// contents.
    const fn near_bytes(&self) -> u64 {
        if self.profile.is_store() {
            self.profile.bytes_per_s / 1_000_000 * self.profile.turn_ns / 1000
        } else {
            0
        }
    }

    /// Returns the time for positioning and transfer.
    fn cost(&mut self, part: Part, sorted: bool) -> u64 {
        let before = std::mem::replace(&mut self.arms[part.arm].at, part.at + part.bytes);
        let transfer = share(part.bytes, self.profile.bytes_per_s);
        let passed = part.at.checked_sub(before).filter(|bytes| *bytes <= self.near_bytes());
        if let Some(passed) = passed {
            return transfer + share(passed, self.profile.bytes_per_s);
        }
        // The average seek goes over a third of the stroke, and takes time by the root of the distance.
        let span = self.span.div_ceil(self.spindles());
        let far = (before.abs_diff(part.at) as f64 / span as f64).min(1.0) * STROKE;
        let arms_way = self.profile.seek_ns.saturating_sub(TRACK_NS) as f64 * (far * 3.0).sqrt();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, some milliseconds"
        )]
        let seek = TRACK_NS + arms_way as u64;
        self.turns =
            self.turns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let turn = self.turns.rotate_left(20) % self.profile.turn_ns.max(1);
        (if sorted { seek / SORTED } else { seek }) + turn + transfer
    }

    /// A read: when it is done.
    pub(super) fn read(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        let mut done = now;
        for part in self.parts(place, bytes) {
            let ns = self.cost(part, false);
            done = done.max(self.arms[part.arm].server.serve(now, ns));
        }
        done
    }

    /// A write: when it is answered.
    pub(super) fn write(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        if self.profile.write_memory_bytes == 0 {
            return self.write_now(now, place, bytes);
        }
        let first = place / MEMORY_BLOCK_BYTES;
        let blocks = first..(place + bytes).div_ceil(MEMORY_BLOCK_BYTES);
        let new =
            blocks.filter(|block| self.memory.as_mut().is_none_or(|memory| !memory.access(*block))).count();
        // Blocks in memory are overwritten there.
        let owed =
            if new == 0 { now } else { self.owe(now, place, u64_from_usize(new) * MEMORY_BLOCK_BYTES) };
        (now + MEMORY_NS).max(owed.saturating_sub(OWED_MAX_NS))
    }

    fn write_now(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        self.change(place, bytes, false, |server, ns| server.serve(now, ns)).max(now)
    }

    /// Data in their places, and the parity of each row of chunks: where only some of a row are written, old data and old
    /// parity are read first and written a turn later. When the last disk is done.
    fn change(
        &mut self,
        place: u64,
        bytes: u64,
        sorted: bool,
        work: impl Fn(&mut Server, u64) -> u64,
    ) -> u64 {
        let row_bytes = self.profile.chunk_bytes.max(1) * self.spindles();
        let (mut done, end) = (0, place + bytes);
        for row in place / row_bytes..end.div_ceil(row_bytes) {
            let (from, to) = (place.max(row * row_bytes), end.min((row + 1) * row_bytes));
            let is_whole = self.profile.parities == 0 || to - from == row_bytes;
            let turn = if is_whole { 0 } else { self.profile.turn_ns };
            let (mut longest, mut last) = (0, 0);
            for part in self.parts(from, to - from) {
                let ns = self.cost(part, sorted) + turn;
                (longest, last) = (longest.max(ns), part.arm);
                done = done.max(work(&mut self.arms[part.arm].server, ns));
            }
            for parity in 1..=usize_from_u64(u64::from(self.profile.parities)) {
                let other = (last + parity) % self.arms.len();
                done = done.max(work(&mut self.arms[other].server, longest));
            }
        }
        done
    }

    fn owe(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        self.change(place, bytes, true, |server, ns| server.owe(now, ns))
    }

    /// A write at the end of a log, into memory: when it is answered. The log goes to the disks in whole stripes, one
    /// disk after the other, parity with them.
    pub(super) fn append(&mut self, now: u64, bytes: u64) -> u64 {
        self.log_bytes += bytes;
        let arm = usize_from_u64(self.log_bytes / self.profile.chunk_bytes.max(1)) % self.arms.len();
        let data = share(bytes, self.profile.bytes_per_s);
        let parity = data * u64::from(self.profile.parities) / u64::from(self.profile.spindles.max(1));
        let owed = self.arms[arm].server.owe(now, data + parity);
        (now + MEMORY_NS).max(owed.saturating_sub(OWED_MAX_NS))
    }

    /// Nanoseconds that all disks were at work.
    pub(super) fn busy(&self) -> (u64, u64) {
        (self.arms.iter().map(|arm| arm.server.busy).sum(), u64_from_usize(self.arms.len()))
    }
}

/// An SSD.
#[derive(Debug)]
pub(super) struct Ssd {
    profile: SsdProfile,
    dies: Vec<Server>,
    host: Server,
}

impl Ssd {
    pub(super) fn new(profile: SsdProfile) -> Self {
        let dies = vec![Server::default(); usize_from_u64(u64::from(profile.dies.max(1)))];
        Self { profile, dies, host: Server::default() }
    }

    fn dies(&self, place: u64, bytes: u64) -> impl Iterator<Item = usize> + use<> {
        let page = u64::from(self.profile.page_bytes.max(1));
        let count = u64_from_usize(self.dies.len());
        let first = place / page;
        let end = (place + bytes).div_ceil(page).max(first + 1);
        (first..end).map(move |page| usize_from_u64(page % count))
    }

    /// A read: when the dies have it. [`Ssd::transfer`] follows.
    pub(super) fn read(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        let ns = self.profile.read_ns;
        self.dies(place, bytes).map(|die| self.dies[die].serve(now, ns)).max().unwrap_or(now)
    }

    /// Transfers read bytes to the host, in the order of completion; returns the time of arrival.
    pub(super) fn transfer(&mut self, now: u64, bytes: u64) -> u64 {
        self.host.serve(now, share(bytes, self.profile.bytes_per_s)) + self.profile.operation_ns
    }

    /// Charges the host for a transfer in the background: no request waits for it.
    pub(super) fn transfer_later(&mut self, now: u64, bytes: u64) {
        self.host.owe(now, share(bytes, self.profile.bytes_per_s));
    }

    /// A write that no client waits for.
    pub(super) fn write(&mut self, now: u64, place: u64, bytes: u64) {
        let ns = self.profile.program_ns;
        self.host.owe(now, share(bytes, self.profile.bytes_per_s));
        for die in self.dies(place, bytes) {
            self.dies[die].owe(now, ns);
        }
    }

    /// Nanoseconds that all dies were at work, and how many there are.
    pub(super) fn busy(&self) -> (u64, u64) {
        (self.dies.iter().map(|die| die.busy).sum(), u64_from_usize(self.dies.len()))
    }
}

/// Cores.
#[derive(Debug)]
pub(super) struct Cores(Vec<Server>);

impl Cores {
    pub(super) fn new(count: u32) -> Self {
        Self(vec![Server::default(); usize_from_u64(u64::from(count.max(1)))])
    }

    /// Work that a client waits for, on whichever core is free first.
    pub(super) fn serve(&mut self, now: u64, ns: u64) -> u64 {
        self.0.iter_mut().min_by_key(|core| core.free_at()).map_or(now, |core| core.serve(now, ns))
    }

    /// Work that no client waits for.
    pub(super) fn owe(&mut self, now: u64, ns: u64) {
        if let Some(core) = self.0.iter_mut().min_by_key(|core| core.settled_at()) {
            core.owe(now, ns);
        }
    }

    /// Nanoseconds that all cores were at work, and how many there are.
    pub(super) fn busy(&self) -> (u64, u64) {
        (self.0.iter().map(|core| core.busy).sum(), u64_from_usize(self.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::profile::Profile;

    fn profile(name: &str) -> Profile {
        Profile::named(name).unwrap()
    }

    #[test]
    fn a_random_read_takes_what_the_paper_says_and_a_sequential_one_what_it_transfers() {
        let mut disk = Disks::new(profile("flaz-1d1s").disk, 1 << 38, 1.0);
        let mut now = 0;
        let mut place = 12_345_u64;
        for _ in 0..2000 {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99) >> 26 << 12;
            now = disk.read(now, place % (1 << 38), 4096);
        }
        let ms = now as f64 / 2000.0 / 1e6;
        // Half of the stroke is in use: somewhat less than the 12.6 ms of Table 1.
        assert!((9.0..12.7).contains(&ms), "{ms}");
        let began = disk.read(now, 0, 65536);
        let done = (1..1000_u64).fold(began, |now, n| disk.read(now, n * 65536, 65536));
        let rate = 999.0 * 65536.0 * 1000.0 / (done - began) as f64;
        assert!((99.0..101.0).contains(&rate), "{rate} MB/s");
    }

    #[test]
    fn an_array_streams_from_all_disks_and_reads_a_block_from_one() {
        let rate = |name: &str, bytes: u64| {
            let mut disks = Disks::new(profile(name).disk, 1 << 38, 1.0);
            let done = (0..256_u64).fold(0, |now, n| disks.read(now, n * bytes, bytes));
            256.0 * bytes as f64 * 1000.0 / done as f64
        };
        let (one, eight) = (rate("flaz-1d1s", 1 << 20), rate("flaz-8d2s", 1 << 20));
        assert!((7.0..8.1).contains(&(eight / one)), "eight disks at once: {one} and {eight} MB/s");
        // Of one chunk at a time only one disk reads, and none has to seek.
        let chunks = rate("flaz-8d2s", 64 << 10);
        assert!((85.0..101.0).contains(&chunks), "{chunks} MB/s");
        let mut disks = Disks::new(profile("flaz-8d2s").disk, 1 << 38, 1.0);
        let done = disks.read(0, (1 << 37) + 4096, 4096);
        assert_eq!(disks.busy(), (done, 8), "one arm's work");
    }

    #[test]
    fn whole_rows_are_written_without_reading_parity_first() {
        let raid = DiskProfile { write_memory_bytes: 0, ..profile("nitro-tps").disk };
        let row = raid.chunk_bytes * u64::from(raid.spindles);
        let busy = |bytes: u64| {
            let mut disks = Disks::new(raid, 1 << 38, 1.0);
            let _answered = disks.write(0, 100 * row, bytes);
            disks.busy().0
        };
        let most = busy(row - raid.chunk_bytes);
        assert!(busy(row) + 9 * raid.turn_ns < most, "{} and {most}", busy(row));
    }

    #[test]
    fn small_writes_cost_a_turn_and_parity_unless_memory_takes_them() {
        let raid = DiskProfile { write_memory_bytes: 0, ..profile("nitro-tps").disk };
        let mut bare = Disks::new(raid, 1 << 38, 1.0);
        assert!(bare.write(0, 1 << 30, 8192) > raid.turn_ns);
        assert!(bare.busy().0 > 2 * raid.turn_ns);
        let mut memory = Disks::new(profile("nitro-tps").disk, 1 << 38, 1.0);
        assert_eq!(memory.write(0, 1 << 30, 8192), MEMORY_NS);
        let once = memory.busy();
        assert_eq!(memory.write(1, 1 << 30, 8192), 1 + MEMORY_NS);
        assert_eq!(memory.busy(), once, "overwritten in memory");
        let last = (0..20_000_u64).map(|n| memory.write(2, n * 7_654_321 % (1 << 38), 8192)).max().unwrap();
        assert!(last > OWED_MAX_NS, "disks that owe too much make writers wait: {last}");
    }

    #[test]
    fn an_ssd_reads_as_fast_as_the_papers_measured() {
        let rate = |name: &str, bytes: u64| {
            let mut ssd = Ssd::new(profile(name).ssd);
            // 32 outstanding.
            let mut clients = vec![0_u64; 32];
            for number in 0..20_000_u64 {
                let next = clients.iter_mut().min().unwrap();
                *next = ssd.read(*next, number * 7919 * bytes, bytes);
                *next = ssd.transfer(*next, bytes);
            }
            20_000.0 / (*clients.iter().max().unwrap() as f64 / 1e9)
        };
        let nitro = rate("nitro-tps", 8192);
        assert!((16_000.0..20_000.0).contains(&nitro), "{nitro}");
        let mut alone = Ssd::new(profile("flaz-1d1s").ssd);
        let one = alone.read(0, 0, 4096);
        let one = alone.transfer(one, 4096);
        assert!((160_000..180_000).contains(&one), "0.17 ms: {one}");
    }

    #[test]
    fn cores_work_side_by_side() {
        let mut cores = Cores::new(2);
        assert_eq!([cores.serve(0, 100), cores.serve(0, 100), cores.serve(0, 100)], [100, 100, 200]);
        cores.owe(0, 1000);
        assert_eq!(cores.busy(), (1300, 2));
    }
}
