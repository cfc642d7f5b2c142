//! The intent log: records that the journal does not have yet, in a plain file that outlives the process but need not
//! outlive the machine (see [`zc_cache::seam::Action::Intent`]).
//!
//! Layout: a header of 64 bytes (magic, cache, boot, session, validity, records to skip, journal block), then records
//! as in the journal, oldest first. Written without a flush: after a power cut the boot identity differs and the file
//! is ignored.
//!
//! Invariants: a valid file holds, after the skipped records, exactly the records that are not in a journal block up
//! to the one in its header. A restart records everything it reads here again: with records that the journal has, a
//! second crash during that would leave an older state on top of a newer one. So the header follows the journal before
//! the next block of it is submitted. A failed write removes the mark, or the file; if neither is possible, the cache
//! device records that the log is invalid. It does not stop the daemon, unless that fails too. Where a write may hang,
//! a thread makes it, and a time-out is a failure that cannot be undone: the file is then invalid in any state, and
//! this session writes it no more.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zc_config::SmallFile;
use zc_core::{JournalSeq, u64_from_usize, usize_from_u32};
use zc_format::{Features, RECORD_BYTES, Record, Superblock};

use crate::error::EngineError;
use crate::limits::{INTENT_BYTES_MAX, INTENT_WAIT_MS};
use crate::state::keeper::{Keeper, NoAnswer, Written};
use crate::state::private::create_anew;

const MAGIC: [u8; 8] = *b"zcintnt2";
const HEADER_BYTES: usize = 64;
const HEADER: u64 = HEADER_BYTES as u64;
const RECORD: u64 = RECORD_BYTES as u64;
/// A file larger than this was not written by us: the log is cut long before.
const READ_BYTES_MAX: u64 = 1 << 30;

/// Owner of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntentOwner {
    /// Identity of the cache.
    pub uuid: [u8; 16],
    /// Boot of the machine.
    pub boot_id: [u8; 16],
    /// Session on the cache.
    pub session: u64,
}

/// The log of this session.
#[derive(Debug)]
pub struct IntentLog {
    path: PathBuf,
    /// `None` after a failure.
    file: Option<Keeper<LogFile>>,
    /// Records of this turn.
    fresh: Vec<u8>,
    trimmed: u64,
    /// A journal block that had been written when the log was last trimmed: records up to it are removed.
    trimmed_journal: JournalSeq,
    valid: bool,
    /// The header is to be written.
    mark: bool,
    /// `true` if the log failed and could not be removed: a start would trust it.
    stuck: bool,
    /// Reason for a missing log.
    fault: Option<String>,
}

/// The file, for its writer.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    owner: IntentOwner,
    file: File,
    end: u64,
    first: u64,
}

#[derive(Debug)]
struct Turn {
    fresh: Vec<u8>,
    mark: bool,
    valid: bool,
    trimmed: u64,
    trimmed_journal: JournalSeq,
}

/// The header of a file whose first `skip` records are in the journal up to that block; `None`: not valid.
fn header(owner: &IntentOwner, valid: Option<(u32, JournalSeq)>) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..24].copy_from_slice(&owner.uuid);
    header[24..40].copy_from_slice(&owner.boot_id);
    header[40..48].copy_from_slice(&owner.session.to_le_bytes());
    if let Some((skip, journal)) = valid {
        header[48] = 1;
        header[52..56].copy_from_slice(&skip.to_le_bytes());
        header[56..64].copy_from_slice(&journal.0.to_le_bytes());
    }
    header
}

/// Returns the previous session's log, as far as a start may trust it: see `read`.
pub fn read_of(path: &Path, before: &Superblock, boot_id: [u8; 16]) -> Option<(JournalSeq, Vec<Record>)> {
    let is_void = before.clean || before.features.compat & Features::INTENTS_VOID != 0;
    let owner = IntentOwner { uuid: before.uuid, boot_id, session: before.session };
    if is_void { None } else { read(path, &owner) }
}

/// The journal block that a valid log of that session relies upon, and its records; or `None`.
fn read(path: &Path, owner: &IntentOwner) -> Option<(JournalSeq, Vec<Record>)> {
    let bytes = SmallFile::read(path, READ_BYTES_MAX).ok()?.bytes;
    let (found, records) = bytes.split_at_checked(HEADER_BYTES)?;
    let journal = JournalSeq(u64::from_le_bytes(*found.last_chunk()?));
    let skip = u32::from_le_bytes(*found.get(52..)?.first_chunk()?);
    if found != header(owner, Some((skip, journal))) {
        return None;
    }
    let records = records.get(usize_from_u32(skip).checked_mul(RECORD_BYTES)?..)?;
    // A record cut off by the kill was never acted upon.
    let records: Option<_> =
        records.chunks_exact(RECORD_BYTES).map(|bytes| Record::decode(bytes).ok()).collect();
    Some((journal, records?))
}

