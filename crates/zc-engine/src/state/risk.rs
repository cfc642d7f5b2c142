//! Volumes with acknowledged writes that a kill of the daemon would lose: a small file that outlives the process.
//!
//! Job: record, for the next start, for each volume whether acknowledged writes are in memory alone, or a loss has not
//! been reported to clients yet. After a kill, a start can thus exclude a loss, and need not fail a flush or remove a
//! block device as a precaution (see [`zc_cache::loss`]).
//!
//! Layout: a header of 64 bytes (magic, cache, boot, session), then one byte for each volume number, 1 or 0. Written
//! without a flush: after a power cut the boot identity differs, and the file is ignored.
//!
//! Invariants: a volume's byte is 1 before the reply that causes it leaves the daemon. A file that cannot be written
//! is removed, or marked invalid like the intent log ([`Features::INTENTS_VOID`]); without one a start assumes the
//! worst.
//!
//! It does not judge ([`zc_cache::loss`]).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zc_config::SmallFile;
use zc_core::{Map, VolumeId};
use zc_format::{Features, Superblock};

use crate::error::EngineError;
use crate::limits::INTENT_WAIT_MS;
use crate::state::intent::IntentOwner;
use crate::state::keeper::{Keeper, NoAnswer, Written};
use crate::state::private::create_anew;
use crate::state::reserve::with_room;

const MAGIC: [u8; 8] = *b"zcrisk01";
const HEADER_BYTES: usize = 64;
/// The header, and a byte for each number that a volume can have.
const FILE_BYTES_MAX: u64 = 64 + (1 << 16);

/// Bytes of the first write: a block of a file system.
const FIRST_BYTES: usize = 4096;

/// The file of this session.
#[derive(Debug)]
pub struct RiskFile {
    path: PathBuf,
    /// `None` after a failure.
    file: Option<Keeper<Bytes>>,
    /// Volumes whose byte is 1.
    at_risk: Map<VolumeId, ()>,
    /// `true` if the file failed and could not be removed: a start would trust it.
    stuck: bool,
}

/// The file, for its writer.
#[derive(Debug)]
struct Bytes {
    path: PathBuf,
    file: File,
}

fn header(owner: &IntentOwner) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..24].copy_from_slice(&owner.uuid);
    header[24..40].copy_from_slice(&owner.boot_id);
    header[40..48].copy_from_slice(&owner.session.to_le_bytes());
    header
}

const fn place(volume: VolumeId) -> u64 {
    HEADER_BYTES as u64 + volume.0 as u64
}

/// Contents of that session's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Risks(Vec<u8>);

impl Risks {
    /// Returns the risks of a session from another source.
    pub fn of(at_risk: &[VolumeId]) -> Self {
        let len = at_risk.iter().map(|volume| usize::from(volume.0) + 1).max().unwrap_or(0);
        let mut bytes = vec![0; len];
        at_risk.iter().for_each(|volume| bytes[usize::from(volume.0)] = 1);
        Self(bytes)
    }

    /// Returns `true` if acknowledged writes of the volume were in memory alone.
    pub fn contains(&self, volume: VolumeId) -> bool {
        self.0.get(usize::from(volume.0)).is_some_and(|byte| *byte != 0)
    }
}

/// Returns the previous session's record, as far as a start may trust it.
pub fn read_of(path: &Path, before: &Superblock, boot_id: [u8; 16]) -> Option<Risks> {
    if before.features.compat & Features::INTENTS_VOID != 0 {
        return None;
    }
    read(path, &IntentOwner { uuid: before.uuid, boot_id, session: before.session })
}

/// The word of that session, if it is there.
fn read(path: &Path, owner: &IntentOwner) -> Option<Risks> {
    let bytes = SmallFile::read(path, FILE_BYTES_MAX).ok()?.bytes;
    let (found, volumes) = bytes.split_at_checked(HEADER_BYTES)?;
    (found == header(owner)).then(|| Risks(volumes.to_vec()))
}

impl Bytes {
    fn create(path: &Path, owner: &IntentOwner, owed: &[VolumeId]) -> io::Result<Self> {
        let file = create_anew(path)?;
        // Takes the space now: a file system that is full later has it for most volumes' bytes.
        file.write_all_at(&[0; FIRST_BYTES], 0)?;
        for volume in owed {
            file.write_all_at(&[1], place(*volume))?;
        }
        // Last: without the header nothing is trusted.
        file.write_all_at(&header(owner), 0)?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn set(&self, volume: VolumeId, at_risk: bool) -> Written {
        match self.file.write_all_at(&[u8::from(at_risk)], place(volume)) {
            Ok(()) => Written::Whole,
            Err(error) if self.is_withdrawn() => Written::Withdrawn(error),
            Err(error) => Written::Stuck(error),
        }
    }

    /// Removes a wrong file from sight: it is emptied and removed, or one of both.
    fn is_withdrawn(&self) -> bool {
        let is_emptied = self.file.set_len(0).is_ok();
        is_removed(&self.path) || is_emptied
    }
}

fn is_removed(path: &Path) -> bool {
    std::fs::remove_file(path).map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
}

impl RiskFile {
    /// Creates the file of a session with pending loss notifications for these volumes. `may_hang`: operations on a
    /// file there may block forever.
    pub fn create(
        path: &Path,
        may_hang: bool,
        owner: &IntentOwner,
        owed: &[VolumeId],
    ) -> Result<Self, EngineError> {
        let at_risk = owed.iter().map(|id| (*id, ())).collect();
        let mut risks = Self { at_risk, ..Self::none(path) };
        let made = match path.parent() {
            Some(dir) => with_room(dir, || Bytes::create(path, owner, owed)),
            None => Bytes::create(path, owner, owed),
        };
        match made {
            Ok(bytes) if may_hang => risks.file = Some(Keeper::on_thread(bytes, INTENT_WAIT_MS)?),
            Ok(bytes) => risks.file = Some(Keeper::own(bytes)),
            Err(error) => {
                is_removed(path);
                risks.fails(&error.to_string());
            }
        }
        Ok(risks)
    }

