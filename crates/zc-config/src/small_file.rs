//! Small files written by other programs: configuration, certificates, records of the state directory.
//!
//! Invariants: a read is bounded, and never waits for a writer.
//!
//! It may block on a hung file system. The caller uses a separate thread for that.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Contents of a small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallFile {
    /// The contents.
    pub bytes: Vec<u8>,
    /// The permission bits.
    pub mode: u32,
}

impl SmallFile {
    /// Reads a regular file of at most `most_bytes`.
    ///
    /// # Errors
    /// When it cannot be read, is no regular file (a device has no end, a pipe waits for a writer), or is longer
    /// ([`io::ErrorKind::FileTooLarge`]).
    pub fn read(path: &Path, most_bytes: u64) -> io::Result<Self> {
        // Without the flag, opening a pipe waits for its writer.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(most_bytes + 1).read_to_end(&mut bytes)?;
        if zc_core::u64_from_usize(bytes.len()) > most_bytes {
            let text = format!("it has more than {most_bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(Self { bytes, mode: metadata.mode() & 0o7777 })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn devices_pipes_sockets_folders_and_long_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, socket, link) =
            (dir.path().join("pipe"), dir.path().join("socket"), dir.path().join("link"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [Path::new("/dev/zero"), &pipe, &socket, &link, dir.path()] {
            assert!(SmallFile::read(path, 16).is_err(), "{}", path.display());
        }
        let file = dir.path().join("file");
        std::fs::write(&file, [7; 16]).unwrap();
        assert_eq!(SmallFile::read(&file, 16).map(|small| small.bytes).unwrap(), [7; 16]);
        assert!(SmallFile::read(&file, 15).unwrap_err().to_string().contains("15"));
    }
}
