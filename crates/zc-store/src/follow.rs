//! To the end of the log: header after header, and whether the device lost one.
//!
//! Invariants: every header that is followed has the expected number, the nonce of the session and its checksum; the
//! segments on the way are told what is in them. What it does not do: look at records.

use crate::ids::{BatchSeq, Place};
use crate::limits::BLOCK_BYTES;
use crate::media::Block;
use crate::media::batch::BatchHeader;
use crate::media::superblock::LogPlace;
use crate::segments::Segments;

/// A walk along the log.
#[derive(Debug)]
pub(crate) struct Follow {
    at: LogPlace,
    uuid: [u8; 16],
    segment_bytes: u32,
    durable: BatchSeq,
    /// A batch behind the end is there.
    torn: bool,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The next batch is looked for behind the last,
    Here,
    /// then at the start of the next segment.
    Next,
    /// There is none. Is there a later one, here
    AfterHere(Place),
    /// or there, that knows of it?
    AfterNext,
}

/// How it goes on.
#[derive(Debug)]
pub(crate) enum Followed {
    /// This block is needed.
    More(Place),
    /// The last batch; those up to `durable` were durable. `lost`: one behind the end was, too. `torn`: a later one is
    /// there.
    Ended { end: BatchSeq, durable: BatchSeq, lost: bool, torn: bool },
}

impl Follow {
    pub(crate) fn new(at: LogPlace, uuid: [u8; 16], segment_bytes: u32) -> Self {
        let durable = BatchSeq(at.seq.0 - 1);
        let mut follow = Self { at, uuid, segment_bytes, durable, torn: false, stage: Stage::Here };
        follow.look_here();
        follow
    }

    fn look_here(&mut self) {
        let fits = self.at.place.offset_bytes + BLOCK_BYTES <= self.segment_bytes;
        self.stage = if fits { Stage::Here } else { Stage::Next };
    }

    fn start_of_next(&self) -> Place {
        Place { segment: self.at.next, offset_bytes: 0 }
    }

    /// The block that is needed now.
    pub(crate) fn wants(&self) -> Place {
        match self.stage {
            Stage::Here => self.at.place,
            Stage::Next | Stage::AfterNext => self.start_of_next(),
            Stage::AfterHere(place) => place,
        }
    }

    /// The block that was wanted.
    pub(crate) fn read(&mut self, block: &Block, segments: &mut Segments) -> Followed {
        let place = self.wants();
        let header = BatchHeader::decode(&block[..], self.uuid, place, self.segment_bytes).ok();
        let header =
            header.filter(|header| header.nonce == self.at.nonce && header.next.0 < segments.count());
        match self.stage {
            Stage::Here | Stage::Next => {
                if let Some(header) = header.filter(|header| header.seq == self.at.seq) {
                    self.step(&header, place, segments);
                } else if self.stage == Stage::Here && self.at.place.offset_bytes != 0 {
                    self.stage = Stage::Next;
                } else {
                    self.end_here(segments);
                }
            }
            Stage::AfterHere(_) | Stage::AfterNext => {
                let later = header.filter(|header| header.seq > self.at.seq);
                self.torn |= later.is_some();
                if later.is_some_and(|header| header.durable >= self.at.seq) {
                    return self.ended(true);
                }
                if self.stage == Stage::AfterNext {
                    return self.ended(false);
                }
                self.look_after(Place { offset_bytes: place.offset_bytes + BLOCK_BYTES, ..place });
            }
        }
        Followed::More(self.wants())
    }

    fn step(&mut self, header: &BatchHeader, place: Place, segments: &mut Segments) {
        if self.stage == Stage::Next {
            segments.seal(self.at.place.segment, self.at.place.offset_bytes, BatchSeq(0));
            segments.open(place.segment, header.seq);
        }
        self.durable = self.durable.max(header.durable);
        self.at.place = Place { offset_bytes: place.offset_bytes + header.bytes(), ..place };
        self.at.next = header.next;
        self.at.seq.0 += 1;
        self.look_here();
    }

    /// No session writes there again.
    fn end_here(&mut self, segments: &mut Segments) {
        let end = self.at.place.offset_bytes.max(BLOCK_BYTES);
        segments.seal(self.at.place.segment, end, BatchSeq(0));
        self.look_after(self.at.place);
    }

    fn look_after(&mut self, place: Place) {
        let fits = place.offset_bytes + BLOCK_BYTES <= self.segment_bytes;
        self.stage = if fits { Stage::AfterHere(place) } else { Stage::AfterNext };
    }

    fn ended(&self, lost: bool) -> Followed {
        Followed::Ended { end: BatchSeq(self.at.seq.0 - 1), durable: self.durable, lost, torn: self.torn }
    }
}
