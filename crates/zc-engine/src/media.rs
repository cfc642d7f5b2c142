//! The cache device for start and stop: blocking, whole blocks, page-aligned memory.

use zc_cache::startup::Media;
use zc_core::{ErrorKind, limits::BLOCK_BYTES, usize_from_u32};
use zc_io::{AlignedBuf, BlockFile};

/// A cache file or device.
#[derive(Debug)]
pub(crate) struct FileMedia<'a>(pub(crate) &'a BlockFile);

impl Media for FileMedia<'_> {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        let whole = buf.len().next_multiple_of(usize_from_u32(BLOCK_BYTES));
        let bytes = self.0.read_blocking(offset_bytes, whole).map_err(|error| error.kind())?;
        buf.copy_from_slice(&bytes[..buf.len()]);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind> {
        debug_assert!(
            data.len().is_multiple_of(usize_from_u32(BLOCK_BYTES)),
            "metadata comes in whole blocks"
        );
        self.0.write_blocking(offset_bytes, &AlignedBuf::from(data)).map_err(|error| error.kind())
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        self.0.sync_blocking().map_err(|error| error.kind())
    }
}
