//! Setup that a seed decides before the first operation.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_cache::config::{
    Admission, DirtyConfig, ManagerConfig, OnLoss, Packer, Replacement, VolumeConfig, WriteBackConfig,
};
use zc_cache::origin_deadlines::Patience;
use zc_core::{Ack, Codec, DedupDomain, Destage, FingerprintKind, Mode, VolumeId};
use zc_format::{Geometry, PlanOptions};

use crate::drawn::Faults;
use crate::judges::{pins, shares};
use crate::plan::Plan;
use crate::pooled::PoolSetup;
use crate::profile::{Habits, Profile};
use crate::zone::Zone;

mod narrow;

/// Configuration of a run.
pub(crate) struct Setup {
    pub(crate) config: ManagerConfig,
    pub(crate) volumes: Vec<VolumeConfig>,
    pub(crate) faults: Faults,
    /// Volumes may write back.
    pub(crate) write_back: bool,
    /// Some starts are followed by a crash while they still act on the state that they found.
    pub(crate) hasty: bool,
    /// Occasionally only one client is active and syncs after each write: such commits are one write.
    pub(crate) syncing: bool,
    /// Volumes grow occasionally.
    pub(crate) growing: bool,
    /// Volumes are occasionally re-added in another dedup domain.
    pub(crate) moving: bool,
    /// Occasionally a volume is removed and another one gets its number.
    pub(crate) replacing: bool,
    /// Occasionally another manager takes over in the same process.
    pub(crate) exchanging: bool,
    /// Volumes have shares of the cache, which change.
    pub(crate) sharing: bool,
    /// Ranges of volumes are pinned; the pins change later.
    pub(crate) pinning: bool,
    /// Time limits of operations of origins.
    pub(crate) patience: Patience,
    /// Store of some of the volumes.
    pub(crate) pool: Option<PoolSetup>,
    /// Kind of machine.
    pub(crate) profile: Profile,
    /// Habits of clients, and chances of crashes.
    pub(crate) habits: Habits,
}

impl Setup {
    /// Returns the run's properties other than faults and settings.
    pub(crate) const fn plan(&self) -> Plan {
        Plan {
            habits: self.habits,
            write_back: self.write_back,
            syncing: self.syncing,
            growing: self.growing,
            moving: self.moving,
            replacing: self.replacing,
            sharing: self.sharing,
            pinning: self.pinning,
        }
    }

    pub(crate) fn random(seed: u64, rng: &mut Pcg64Mcg, profile: Option<Profile>) -> Self {
        let geometry = geometry(rng);
        let kind = if rng.random_bool(0.25) { FingerprintKind::Sha1 } else { FingerprintKind::Blake3 };
        let config = config(rng, geometry, kind);
        let volumes = volumes(rng);
        let mut setup = Self {
            config,
            volumes,
            faults: Faults::random(rng),
            write_back: false,
            hasty: false,
            syncing: false,
            growing: matches!(seed % 8, 1 | 6),
            moving: false,
            replacing: seed % 4 == 1,
            exchanging: Pcg64Mcg::seed_from_u64(seed ^ 0x4558).random_bool(0.4),
            sharing: false,
            pinning: false,
            patience: Patience::default(),
            pool: None,
            profile: Profile::Plain,
            habits: Habits::default(),
        };
        // Not drawn, so that the other seeds, and those that found faults, keep their schedules.
        setup.syncing = matches!(seed % 16, 4 | 10);
        setup.shares(seed);
        setup.pins(seed);
        if matches!(seed % 32, 4 | 26) {
            setup.learn();
        }
        if seed % 8 == 3 {
            // Checkpoints too small for all their contents.
            setup.config.geometry.checkpoint_blocks = 2 + seed / 8 % 2;
        }
        setup.write_back(seed);
        setup.state_directory(seed);
        setup.journal_device(seed);
        setup.replacement(seed);
        setup.packer(seed);
        setup.profile(profile.unwrap_or_else(|| Profile::of(seed)), seed);
        setup.domains(seed);
        setup.pool = PoolSetup::random(seed, &setup.volumes, setup.config.geometry.extent_bytes);
        setup.patience(seed);
        setup.hasty = Pcg64Mcg::seed_from_u64(seed ^ 0x4853).random_bool(0.5);
        setup
    }