    /// There is no file: the next start needs none.
    pub fn none(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, at_risk: Map::default(), stuck: false }
    }

    /// Sets a volume's risk; written if it differs from the file. Waits for [`INTENT_WAIT_MS`] at most.
    pub(crate) fn set(&mut self, volume: VolumeId, at_risk: bool) {
        if self.at_risk.contains_key(&volume) == at_risk {
            return;
        }
        if at_risk {
            self.at_risk.insert(volume, ());
        } else {
            self.at_risk.remove(&volume);
        }
        let Some(file) = &mut self.file else { return };
        match file.change(move |bytes| bytes.set(volume, at_risk)) {
            Ok(Written::Whole) => {}
            Ok(Written::Withdrawn(error)) => self.fails(&error.to_string()),
            Ok(Written::Stuck(error)) => {
                self.stuck = true;
                self.fails(&error.to_string());
            }
            Err(NoAnswer) => {
                self.stuck = true;
                self.fails("it does not answer");
            }
        }
    }

    fn fails(&mut self, why: &str) {
        tracing::warn!(
            "{} cannot be written: {why}; after a kill the next flush of a volume with `ack = \"volatile\"` fails",
            self.path.display()
        );
        self.file = None;
    }

    /// Returns `true` if a start would trust a wrong file. The cache device must record that it is invalid.
    pub(crate) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Records that the cache device has marked it, or cannot: nothing more is written.
    pub(crate) fn is_void(&mut self) {
        (self.stuck, self.file) = (false, None);
    }

    /// Removes the file after a clean stop, which the cache device records.
    pub(crate) fn remove(mut self) {
        if let Some(mut file) = self.file.take() {
            let _lies_there = file.change(|bytes| !bytes.is_withdrawn());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::state::intent::tests::{OWNER, superblock};

    #[test]
    fn only_the_file_of_the_same_session_and_boot_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.risk");
        assert_eq!(read(&path, &OWNER), None);
        let (a, b) = (VolumeId(0), VolumeId(300));
        let mut risks = RiskFile::create(&path, false, &OWNER, &[b]).unwrap();
        let says =
            |owner: &IntentOwner| read(&path, owner).map(|risks| (risks.contains(a), risks.contains(b)));
        assert_eq!(says(&OWNER), Some((false, true)));
        risks.set(a, true);
        assert_eq!(says(&OWNER), Some((true, true)));
        risks.set(b, false);
        assert_eq!(says(&OWNER), Some((true, false)));
        for other in [
            IntentOwner { boot_id: [9; 16], ..OWNER },
            IntentOwner { session: 4, ..OWNER },
            IntentOwner { uuid: [9; 16], ..OWNER },
        ] {
            assert_eq!(says(&other), None);
        }
        std::fs::write(&path, [7; 20]).unwrap();
        assert_eq!(says(&OWNER), None, "a file that is too short");
        risks.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_no_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.risk");
        std::fs::create_dir(&path).unwrap();
        let mut risks = RiskFile::create(&path, false, &OWNER, &[]).unwrap();
        risks.set(VolumeId(1), true);
        assert_eq!(read(&path, &OWNER), None);
        assert!(
            Risks::of(&[VolumeId(2)]).contains(VolumeId(2))
                && !Risks::of(&[VolumeId(2)]).contains(VolumeId(1))
        );
    }

    #[test]
    fn a_file_that_does_not_answer_is_stuck_and_void() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.risk");
        let volume = VolumeId(1);
        let mut risks = RiskFile::create(&path, true, &OWNER, &[]).unwrap();
        let mut before = superblock();
        let says =
            |before: &Superblock| read_of(&path, before, OWNER.boot_id).map(|risks| risks.contains(volume));
        let (_lets_go, hangs) = std::sync::mpsc::channel::<()>();
        let bytes = Bytes { path: path.clone(), file: File::open(&path).unwrap() };
        let mut keeper = Keeper::on_thread(bytes, 1).unwrap();
        keeper.change(move |_| hangs.recv().is_ok()).unwrap_err();
        risks.file = Some(keeper);
        risks.set(volume, true);
        assert!(risks.is_stuck());
        assert_eq!(says(&before), Some(false), "it would be believed");
        before.features.compat |= Features::INTENTS_VOID;
        assert_eq!(says(&before), None);
        risks.is_void();
        risks.set(volume, false);
        assert!(!risks.is_stuck(), "nothing more is written");
    }
}
