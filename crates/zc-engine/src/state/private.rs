//! Files and folders that only the daemon's user may use, whatever the umask.
//!
//! Job: make folders with mode 0700 and files with mode 0600, and read small files that another program wrote
//! ([`read_bounded`]).
//!
//! Invariants: the mode holds from the moment the name exists. A read ends at a bound, and never waits for a writer.
//!
//! What it does not do: change the mode of what exists already.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Makes a folder and those above it that are missing, for the daemon's user alone.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes a file for the daemon's user alone, or empties the one that exists; for reading and writing.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// As [`create_file`], but never the file that has the name now: who has that open writes elsewhere.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_file(path),
    }
}

/// Whether users other than the owner and the group may change what is in the folder.
pub(crate) fn is_open_to_others(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|metadata| metadata.mode() & 0o002 != 0)
}

/// A small file as it was read.
pub(crate) struct Small {
    pub(crate) bytes: Vec<u8>,
    /// The permission bits.
    pub(crate) mode: u32,
}

/// Reads a regular file of at most `most_bytes`.
///
/// # Errors
/// When it cannot be read, is no regular file (a device has no end, a pipe waits for a writer), or is longer.
pub(crate) fn read_bounded(path: &Path, most_bytes: u64) -> io::Result<Small> {
    // Of a pipe, the flag opens one without a writer at once.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut bytes)?;
    if zc_core::u64_from_usize(bytes.len()) > most_bytes {
        let text = format!("it has more than {most_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(Small { bytes, mode: metadata.mode() & 0o7777 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_pipes_and_long_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, dir.path()] {
            assert!(read_bounded(path, 16).is_err(), "{}", path.display());
        }
        let file = dir.path().join("file");
        std::fs::write(&file, [7; 16]).unwrap();
        assert_eq!(read_bounded(&file, 16).map(|small| small.bytes).unwrap(), [7; 16]);
        assert!(read_bounded(&file, 15).map(|small| small.bytes).unwrap_err().to_string().contains("15"));
    }
}