    /// Creates the small machine of the exhaustive mode: one volume or two, no faults except crashes.
    pub(crate) fn small(write_back: bool, count: u16) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(u64::from(write_back));
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes: (640 << 10) + 8 * (32 << 10),
            weu_bytes: 32 << 10,
            extent_bytes: 4096,
            align_bytes: 0,
            journal_blocks: Some(6),
        })
        .expect("a layout");
        let mut config = config(&mut rng, geometry, FingerprintKind::Blake3);
        config.dirty = DirtyConfig {
            high_percent: 60,
            low_percent: 30,
            memory_bytes: 32 << 10,
            idle_ms: 500,
            destage_writes: 4,
            destage_bytes_per_s: 0,
            scrub_interval_ms: 0,
        };
        let mut first = volumes(&mut rng).remove(0);
        first = VolumeConfig {
            size_bytes: (128 << 10) / u64::from(count),
            mode: if write_back { Mode::WriteBack } else { Mode::WriteThrough },
            admission: Admission::Always,
            dedup: true,
            codec: Codec::Lz4,
            recipes: false,
            write_back: WriteBackConfig { max_dirty_age_ms: 2000, ..WriteBackConfig::default() },
            ..first
        };
        let volumes = (0..count).map(|id| VolumeConfig { id: VolumeId(id), ..first.clone() }).collect();
        Self {
            config,
            volumes,
            faults: Faults::default(),
            write_back,
            hasty: false,
            syncing: false,
            growing: false,
            moving: false,
            replacing: false,
            exchanging: false,
            sharing: false,
            pinning: false,
            patience: Patience::default(),
            pool: None,
            profile: Profile::Plain,
            habits: Habits::default(),
        }
    }

    /// In a quarter of the seeds operations of origins fail when they last too long, and origins are slow at times.
    fn patience(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x4c41);
        if rng.random_bool(0.25) {
            let fail_ms = rng.random_range(60..400);
            self.patience = Patience { late_ms: Some(fail_ms / 2), fail_ms: Some(fail_ms) };
            self.faults.slow = true;
            if self.habits.hangs.is_none() && rng.random_bool(0.5) {
                self.habits.hangs =
                    Some(if rng.random_bool(0.3) { Zone::OriginRead } else { Zone::OriginWrite });
            }
        }
    }
}

fn geometry(rng: &mut Pcg64Mcg) -> Geometry {
    let extent_bytes = if rng.random_bool(0.7) { 4096 } else { 8192 };
    let weu_bytes = if rng.random_bool(0.5) { 32 << 10 } else { 64 << 10 };
    let slots = rng.random_range(4..=14_u64);
    Geometry::plan(&PlanOptions {
        device_bytes: (700 << 10) + slots * u64::from(weu_bytes),
        weu_bytes,
        extent_bytes,
        align_bytes: 0,
        journal_blocks: Some(rng.random_range(4..=10)),
    })
    .expect("a layout")
}

fn config(rng: &mut Pcg64Mcg, geometry: Geometry, kind: FingerprintKind) -> ManagerConfig {
    ManagerConfig {
        file_index_entries: rng.random_range(40..400),
        fingerprint_index_entries: if rng.random_bool(0.1) { 0 } else { rng.random_range(20..300) },
        generation_bits: rng.random_range(2..=3),
        read_buffer_bytes: if rng.random_bool(0.5) { 64 << 10 } else { 0 },
        staging_bytes: rng.random_range(8_u32..40) << 12,
        // No separate draw, so that seeds keep their schedules.
        range_extents_min: if geometry.slots.is_multiple_of(2) { 2 } else { 513 },
        drain_extents_min: if geometry.slots.is_multiple_of(3) { 2 } else { 8192 },
        insert_bytes_max: 512 << 10,
        weu_max_age_ms: 200,
        device_deadline_ms: if rng.random_bool(0.3) { rng.random_range(100..2_000) } else { 0 },
        slow_read_ms: if rng.random_bool(0.4) { rng.random_range(100..600) } else { 0 },
        journal_delay_ms: 30,
        prefetch_threshold_bytes: 16 << 10,
        prefetch_max_bytes: if rng.random_bool(0.5) { 32 << 10 } else { 0 },
        regions_active_max: rng.random_range(4..=12),
        discard: rng.random_bool(0.3),
        prove_hits: 3,
        ..ManagerConfig::new(geometry, kind, 0)
    }
}

