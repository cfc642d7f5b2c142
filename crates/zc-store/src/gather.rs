//! Gathering: what lies side by side in a volume is brought side by side on the device.
//!
//! Job: remember which windows of volumes were written, and, while no client writes and space is ample, look whether the
//! chunks of one lie scattered; if so the cleaner moves them, by address. Invariants: it changes no map and no number,
//! only places, by the cleaner's own moves; a window is looked at once for each time that it was written. What it does
//! not do: gather on devices to which any place is as near as the next (`Config::gather`), or what snapshots alone hold.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use zc_core::{ErrorKind, OpId};

use crate::cleaner::{Move, Step, Work};
use crate::ids::{ChunkNo, RootId};
use crate::limits::{
    GATHER_BYTES, GATHER_JUMPS_MAX, GATHER_NEAR_BYTES, GATHER_READ_BYTES, GATHER_READ_JUMPS,
    GATHER_WINDOWS_MAX,
};
use crate::media::batch::Stored;
use crate::media::superblock::Superblock;
use crate::pager::Missing;
use crate::seam::Action;
use crate::store::Open;

/// Addresses that one step looks at.
const ADDRESSES_PER_STEP: u64 = 64;

/// A volume, and the number of a window in it.
type Window = (RootId, u64);

/// Windows that were written since they were looked at.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    written: BTreeSet<Window>,
    /// The last one that was looked at: the next one comes behind it, so that none waits for ever.
    last: Window,
}

/// A window that is being looked at.
#[derive(Debug)]
pub(crate) struct Look {
    window: Window,
    next: u64,
    end: u64,
    found: VecDeque<(ChunkNo, Stored)>,
    run: Run,
}

/// Chunks in the order in which they are read.
#[derive(Debug, Default)]
struct Run {
    /// Where the last one ends on the device.
    at_bytes: u64,
    /// How often the next one was not near.
    jumps: u32,
    bytes: u64,
}

/// Chunks that are brought together, by address.
#[derive(Debug)]
pub(crate) struct Gathering {
    window: Window,
    left: VecDeque<(ChunkNo, Stored)>,
    step: GatherStep,
}

#[derive(Debug)]
enum GatherStep {
    /// The next ones are to be read,
    Next,
    /// are being read,
    Contents { found: Vec<(ChunkNo, Stored)>, op: OpId, first_buf: u64 },
    /// and go into the log.
    Moving(VecDeque<Move>),
}

impl Gathering {
    pub(crate) fn waits_for(&self, op: OpId) -> bool {
        matches!(self.step, GatherStep::Contents { op: waits, .. } if waits == op)
    }
}

impl Windows {
    fn insert(&mut self, window: Window) {
        // What does not fit is gathered when it is written again.
        if self.written.len() < GATHER_WINDOWS_MAX {
            self.written.insert(window);
        }
    }

    /// The next one, round and round.
    fn take(&mut self) -> Option<Window> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.written.range(behind).next().or_else(|| self.written.first()).copied()?;
        self.written.remove(&next);
        self.last = next;
        Some(next)
    }
}

/// Chunks of a window.
fn window_chunks(chunk_shift: u8) -> u64 {
    GATHER_BYTES >> chunk_shift
}

impl Run {
    fn add(&mut self, stored: &Stored, segment_bytes: u32) {
        let start = Superblock::device_offset(stored.place, segment_bytes);
        let is_near = start.checked_sub(self.at_bytes).is_some_and(|gap| gap <= GATHER_NEAR_BYTES);
        self.jumps += u32::from(!is_near && self.bytes > 0);
        self.at_bytes = start + u64::from(stored.stored_bytes);
        self.bytes += u64::from(stored.stored_bytes);
    }

    /// So much is read at once that a reader who comes then waits for a tenth of a second of a disk.
    fn is_enough(&self) -> bool {
        self.jumps >= GATHER_READ_JUMPS || self.bytes >= GATHER_READ_BYTES
    }
}

