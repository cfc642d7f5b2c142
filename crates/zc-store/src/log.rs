//! The log: records and contents go into batches, batches into segments.
//!
//! Job: collect what belongs together in the open batch, give it its place at once, write it when it is full or a commit
//! asks. Invariants: batches are numbered without gaps; each names the segment in which the log goes on; the records of
//! one change are in one batch; contents can be read from memory until their write has ended. What it does not do: flush.

use std::collections::BTreeMap;

use zc_core::{BufId, BufSlice, OpId};

use crate::ids::{BatchSeq, Place};
use crate::limits::{self, BLOCK_BYTES};
use crate::media::Block;
use crate::media::batch::{BatchHeader, RECORDS_BYTES_MAX, Record};
use crate::media::superblock::{LogPlace, Superblock};
use crate::seam::{Action, Piece, PieceData};
use crate::segments::Segments;

/// No segment is left for the log, or none could hold so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogFull;

#[derive(Debug)]
struct Written {
    op: OpId,
    contents: Vec<(Place, BufId)>,
}

/// The log of one session.
#[derive(Debug)]
pub(crate) struct Log {
    uuid: [u8; 16],
    batch_bytes_max: u32,
    /// Where the open batch begins, and its number.
    at: LogPlace,
    records: Vec<Record>,
    records_bytes: usize,
    payload_bytes: u32,
    pieces: Vec<Piece>,
    contents: Vec<(Place, BufId)>,
    memory: BTreeMap<Place, BufSlice>,
    in_flight: BTreeMap<BatchSeq, Written>,
    /// Bytes written since the last checkpoint began.
    pub(crate) since_checkpoint_bytes: u64,
    total_bytes: u64,
    /// The last batch that changes what recovery finds.
    last_change: BatchSeq,
    /// Batches up to this one are stated to be durable by a header behind them.
    stated: BatchSeq,
}

impl Log {
    pub(crate) fn new(uuid: [u8; 16], at: LogPlace, batch_bytes_max: u32) -> Self {
        Self {
            uuid,
            batch_bytes_max,
            at,
            records: Vec::new(),
            records_bytes: 0,
            payload_bytes: 0,
            pieces: Vec::new(),
            contents: Vec::new(),
            memory: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            since_checkpoint_bytes: 0,
            total_bytes: 0,
            last_change: BatchSeq(0),
            stated: BatchSeq(0),
        }
    }

    /// Returns `true` if a change is durable and no header says so.
    pub(crate) fn is_unproven(&self, durable: BatchSeq) -> bool {
        self.stated < durable.min(self.last_change)
    }

    /// The state that both superblocks name has all changes before this batch.
    pub(crate) fn checkpointed(&mut self, seq: BatchSeq) {
        self.stated = self.stated.max(BatchSeq(seq.0 - 1));
    }

    /// Returns `true` if a header alone fits the present segment.
    pub(crate) fn has_block(&self, segment_bytes: u32) -> bool {
        self.fits(0, 0, segment_bytes)
    }

    /// Where the next batch goes; nothing is in the open one.
    pub(crate) fn place(&self) -> LogPlace {
        self.at
    }

    /// Bytes written in this session.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The last batch that was closed.
    pub(crate) fn last_closed(&self) -> BatchSeq {
        BatchSeq(self.at.seq.0 - 1)
    }

    /// The open batch if anything is in it, or the last one.
    pub(crate) fn newest(&self) -> BatchSeq {
        if self.is_empty() { self.last_closed() } else { self.at.seq }
    }

    /// All batches up to this one have been written.
    pub(crate) fn written(&self) -> BatchSeq {
        self.in_flight.keys().next().map_or_else(|| self.last_closed(), |first| BatchSeq(first.0 - 1))
    }

    /// Whether records and contents of these sizes fit the open batch.
    fn fits(&self, records_bytes: usize, payload_bytes: u32, segment_bytes: u32) -> bool {
        let batch = BLOCK_BYTES + (self.payload_bytes + payload_bytes).next_multiple_of(BLOCK_BYTES);
        self.records_bytes + records_bytes <= RECORDS_BYTES_MAX
            && (batch <= self.batch_bytes_max || self.records.is_empty())
            && batch <= segment_bytes - self.at.place.offset_bytes
    }

    /// Makes room for one change: what is put until the next call is in one batch.
    pub(crate) fn make_room(
        &mut self,
        records_bytes: usize,
        payload_bytes: u32,
        segments: &mut Segments,
        durable: BatchSeq,
        next_op: &mut u64,
        out: &mut Vec<Action>,
    ) -> Result<(), LogFull> {
        let segment_bytes = segments.segment_bytes();
        if records_bytes > RECORDS_BYTES_MAX || payload_bytes > limits::request_bytes_max(segment_bytes) {
            return Err(LogFull);
        }
        if self.fits(records_bytes, payload_bytes, segment_bytes) {
            return Ok(());
        }
        self.close(segment_bytes, durable, next_op, out);
        if self.fits(records_bytes, payload_bytes, segment_bytes) {
            return Ok(());
        }
        let next = segments.take().ok_or(LogFull)?;
        segments.seal(self.at.place.segment, self.at.place.offset_bytes, self.last_closed());
        self.at.place = Place { segment: self.at.next, offset_bytes: 0 };
        self.at.next = next;
        segments.open(self.at.place.segment, self.at.seq);
        Ok(())
    }

