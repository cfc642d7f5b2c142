//! The record that a cache must not be trusted any more, in a preallocated file.
//!
//! Job: hold one durable bit for a failure of the cache device. Cache and state directory may share one file system,
//! and a full one is a common cause of that failure; then the state file, which is replaced as a whole, cannot be
//! written. This file is written when the state directory is opened and overwritten in place.
//!
//! Invariants: [`DistrustRecord::set`] returns after the bit is durable; it needs no new space on file systems that
//! write in place. Contents other than a valid "not set" count as set.
//!
//! It does not decide on consequences; see `state_dir`.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

/// The whole file: one block of a file system.
const RECORD_BYTES: usize = 4096;
const TRUSTED: [u8; 16] = *b"zcached trusted\n";
const DISTRUSTED: [u8; 16] = *b"zcached doubted\n";

/// The file of one cache.
#[derive(Debug)]
pub(crate) struct DistrustRecord {
    file: File,
}

impl DistrustRecord {
    /// Opens the record, or creates one that is not set; returns whether it is set.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, bool)> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let record = Self { file };
        if record.file.metadata()?.len() == 0 {
            record.write(&TRUSTED)?;
            record.file.sync_all()?;
            let dir = path.parent().unwrap_or_else(|| Path::new("."));
            File::open(dir)?.sync_all()?;
            return Ok((record, false));
        }
        let mut found = [0; TRUSTED.len()];
        let read = record.file.read_exact_at(&mut found, 0);
        Ok((record, read.is_err() || found != TRUSTED))
    }

    /// Durably records that the cache must not be trusted. Blocks.
    pub(crate) fn set(&self) -> io::Result<()> {
        self.write(&DISTRUSTED)
    }

    /// Clears the bit, because the state file has the record. Blocks.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.write(&TRUSTED)
    }

    fn write(&self, what: &[u8; TRUSTED.len()]) -> io::Result<()> {
        let mut block = [0; RECORD_BYTES];
        block[..what.len()].copy_from_slice(what);
        self.file.write_all_at(&block, 0)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_survives_and_damage_counts_as_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.distrust");
        let is_set = || DistrustRecord::open(&path).unwrap().1;
        assert!(!is_set());
        assert!(!is_set(), "it was made");
        let (record, _) = DistrustRecord::open(&path).unwrap();
        record.set().unwrap();
        assert!(is_set());
        record.clear().unwrap();
        assert!(!is_set());
        std::fs::write(&path, "zca").unwrap();
        assert!(is_set(), "it is cut off");
        std::fs::write(&path, [0; RECORD_BYTES]).unwrap();
        assert!(is_set(), "it is damaged");
    }
}
