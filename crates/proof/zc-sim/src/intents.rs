//! The intent log, and which session may believe it.

use zc_core::JournalSeq;
use zc_format::Record;

/// The intent log of a session. It outlives the process, and not the machine.
#[derive(Debug, Default, Clone)]
pub(crate) struct IntentLog {
    records: Vec<Record>,
    /// The newest journal block of the session that was written, as far as the manager was told.
    journal_written: JournalSeq,
    /// The newest journal block as of the last trim of the intent log: the log was trimmed up to there.
    journal_needed: JournalSeq,
    forgotten: u64,
    is_ready: bool,
    is_lost: bool,
    /// The session whose intents they are.
    owner: u64,
    boot: u8,
    /// The boot in which that session began.
    owner_boot: u8,
}

impl IntentLog {
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// So many records of the session are not needed any more.
    pub(crate) fn trim(&mut self, records: u64) {
        let count = usize::try_from(records - self.forgotten).expect("small");
        self.records.drain(..count);
        self.forgotten = records;
        self.journal_needed = self.journal_written;
    }

    /// A start may believe the log from here on.
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

    /// The machine starts anew.
    pub(crate) const fn reboot(&mut self) {
        self.boot = self.boot.wrapping_add(1);
    }

    /// The current boot.
    pub(crate) const fn boot(&self) -> u8 {
        self.boot
    }

    /// The session whose log a start may believe.
    pub(crate) fn session(&self) -> Option<u64> {
        self.is_ready.then_some(self.owner)
    }

    /// The journal block up to which the log was trimmed.
    pub(crate) const fn journal_needed(&self) -> JournalSeq {
        self.journal_needed
    }

    /// A journal block was written, as far as the manager is told.
    pub(crate) fn journal_written(&mut self, block: JournalSeq) {
        self.journal_written = self.journal_written.max(block);
    }

    /// A session begins a log of its own. Returns the records of the one before.
    pub(crate) fn begin(&mut self, owner: u64) -> Vec<Record> {
        let records = core::mem::take(&mut self.records);
        *self = Self { owner, boot: self.boot, owner_boot: self.boot, ..Self::default() };
        records
    }
}
