//! A request in flight with the replies received so far.
//!
//! Job: check that reply pieces match the request. Invariants: pieces of a read lie inside it and do not overlap.
//!
//! It does not decode.

use super::{ClientError, RemoteError};
use crate::proto::command_flag;
use crate::proto::limits::READ_PIECES_MAX;
use crate::wire::StatusExtent;

/// A request without a final reply.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: u16,
    pub(super) flags: u16,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) error: Option<RemoteError>,
    /// Disjoint, sorted, merged ranges of a read that arrived.
    pieces: Vec<(u64, u64)>,
    /// Contexts of a block status that have not arrived.
    pub(super) contexts_due: Vec<u32>,
    pub(super) content_chunks: u64,
}

impl Pending {
    pub(super) const fn new(command: u16, flags: u16, offset: u64, length: u64) -> Self {
        Self {
            command,
            flags,
            offset,
            length,
            error: None,
            pieces: Vec::new(),
            contexts_due: Vec::new(),
            content_chunks: 0,
        }
    }

    /// Books a piece of a read in.
    pub(super) fn claim(&mut self, offset: u64, length: u64) -> Result<(), ClientError> {
        let end = offset.checked_add(length).filter(|&end| end <= self.offset.saturating_add(self.length));
        let Some(end) = end.filter(|_| offset >= self.offset && length > 0) else {
            return Err(ClientError::Rule("read data lies outside the request"));
        };
        let at = self.pieces.partition_point(|piece| piece.1 <= offset);
        if self.pieces.get(at).is_some_and(|next| next.0 < end) {
            return Err(ClientError::Rule("chunks of one read overlap"));
        }
        let joins_before = at > 0 && self.pieces[at - 1].1 == offset;
        let joins_after = self.pieces.get(at).is_some_and(|next| next.0 == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.pieces[at - 1].1 = self.pieces[at].1;
                self.pieces.remove(at);
            }
            (true, false) => self.pieces[at - 1].1 = end,
            (false, true) => self.pieces[at].0 = offset,
            (false, false) => self.pieces.insert(at, (offset, end)),
        }
        if self.pieces.len() > READ_PIECES_MAX {
            return Err(ClientError::Rule("one read arrives in too many scattered pieces"));
        }
        Ok(())
    }

    /// Checks the extents of one context: a single one if one was requested (truncated to the request, because some
    /// servers send more); otherwise only the last may exceed the request.
    pub(super) fn check_extents(&self, extents: &mut [StatusExtent]) -> Result<(), ClientError> {
        if self.flags & command_flag::REQ_ONE != 0 {
            let [extent] = extents else {
                return Err(ClientError::Rule("a block status has other than the one extent asked for"));
            };
            extent.length = extent.length.min(self.length);
            return Ok(());
        }
        let before_last = extents.len().saturating_sub(1);
        let lengths = extents.iter().take(before_last).map(|extent| extent.length);
        let sum = lengths.fold(0_u64, u64::saturating_add);
        if sum >= self.length {
            return Err(ClientError::Rule("extents of a block status begin beyond the request"));
        }
        Ok(())
    }

    /// Returns `true` if every byte of a read arrived.
    pub(super) fn is_covered(&self) -> bool {
        self.length == 0 || self.pieces == [(self.offset, self.offset.saturating_add(self.length))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scattered_pieces_are_bounded() {
        let mut pending = Pending::new(0, 0, 0, 1 << 20);
        let most = u64::try_from(READ_PIECES_MAX).unwrap();
        for index in 0..most {
            assert_eq!(pending.claim(index * 2, 1), Ok(()));
        }
        assert!(pending.claim(most * 2, 1).is_err(), "one piece too many");
    }

    proptest! {
        #[test]
        fn must_14_pieces_agree_with_a_bitmap(claims in prop::collection::vec((0_u64..40, 0_u64..12), 0..30)) {
            let mut pending = Pending::new(0, 0, 5, 30);
            let mut bitmap = [false; 64];
            for (offset, length) in claims {
                let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
                let legal = length > 0
                    && offset >= 5
                    && offset + length <= 35
                    && !bitmap[range.clone()].iter().any(|taken| *taken);
                prop_assert_eq!(pending.claim(offset, length).is_ok(), legal);
                if legal {
                    bitmap[range].fill(true);
                }
                prop_assert_eq!(pending.is_covered(), bitmap[5..35].iter().all(|taken| *taken));
            }
        }
    }
}
