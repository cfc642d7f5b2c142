//! Schedules that chance seldom meets: a few requests, something that hangs, and a crash at a chosen moment.
//!
//! Job: bring the cache to where a flush could be answered too early, or a start could show what it may still decide
//! otherwise; then cut the power and read everything. Lengths, places and what hangs are drawn, so each schedule stands
//! for many.
//!
//! What it does not do: judge anything. The model disk does, after the restart.

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{Ack, BufId, Codec, Mode, VolumeId};

use crate::clients::ClientKind;
use crate::content;
use crate::coverage::NEW_CONTENTS;
use crate::world::{SECTOR, World};
use crate::zone::Zone;

/// Steps after which a request that is still not answered is given up: something else holds it.
const ANSWER_STEPS: u32 = 400;
/// Steps after which a volume that is still not clean is given up.
const CLEAN_STEPS: u32 = 3_000;
/// No epoch of a schedule ends by its age.
const LONG_AGE_MS: u64 = 60_000;

/// Whole extents of a volume.
#[derive(Debug, Clone, Copy)]
struct Place {
    volume: usize,
    offset: usize,
    len: usize,
}

impl World {
    /// One of the schedules, with a power cut at its end.
    pub(crate) fn aim(&mut self) {
        self.drain();
        for volume in 0..self.volumes.len() {
            self.serve_volume(volume);
            // The first one may fail, for what a crash took.
            self.flush(volume);
        }
        if self.violation.is_some() {
            return;
        }
        let first = self.rng.random_range(0..self.volumes.len());
        let second = (first + 1) % self.volumes.len();
        let schedule = if self.config.generation_bits == 1 { 9 } else { self.rng.random_range(0..9) };
        self.trace(|| format!("schedule {schedule} for volumes {first} and {second}"));
        match schedule {
            0 => self.share_clean(second),
            1 => self.share_before_a_flush(second),
            2 => self.hang_piece(first, second),
            3 => self.write_into_a_piece(first, second),
            4 => self.kill_and_flush(first),
            5 => self.kill_and_write_through(first),
            6 => self.use_a_chain_again(first, second),
            7 => self.share_rotten(second),
            8 => self.damage_last_commit(first),
            _ => self.use_slots_again(first),
        }
        self.stalled = None;
        if self.violation.is_none() {
            self.read_all();
        }
    }

    fn in_mode(&self, mode: Mode) -> Vec<usize> {
        (0..self.volumes.len()).filter(|volume| self.volumes[*volume].mode == mode).collect()
    }

    /// A volume stores clean content, and another one relies on it before any flush.
    fn share_clean(&mut self, back: usize) {
        let Some(clean) = self.write_clean() else { return };
        self.drain();
        self.pass(120);
        self.rely_on(clean, back);
    }

    /// Clean content of a volume rots, and another volume writes the same content: the rot is older than the write.
    fn share_rotten(&mut self, back: usize) {
        self.calm(back);
        self.placed.clear();
        let Some(clean) = self.write_clean() else { return };
        self.drain();
        for _ in 0..20 {
            self.tick_and_settle();
        }
        if self.violation.is_some() || !self.rot_placed(0.5) {
            return;
        }
        self.coverage.note("aimed: content that rotted before it was shared");
        self.write_new(back);
        self.rely_on(clean, back);
    }

    /// A volume flushes twice, and what the second flush stored is damaged. Then the process dies, or the power goes, at
    /// once or when the device has been idle for a while.
    fn damage_last_commit(&mut self, volume: usize) {
        self.calm(volume);
        let Some(place) = self.write_new(volume) else { return };
        self.flush(volume);
        self.placed.clear();
        self.write_at(place);
        self.write_new(volume);
        self.flush(volume);
        if self.rng.random_bool(0.5) {
            for _ in 0..20 {
                self.tick_and_settle();
            }
        }
        if self.violation.is_some() || !self.rot_placed(0.4) {
            return;
        }
        self.coverage.note("aimed: last commits damaged");
        if self.rng.random_bool(0.5) {
            self.kill();
        } else {
            self.power_cut();
        }
    }

    /// A volume relies on clean content of another one. The journal is durable when the clean unit ends, so nothing else
    /// asks for a flush.
    fn share_before_a_flush(&mut self, back: usize) {
        self.calm(back);
        self.stalled = Some((Zone::SlotWrite, u64::MAX));
        let Some(clean) = self.write_clean() else { return };
        for _ in 0..20 {
            // A unit that is not full is written when it is old.
            self.tick_and_settle();
        }
        let contents = self.new_contents(1);
        if let Some(place) = self.write_extents(back, contents, 1) {
            self.flush(place.volume);
        }
        self.stalled = None;
        self.settle();
        self.rely_on(clean, back);
    }

    /// A volume in write-through stores contents that nothing had before: the first of their numbers, and how many
    /// extents.
    fn write_clean(&mut self) -> Option<(u64, usize)> {
        let through = self.in_mode(Mode::WriteThrough);
        if through.is_empty() {
            return None;
        }
        let clean = through[self.rng.random_range(0..through.len())];
        let extents = self.rng.random_range(4..=16);
        let contents = self.new_contents(extents);
        self.write_extents(clean, contents, extents);
        Some((contents, extents))
    }