impl Gathering {
    /// The next chunks to be read.
    fn take_some(&mut self, segment_bytes: u32) -> Vec<(ChunkNo, Stored)> {
        let (mut run, mut some) = (Run::default(), Vec::new());
        while !run.is_enough()
            && let Some((number, stored)) = self.left.pop_front()
        {
            run.add(&stored, segment_bytes);
            some.push((number, stored));
        }
        some
    }
}

impl Open {
    /// A client wrote there.
    pub(crate) fn written_for_gathering(&mut self, id: RootId, first: u64, chunks: usize) {
        let Some(root) = self.trees.root(id).filter(|_| self.config.gather) else { return };
        let size = window_chunks(root.chunk_shift);
        let last = first + zc_core::u64_from_usize(chunks.max(1)) - 1;
        for window in first / size..=last / size {
            self.windows.insert((id, window));
        }
    }

    /// Whether it keeps no client waiting.
    pub(crate) fn may_gather(&self) -> bool {
        let ample = self.segments_of(self.config.clean_below_percent);
        self.config.gather
            && self.cleaner.is_quiet(self.config.quiet_ms)
            && self.changes.is_empty()
            && self.trees.segments.free_segments() > ample
            && !self.is_space_short()
            && !self.stopping
            && self.opened
    }

    /// The next window, if there is one.
    pub(crate) fn next_window(&mut self) -> Option<Work> {
        let window = self.windows.take()?;
        let root = self.trees.root(window.0)?;
        let size = window_chunks(root.chunk_shift);
        let next = window.1 * size;
        let end = (next + size).min(root.size_chunks);
        Some(Work::Looking(Look { window, next, end, found: VecDeque::new(), run: Run::default() }))
    }

    /// Whether there is a window to be looked at now.
    pub(crate) fn has_windows(&self) -> bool {
        !self.windows.written.is_empty() && self.may_gather()
    }

    /// Looks at some addresses; at the end of the window decides.
    pub(crate) fn look_step(&mut self, mut look: Look) -> Result<Step, Missing> {
        let looked = self.look_at_some(&mut look);
        if looked.is_err() || look.next < look.end {
            self.cleaner.set_work(Work::Looking(look));
            return looked.map(|()| Step::Again);
        }
        if look.run.jumps > GATHER_JUMPS_MAX {
            self.stats.windows_gathered += 1;
            // What it leaves behind are segments of which little is live.
            self.cleaner.garbage_made();
            let Look { window, found: left, .. } = look;
            let gathering = Gathering { window, left, step: GatherStep::Next };
            self.cleaner.set_work(Work::Gathering(gathering));
        }
        Ok(Step::Again)
    }

    /// Reads or moves some chunks of a window; ends when all were moved, or when clients come.
    pub(crate) fn gather_step(&mut self, mut gathering: Gathering) -> Result<Step, Missing> {
        let step = match &mut gathering.step {
            GatherStep::Next if gathering.left.is_empty() => return Ok(Step::Again),
            GatherStep::Next if !self.may_gather() => {
                self.windows.insert(gathering.window);
                return Ok(Step::Again);
            }
            GatherStep::Next => {
                let found = gathering.take_some(self.superblock.segment_bytes);
                found.iter().for_each(|(_, stored)| self.trees.segments.pin(stored.place.segment));
                let (op, first_buf) = self.fetch_to_move(&found);
                gathering.step = GatherStep::Contents { found, op, first_buf };
                Ok(Step::Waits)
            }
            GatherStep::Contents { .. } => Ok(Step::Waits),
            GatherStep::Moving(moves) => {
                let moved = moves.front().map_or(Ok(()), |next| self.move_chunk(*next));
                if moved.is_ok() && moves.pop_front().is_none() {
                    gathering.step = GatherStep::Next;
                }
                moved.map(|()| Step::Again)
            }
        };
        self.cleaner.set_work(Work::Gathering(gathering));
        step
    }

