//! Selection of the newest copy, and the end of the journal: the pure half of a restart.
//!
//! Job: choose among candidate buffers, follow the journal ring. Invariants: only valid structures are considered, the
//! largest sequence wins, a journal is followed without gaps and never from a session to an older one. It does not
//! read, or decide on trust; it reports corruption so that the caller can.

use zc_core::JournalSeq;

use crate::superblock::Access;
use crate::{FormatError, JournalBlock, Salt, Superblock};

/// Newest valid candidate, and the faults of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice<T> {
    /// Structure and number of its copy; among equal ones the first.
    pub newest: Option<(T, usize)>,
    /// Invalid candidates, by the number of their copy.
    pub faults: Vec<(usize, FormatError)>,
}

impl<T> Choice<T> {
    fn of(
        candidates: impl Iterator<Item = (usize, Result<T, FormatError>)>,
        sequence: impl Fn(&T) -> u64,
    ) -> Self {
        let mut choice = Self { newest: None, faults: Vec::new() };
        for (copy, candidate) in candidates {
            match candidate {
                Err(fault) => choice.faults.push((copy, fault)),
                Ok(found) => {
                    let newer =
                        choice.newest.as_ref().is_none_or(|(best, _)| sequence(&found) > sequence(best));
                    if newer {
                        choice.newest = Some((found, copy));
                    }
                }
            }
        }
        choice
    }
}

/// Returns the newest superblock among blocks read from the copies with the given numbers.
pub fn newest_superblock<'a>(
    candidates: impl IntoIterator<Item = (usize, &'a [u8])>,
    access: Access,
) -> Choice<Superblock> {
    let decoded =
        candidates.into_iter().map(|(copy, bytes)| (copy, Superblock::decode_for(bytes, copy, access)));
    Choice::of(decoded, |superblock| superblock.sequence)
}

/// Reason for the end of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayEnd {
    /// The next block is invalid: unwritten, of an old cycle, torn or corrupt.
    Invalid(FormatError),
    /// The next block has the right number but belongs to an older session: that session was truncated, and the number
    /// was reused.
    OlderSession,
    /// The next place holds a *newer* block: the journal has overrun the checkpoint from which the replay started, so
    /// a newer checkpoint was lost.
    Overrun,
    /// All blocks of the ring were replayed.
    Full,
}

/// Follows the journal ring: read the block [`JournalReplay::wanted`], pass it to [`JournalReplay::feed`], until the
/// end.
#[derive(Debug, Clone)]
pub struct JournalReplay {
    start: JournalSeq,
    next: JournalSeq,
    ring_blocks: u64,
    session: u64,
    salt: Salt,
    region_map_sequence: u64,
    end: Option<ReplayEnd>,
}

impl JournalReplay {
    /// Creates a replay from the checkpoint's `journal_start`, of blocks of `first_session`, the checkpoint's, and
    /// later ones.
    #[must_use]
    pub const fn new(start: JournalSeq, ring_blocks: u64, first_session: u64, salt: Salt) -> Self {
        let end = if ring_blocks == 0 { Some(ReplayEnd::Full) } else { None };
        Self { start, next: start, ring_blocks, session: first_session, salt, region_map_sequence: 0, end }
    }

    /// Returns the block to read next (see [`crate::Geometry::journal_block_offset`]), or `None` at the end.
    #[must_use]
    pub const fn wanted(&self) -> Option<JournalSeq> {
        if self.end.is_some() { None } else { Some(self.next) }
    }

    /// Processes the bytes at the wanted block's place. Returns the block if it continues the journal.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<JournalBlock> {
        let wanted = self.wanted()?;
        match JournalBlock::decode(bytes, wanted, self.salt) {
            Ok(block) if block.session >= self.session => {
                self.session = block.session;
                self.region_map_sequence = self.region_map_sequence.max(block.region_map_sequence);
                self.next = JournalSeq(wanted.0.saturating_add(1));
                if self.next.0.saturating_sub(self.start.0) >= self.ring_blocks {
                    self.end = Some(ReplayEnd::Full);
                }
                Some(block)
            }
            Ok(_) => {
                self.end = Some(ReplayEnd::OlderSession);
                None
            }
            Err(fault) => {
                self.end =
                    Some(if self.is_overrun(bytes) { ReplayEnd::Overrun } else { ReplayEnd::Invalid(fault) });
                None
            }
        }
    }

    fn is_overrun(&self, bytes: &[u8]) -> bool {
        JournalBlock::peek_sequence(bytes)
            .filter(|sequence| *sequence > self.next)
            .and_then(|sequence| JournalBlock::decode(bytes, sequence, self.salt).ok())
            .is_some_and(|block| block.session >= self.session)
    }

    /// Returns the last replayed block.
    #[must_use]
    pub fn last(&self) -> Option<JournalSeq> {
        (self.next > self.start).then(|| JournalSeq(self.next.0.saturating_sub(1)))
    }

    /// Returns the first number that was not replayed, where writing continues.
    #[must_use]
    pub const fn next(&self) -> JournalSeq {
        self.next
    }

    /// Returns the newest region map mentioned in replayed blocks; 0 if none.
    #[must_use]
    pub const fn region_map_sequence(&self) -> u64 {
        self.region_map_sequence
    }

    /// Returns the reason of the end, if it was reached.
    #[must_use]
    pub const fn end(&self) -> Option<ReplayEnd> {
        self.end
    }
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