impl LogFile {
    /// Creates the file and removes an earlier one. It is a new inode: pending writes of an earlier session to its own
    /// file, which hang, do not reach it.
    fn create(path: &Path, owner: IntentOwner) -> io::Result<Self> {
        let file = create_anew(path)?;
        file.write_all_at(&header(&owner, None), 0)?;
        Ok(Self { path: path.to_owned(), owner, file, end: HEADER, first: 0 })
    }

    fn carry_out(&mut self, turn: &Turn) -> Written {
        match self.write(turn) {
            Ok(()) => Written::Whole,
            Err(error) => self.withdraw(error),
        }
    }

    fn write(&mut self, turn: &Turn) -> io::Result<()> {
        if !turn.fresh.is_empty() {
            self.file.write_all_at(&turn.fresh, self.end)?;
            self.end += u64_from_usize(turn.fresh.len());
        }
        let dead = turn.trimmed.saturating_sub(self.first);
        if turn.mark {
            let skip = u32::try_from(dead).map_err(io::Error::other)?;
            self.file.write_all_at(&header(&self.owner, Some((skip, turn.trimmed_journal))), 0)?;
        }
        if self.end > INTENT_BYTES_MAX && dead * RECORD > self.end / 2 {
            self.compact(turn)?;
        }
        Ok(())
    }

    /// Replaces the file by one without the trimmed records. Renaming is atomic for a process that is killed.
    fn compact(&mut self, turn: &Turn) -> io::Result<()> {
        let dead = (turn.trimmed - self.first) * RECORD;
        let mut kept = vec![0; zc_core::usize_from_u64(self.end - HEADER - dead)];
        self.file.read_exact_at(&mut kept, HEADER + dead)?;
        let beside = self.path.with_extension("intent-new");
        let new = create_anew(&beside)?;
        new.write_all_at(&kept, HEADER)?;
        new.write_all_at(&header(&self.owner, turn.valid.then_some((0, turn.trimmed_journal))), 0)?;
        std::fs::rename(&beside, &self.path)?;
        self.file = new;
        self.first = turn.trimmed;
        self.end = HEADER + u64_from_usize(kept.len());
        Ok(())
    }

    /// Without a valid log a restart distrusts more: a slower warm-up, never wrong data.
    fn withdraw(&self, why: io::Error) -> Written {
        if self.file.write_all_at(&header(&self.owner, None), 0).is_err()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            // Neither marked nor removed.
            tracing::error!("cannot remove the intent log {}: {error}", self.path.display());
            return Written::Stuck(why);
        }
        Written::Withdrawn(why)
    }
}

impl IntentLog {
    /// Starts the log of a session and removes an earlier one. `may_hang`: operations on a file there may block
    /// forever.
    pub fn create(path: &Path, may_hang: bool, owner: IntentOwner) -> Result<Self, EngineError> {
        let mut log = Self::none(path);
        match LogFile::create(path, owner) {
            Ok(file) if may_hang => log.file = Some(Keeper::on_thread(file, INTENT_WAIT_MS)?),
            Ok(file) => log.file = Some(Keeper::own(file)),
            Err(error) => log.fails(&format!("cannot be made: {error}")),
        }
        Ok(log)
    }

