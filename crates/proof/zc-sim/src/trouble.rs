//! What the cache device did, as far as it excuses failures and losses.

/// What the cache device did, as far as it excuses a volume that writes back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// An operation failed in this session, or the manager was told that the device is gone.
    pub(crate) session: bool,
    /// Something on it is damaged.
    pub(crate) damaged: bool,
    /// What it acknowledged is not in the slots, or not as it was: commits of the last moment may not count.
    pub(crate) lied_slots: bool,
    /// Metadata that the device acknowledged is not there, or not as it was. A restart finds everything by it.
    pub(crate) lied_metadata: bool,
    /// A dirty extent has rotted, and is not written anew yet.
    pub(crate) rotten: bool,
    /// Another content lies under a fingerprint. A start that compares it with the origin takes the origin for changed.
    pub(crate) forged: bool,
    /// A loss was accepted, or a fence forgotten with the state directory. Dirty records may be of the past, and another
    /// unit may have taken their slot.
    pub(crate) old_records: bool,
    /// This session's start, or an operator, decided something about dirty data, which may not be durable.
    pub(crate) undecided: bool,
    /// When the cache got out of order in this session.
    pub(crate) failed_at: Option<u64>,
    /// What the cache device acknowledged before the run came to its end may not be there, or not as it was.
    pub(crate) lied_before: bool,
    /// A checkpoint had no room for all mappings.
    pub(crate) left_out: bool,
    /// Since when a distrust could not be recorded in this session.
    pub(crate) unrecorded_ms: Option<u64>,
}

impl Trouble {
    /// Damage that is noticed when it is read.
    pub(crate) fn damage(&mut self) {
        self.damaged = true;
    }

    /// Damage of what was acknowledged, that a restart may not be able to tell from what never was.
    pub(crate) fn lie(&mut self, in_slots: bool) {
        self.damaged = true;
        if in_slots {
            self.lied_slots = true;
        } else {
            self.lied_metadata = true;
        }
    }
}
