//! Summaries: the journal's newest records, stored in the dirty unit next to the data that a client waits for
//! (`FORMAT.md`, section 8.3).
//!
//! As in a partial segment of a log-structured file system (Rosenblum and Ousterhout, SOSP 1991, section 3.2), a piece
//! of a unit describes itself, so that a commit is one write. Job: encode and decode a summary, find the chain that
//! continues the journal. Invariants: a summary ends with its page; it is invalid in any other page, slot, generation
//! or cache, and after any other journal block. It does not read the pages, or interpret the records.

use zc_core::{Generation, JournalSeq, WeuSlot, u64_from_usize, usize_from_u32};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::{BLOCK, FormatError, GrowingUnit, RECORD_BYTES, RECORDS_PER_BLOCK, Record};

const MAGIC: u32 = u32::from_le_bytes(*b"zcSm");
const TRAILER_BYTES: usize = 64;
const CRC_BYTES: usize = 4;

/// Page that a summary ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SummaryPlace {
    /// Identity of the cache. Clients choose the bytes before a page's end, but cannot read the identity.
    pub uuid: [u8; 16],
    /// Slot of the unit.
    pub slot: WeuSlot,
    /// Its generation.
    pub generation: Generation,
    /// Number of the page in the slot.
    pub page: u32,
}

/// Records of a commit, and of everything before it that the journal lacks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Summary {
    /// Journal block that will repeat the records: the one after the last durable one.
    pub next: JournalSeq,
    /// Session that wrote it, which also wrote that block's predecessor.
    pub session: u64,
    /// Index among the summaries after the same journal block, from 0.
    pub ordinal: u32,
    /// First page of its piece: the one after the previous summary, or the [`GrowingUnit`]'s.
    pub first_page: u32,
    /// As in a journal block.
    pub region_map_sequence: u64,
    /// As in a journal block.
    pub proved: JournalSeq,
    /// At most [`RECORDS_PER_BLOCK`].
    pub records: Vec<Record>,
}

impl Summary {
    /// Returns the bytes that these records take at the end of a page.
    #[must_use]
    pub const fn encoded_bytes(records: usize) -> usize {
        TRAILER_BYTES.saturating_add(records.saturating_mul(RECORD_BYTES))
    }

    /// Writes it at the end of its page.
    ///
    /// # Panics
    /// When it holds too many records, or `page` is not a page.
    pub fn encode_into(&self, place: &SummaryPlace, page: &mut [u8]) {
        assert!(self.records.len() <= RECORDS_PER_BLOCK, "{} records in one page", self.records.len());
        let bytes = Self::encoded_bytes(self.records.len());
        let count = u32::try_from(self.records.len()).unwrap_or(0);
        let end = page.get_mut(BLOCK.saturating_sub(bytes)..BLOCK);
        let end = end.unwrap_or_else(|| panic!("a summary lies at the end of a page"));
        let mut w = Writer::new(end);
        for record in &self.records {
            w.put(&record.encode());
        }
        w.u32(MAGIC).u32(count).u64(self.next.0).u64(self.session).u32(self.ordinal).u32(self.first_page);
        w.u64(self.region_map_sequence).u64(self.proved.0).put(&[0; 12]);
        let (covered, crc) = end.split_at_mut(bytes.saturating_sub(CRC_BYTES));
        crc.copy_from_slice(&binding(place, self.next).crc(&with_uuid(place, covered)).to_le_bytes());
    }

    /// Returns the block that an apparent summary continues. Not verified.
    #[must_use]
    pub fn peek_next(page: &[u8]) -> Option<JournalSeq> {
        let trailer = page.get(BLOCK.checked_sub(TRAILER_BYTES)?..BLOCK)?;
        let mut r = Reader::new(trailer);
        let magic = r.u32().ok()?;
        r.u32().ok()?;
        (magic == MAGIC).then(|| r.u64().ok().map(JournalSeq)).flatten()
    }

    /// Decodes the summary at the end of a page that continues the journal before block `next`.
    ///
    /// # Errors
    /// When there is none, it is another one, torn or corrupt.
    pub fn decode(page: &[u8], place: &SummaryPlace, next: JournalSeq) -> Result<Self, FormatError> {
        let page = page.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let (_, trailer) = page.split_at(BLOCK.saturating_sub(TRAILER_BYTES));
        let mut r = Reader::new(trailer);
        if r.u32()? != MAGIC {
            return Err(FormatError::Magic);
        }
        let count = usize_from_u32(r.u32()?);
        if count > RECORDS_PER_BLOCK {
            return Err(FormatError::Field("record count"));
        }
        let found = JournalSeq(r.u64()?);
        if found != next {
            return Err(FormatError::Field("journal sequence"));
        }
        let (session, ordinal, first_page) = (r.u64()?, r.u32()?, r.u32()?);
        let (region_map_sequence, proved) = (r.u64()?, JournalSeq(r.u64()?));
        let start = BLOCK.saturating_sub(Self::encoded_bytes(count));
        let bytes = page.get(start..).ok_or(FormatError::Truncated)?;
        let (covered, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(FormatError::Truncated)?;
        if !binding(place, next).matches(*crc, &with_uuid(place, covered)) {
            return Err(FormatError::Checksum);
        }
        if first_page > place.page {
            return Err(FormatError::Field("first page of a piece"));
        }
        let records =
            bytes.chunks_exact(RECORD_BYTES).take(count).map(Record::decode).collect::<Result<_, _>>()?;
        Ok(Self { next, session, ordinal, first_page, region_map_sequence, proved, records })
    }
}

/// Continuation of the journal after its last block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SummaryChain {
    /// Consecutive summaries, in order.
    pub summaries: Vec<Summary>,
    /// `true` if a summary follows that does not continue the last one: durable data between them is lost.
    pub broken: bool,
}

impl SummaryChain {
    /// Follows the summaries after the journal block before `next`, which `session` wrote. `tail` is the slot from
    /// `unit.page` on.
    #[must_use]
    pub fn follow(uuid: [u8; 16], unit: &GrowingUnit, next: JournalSeq, session: u64, tail: &[u8]) -> Self {
        let mut chain = Self::default();
        let mut first_page = unit.page;
        for (page, bytes) in (unit.page..).zip(tail.chunks_exact(BLOCK)) {
            let place = SummaryPlace { uuid, slot: unit.slot, generation: unit.generation, page };
            let Ok(summary) = Summary::decode(bytes, &place, next) else { continue };
            if summary.session != session {
                continue;
            }
            let ordinal = u64_from_usize(chain.summaries.len());
            if u64::from(summary.ordinal) != ordinal || summary.first_page != first_page {
                chain.broken = true;
                break;
            }
            first_page = page.saturating_add(1);
            chain.summaries.push(summary);
        }
        chain
    }
}

fn binding(place: &SummaryPlace, next: JournalSeq) -> Binding {
    Binding {
        salt: Salt::NONE,
        kind: BlockType::Summary,
        place: u64::from(place.slot.0) << 32 | u64::from(place.page),
        sequence: next.0,
        generation: u64::from(place.generation.0),
    }
}

/// Returns the bytes that the checksum covers after its binding.
fn with_uuid(place: &SummaryPlace, covered: &[u8]) -> Vec<u8> {
    [&place.uuid, covered].concat()
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