    fn rely_on(&mut self, (contents, extents): (u64, usize), back: usize) {
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

    /// Half of a volume's epoch goes out in a piece of another volume, for which no client waits. What destaging asks for
    /// makes the journal durable, and no flush covers the piece. Then the epoch's rest is flushed.
    fn write_into_a_piece(&mut self, other: usize, volume: usize) {
        if other == volume {
            return;
        }
        self.calm(other);
        self.calm(volume);
        self.write_new(other);
        self.flush(other);
        self.write_new(other);
        self.write_new(volume);
        self.settle();
        self.stalled = self.rng.random_bool(0.5).then_some((Zone::DirtyWrite, u64::MAX));
        self.event(Event::Destage { volume: VolumeId(other as u16) });
        self.pass(40);
        self.stalled = Some((Zone::Flush, u64::MAX));
        self.pass(40);
        self.write_new(volume);
        self.pass(10);
        self.coverage.note("aimed: epochs of which half is in another volume's piece");
        self.flush_and_cut(volume);
    }

    /// The process dies over what no flush has covered. The next one answers a flush that has nothing to write.
    fn kill_and_flush(&mut self, volume: usize) {
        self.stalled = Some((Zone::Flush, u64::MAX));
        self.write_new(volume);
        self.pass(200);
        self.kill();
        self.serve_volume(volume);
        self.stalled = self.rng.random_bool(0.5).then_some((Zone::Journal, self.now + 200));
        self.pass(6);
        self.coverage.note("aimed: flushes soon after a kill");
        self.flush_and_cut(volume);
    }

    /// The process dies when the origin has all that was dirty and the intent log alone says so. The next one writes past
    /// the dirty layer before the journal can hear of it, and the power goes: what was dirty must not come back.
    fn kill_and_write_through(&mut self, volume: usize) {
        self.calm(volume);
        // An intent log counts when the start before it has read everything.
        for _ in 0..ANSWER_STEPS {
            if self.manager.as_ref().is_some_and(CacheManager::is_loaded) || self.violation.is_some() {
                break;
            }
            self.step_or_tick();
        }
        let Some(place) = self.write_new(volume) else { return };
        self.flush(volume);
        self.stalled = Some((Zone::Journal, u64::MAX));
        if self.violation.is_some() {
            return;
        }
        self.event(Event::Destage { volume: VolumeId(volume as u16) });
        self.settle();
        // The next session has other settings.
        self.volumes[volume].mode = Mode::WriteThrough;
        self.settings[volume] += 1;
        self.kill();
        self.serve_volume(volume);
        self.stalled = Some((Zone::Journal, u64::MAX));
        if self.violation.is_none() {
            self.write_at(place);
            self.settle();
        }
        self.coverage.note("aimed: writes past the dirty layer soon after a kill");
        self.flush_and_cut(volume);
    }

    /// A summary alone tells of zeros that a volume has flushed. Nothing else keeps its unit: the other extents in it
    /// are written anew, again and again, until the slot has been used for something else.
    fn use_a_chain_again(&mut self, other: usize, volume: usize) {
        if other == volume || self.write_new(volume).is_none() {
            return;
        }
        self.calm(other);
        self.calm(volume);
        let Some(place) = self.write_new(volume) else { return };
        if !self.become_clean_for(volume) || self.write_new(other).is_none() || !self.become_clean_for(other)
        {
            return;
        }
        let extent = self.geometry.extent_bytes as usize;
        let in_unit =
            (self.geometry.weu_bytes as usize / extent).min(self.volumes[other].size_bytes as usize / extent);
        self.write_at(Place { volume: other, offset: 0, len: extent });
        self.settle();
        self.write_values(place, core::iter::repeat(0));
        self.settle();
        self.flush(volume);
        self.stalled = Some((Zone::Journal, u64::MAX));
        for _ in 0..self.geometry.slots + 2 {
            if self.violation.is_some() {
                return;
            }
            self.write_at(Place { volume: other, offset: 0, len: in_unit * extent });
            self.settle();
        }
        self.coverage.note("aimed: units of summaries used again");
        self.cut();
    }

    /// Dirty data keeps most slots, and clean content passes through the few others so often that generations of one bit
    /// come round, while the index has entries that share what was there first.
    fn use_slots_again(&mut self, back: usize) {
        let through = self.in_mode(Mode::WriteThrough);
        let Some(clean) = through.first().copied() else { return };
        let extent = self.geometry.extent_bytes as usize;
        let unit = self.geometry.weu_bytes as usize / extent * extent;
        let (slots, room) = (self.geometry.slots as usize, self.volumes[clean].size_bytes as usize / unit);
        if room < 3 {
            return;
        }
        self.calm(back);
        self.volumes[clean].codec = Codec::Raw;
        self.reconfigured(clean);
        let contents = self.new_contents(unit / extent);
        for copy in 0..room / 2 {
            self.write_contents(Place { volume: clean, offset: copy * unit, len: unit }, contents);
            self.settle();
        }
        for round in 0..4 * slots {
            if self.violation.is_some() {
                return;
            }
            if round < slots / 2 {
                let contents = self.new_contents(unit / extent);
                self.write_extents(back, contents, unit / extent);
            } else {
                let offset = self.rng.random_range(room / 2..room) * unit;
                self.write_at(Place { volume: clean, offset, len: unit });
                self.settle();
                let offset = self.rng.random_range(0..room / 2 * unit / extent) * extent;
                self.read(Place { volume: clean, offset, len: extent });
            }
            self.tick_and_settle();
        }
        self.coverage.note("aimed: slots that come round");
    }

    /// The volume writes back. From here on its epochs end by flushes alone, it shares content, and it is answered at
    /// once.
    fn calm(&mut self, volume: usize) {
        let config = &mut self.volumes[volume];
        config.mode = Mode::WriteBack;
        config.dedup = true;
        config.write_back.ack = Ack::Volatile;
        config.write_back.max_dirty_age_ms = LONG_AGE_MS;
        self.reconfigured(volume);
    }

    /// All of a volume goes to its origin, soon. Whether it did.
    fn become_clean_for(&mut self, volume: usize) -> bool {
        self.event(Event::Destage { volume: VolumeId(volume as u16) });
        for _ in 0..CLEAN_STEPS {
            if self.violation.is_some() || self.dirty(volume).is_none() {
                break;
            }
            self.step_or_tick();
        }
        self.violation.is_none() && self.dirty(volume).is_none()
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

    /// Everything that does not hang ends, and no time passes.
    fn settle(&mut self) {
        for _ in 0..ANSWER_STEPS {
            if self.violation.is_some() || !self.can_step() {
                return;
            }
            self.step();
        }
    }

    fn tick_and_settle(&mut self) {
        if self.violation.is_none() {
            self.tick();
            self.settle();
        }
    }

    /// A client flushes, and is answered unless something holds that.
    fn flush(&mut self, volume: usize) {
        if self.violation.is_some() {
            return;
        }
        let req = self.next;
        self.submit(volume, 0, 0, RequestKind::Flush, ClientKind::Flush);
        for _ in 0..ANSWER_STEPS {
            if self.violation.is_some() || !self.clients.contains_key(&req) {
                return;
            }
            self.step_or_tick();
        }
    }

    /// A client flushes; when it is answered the power goes.
    fn flush_and_cut(&mut self, volume: usize) {
        self.flush(volume);
        self.cut();
    }

    fn cut(&mut self) {
        if self.violation.is_none() {
            self.stalled = None;
            self.power_cut();
        }
    }

    /// Contents for so many extents that nothing had before: the first of their numbers.
    fn new_contents(&mut self, extents: usize) -> u64 {
        let first = self.next_content + 1;
        self.next_content += (extents * self.geometry.extent_bytes as usize / SECTOR) as u64;
        first
    }

    fn read(&mut self, place: Place) {
        if self.violation.is_some() {
            return;
        }
        let Place { volume, offset, len } = place;
        self.next += 1;
        let buf = BufId(self.next);
        self.bufs.insert(buf, vec![0xaa; len]);
        self.submit(volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
    }

    /// Writes a few extents somewhere that nothing had before.
    fn write_new(&mut self, volume: usize) -> Option<Place> {
        let extents = self.rng.random_range(1..=4);
        let contents = self.new_contents(extents);
        self.write_extents(volume, contents, extents)
    }

    /// Writes new contents there.
    fn write_at(&mut self, place: Place) {
        let contents = self.new_contents(place.len / self.geometry.extent_bytes as usize);
        self.write_contents(place, contents);
    }

    /// Writes whole extents somewhere, with contents from this number on.
    fn write_extents(&mut self, volume: usize, contents: u64, extents: usize) -> Option<Place> {
        let extent = self.geometry.extent_bytes as usize;
        let room = self.volumes[volume].size_bytes as usize / extent;
        let extents = extents.min(room);
        if extents == 0 || self.violation.is_some() {
            return None;
        }
        let offset = self.rng.random_range(0..=room - extents) * extent;
        let place = Place { volume, offset, len: extents * extent };
        self.write_contents(place, contents);
        Some(place)
    }

    fn write_contents(&mut self, place: Place, contents: u64) {
        self.coverage.note(NEW_CONTENTS);
        self.write_values(place, contents..);
    }

    fn write_values(&mut self, place: Place, values: impl Iterator<Item = u64>) {
        let Place { volume, offset, len } = place;
        self.next += 1;
        let buf = BufId(self.next);
        let start = self.now + 1;
        let mut data = vec![0; len];
        for ((index, sector), id) in data.chunks_mut(SECTOR).enumerate().zip(values) {
            content::fill(id, sector);
            self.oracles[volume].issue(offset / SECTOR + index, id, start);
            self.judges[volume].issue(offset / SECTOR + index, id, start);
        }
        self.bufs.insert(buf, data);
        let kind = RequestKind::Write { buf, fua: false };
        self.submit(volume, offset, len, kind, ClientKind::Write { fua: false });
    }
}
