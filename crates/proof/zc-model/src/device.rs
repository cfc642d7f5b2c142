//! Contents of the cache device, and the parts that a crash may lose.

use crate::loss::Loss;

/// A set of versions: the bit of a version is [`bit`].
pub(crate) type Set = u8;

/// The bit of a volume's version in a [`Set`].
pub(crate) fn bit(volume: u8, version: u8) -> Set {
    1 << (volume * 4 + version - 1)
}

/// The bits of a volume.
pub(crate) fn of(volume: u8) -> Set {
    0b1111 << (volume * 4)
}

/// A record of journal, summary or checkpoint. One version is an epoch here, so its records and `Committed` are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Record {
    /// An epoch and its commit.
    Committed {
        /// Volume.
        volume: u8,
        /// The version that it wrote.
        version: u8,
    },
    /// All epochs up to this one are on the origin.
    Clean {
        /// Volume.
        volume: u8,
        /// The newest version that the origin has.
        version: u8,
    },
}

/// Progress of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Written {
    /// The write is in flight; it is durable on completion, or not.
    Flying {
        /// Durable on completion (FUA).
        durably: bool,
    },
    /// The write has completed, and no flush has covered it yet.
    Ended,
    /// The write survives a crash.
    Durable,
}

/// A journal block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Block {
    /// Records.
    pub(crate) records: Vec<Record>,
    /// Commits in blocks before this one were complete.
    pub(crate) proved: u8,
    pub(crate) written: Written,
}

/// A summary at the end of a piece.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Summary {
    /// The block that would repeat it.
    pub(crate) next: u8,
    pub(crate) records: Vec<Record>,
    pub(crate) proved: u8,
    pub(crate) durable: bool,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Checkpoint {
    /// First block that a restart reads.
    pub(crate) journal_start: u8,
    /// Epochs that the origins lack, oldest first.
    pub(crate) committed: [Vec<u8>; crate::VOLUMES],
    pub(crate) clean: [u8; crate::VOLUMES],
}

/// Everything that outlives the process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Device {
    /// Bodies whose piece is in flight, indexed by durable write.
    pub(crate) flying: [Set; 2],
    /// Bodies that are written and that no flush covered yet.
    pub(crate) ended: Set,
    pub(crate) durable: Set,
    /// The clean unit whose content is shared.
    pub(crate) clean_unit: Option<Written>,
    /// The journal, from block `first` on.
    pub(crate) blocks: Vec<Block>,
    pub(crate) first: u8,
    pub(crate) summaries: Vec<Summary>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) checkpoint_in_flight: Option<Checkpoint>,
    /// Durable contents of each origin, and contents that it may lose.
    pub(crate) origin: [u8; crate::VOLUMES],
    pub(crate) origin_unflushed: [Option<u8>; crate::VOLUMES],
}

impl Device {
    /// The number of the next block.
    pub(crate) fn next(&self) -> u8 {
        self.first + small(self.blocks.len())
    }

    /// Blocks before this one are durable.
    pub(crate) fn durable_next(&self) -> u8 {
        let durable = self.blocks.iter().take_while(|block| block.written == Written::Durable);
        self.first + small(durable.count())
    }

    /// Returns `true` if this block, and all before it, are durable.
    pub(crate) fn is_durable(&self, block: u8) -> bool {
        block < self.durable_next()
    }

    /// Returns `true` if this block is in flight no more.
    pub(crate) fn has_ended(&self, block: u8) -> bool {
        let flying = |block: &Block| matches!(block.written, Written::Flying { .. });
        block < self.first || self.blocks.get(usize::from(block - self.first)).is_some_and(|it| !flying(it))
    }

    pub(crate) fn is_block_flying(&self) -> bool {
        self.blocks.last().is_some_and(|block| matches!(block.written, Written::Flying { .. }))
    }

    /// Bodies that are neither durable nor lost.
    pub(crate) fn in_doubt(&self) -> Set {
        self.flying[0] | self.flying[1] | self.ended
    }

    /// Every crash: each write that is not durable is on the medium or not.
    pub(crate) fn crashes(&self) -> impl Iterator<Item = Crash> + use<> {
        let bodies = self.in_doubt();
        let blocks = self.blocks.iter().filter(|block| block.written != Written::Durable).count();
        let switches = [
            self.clean_unit.is_some_and(|unit| unit != Written::Durable),
            self.summaries.iter().any(|summary| !summary.durable),
            self.checkpoint_in_flight.is_some(),
            self.origin_unflushed[0].is_some(),
            self.origin_unflushed[1].is_some(),
        ];
        let widths = bodies.count_ones() as usize + blocks + switches.iter().filter(|wide| **wide).count();
        (0..1_u32 << widths).map(move |outcome| {
            let mut outcome = outcome;
            let mut draw = |wide: bool| {
                let drawn = wide && outcome & 1 == 1;
                outcome >>= u32::from(wide);
                drawn
            };
            let kept =
                (0..8).filter(|body| draw(bodies >> body & 1 == 1)).fold(0, |set, body| set | 1 << body);
            let blocks = (0..blocks).filter(|_| draw(true)).fold(0, |set, block| set | 1 << block);
            let [clean_unit, summary, checkpoint, first, second] = switches.map(&mut draw);
            Crash { bodies: kept, blocks, clean_unit, summary, checkpoint, origins: [first, second] }
        })
    }

    /// Returns the state after a crash: all of it is durable.
    pub(crate) fn after(&self, crash: Crash) -> Result<Self, Loss> {
        let durable = self.durable | (self.in_doubt() & crash.bodies);
        let clean_unit = self.clean_unit.filter(|unit| *unit == Written::Durable || crash.clean_unit);
        let checkpoint = match &self.checkpoint_in_flight {
            Some(new) if crash.checkpoint => new.clone(),
            _ => self.checkpoint.clone(),
        };
        let mut doubtful = 0;
        let (mut blocks, mut lost) = (Vec::new(), None);
        for (block, sequence) in self.blocks.iter().zip(self.first..) {
            let kept = if block.written == Written::Durable {
                true
            } else {
                doubtful += 1;
                crash.blocks >> (doubtful - 1) & 1 == 1
            };
            // Blocks before the checkpoint's start are not read.
            if !kept && sequence >= checkpoint.journal_start {
                lost = lost.or(Some(sequence));
            }
            // The proof in a block after a lost one reveals the gap.
            if let Some(lost) = lost.filter(|lost| kept && block.proved > *lost) {
                return Err(Loss::Gap { block: lost });
            }
            if lost.is_none() {
                blocks.push(Block { written: Written::Durable, ..block.clone() });
            }
        }
        let summaries = self.summaries.iter().filter(|summary| summary.durable || crash.summary).cloned();
        let mut origin = self.origin;
        for (volume, kept) in crash.origins.iter().enumerate() {
            if let Some(version) = self.origin_unflushed[volume].filter(|_| *kept) {
                origin[volume] = version;
            }
        }
        Ok(Self {
            flying: [0; 2],
            ended: 0,
            durable,
            clean_unit: clean_unit.map(|_| Written::Durable),
            blocks,
            first: self.first,
            summaries: summaries.collect(),
            checkpoint,
            checkpoint_in_flight: None,
            origin,
            origin_unflushed: [None; 2],
        })
    }
}

/// Subset of the non-durable writes that survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crash {
    bodies: Set,
    /// By their order among the blocks that were not durable.
    blocks: u8,
    clean_unit: bool,
    summary: bool,
    checkpoint: bool,
    origins: [bool; crate::VOLUMES],
}

/// A number that the bounds of the model keep small.
pub(crate) fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