fn volumes(rng: &mut Pcg64Mcg) -> Vec<VolumeConfig> {
    let mut volumes = Vec::new();
    for id in 0..rng.random_range(1..=3_u16) {
        let size_bytes = rng.random_range(32..=96_u64) * 8192 + rng.random_range(0..3) * 512;
        let mut volume = VolumeConfig::new(VolumeId(id), size_bytes, 16 << 10);
        volume.recipes = rng.random_bool(0.3);
        reconfigure(rng, &mut volume);
        if rng.random_bool(0.7) {
            volume.mode = Mode::WriteThrough;
        }
        volumes.push(volume);
    }
    volumes
}

/// Draws new values for the settings of a volume that may change while it is served.
pub(crate) fn reconfigure(rng: &mut Pcg64Mcg, volume: &mut VolumeConfig) {
    volume.mode = match rng.random_range(0..10) {
        0..6 => Mode::WriteThrough,
        6..8 => Mode::WriteAround,
        8 => Mode::PassThrough,
        _ => Mode::ReadOnly,
    };
    volume.admission = match rng.random_range(0..20) {
        0..16 => Admission::Always,
        16 => Admission::Auto,
        17..19 => Admission::SecondTouch,
        _ => Admission::Never,
    };
    volume.dedup = rng.random_bool(0.85);
    volume.codec = [Codec::Lz4, Codec::Raw, Codec::Zstd(1), Codec::Zlib(1)][rng.random_range(0..4)];
    volume.index_share_percent = if rng.random_bool(0.8) { 100 } else { 50 };
    // Runs of one client that syncs are longer.
    volume.sequential_cutoff_bytes = if volume.index_share_percent == 50 { 32 << 10 } else { 0 };
}

impl Setup {
    /// Keeps fingerprints of evicted extents for a few runs, so that headers often have to be read to locate them.
    fn learn(&mut self) {
        self.config.learned_recipes_bytes = 32 << 10;
        self.config.header_prints_max = 32;
        self.volumes.iter_mut().for_each(|volume| volume.recipes = false);
    }

