//! Intent log, and the sessions that may trust it.

use zc_core::JournalSeq;
use zc_format::Record;

/// Intent log of a session. It survives the process, but not a restart of the machine.
#[derive(Debug, Default, Clone)]
pub(crate) struct IntentLog {
    records: Vec<Record>,
    /// Newest journal block of the session reported to the manager as written.
    journal_written: JournalSeq,
    /// Newest journal block as of the last trim of the intent log, which discarded records up to it.
    journal_needed: JournalSeq,
    forgotten: u64,
    is_ready: bool,
    is_lost: bool,
    /// Session that the intents belong to.
    owner: u64,
    boot: u8,
    /// Boot in which that session began.
    owner_boot: u8,
}

impl IntentLog {
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Discards the session's first `records` records, which are no longer needed.
    pub(crate) fn trim(&mut self, records: u64) {
        let count = usize::try_from(records - self.forgotten).expect("small");
        self.records.drain(..count);
        self.forgotten = records;
        self.journal_needed = self.journal_written;
    }

    /// Marks the log as trusted by later starts.
    pub(crate) const fn ready(&mut self) {
        self.is_ready = !self.is_lost;
    }

    pub(crate) const fn lose(&mut self) {
        self.is_lost = true;
        self.is_ready = false;
    }

    /// Returns `true` if the next start has the log.
    pub(crate) const fn is_there(&self) -> bool {
        self.is_ready && self.boot == self.owner_boot
    }

    pub(crate) const fn reboot(&mut self) {
        self.boot = self.boot.wrapping_add(1);
    }

    pub(crate) const fn boot(&self) -> u8 {
        self.boot
    }

    /// Returns the session whose log a start may trust.
    pub(crate) fn session(&self) -> Option<u64> {
        self.is_ready.then_some(self.owner)
    }

    /// Returns the journal block up to which the log was trimmed.
    pub(crate) const fn journal_needed(&self) -> JournalSeq {
        self.journal_needed
    }

    /// Records a journal block reported to the manager as written.
    pub(crate) fn journal_written(&mut self, block: JournalSeq) {
        self.journal_written = self.journal_written.max(block);
    }

    /// Begins the log of a new session. Returns the records of the previous one.
    pub(crate) fn begin(&mut self, owner: u64) -> Vec<Record> {
        let records = core::mem::take(&mut self.records);
        *self = Self { owner, boot: self.boot, owner_boot: self.boot, ..Self::default() };
        records
    }
}
