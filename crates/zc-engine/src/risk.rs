//! Which volumes have acknowledged writes that a killed daemon takes with it: a small file that outlives the process.
//!
//! Job: say, for the next start, of each volume whether acknowledged writes are in memory alone, or a loss has not been
//! told to clients yet. From this a start knows after a kill that nothing was lost, and need not fail a flush or remove
//! a block device for caution (see [`zc_cache::loss`]).
//!
//! Layout: a header of 64 bytes (magic, cache, boot, session), then one byte for each volume number, 1 or 0. Written
//! without a flush: after a power cut the boot identity differs, and the file is ignored.
//!
//! Invariants: a volume's byte is 1 before the answer leaves the daemon that makes it so. A file that cannot be written
//! is removed; without one a start takes the worst for granted.
//!
//! What it does not do: judge ([`zc_cache::loss`]).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zc_core::{Map, VolumeId};

use crate::intent::IntentOwner;
use crate::private::{create_file, read_bounded};

const MAGIC: [u8; 8] = *b"zcrisk01";
const HEADER_BYTES: usize = 64;
/// The header, and a byte for each number that a volume can have.
const FILE_BYTES_MAX: u64 = 64 + (1 << 16);

/// The file of this session.
#[derive(Debug)]
pub(crate) struct RiskFile {
    path: PathBuf,
    /// `None` after a failure.
    file: Option<File>,
    /// Volumes whose byte is 1.
    at_risk: Map<VolumeId, ()>,
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

/// What the file of that session says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Risks(Vec<u8>);

impl Risks {
    /// Of a session whose risks are known otherwise.
    pub(crate) fn of(at_risk: &[VolumeId]) -> Self {
        let len = at_risk.iter().map(|volume| usize::from(volume.0) + 1).max().unwrap_or(0);
        let mut bytes = vec![0; len];
        at_risk.iter().for_each(|volume| bytes[usize::from(volume.0)] = 1);
        Self(bytes)
    }

    pub(crate) fn contains(&self, volume: VolumeId) -> bool {
        self.0.get(usize::from(volume.0)).is_some_and(|byte| *byte != 0)
    }
}

/// The word of that session, if it is there.
pub(crate) fn read(path: &Path, owner: &IntentOwner) -> Option<Risks> {
    let bytes = read_bounded(path, FILE_BYTES_MAX).ok()?.bytes;
    let (found, volumes) = bytes.split_at_checked(HEADER_BYTES)?;
    (found == header(owner)).then(|| Risks(volumes.to_vec()))
}

impl RiskFile {
    /// Begins the file of a session, in which clients of these volumes have yet to be told of a loss.
    pub(crate) fn create(path: &Path, owner: &IntentOwner, owed: &[VolumeId]) -> Self {
        let begin = || -> io::Result<File> {
            let file = create_file(path)?;
            for volume in owed {
                file.write_all_at(&[1], place(*volume))?;
            }
            // Last: without it nothing is believed.
            file.write_all_at(&header(owner), 0)?;
            Ok(file)
        };
        let file = begin().inspect_err(|error| {
            tracing::warn!(
                "{} cannot be written: {error}; after a kill the next flush of a volume with `ack = \"volatile\"` fails",
                path.display()
            );
        });
        let mut risks = Self {
            path: path.to_owned(),
            file: file.ok(),
            at_risk: owed.iter().map(|id| (*id, ())).collect(),
        };
        if risks.file.is_none() {
            risks.give_up();
        }
        risks
    }

    /// What is so from now on; written if it differs from what the file says.
    pub(crate) fn set(&mut self, volume: VolumeId, at_risk: bool) {
        if self.at_risk.contains_key(&volume) == at_risk {
            return;
        }
        if at_risk {
            self.at_risk.insert(volume, ());
        } else {
            self.at_risk.remove(&volume);
        }
        let Some(file) = &self.file else { return };
        if let Err(error) = file.write_all_at(&[u8::from(at_risk)], place(volume)) {
            tracing::warn!(
                "{} cannot be written: {error}; after a kill the next flush of a volume with `ack = \"volatile\"` fails",
                self.path.display()
            );
            self.give_up();
        }
    }

    /// A file that says what is not so must not be found: it is emptied, or else removed.
    fn give_up(&mut self) {
        let is_emptied = self.file.take().is_some_and(|file| file.set_len(0).is_ok());
        match std::fs::remove_file(&self.path) {
            Err(error) if !is_emptied && error.kind() != io::ErrorKind::NotFound => {
                tracing::error!("{} cannot be withdrawn: {error}", self.path.display());
            }
            _ => {}
        }
    }

    /// After an orderly stop nothing is at risk.
    pub(crate) fn remove(mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: IntentOwner = IntentOwner { uuid: [1; 16], boot_id: [2; 16], session: 3 };

    #[test]
    fn only_the_file_of_the_same_session_and_boot_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.risk");
        assert_eq!(read(&path, &OWNER), None);
        let (a, b) = (VolumeId(0), VolumeId(300));
        let mut risks = RiskFile::create(&path, &OWNER, &[b]);
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
        let mut risks = RiskFile::create(&path, &OWNER, &[]);
        risks.set(VolumeId(1), true);
        assert_eq!(read(&path, &OWNER), None);
        assert!(
            Risks::of(&[VolumeId(2)]).contains(VolumeId(2))
                && !Risks::of(&[VolumeId(2)]).contains(VolumeId(1))
        );
    }
}
