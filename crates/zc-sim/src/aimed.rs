//! Schedules that chance seldom meets: a few requests, something that hangs, and a power cut once a flush is answered.
//!
//! Job: bring the cache to where a flush could be answered too early, and cut the power at that moment. Lengths, places
//! and what hangs are drawn, so each schedule stands for many.
//!
//! What it does not do: judge anything. The model disk does, after the restart.

use rand::RngExt as _;
use zc_cache::seam::RequestKind;
use zc_core::{BufId, Mode};

use crate::clients::ClientKind;
use crate::content;
use crate::world::{SECTOR, World};
use crate::zone::Zone;

/// Steps after which a flush that is still not answered is given up: something else holds it.
const FLUSH_STEPS: u32 = 3_000;

impl World {
    /// One of the schedules, with a power cut at its end.
    pub(crate) fn aim(&mut self) {
        self.drain();
        for volume in 0..self.volumes.len() {
            self.serve_volume(volume);
        }
        let back: Vec<usize> = self.in_mode(Mode::WriteBack);
        if back.is_empty() || self.violation.is_some() {
            return;
        }
        let [first, second] = [0, 1].map(|_| back[self.rng.random_range(0..back.len())]);
        match self.rng.random_range(0..3) {
            0 => self.share_clean(second),
            1 => self.hang_piece(first, second),
            _ => self.kill_and_flush(first),
        }
        self.stalled = None;
    }

    fn in_mode(&self, mode: Mode) -> Vec<usize> {
        (0..self.volumes.len()).filter(|volume| self.volumes[*volume].mode == mode).collect()
    }

    /// A volume stores clean content, and another one relies on it before any flush.
    fn share_clean(&mut self, back: usize) {
        let through = self.in_mode(Mode::WriteThrough);
        if through.is_empty() {
            return;
        }
        let clean = through[self.rng.random_range(0..through.len())];
        let extents = self.rng.random_range(4..=16);
        let contents = self.new_contents(extents);
        self.write_extents(clean, contents, extents);
        self.drain();
        self.pass(120);
        let shared = self.rng.random_range(1..=extents);
        self.write_extents(back, contents, shared);
        self.pass(20);
        self.coverage.note("aimed: content that another volume stored");
        self.flush_and_cut(back);
    }

    /// Dirty data of two volumes is in a piece that hangs, or whose flush does, and one of them asks for a flush.
    fn hang_piece(&mut self, first: usize, second: usize) {
        let zone =
            [Zone::DirtyWrite, Zone::DirtyWrite, Zone::Flush, Zone::Journal][self.rng.random_range(0..4)];
        self.stalled = Some((zone, u64::MAX));
        let extents = self.rng.random_range(1..=6);
        let contents = self.new_contents(extents);
        self.write_extents(first, contents, extents);
        let contents = if self.rng.random_bool(0.3) { contents } else { self.new_contents(extents) };
        self.write_extents(second, contents, extents);
        self.pass(60);
        // Its region is marked first, and that is flushed.
        if let Some(through) = self.in_mode(Mode::WriteThrough).first() {
            let contents = self.new_contents(1);
            self.write_extents(*through, contents, 1);
        }
        self.pass(60);
        self.stalled = self.rng.random_bool(0.7).then_some((Zone::Flush, u64::MAX));
        self.pass(40);
        if self.rng.random_bool(0.5) {
            let contents = self.new_contents(1);
            self.write_extents(second, contents, 1);
            self.pass(10);
        }
        self.coverage.note("aimed: pieces that hang");
        self.flush_and_cut(second);
    }

    /// The process dies over what no flush has covered. The next one answers a flush that has nothing to write.
    fn kill_and_flush(&mut self, volume: usize) {
        self.stalled = Some((Zone::Flush, u64::MAX));
        let extents = self.rng.random_range(1..=6);
        let contents = self.new_contents(extents);
        self.write_extents(volume, contents, extents);
        self.pass(200);
        self.kill();
        self.serve_volume(volume);
        self.stalled = self.rng.random_bool(0.5).then_some((Zone::Journal, self.now + 200));
        self.pass(6);
        self.coverage.note("aimed: flushes soon after a kill");
        self.flush_and_cut(volume);
    }

    /// Something happens, or time passes, at most so often.
    fn pass(&mut self, most: u32) {
        for _ in 0..self.rng.random_range(0..=most) {
            if self.violation.is_some() {
                return;
            }
            self.step_or_tick();
        }
    }

    /// A client flushes; when it is answered the power goes.
    fn flush_and_cut(&mut self, volume: usize) {
        if self.violation.is_some() {
            return;
        }
        let req = self.next;
        self.submit(volume, 0, 0, RequestKind::Flush, ClientKind::Flush);
        for _ in 0..FLUSH_STEPS {
            if self.violation.is_some() {
                return;
            }
            if !self.clients.contains_key(&req) {
                break;
            }
            self.step_or_tick();
        }
        self.stalled = None;
        self.power_cut();
    }

    /// Contents for so many extents that nothing had before: the first of their numbers.
    fn new_contents(&mut self, extents: usize) -> u64 {
        let first = self.next_content + 1;
        self.next_content += (extents * self.geometry.extent_bytes as usize / SECTOR) as u64;
        first
    }

    /// Writes whole extents with contents from this number on.
    fn write_extents(&mut self, volume: usize, contents: u64, extents: usize) {
        let extent = self.geometry.extent_bytes as usize;
        let room = self.volumes[volume].size_bytes as usize / extent;
        let extents = extents.min(room);
        let offset = self.rng.random_range(0..=room - extents) * extent;
        if extents == 0 {
            return;
        }
        self.next += 1;
        let buf = BufId(self.next);
        let start = self.now + 1;
        let mut data = vec![0; extents * extent];
        for ((index, sector), id) in data.chunks_mut(SECTOR).enumerate().zip(contents..) {
            content::fill(id, sector);
            self.oracles[volume].issue(offset / SECTOR + index, id, start);
            self.judges[volume].issue(offset / SECTOR + index, id, start);
        }
        let len = data.len();
        self.bufs.insert(buf, data);
        self.submit(
            volume,
            offset,
            len,
            RequestKind::Write { buf, fua: false },
            ClientKind::Write { fua: false },
        );
    }
}
