//! Preallocated space of the state directory, so that a file system filled by others does not prevent the daemon from
//! starting, recording or stopping.
//!
//! Job: keep a file of [`RESERVE_BYTES`] beside the state files, and release its space to a small write when there is
//! no other. The reserve is then recreated from the remaining space: half as large if necessary, and so on.
//!
//! Invariants: no write depends on the reserve: without one, it fails as on any full file system. A state directory
//! whose first start found the file system full has no reserve yet.
//!
//! It does not help on file systems that write every block to a new place and are completely full (snapshots of btrfs
//! or ZFS).

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::state::private::create_anew;

/// More than the state files of a thousand volumes.
const RESERVE_BYTES: usize = 512 << 10;
/// The least that is worth keeping.
const RESERVE_BYTES_MIN: usize = 16 << 10;
const NAME: &str = "reserve";

/// Makes the reserve, if it is not there in full; as large as there is space for.
pub(crate) fn keep(dir: &Path) -> io::Result<()> {
    let path = dir.join(NAME);
    if std::fs::metadata(&path).is_ok_and(|found| found.len() == zc_core::u64_from_usize(RESERVE_BYTES)) {
        return Ok(());
    }
    let mut bytes = RESERVE_BYTES;
    loop {
        let made = make(&path, bytes);
        if made.is_err() {
            // A part of it would hold space that a smaller one can have.
            let _as_good_as_none = std::fs::remove_file(&path);
        }
        bytes /= 2;
        if bytes < RESERVE_BYTES_MIN || !made.as_ref().is_err_and(is_full) {
            return made;
        }
    }
}

fn make(path: &Path, bytes: usize) -> io::Result<()> {
    let mut file = create_anew(path)?;
    // Not zeros: a file system that compresses, or keeps holes, would take no space for them.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let bytes: Vec<u8> = words.take(bytes / 8).flatten().collect();
    file.write_all(&bytes)?;
    file.sync_all()
}

/// Replaces, makes or extends a small file in a folder; where there is no space, with that of the reserve.
pub(crate) fn with_room<T>(dir: &Path, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let result = write();
    let Err(error) = &result else { return result };
    if !is_full(error) || std::fs::remove_file(dir.join(NAME)).is_err() {
        return result;
    }
    // Some file systems free the space of a removed file only when that is durable.
    let _nothing_is_lost = File::open(dir).and_then(|folder| folder.sync_all());
    tracing::warn!(
        "{} is on a file system without free space; what is recorded there takes the space that was kept for that. Make \
         room on it",
        dir.display()
    );
    let again = write();
    if let Err(error) = keep(dir) {
        tracing::warn!("no space is kept in {} any more: {error}", dir.display());
    }
    again
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> io::Error {
        rustix::io::Errno::NOSPC.into()
    }

    #[test]
    fn the_reserve_is_given_once_and_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = dir.path().join(NAME);
        keep(dir.path()).unwrap();
        let len = std::fs::metadata(&reserve).unwrap().len();
        assert_eq!(len, RESERVE_BYTES as u64);
        let mut attempts = 0;
        let there = with_room(dir.path(), || {
            attempts += 1;
            if reserve.exists() { Err(full()) } else { Ok(attempts) }
        });
        assert_eq!(there.unwrap(), 2);
        assert!(reserve.exists(), "it is made again");
        // One that helps nothing is used once, and so is none.
        with_room(dir.path(), || Err::<(), _>(full())).unwrap_err();
        std::fs::remove_file(&reserve).unwrap();
        let mut attempts = 0;
        with_room(dir.path(), || {
            attempts += 1;
            Err::<(), _>(full())
        })
        .unwrap_err();
        assert_eq!(attempts, 1);
    }

    #[test]
    fn other_errors_leave_the_reserve_alone() {
        let dir = tempfile::tempdir().unwrap();
        keep(dir.path()).unwrap();
        let mut attempts = 0;
        let denied = with_room(dir.path(), || {
            attempts += 1;
            Err::<(), _>(io::Error::from(rustix::io::Errno::ACCESS))
        });
        assert_eq!((denied.unwrap_err().kind(), attempts), (io::ErrorKind::PermissionDenied, 1));
        assert!(dir.path().join(NAME).exists());
        // A partial file left by a killed daemon is recreated.
        std::fs::write(dir.path().join(NAME), "part").unwrap();
        keep(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join(NAME)).unwrap().len(), RESERVE_BYTES as u64);
    }
}
