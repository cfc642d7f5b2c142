//! Faults that a seed draws: which ones a machine has, and their times.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

/// Turns for which an origin keeps having space, or none.
const FULL_SPAN: u64 = 512;

/// Faults that a seed may have. Rates are shares of operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Bit rot in the cache device, and slots rolled back to former contents.
    pub(crate) rot: bool,
    /// Dirty extents become corrupt and are rewritten, on devices that are otherwise honest.
    pub(crate) rot_dirty: bool,
    /// Pages of the cache device become unreadable or zero.
    pub(crate) latent: bool,
    pub(crate) read_errors: f64,
    /// Reads that return bytes of another place.
    pub(crate) misread: f64,
    /// WEU writes that fail, completely or in part.
    pub(crate) write_errors: f64,
    /// Metadata writes and flushes that fail.
    pub(crate) meta_errors: f64,
    /// Acknowledged writes that never reach the medium.
    pub(crate) lost: f64,
    /// Writes that land at another place.
    pub(crate) misdirected: f64,
    /// Old writes that are executed a second time.
    pub(crate) replayed: bool,
    /// Slow reads: see the operation queue.
    pub(crate) slow: bool,
    /// An older image replaces the device while no daemon serves it.
    pub(crate) rollback: bool,
    /// Period during which the device is dead.
    pub(crate) dead: Option<(u64, u64)>,
    /// State directory records that fail.
    pub(crate) record_errors: f64,
    /// Period during which the state directory rejects changes.
    pub(crate) state_gone: Option<(u64, u64)>,
    /// Time from which the separate journal device is dead. It is replaced before the next session.
    pub(crate) journal_gone: Option<u64>,
    /// Period during which state directory changes do not complete.
    pub(crate) state_hangs: Option<(u64, u64)>,
    /// Period during which cache device and state directory are both full.
    pub(crate) full: Option<(u64, u64)>,
    /// The state directory may be lost between two sessions.
    pub(crate) state_lost: bool,
    /// Errors of the origins, not of the cache device.
    pub(crate) origin_errors: bool,
    /// Period during which all operations of all origins fail.
    pub(crate) origins_gone: Option<(u64, u64)>,
    /// Share of 512-turn spans in which the first volume's origin has no space.
    pub(crate) origin_full: f64,
    /// Span in which a discard made space on that origin.
    pub(crate) freed_in: Option<u64>,
}

impl Faults {
    /// Returns `true` if acknowledged data on the cache device may be missing or changed.
    pub(crate) fn may_lie(&self) -> bool {
        let is_lying = self.lost > 0.0 || self.misdirected > 0.0;
        is_lying || self.rot || self.rot_dirty || self.latent || self.replayed || self.rollback
    }

    /// Returns `true` if the cache device does not answer at `now`.
    pub(crate) fn is_dead(&self, now: u64) -> bool {
        self.dead.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// Returns `true` if the separate journal device is dead.
    pub(crate) fn is_journal_gone(&self, now: u64) -> bool {
        self.journal_gone.is_some_and(|from| now >= from)
    }

    /// Returns `true` if cache device and state directory share a file system that is full.
    pub(crate) fn is_full(&self, now: u64) -> bool {
        self.full.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// Returns `true` if the state directory rejects changes at `now`.
    pub(crate) fn is_state_failing(&self, now: u64) -> bool {
        self.is_full(now) || self.state_gone.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// Returns `true` if requests to the state directory hang at `now`.
    pub(crate) fn is_state_hanging(&self, now: u64) -> bool {
        self.state_hangs.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// Repairs the state directory.
    pub(crate) const fn mend_state(&mut self) {
        self.state_gone = None;
        self.full = None;
    }

    pub(crate) fn are_origins_gone(&self, now: u64) -> bool {
        self.origins_gone.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// Returns `true` if the origin of a volume has no space.
    pub(crate) fn is_origin_full(&self, volume: usize, seed: u64, now: u64) -> bool {
        let span = now / FULL_SPAN;
        let draw =
            (seed ^ span.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
        let is_full = (draw as f64) < self.origin_full * f64::from(1 << 24);
        volume == 0 && is_full && self.freed_in != Some(span)
    }

    /// Records that a discard made space on the full origin.
    pub(crate) const fn free_origin(&mut self, now: u64) {
        self.freed_in = Some(now / FULL_SPAN);
    }

    pub(crate) fn random(rng: &mut Pcg64Mcg) -> Self {
        if rng.random_bool(0.4) {
            return Self { slow: rng.random_bool(0.3), ..Self::default() };
        }
        let mut rate = |chance: f64, rate: f64| if rng.random_bool(chance) { rate } else { 0.0 };
        Self {
            read_errors: rate(0.2, 0.05),
            misread: rate(0.2, 0.02),
            write_errors: rate(0.2, 0.02),
            meta_errors: rate(0.15, 0.003),
            record_errors: rate(0.5, 0.8),
            lost: rate(0.25, 0.03),
            misdirected: rate(0.25, 0.02),
            rot: rng.random_bool(0.4),
            rot_dirty: false,
            latent: rng.random_bool(0.2),
            replayed: rng.random_bool(0.2),
            slow: rng.random_bool(0.3),
            rollback: rng.random_bool(0.2),
            dead: rng.random_bool(0.2).then(|| dead(rng)),
            origin_errors: rng.random_bool(0.15),
            origins_gone: None,
            origin_full: 0.0,
            freed_in: None,
            state_gone: None,
            state_hangs: None,
            journal_gone: None,
            full: None,
            state_lost: false,
        }
    }
}

/// Draws a period of failure: temporary, or until the machine restarts.
fn dead(rng: &mut Pcg64Mcg) -> (u64, u64) {
    let from = rng.random_range(500..6000);
    (from, if rng.random_bool(0.5) { u64::MAX } else { from + rng.random_range(5..400) })
}
