//! Cursors over bytes: every read is checked, every write must fit (otherwise a bug).

use crate::FormatError;

/// Reads little-endian fields in order.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(FormatError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(FormatError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

/// Writes little-endian fields in order into a buffer of sufficient size.
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { rest: bytes }
    }

    /// # Panics
    /// When the buffer is too small: sizes are computed before encoding.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let rest = core::mem::take(&mut self.rest);
        assert!(rest.len() >= bytes.len(), "encoding past the end of the buffer");
        let (head, tail) = rest.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.rest = tail;
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
}
