//! The cache device for start and stop: blocking, whole blocks, page-aligned memory.

use zc_cache::startup::Media;
use zc_core::{ErrorKind, limits::BLOCK_BYTES, usize_from_u32};
use zc_format::JOURNAL_DEVICE;
use zc_io::{AlignedBuf, BlockFile};

/// A cache file or device, and its journal's if that has one of its own.
#[derive(Debug)]
pub struct FileMedia<'a> {
    /// The cache file or device.
    pub cache: &'a BlockFile,
    /// The journal's, if it has one of its own.
    pub journal: Option<&'a BlockFile>,
}

impl<'a> FileMedia<'a> {
    /// Returns the file at an address, and the offset in it.
    fn at(&self, offset_bytes: u64) -> Result<(&'a BlockFile, u64), ErrorKind> {
        match offset_bytes.checked_sub(JOURNAL_DEVICE) {
            None => Ok((self.cache, offset_bytes)),
            // Without its journal device a cache was refused, or is only inspected.
            Some(offset_bytes) => Ok((self.journal.ok_or(ErrorKind::Invalid)?, offset_bytes)),
        }
    }
}

impl Media for FileMedia<'_> {
    fn len_bytes(&self) -> u64 {
        self.cache.len_bytes()
    }

    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        let whole = buf.len().next_multiple_of(usize_from_u32(BLOCK_BYTES));
        let (file, offset_bytes) = self.at(offset_bytes)?;
        let bytes = file.read_blocking(offset_bytes, whole).map_err(|error| error.kind())?;
        buf.copy_from_slice(&bytes[..buf.len()]);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind> {
        debug_assert!(
            data.len().is_multiple_of(usize_from_u32(BLOCK_BYTES)),
            "metadata comes in whole blocks"
        );
        let (file, offset_bytes) = self.at(offset_bytes)?;
        file.write_blocking(offset_bytes, &AlignedBuf::from(data)).map_err(|error| error.kind())
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        for file in [Some(self.cache), self.journal].into_iter().flatten() {
            file.sync_blocking().map_err(|error| error.kind())?;
        }
        Ok(())
    }
}