    /// There is no log: the next start needs none.
    pub fn none(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            fresh: Vec::new(),
            trimmed: 0,
            trimmed_journal: JournalSeq(0),
            valid: false,
            mark: false,
            stuck: false,
            fault: None,
        }
    }

    pub(crate) fn append(&mut self, record: Record) {
        if self.file.is_some() {
            self.fresh.extend_from_slice(&record.encode());
        }
    }

    /// The first `records` records of the session are in journal blocks up to `journal`.
    pub(crate) fn trim(&mut self, records: u64, journal: JournalSeq) {
        self.trimmed = self.trimmed.max(records);
        self.trimmed_journal = journal;
        self.mark |= self.valid;
    }

    /// Marks the log as valid once the appended records are in the file.
    pub(crate) fn make_valid(&mut self) {
        self.valid = true;
        self.mark = true;
    }

    /// Writes the turn's records. Waits for [`INTENT_WAIT_MS`] at most.
    pub(crate) fn write_out(&mut self) {
        if self.fresh.is_empty() && !self.mark {
            return;
        }
        let Some(file) = &mut self.file else { return };
        let turn = Turn {
            fresh: std::mem::take(&mut self.fresh),
            mark: std::mem::take(&mut self.mark),
            valid: self.valid,
            trimmed: self.trimmed,
            trimmed_journal: self.trimmed_journal,
        };
        let ended = file.change(move |file| {
            let written = file.carry_out(&turn);
            (turn.fresh, written)
        });
        match ended {
            Ok((mut fresh, Written::Whole)) => {
                fresh.clear();
                self.fresh = fresh;
            }
            Ok((_, Written::Withdrawn(error))) => self.fails(&format!("failed: {error}")),
            Ok((_, Written::Stuck(error))) => {
                self.stuck = true;
                self.fails(&format!("failed: {error}"));
            }
            Err(NoAnswer) => {
                self.stuck = true;
                self.fails("does not answer");
            }
        }
    }

    fn fails(&mut self, how: &str) {
        let fault = format!("the intent log {} {how}", self.path.display());
        tracing::warn!("{fault}; a killed daemon restarts as after a power cut");
        self.fault = Some(fault);
        (self.file, self.fresh) = (None, Vec::new());
    }

    /// Returns the reason for a missing log, if one was configured.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns `true` if a start would trust a log that lacks this turn's actions. The cache device must record that
    /// it is invalid ([`zc_format::Features::INTENTS_VOID`]) before any operation of the turn is submitted.
    pub(crate) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Records that the cache device has marked it.
    pub(crate) const fn is_void(&mut self) {
        self.stuck = false;
    }

    /// Removes the log after a clean stop, which the cache device records: a file that cannot be removed is not
    /// trusted.
    pub(crate) fn remove(mut self) {
        if let Some(mut file) = self.file.take() {
            let path = self.path;
            let _lies_there = file.change(move |_| std::fs::remove_file(&path).is_err());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use zc_core::{ExtentKey, ExtentNo, FingerprintKind, VolumeId};
    use zc_format::{Geometry, PlanOptions};

    pub(crate) const OWNER: IntentOwner = IntentOwner { uuid: [1; 16], boot_id: [2; 16], session: 3 };

    pub(crate) fn superblock() -> Superblock {
        let geometry = Geometry::plan(&PlanOptions {
            device_bytes: 1 << 20,
            weu_bytes: 32 << 10,
            extent_bytes: 4096,
            align_bytes: 0,
            journal_blocks: Some(4),
        })
        .unwrap();
        Superblock {
            uuid: OWNER.uuid,
            features: Features::of(&geometry),
            geometry,
            fingerprint_kind: FingerprintKind::Blake3,
            sequence: 1,
            session: OWNER.session,
            clean: false,
            distrusted: false,
            boot_id: OWNER.boot_id,
            created_unix_s: 0,
            journal_next: JournalSeq(0),
            checkpoint: 0,
            index_image: 0,
            label: String::new(),
        }
    }

    fn record(extent: u64) -> Record {
        Record::Zero { key: ExtentKey { volume: VolumeId(1), extent: ExtentNo(extent) } }
    }

    /// A valid log with one record in a folder of its own.
    fn valid_log(on_thread: bool) -> (tempfile::TempDir, PathBuf, IntentLog) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.intent");
        let mut log = IntentLog::create(&path, on_thread, OWNER).unwrap();
        log.append(record(1));
        log.make_valid();
        log.write_out();
        (dir, path, log)
    }

    #[test]
    fn only_a_valid_log_of_the_same_session_and_boot_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.intent");
        assert_eq!(read(&path, &OWNER), None);
        let mut log = IntentLog::create(&path, false, OWNER).unwrap();
        log.append(record(1));
        log.write_out();
        assert_eq!(read(&path, &OWNER), None, "not marked yet");
        log.append(record(2));
        log.make_valid();
        log.write_out();
        assert_eq!(read(&path, &OWNER), Some((JournalSeq(0), vec![record(1), record(2)])));
        assert_eq!(read(&path, &IntentOwner { session: 4, ..OWNER }), None);
        assert_eq!(read(&path, &IntentOwner { boot_id: [9; 16], ..OWNER }), None);
        log.append(record(3));
        assert_eq!(read(&path, &OWNER).unwrap().1.len(), 2, "written once a turn");
        log.write_out();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(HEADER + 2 * RECORD + 5).unwrap();
        assert_eq!(
            read(&path, &OWNER),
            Some((JournalSeq(0), vec![record(1), record(2)])),
            "a cut-off record is not there"
        );
        log.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_the_journal_has_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.intent");
        let mut log = IntentLog::create(&path, false, OWNER).unwrap();
        (0..4).for_each(|extent| log.append(record(extent)));
        log.trim(1, JournalSeq(5));
        log.make_valid();
        log.write_out();
        assert_eq!(read(&path, &OWNER), Some((JournalSeq(5), (1..4).map(record).collect())));
        log.trim(3, JournalSeq(6));
        log.write_out();
        assert_eq!(read(&path, &OWNER), Some((JournalSeq(6), vec![record(3)])), "without a new record");
        log.append(record(4));
        log.trim(5, JournalSeq(7));
        log.write_out();
        assert_eq!(read(&path, &OWNER), Some((JournalSeq(7), vec![])));
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(HEADER + 4 * RECORD).unwrap();
        assert_eq!(read(&path, &OWNER), None, "shorter than what is to be skipped");
    }

    #[test]
    fn trimmed_records_go_when_the_file_is_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.intent");
        let mut log = IntentLog::create(&path, false, OWNER).unwrap();
        log.make_valid();
        let count = INTENT_BYTES_MAX / RECORD + 10;
        (0..count).for_each(|extent| log.append(record(extent)));
        log.write_out();
        log.trim(count - 5, JournalSeq(77));
        log.append(record(count));
        log.write_out();
        let expected: Vec<_> = (count - 5..=count).map(record).collect();
        assert_eq!(read(&path, &OWNER), Some((JournalSeq(77), expected.clone())));
        log.append(record(7));
        log.write_out();
        assert_eq!(read(&path, &OWNER).unwrap().1.len(), expected.len() + 1);
    }

    #[test]
    fn a_log_that_can_be_neither_unmarked_nor_removed_is_stuck() {
        let (dir, path, mut log) = valid_log(false);
        let (read_only, folder) = (File::open(&path).unwrap(), dir.path().to_owned());
        // A folder is not removed as a file is.
        log.file.as_mut().unwrap().change(|file| (file.file, file.path) = (read_only, folder)).unwrap();
        assert!(!log.is_stuck());
        log.append(record(2));
        log.write_out();
        assert!(log.is_stuck());
        let mut before = superblock();
        let start = |before: &Superblock| read_of(&path, before, OWNER.boot_id);
        assert_eq!(start(&before).unwrap().1, [record(1)], "it would be believed");
        before.features.compat |= Features::INTENTS_VOID;
        assert_eq!(start(&before), None);
        before.features.begin_session();
        assert!(start(&before).is_some(), "another session begins with another log");
        before.clean = true;
        assert_eq!(start(&before), None);
        log.is_void();
        log.append(record(3));
        log.write_out();
        assert!(!log.is_stuck(), "nothing more is written");
    }

    #[test]
    fn a_failure_withdraws_the_log() {
        let (_dir, path, mut log) = valid_log(false);
        // A file that was opened for reading takes no write.
        let read_only = File::open(&path).unwrap();
        log.file.as_mut().unwrap().change(|file| file.file = read_only).unwrap();
        log.append(record(2));
        log.write_out();
        assert!(log.file.is_none());
        assert_eq!(read(&path, &OWNER), None);
    }

    #[test]
    fn a_log_that_does_not_answer_is_stuck_and_is_written_no_more() {
        let (dir, path, mut log) = valid_log(true);
        assert_eq!(read(&path, &OWNER).unwrap().1, [record(1)], "written when the call returns");
        let file = LogFile::create(&dir.path().join("y.intent"), OWNER).unwrap();
        let mut keeper = Keeper::on_thread(file, 1).unwrap();
        let (_lets_go, hangs) = std::sync::mpsc::channel::<()>();
        keeper.change(move |_| hangs.recv().is_ok()).unwrap_err();
        log.file = Some(keeper);
        log.append(record(2));
        log.write_out();
        assert!(log.is_stuck() && log.fault().unwrap().contains("does not answer"));
        log.is_void();
        log.append(record(3));
        log.write_out();
        assert!(!log.is_stuck(), "nothing more is asked for");
    }

    #[test]
    fn the_next_log_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.intent");
        let before = LogFile::create(&path, OWNER).unwrap();
        let next = IntentOwner { session: 4, ..OWNER };
        let mut log = IntentLog::create(&path, false, next).unwrap();
        log.append(record(1));
        log.make_valid();
        log.write_out();
        before.file.write_all_at(&record(9).encode(), HEADER + RECORD).unwrap();
        assert_eq!(read(&path, &next).unwrap().1, [record(1)], "what came late is not in it");
    }
}