    /// Where the next contents will be.
    fn next_place(&self) -> Place {
        let offset_bytes = self.at.place.offset_bytes + BLOCK_BYTES + self.payload_bytes;
        Place { segment: self.at.place.segment, offset_bytes }
    }

    /// Puts contents; the record that names them must follow.
    pub(crate) fn put_contents(&mut self, bytes: BufSlice) -> Place {
        let place = self.next_place();
        self.put_piece(bytes.len_bytes, PieceData::Payload(bytes));
        self.contents.push((place, bytes.buf));
        self.memory.insert(place, bytes);
        place
    }

    /// Where the next page will be. Pages are in batches of their own, so it is the start of a block.
    pub(crate) fn page_place(&self) -> Place {
        self.next_place()
    }

    pub(crate) fn put_page(&mut self, page: Box<Block>) {
        self.put_piece(BLOCK_BYTES, PieceData::Page(page));
    }

    fn put_piece(&mut self, len_bytes: u32, data: PieceData) {
        self.pieces.push(Piece { offset_bytes: BLOCK_BYTES + self.payload_bytes, data });
        self.payload_bytes += len_bytes;
    }

    pub(crate) fn put_record(&mut self, record: Record) {
        self.records_bytes += record.bytes();
        self.records.push(record);
    }

    /// Whether contents in the open batch are in this buffer.
    pub(crate) fn holds(&self, buf: BufId) -> bool {
        self.contents.iter().any(|(_, held)| *held == buf)
    }

    /// Contents that may not be on the device yet.
    pub(crate) fn memory(&self, place: Place) -> Option<BufSlice> {
        self.memory.get(&place).copied()
    }

    /// Writes the open batch, if anything is in it.
    pub(crate) fn close(
        &mut self,
        segment_bytes: u32,
        durable: BatchSeq,
        next_op: &mut u64,
        out: &mut Vec<Action>,
    ) {
        if !self.records.is_empty() {
            self.write_batch(segment_bytes, durable, next_op, out);
        }
    }

    /// Writes a header that says what is durable, and nothing else. The open batch is empty, and has room for it.
    pub(crate) fn prove(
        &mut self,
        segment_bytes: u32,
        durable: BatchSeq,
        next_op: &mut u64,
        out: &mut Vec<Action>,
    ) {
        self.write_batch(segment_bytes, durable, next_op, out);
    }

    fn write_batch(
        &mut self,
        segment_bytes: u32,
        durable: BatchSeq,
        next_op: &mut u64,
        out: &mut Vec<Action>,
    ) {
        // Pages that go missing are found by the checksums that lead to them.
        if self.records.iter().any(|record| !matches!(record, Record::Page(..))) {
            self.last_change = self.at.seq;
        }
        self.stated = durable;
        let payload_bytes = self.payload_bytes.next_multiple_of(BLOCK_BYTES);
        let header = BatchHeader {
            seq: self.at.seq,
            nonce: self.at.nonce,
            durable,
            next: self.at.next,
            payload_bytes,
            records: core::mem::take(&mut self.records),
        };
        *next_op += 1;
        let op = OpId(*next_op);
        out.push(Action::WriteBatch {
            op,
            offset_bytes: Superblock::device_offset(self.at.place, segment_bytes),
            len_bytes: header.bytes(),
            header: header.encode(self.uuid, self.at.place),
            pieces: core::mem::take(&mut self.pieces),
        });
        self.in_flight.insert(self.at.seq, Written { op, contents: core::mem::take(&mut self.contents) });
        self.at.place.offset_bytes += header.bytes();
        self.at.seq.0 += 1;
        self.since_checkpoint_bytes += u64::from(header.bytes());
        self.total_bytes += u64::from(header.bytes());
        self.records_bytes = 0;
        self.payload_bytes = 0;
    }

    /// A write ended. True if it was a batch of this log.
    pub(crate) fn write_ended(&mut self, op: OpId, out: &mut Vec<Action>) -> bool {
        let Some((seq, _)) = self.in_flight.iter().find(|(_, written)| written.op == op) else {
            return false;
        };
        let seq = *seq;
        for (place, buf) in self.in_flight.remove(&seq).map(|written| written.contents).into_iter().flatten()
        {
            self.memory.remove(&place);
            out.push(Action::Free { buf });
        }
        true
    }
}
