//! Cursor over the bytes of a node: takes fields from the front, with bounds checked.

use super::varint;

/// Reasons why bytes are not the expected node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The bytes end within an entry.
    #[error("a node ends within an entry")]
    Truncated,
    /// A field is out of bounds.
    #[error("a node with an impossible {0}")]
    Field(&'static str),
    /// The checksum does not match: corruption, or a node of another pool.
    #[error("a node with a wrong checksum")]
    Checksum,
    /// The superblock has no magic number: nothing was ever written there, or another format.
    #[error("no superblock of this format")]
    Magic,
    /// Made by a version or with a feature that this one cannot read.
    #[error("the store was written by a newer version of zcached")]
    Version,
}

/// Cursor over the bytes of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn number(&mut self) -> Result<u64, NodeError> {
        varint::take(&mut self.0).ok_or(NodeError::Truncated)
    }

    pub(super) fn difference(&mut self, from: u64) -> Result<u64, NodeError> {
        varint::take_difference(&mut self.0, from).ok_or(NodeError::Truncated)
    }

    /// Takes a number of 32 bits.
    pub(super) fn short(&mut self, field: &'static str) -> Result<u32, NodeError> {
        u32::try_from(self.number()?).map_err(|_| NodeError::Field(field))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], NodeError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(NodeError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Takes as many bytes as the number in front of them.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], NodeError> {
        let len = usize::try_from(self.number()?).map_err(|_| NodeError::Truncated)?;
        let (first, rest) = self.0.split_at_checked(len).ok_or(NodeError::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    /// Takes the gap to the entry before and returns the position of the next one, below `bound`.
    pub(super) fn position(&mut self, next: u64, bound: u64) -> Result<u64, NodeError> {
        let gap = self.number()?;
        let position = next.checked_add(gap).filter(|position| *position < bound);
        position.ok_or(NodeError::Field("position"))
    }
}