    /// Gives volumes shares of a sufficiently large cache in a quarter of the seeds. Drawn separately.
    fn shares(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5348);
        if !rng.random_bool(0.25) {
            return;
        }
        let Geometry { weu_bytes, extent_bytes, journal_blocks, .. } = self.config.geometry;
        self.config.geometry = Geometry::plan(&PlanOptions {
            device_bytes: (700 << 10) + rng.random_range(12..=28) * u64::from(weu_bytes),
            weu_bytes,
            extent_bytes,
            align_bytes: 0,
            journal_blocks: Some(journal_blocks),
        })
        .expect("a layout");
        for volume in &mut self.volumes {
            volume.share = shares::draw(&mut rng, &self.config.geometry);
        }
        self.sharing = true;
    }

    /// Pins ranges of volumes in a sufficiently large cache in a fifth of the seeds. Drawn separately.
    fn pins(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5049);
        if !rng.random_bool(0.2) {
            return;
        }
        let Geometry { weu_bytes, extent_bytes, journal_blocks, .. } = self.config.geometry;
        self.config.geometry = Geometry::plan(&PlanOptions {
            device_bytes: (700 << 10) + rng.random_range(20..=40) * u64::from(weu_bytes),
            weu_bytes,
            extent_bytes,
            align_bytes: 0,
            journal_blocks: Some(journal_blocks),
        })
        .expect("a layout");
        if rng.random_bool(0.8) {
            self.config.file_index_entries = rng.random_range(150..600);
        }
        for volume in &mut self.volumes {
            volume.pins = pins::draw(&mut rng, volume.size_bytes);
        }
        self.pinning = true;
    }

    /// Lets volumes share content inside two domains, and change between them, in a third of the seeds. Drawn
    /// separately.
    fn domains(&mut self, seed: u64) {
        if seed % 3 != 2 {
            return;
        }
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x444f);
        for volume in &mut self.volumes {
            volume.domain = domain(&mut rng);
        }
        self.moving = true;
    }

    /// Puts the journal on a separate device in an eighth of the seeds. Drawn separately.
    fn journal_device(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x4a44);
        if !rng.random_bool(0.125) {
            return;
        }
        let geometry = &self.config.geometry;
        let options = PlanOptions {
            device_bytes: geometry.device_bytes,
            weu_bytes: geometry.weu_bytes,
            extent_bytes: geometry.extent_bytes,
            align_bytes: 0,
            journal_blocks: None,
        };
        self.config.geometry = Geometry::plan_with_journal_device(&options, 80 << 12).expect("a layout");
        self.faults.journal_gone = rng.random_bool(0.4).then(|| rng.random_range(200..5000));
    }

    /// Draws faults of the state directory, separately. It alone reveals a device that lost its superblock.
    fn state_directory(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5354);
        let mut window = |rate: f64| {
            let from = rng.random_range(200..4000);
            rng.random_bool(rate).then(|| (from, from + rng.random_range(50..3000)))
        };
        self.faults.state_gone = window(0.15);
        self.faults.state_hangs = window(0.15);
        self.faults.full = window(0.1);
        self.faults.state_lost = rng.random_bool(0.2) && self.faults.lost == 0.0;
    }

    /// Draws the replacement policy, also separately.
    fn replacement(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5250);
        self.config.replacement = match rng.random_range(0..10) {
            0..2 => Replacement::Lru,
            2..4 => Replacement::CostBenefit,
            4..6 => Replacement::FifoReinsert,
            6..8 => Replacement::S3Fifo,
            _ => Replacement::SharedLru,
        };
    }

    /// Draws the packer, also separately: three seeds in four append.
    fn packer(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x504b);
        self.config.packer = match rng.random_range(0..8) {
            0..6 => Packer::Append,
            6 => Packer::FirstFit,
            _ => Packer::BestFit,
        };
    }

    /// Lets half of the seeds write back, and those that sync. Drawn separately, so that the others keep their
    /// schedules. Seeds that write back are honest more often, because a lying device weakens the checks.
    fn write_back(&mut self, seed: u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5742);
        self.write_back = rng.random_bool(0.5) || self.syncing;
        if !self.write_back {
            return;
        }
        let high_percent = rng.random_range(5..=90);
        self.config.dirty = DirtyConfig {
            high_percent,
            low_percent: rng.random_range(0..=high_percent),
            memory_bytes: 1 << rng.random_range(12..=20),
            idle_ms: rng.random_range(1..=2000),
            destage_writes: rng.random_range(1..=16),
            // Not drawn, so that the other seeds keep their schedules.
            destage_bytes_per_s: if seed % 8 == 6 { 256 << 10 } else { 0 },
            scrub_interval_ms: if seed % 3 == 1 { 700 } else { 0 },
        };
        for volume in &mut self.volumes {
            reconfigure_write_back(&mut rng, volume);
            if rng.random_bool(0.6) {
                volume.mode = Mode::WriteBack;
            }
        }
        let faults = &mut self.faults;
        if rng.random_bool(0.5) {
            *faults = Faults {
                lost: 0.0,
                misdirected: 0.0,
                rot: false,
                latent: false,
                replayed: false,
                rollback: false,
                ..*faults
            };
        }
        if rng.random_bool(0.1) {
            let from = rng.random_range(500..6000);
            faults.origins_gone = Some((from, from + rng.random_range(50..4000)));
            faults.origin_errors = true;
        }
    }
}

/// Draws one of two domains.
pub(crate) fn domain(rng: &mut Pcg64Mcg) -> DedupDomain {
    if rng.random_bool(0.5) { DedupDomain::COMMON } else { zc_reduce::dedup_domain(&[1; 16], "tenant") }
}

/// Draws new settings of a volume in a seed that writes back: most volumes in write-through switch to write-back.
pub(crate) fn reconfigure_write_back(rng: &mut Pcg64Mcg, volume: &mut VolumeConfig) {
    if volume.mode == Mode::WriteThrough && rng.random_bool(0.7) {
        volume.mode = Mode::WriteBack;
    }
    volume.write_back = WriteBackConfig {
        ack: if rng.random_bool(0.7) { Ack::Volatile } else { Ack::Durable },
        max_dirty_age_ms: if rng.random_bool(0.3) {
            rng.random_range(1..200)
        } else {
            rng.random_range(200..5000)
        },
        destage: if rng.random_bool(0.8) { Destage::Epoch } else { Destage::Coalesce },
        on_loss: if rng.random_bool(0.5) { OnLoss::Error } else { OnLoss::ReadOnly },
        full_wait_ms: volume.write_back.full_wait_ms,
        destages_idly: true,
    };
    // Not drawn, so that other seeds keep their schedules.
    volume.write_back.destages_idly = !volume.write_back.max_dirty_age_ms.is_multiple_of(4);
}