    pub(crate) fn gather_fetched(&mut self, gathering: Gathering, results: Vec<Result<(), ErrorKind>>) {
        let Gathering { window, left, step } = gathering;
        let GatherStep::Contents { found, first_buf, .. } = step else { return };
        found.iter().for_each(|(_, stored)| self.trees.segments.unpin(stored.place.segment));
        // What is damaged stays where it is: whoever reads it is told.
        let step = GatherStep::Moving(self.moves_of(found, first_buf, results));
        self.cleaner.set_work(Work::Gathering(Gathering { window, left, step }));
    }

    /// A page that it needs cannot be read.
    pub(crate) fn give_up_window(&mut self) {
        if let Work::Gathering(Gathering { step: GatherStep::Moving(moves), .. }) = self.cleaner.take_work() {
            self.out.extend(moves.into_iter().map(|(_, _, buf)| Action::Free { buf }));
        }
    }

    fn look_at_some(&mut self, look: &mut Look) -> Result<(), Missing> {
        let size = self.trees.root(look.window.0).map_or(0, |root| root.size_chunks);
        look.end = look.end.min(size);
        let until = look.end.min(look.next + ADDRESSES_PER_STEP);
        while look.next < until {
            let number = self.trees.lookup(look.window.0, look.next)?;
            if number.0 != 0
                && let Some(stored) = self.trees.stored(number)?
            {
                look.run.add(&stored, self.superblock.segment_bytes);
                look.found.push_back((number, stored));
            }
            look.next += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Place, SegmentNo};

    fn stored(segment: u32, offset_bytes: u32) -> Stored {
        Stored {
            place: Place { segment: SegmentNo(segment), offset_bytes },
            stored_bytes: 4096,
            raw_bytes: 8192,
            crc: 0,
            codec: zc_core::Codec::Lz4,
            print: None,
        }
    }

    #[test]
    fn what_follows_within_reach_is_no_jump_and_what_lies_before_is_one() {
        let mut run = Run::default();
        let mut add = |segment, offset_bytes| {
            run.add(&stored(segment, offset_bytes), 4 << 20);
            run.jumps
        };
        assert_eq!(add(7, 4096), 0, "the first is no jump");
        assert_eq!((add(7, 8192), add(7, 12_288 + (1 << 20))), (0, 0));
        assert_eq!(add(7, 24_576 + (2 << 20)), 1, "too far");
        assert_eq!(add(7, 4096), 2, "back");
        assert_eq!((add(8, (4 << 20) - 4096), add(9, 4096)), (3, 3), "the next segment is near");
    }

    #[test]
    fn each_window_has_its_turn() {
        let mut windows = Windows::default();
        for window in [3, 1, 2] {
            windows.insert((RootId(1), window));
        }
        let mut taken = Vec::new();
        for _ in 0..5 {
            let (root, window) = windows.take().unwrap();
            taken.push(window);
            windows.insert((root, window));
        }
        assert_eq!(taken, [1, 2, 3, 1, 2]);
    }

    #[test]
    fn what_is_read_at_once_has_few_jumps_and_few_bytes() {
        let groups = |segment: fn(u32) -> u32, offset: fn(u32) -> u32| {
            let left = (0..1024).map(|at| (ChunkNo(1), stored(segment(at), offset(at)))).collect();
            let mut gathering = Gathering { window: (RootId(1), 0), left, step: GatherStep::Next };
            std::iter::from_fn(|| Some(gathering.take_some(4 << 20).len()).filter(|len| *len > 0))
                .collect::<Vec<usize>>()
        };
        assert_eq!(groups(|_| 1, |at| 4096 * at), [512, 512], "2 MiB each");
        let back = groups(|at| 1000 - at / 8, |at| 4096 * (at % 8));
        assert_eq!(back[..2], [65, 64], "eight jumps each, from runs of eight chunks");
    }
}
