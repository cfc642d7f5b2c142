//! Behaviour of the cache device, as far as it excuses failures and losses.

/// Behaviour of the cache device, as far as it excuses a volume that writes back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// An operation failed in this session, or the manager was notified that the device is gone.
    pub(crate) session: bool,
    /// The device has damaged data.
    pub(crate) damaged: bool,
    /// Acknowledged data in the slots is missing or changed: the most recent commits may not count.
    pub(crate) lied_slots: bool,
    /// Acknowledged metadata is missing or changed. A restart locates everything by it.
    pub(crate) lied_metadata: bool,
    /// A dirty extent is corrupt, and has not been rewritten yet.
    pub(crate) rotten: bool,
    /// Another content is stored under a fingerprint. A start that compares it with the origin takes the origin for
    /// changed.
    pub(crate) forged: bool,
    /// A loss was accepted, or a fence lost with the state directory. Dirty records may be outdated, and another unit
    /// may have taken their slot.
    pub(crate) old_records: bool,
    /// This session's start, or an operator, decided about dirty data, and the decision may not be durable.
    pub(crate) undecided: bool,
    /// Time at which the cache failed in this session.
    pub(crate) failed_at: Option<u64>,
    /// Data that the cache device acknowledged before the final phase of the run may be missing or changed.
    pub(crate) lied_before: bool,
    /// A checkpoint lacked capacity for all mappings.
    pub(crate) left_out: bool,
    /// Time since which a distrust could not be recorded in this session.
    pub(crate) unrecorded_ms: Option<u64>,
}

impl Trouble {
    /// Records damage that is detected when it is read.
    pub(crate) fn damage(&mut self) {
        self.damaged = true;
    }

    /// Records damage of acknowledged data, which a restart may be unable to distinguish from data never written.
    pub(crate) fn lie(&mut self, in_slots: bool) {
        self.damaged = true;
        if in_slots {
            self.lied_slots = true;
        } else {
            self.lied_metadata = true;
        }
    }
}
