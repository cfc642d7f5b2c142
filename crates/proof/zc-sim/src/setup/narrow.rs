//! Ranges of each profile: narrows the draws to those of one kind of fault.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_cache::config::{Admission, DirtyConfig, Replacement};
use zc_core::{Ack, Destage, Mode, VolumeId};
use zc_format::{Geometry, PlanOptions};

use super::{Setup, reconfigure, reconfigure_write_back};
use crate::drawn::Faults;
use crate::profile::{Habits, Profile};
use crate::zone::Zone;

impl Setup {
    /// Narrows the draws. Drawn separately, so that plain seeds keep their schedules.
    pub(crate) fn profile(&mut self, profile: Profile, seed: u64) {
        self.profile = profile;
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5052_4f46);
        match profile {
            Profile::Plain => {}
            Profile::Shared => self.shared(&mut rng),
            Profile::Tiny => self.tiny(&mut rng),
            Profile::Restarts => self.restarts(&mut rng),
            Profile::Rotting => self.rotting(&mut rng),
            Profile::Aimed => self.aimed(&mut rng),
            Profile::Full => self.full(&mut rng),
        }
    }

    fn shared(&mut self, rng: &mut Pcg64Mcg) {
        self.volumes_in_write_back(rng, 2..=4);
        for volume in &mut self.volumes {
            volume.dedup = true;
            volume.write_back.ack = if rng.random_bool(0.5) { Ack::Durable } else { Ack::Volatile };
            volume.write_back.max_dirty_age_ms = rng.random_range(5..400);
        }
        if rng.random_bool(0.5) {
            // Its writes are clean, and the others share them before any flush.
            self.volumes[0].mode = Mode::WriteThrough;
        }
        self.honest(rng);
        self.faults.slow = true;
        self.config.fingerprint_index_entries = 300;
        self.habits = Habits {
            flushes: rng.random_range(30..=45),
            duplicates: [0.2, 0.4, 0.6][rng.random_range(0..3)],
            fua: 0.2,
            crash_after_flush: 0.05,
            hangs: Some([Zone::DirtyWrite, Zone::Flush, Zone::SlotWrite][rng.random_range(0..3)]),
            hot_bytes: Some(64 << 10),
            pool_turns: 300,
            aimed: 4,
            ..self.habits
        };
    }

    fn tiny(&mut self, rng: &mut Pcg64Mcg) {
        self.volumes_in_write_back(rng, 2..=3);
        self.volumes[0].mode = Mode::WriteThrough;
        self.volumes[0].dedup = true;
        self.honest(rng);
        // A sweep of the index lasts for a fourth of the slots, which is long if most slots are pinned by dirty data.
        let weu_bytes = 32 << 10;
        let slots = rng.random_range(4..=40_u64);
        self.config.geometry = Geometry::plan(&PlanOptions {
            device_bytes: (700 << 10) + slots * u64::from(weu_bytes),
            weu_bytes,
            extent_bytes: 4096,
            align_bytes: 0,
            journal_blocks: Some(rng.random_range(6..=10)),
        })
        .expect("a layout");
        self.config.generation_bits = rng.random_range(1..=2);
        self.config.replacement =
            if rng.random_bool(0.5) { Replacement::S3Fifo } else { self.config.replacement };
        self.config.file_index_entries = 1000;
        self.config.fingerprint_index_entries = 600;
        self.config.read_buffer_bytes = 0;
        self.config.dirty =
            DirtyConfig { high_percent: 90, low_percent: 88, idle_ms: 60_000, ..self.config.dirty };
        for volume in &mut self.volumes[1..] {
            volume.write_back.max_dirty_age_ms = 60_000;
            volume.codec = zc_core::Codec::Raw;
        }
        self.habits =
            Habits { flushes: 2, duplicates: 0.3, pool_turns: 200, ends: 0.3, aimed: 3, ..self.habits };
    }

    fn restarts(&mut self, rng: &mut Pcg64Mcg) {
        self.volumes_in_write_back(rng, 1..=3);
        self.honest(rng);
        self.hasty = true;
        self.faults.slow = true;
        self.habits = Habits {
            flushes: 15,
            crash_after_flush: 0.02,
            crash_after_start: 0.75,
            aimed: 4,
            hangs: Some(if rng.random_bool(0.7) { Zone::Journal } else { Zone::Flush }),
            hot_bytes: Some(64 << 10),
            ..self.habits
        };
    }

    fn rotting(&mut self, rng: &mut Pcg64Mcg) {
        self.volumes_in_write_back(rng, 1..=2);
        for volume in &mut self.volumes {
            // A corrupt extent belongs to one version alone.
            volume.dedup = false;
            volume.write_back.destage = Destage::Epoch;
            volume.write_back.max_dirty_age_ms = rng.random_range(50..2000);
        }
        self.honest(rng);
        self.faults.rot_dirty = true;
        // Another content is recognised by its fingerprint alone.
        self.config.prove_hits = 1;
        self.habits = Habits {
            flushes: rng.random_range(5..=25),
            duplicates: 0.0,
            crash_after_flush: 0.01,
            hot_bytes: Some(64 << 10),
            ..self.habits
        };
    }

    fn aimed(&mut self, rng: &mut Pcg64Mcg) {
        self.volumes_in_write_back(rng, 3..=3);
        if rng.random_bool(0.7) {
            self.volumes[0].mode = Mode::WriteThrough;
        }
        for volume in &mut self.volumes {
            volume.dedup = true;
            volume.admission = Admission::Always;
        }
        self.honest(rng);
        self.faults.slow = true;
        let weu_bytes = 32 << 10;
        self.config.geometry = Geometry::plan(&PlanOptions {
            device_bytes: (700 << 10) + rng.random_range(5..=10) * u64::from(weu_bytes),
            weu_bytes,
            extent_bytes: if rng.random_bool(0.5) { 4096 } else { 8192 },
            align_bytes: 0,
            journal_blocks: Some(10),
        })
        .expect("a layout");
        self.config.fingerprint_index_entries = 300;
        self.config.dirty = DirtyConfig { high_percent: 90, ..self.config.dirty };
        self.habits = Habits { flushes: 15, hot_bytes: Some(64 << 10), aimed: 12, ..self.habits };
    }

    fn full(&mut self, rng: &mut Pcg64Mcg) {
        self.volumes_in_write_back(rng, 1..=3);
        for volume in &mut self.volumes {
            volume.write_back.destage = Destage::Epoch;
            volume.write_back.max_dirty_age_ms = rng.random_range(5..400);
            volume.write_back.full_wait_ms = rng.random_range(0..500);
        }
        self.honest(rng);
        self.faults.origin_full = rng.random_range(0.3..0.9);
        let weu_bytes = 32 << 10;
        self.config.geometry = Geometry::plan(&PlanOptions {
            device_bytes: (700 << 10) + rng.random_range(5..=40) * u64::from(weu_bytes),
            weu_bytes,
            extent_bytes: if rng.random_bool(0.5) { 4096 } else { 8192 },
            align_bytes: 0,
            journal_blocks: Some(10),
        })
        .expect("a layout");
        self.config.dirty = DirtyConfig { high_percent: 50, low_percent: 10, ..self.config.dirty };
        self.habits = Habits { flushes: rng.random_range(5..=30), hot_bytes: Some(64 << 10), ..self.habits };
    }

    /// Puts all volumes in write-back, and draws their number.
    fn volumes_in_write_back(&mut self, rng: &mut Pcg64Mcg, count: core::ops::RangeInclusive<u16>) {
        let first = self.volumes[0].clone();
        let count = rng.random_range(count);
        self.volumes = (0..count)
            .map(|id| {
                let mut volume = first.clone();
                volume.id = VolumeId(id);
                volume.size_bytes = rng.random_range(16..=48_u64) * 8192;
                reconfigure(rng, &mut volume);
                reconfigure_write_back(rng, &mut volume);
                volume.mode = Mode::WriteBack;
                volume
            })
            .collect();
        self.write_back = true;
    }

    /// Makes the devices honest, but possibly slow.
    fn honest(&mut self, rng: &mut Pcg64Mcg) {
        self.faults = Faults { slow: rng.random_bool(0.5), ..Faults::default() };
    }
}
