//! A cache device opened read-only, with its metadata.
//!
//! Job: read superblock copies, volume tables, region maps, checkpoints and the journal, with their faults.
//! Invariants: never writes; shares a lock, so a daemon's cache is refused; sizes come from a validated geometry.
//! It does not judge. `check` decides on problems, `dump` shows contents.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use zc_core::{JournalSeq, limits::BLOCK_BYTES, u64_from_usize, usize_from_u32, usize_from_u64};
use zc_format::recover::{Choice, JournalReplay, ReplayEnd, newest_superblock};
use zc_format::{
    Access, BLOCK, CheckpointHeader, FormatError, Geometry, GrowingUnit, ImageDirectory, ImageHead,
    ImagePlace, JOURNAL_DEVICE, JournalBlock, JournalLabel, REGION_MAP_BYTES, Record, RegionMap,
    SUPERBLOCK_COPIES, SummaryChain, Superblock, VOLUME_TABLE_BYTES, VolumeTable, decode_checkpoint_block,
};
use zc_io::{AlignedBuf, BlockFile, IoError, OpenOptions};

const JOURNAL_ELSEWHERE: &str =
    "the cache keeps its journal on a device of its own: --journal has to name it";

#[derive(Debug)]
pub(crate) struct Image {
    file: Arc<BlockFile>,
    journal: Option<Arc<BlockFile>>,
    /// Copies of the superblock; the newest is used.
    pub(crate) superblocks: Choice<Superblock>,
    pub(crate) superblock: Superblock,
    /// Copies of the superblock that are older than the newest.
    pub(crate) older_superblocks: Vec<usize>,
    /// Reason why the first block of the journal's device does not identify its cache.
    pub(crate) label_fault: Option<String>,
}

/// A structure with two copies: each decoded, damaged, unreadable or never written.
#[derive(Debug)]
pub(crate) enum CopyState<T> {
    Valid(T),
    Blank,
    /// The index image was written over it.
    IndexImage,
    Damaged(FormatError),
    /// The device failed to return it.
    Unreadable(String),
}

impl<T> CopyState<T> {
    pub(crate) const fn valid(&self) -> Option<&T> {
        if let Self::Valid(value) = self { Some(value) } else { None }
    }

    fn of(read: Result<AlignedBuf, IoError>, decode: impl FnOnce(&[u8]) -> Result<T, FormatError>) -> Self {
        match read {
            Err(error) => Self::Unreadable(error.to_string()),
            Ok(bytes) => match decode(&bytes) {
                Ok(value) => Self::Valid(value),
                Err(_) if bytes.iter().all(|&byte| byte == 0) => Self::Blank,
                Err(fault) => Self::Damaged(fault),
            },
        }
    }
}

/// Returns the valid copy with the larger sequence, and its number.
pub(crate) fn newest<T>(copies: &[CopyState<T>; 2], sequence: impl Fn(&T) -> u64) -> Option<(&T, usize)> {
    let valid = copies.iter().enumerate().filter_map(|(copy, found)| Some((found.valid()?, copy)));
    valid.max_by_key(|(value, _)| sequence(value))
}

/// Record blocks of a checkpoint area.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// All that could be read, in order.
    pub(crate) records: Vec<Record>,
    /// Blocks that are not valid, with why.
    pub(crate) bad_blocks: Vec<(u64, String)>,
}

/// The journal from the newest checkpoint on.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) blocks: Vec<JournalBlock>,
    /// The first number that was not replayed.
    pub(crate) next: JournalSeq,
    pub(crate) end: Option<ReplayEnd>,
    /// A later block of the same journal: the blocks in between are corrupt.
    pub(crate) beyond: Option<JournalSeq>,
    /// Commits in blocks before this one were durable, as blocks beyond the gap have it.
    pub(crate) proved_beyond: JournalSeq,
    /// The first block that cannot be read, why, and how many there are.
    pub(crate) unreadable: Option<(JournalSeq, String, u64)>,
    /// Continuation after the last block, in a dirty unit.
    pub(crate) chain: SummaryChain,
}

impl Journal {
    /// All records, in order of replay.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        let summarized = self.chain.summaries.iter().flat_map(|summary| &summary.records);
        self.blocks.iter().flat_map(|block| &block.records).chain(summarized)
    }
}

impl Image {
    /// Opens a cache, and its separate journal if named.
    ///
    /// # Errors
    /// When it cannot be opened, is in use, or has no valid superblock; when the journal belongs to another cache.
    pub(crate) fn open(path: &Path, journal: Option<&Path>) -> anyhow::Result<Self> {
        let options = OpenOptions { direct: false, write: false, create_len: None };
        let file = Arc::new(BlockFile::open(path, options)?);
        let journal = journal.map(|journal| BlockFile::open(journal, options)).transpose()?;
        Self::of(file, journal.map(Arc::new))
    }

    /// Examines a cache in an open file, and its separate journal.
    ///
    /// # Errors
    /// When there is no valid superblock; when the journal belongs to another cache.
    pub(crate) fn of(file: Arc<BlockFile>, journal: Option<Arc<BlockFile>>) -> anyhow::Result<Self> {
        let len = file.len_bytes();
        let mut superblocks = probe(&file, len);
        let size = superblocks.newest.as_ref().map(|(superblock, _)| superblock.geometry.device_bytes);
        let block = u64::from(BLOCK_BYTES);
        if size.is_some_and(|size| size < len / block * block) {
            // The device may have grown: the last copies are at its former end.
            superblocks = probe(&file, size.unwrap_or(len));
        }
        let Some((superblock, _)) = superblocks.newest.clone() else {
            let faults: Vec<String> =
                superblocks.faults.iter().map(|(copy, fault)| format!("copy {copy}: {fault}")).collect();
            bail!("{}: no valid superblock ({})", file.path().display(), faults.join("; "));
        };
        let older_superblocks = older(&file, &superblock);
        let label_fault = match &journal {
            Some(journal) => label_fault(journal, &superblock)?,
            None => None,
        };
        Ok(Self { file, journal, superblocks, superblock, older_superblocks, label_fault })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Size of the file or device.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    pub(crate) fn read(&self, offset_bytes: u64, len_bytes: usize) -> Result<AlignedBuf, IoError> {
        self.file.read_blocking(offset_bytes, len_bytes)
    }

    pub(crate) fn volume_tables(&self) -> [CopyState<VolumeTable>; 2] {
        let len = usize_from_u64(VOLUME_TABLE_BYTES);
        let copy = |copy: usize| {
            let offset = self.geometry().volume_table[copy];
            CopyState::of(self.read(offset, len), |bytes| {
                VolumeTable::decode(bytes, copy, self.geometry().salt)
            })
        };
        [copy(0), copy(1)]
    }

    pub(crate) fn region_maps(&self) -> [CopyState<RegionMap>; 2] {
        let len = usize_from_u64(REGION_MAP_BYTES);
        let copy = |copy: usize| {
            let offset = self.geometry().region_map[copy];
            CopyState::of(self.read(offset, len), |bytes| {
                RegionMap::decode(bytes, copy, self.geometry().salt)
            })
        };
        [copy(0), copy(1)]
    }

    pub(crate) fn checkpoints(&self) -> [CopyState<CheckpointHeader>; 2] {
        let blocks = self.geometry().checkpoint_blocks;
        let area = |area: usize| {
            let offset = self.geometry().checkpoint[area];
            let read = self.read(offset, BLOCK);
            if read.as_ref().is_ok_and(|bytes| ImageHead::is_head(bytes)) {
                return CopyState::IndexImage;
            }
            CopyState::of(read, |bytes| CheckpointHeader::decode(bytes, area, blocks, self.geometry().salt))
        };
        [area(0), area(1)]
    }

    /// The index image that the superblock names: how many of its pieces are valid, and how many there are. `None` if it
    /// names none, or that has no valid head.
    pub(crate) fn index_image(&self) -> Option<(u64, u64)> {
        let named = self.superblock.index_image;
        let (geometry, blocks) = (self.geometry(), self.geometry().checkpoint_blocks);
        let head = |area: usize| {
            let bytes = self.read(geometry.image_block_offset(area, 0), BLOCK).ok()?;
            let head = ImageHead::decode(&bytes, area, blocks, geometry.salt).ok()?;
            (head.session == named).then_some((head, area))
        };
        let (head, area) = (0..2).filter(|_| named != 0).find_map(head)?;
        let read = |place: ImagePlace| {
            let offset = geometry.image_block_offset(area, place.first_block);
            self.read(offset, usize_from_u32(place.blocks) * BLOCK).ok()
        };
        // Only the directory has the positions of the others.
        let directory = read(head.directory())
            .and_then(|bytes| ImageDirectory::decode(&head, &bytes, blocks, geometry.salt).ok());
        let is_valid = |number: &u64| {
            let place = directory.as_ref().and_then(|directory| directory.place(*number));
            head.piece(*number).zip(place).is_some_and(|(piece, place)| {
                read(place).is_some_and(|bytes| head.decode_piece(&piece, &bytes, geometry.salt).is_ok())
            })
        };
        Some((u64_from_usize((0..head.pieces()).filter(is_valid).count()), head.pieces()))
    }

    pub(crate) fn checkpoint_records(&self, header: &CheckpointHeader, area: usize) -> Records {
        let mut found = Records::default();
        for block in 0..header.blocks {
            match self.read(self.geometry().checkpoint_block_offset(area, block), BLOCK) {
                Err(error) => found.bad_blocks.push((block, error.to_string())),
                Ok(bytes) => {
                    match decode_checkpoint_block(&bytes, header.sequence, block, self.geometry().salt) {
                        Ok(records) => found.records.extend(records),
                        Err(fault) => found.bad_blocks.push((block, fault.to_string())),
                    }
                }
            }
        }
        found
    }

    /// Returns the journal's last block, if its session is known to the cache device. Sessions are numbered by the
    /// second in which they began: another cache's journal has no such block.
    pub(crate) fn proved_journal_block(&self) -> Option<JournalSeq> {
        let (maps, checkpoints) = (self.region_maps(), self.checkpoints());
        let map = newest(&maps, |map| map.sequence).map(|(map, _)| map.session);
        let checkpoint = newest(&checkpoints, |header| header.sequence).map(|(header, _)| header);
        let last = JournalSeq(self.journal(checkpoint).ok()?.next.0.checked_sub(1)?);
        let bytes = self.journal_block(last, &mut None).ok().flatten()?;
        let session = JournalBlock::decode(&bytes, last, self.geometry().salt).ok()?.session;
        let known = [Some(self.superblock.session), map, checkpoint.map(|header| header.session)];
        known.contains(&Some(session)).then_some(last)
    }

    /// Follows the journal from where the checkpoint leaves off.
    pub(crate) fn journal(&self, checkpoint: Option<&CheckpointHeader>) -> anyhow::Result<Journal> {
        let start = checkpoint.map_or(JournalSeq(1), |header| header.journal_start);
        let first_session = checkpoint.map_or(self.superblock.created_unix_s, |header| header.session);
        let ring = self.geometry().journal_blocks;
        let mut replay = JournalReplay::new(start, ring, first_session, self.geometry().salt);
        let mut blocks = Vec::new();
        let mut unreadable = None;
        while let Some(wanted) = replay.wanted() {
            let bytes = self.journal_block(wanted, &mut unreadable)?;
            // An unreadable block ends the journal like a corrupt one.
            blocks.extend(replay.feed(bytes.as_deref().unwrap_or(&[0; BLOCK])));
        }
        let (next, end) = (replay.next(), replay.end());
        let session = blocks.last().map_or(first_session, |block| block.session);
        let (mut beyond, mut proved_beyond) = (None, JournalSeq(0));
        for sequence in next.0.saturating_add(1)..start.0.saturating_add(ring) {
            let sequence = JournalSeq(sequence);
            let Some(bytes) = self.journal_block(sequence, &mut unreadable)? else { continue };
            if let Ok(block) = JournalBlock::decode(&bytes, sequence, self.geometry().salt)
                && block.session >= session
            {
                beyond.get_or_insert(sequence);
                proved_beyond = proved_beyond.max(block.proved);
            }
        }
        let growing = blocks.last().and_then(|block| block.growing);
        let chain = growing.map_or_else(SummaryChain::default, |unit| self.summaries(&unit, next, session));
        Ok(Journal { blocks, next, end, beyond, proved_beyond, unreadable, chain })
    }

    /// Returns the continuation of the journal in the unit that its last block names; empty after a clean stop.
    fn summaries(&self, unit: &GrowingUnit, next: JournalSeq, session: u64) -> SummaryChain {
        let geometry = self.geometry();
        let skip = unit.page.checked_mul(BLOCK_BYTES).filter(|skip| *skip < geometry.weu_bytes);
        let known = skip.filter(|_| unit.slot.0 < geometry.slots && !self.superblock.clean);
        let Some(skip) = known else { return SummaryChain::default() };
        let offset = geometry.slot_offset(unit.slot) + u64::from(skip);
        match self.read(offset, usize_from_u32(geometry.weu_bytes - skip)) {
            Ok(tail) => SummaryChain::follow(self.superblock.uuid, unit, next, session, &tail),
            Err(_) => SummaryChain { broken: true, ..SummaryChain::default() },
        }
    }

    /// A block of the journal; if it cannot be read that is noted.
    fn journal_block(
        &self,
        sequence: JournalSeq,
        unreadable: &mut Option<(JournalSeq, String, u64)>,
    ) -> anyhow::Result<Option<AlignedBuf>> {
        let offset = self.geometry().journal_block_offset(sequence);
        let read = match offset.checked_sub(JOURNAL_DEVICE) {
            None => self.read(offset, BLOCK),
            Some(offset) => {
                let journal = self.journal.as_ref();
                journal.context(JOURNAL_ELSEWHERE)?.read_blocking(offset, BLOCK)
            }
        };
        Ok(read
            .inspect_err(|error| {
                let first = || (sequence, error.to_string(), 0);
                unreadable.get_or_insert_with(first).2 += 1;
            })
            .ok())
    }
}

fn label_fault(journal: &BlockFile, superblock: &Superblock) -> anyhow::Result<Option<String>> {
    let place = journal.path().display();
    if !superblock.geometry.has_journal_device() {
        bail!("the cache keeps its journal inside; --journal {place} does not belong to it");
    }
    match CopyState::of(journal.read_blocking(0, BLOCK), JournalLabel::decode) {
        CopyState::Valid(label) if label == JournalLabel::of(superblock) => Ok(None),
        CopyState::Valid(_) => bail!("{place} is the journal of another cache"),
        CopyState::Blank | CopyState::IndexImage => {
            Ok(Some(format!("{place} does not identify its cache: its first block is zero")))
        }
        CopyState::Damaged(fault) => Ok(Some(format!("{place} does not identify its cache: {fault}"))),
        CopyState::Unreadable(why) => Ok(Some(format!("{place} does not identify its cache: {why}"))),
    }
}

fn superblock_bytes(file: &BlockFile, size: u64) -> Vec<(usize, AlignedBuf)> {
    let offsets = Superblock::offsets(size).into_iter().enumerate().take(SUPERBLOCK_COPIES);
    // Unreadable blocks are treated as zeros.
    offsets
        .map(|(copy, offset)| {
            (copy, file.read_blocking(offset, BLOCK).unwrap_or_else(|_| AlignedBuf::new(BLOCK)))
        })
        .collect()
}

fn probe(file: &BlockFile, size: u64) -> Choice<Superblock> {
    let copies = superblock_bytes(file, size);
    newest_superblock(copies.iter().map(|(copy, bytes)| (*copy, &bytes[..])), Access::Read)
}

/// Returns `true` if a file without a valid superblock held a cache once: a copy is there and damaged, or of a later
/// version.
pub(crate) fn was_a_cache(file: &BlockFile) -> bool {
    let no_trace = |fault: &FormatError| matches!(fault, FormatError::Magic | FormatError::Truncated);
    probe(file, file.len_bytes()).faults.iter().any(|(_, fault)| !no_trace(fault))
}

fn older(file: &BlockFile, newest: &Superblock) -> Vec<usize> {
    superblock_bytes(file, newest.geometry.device_bytes)
        .iter()
        .filter(|(copy, bytes)| {
            Superblock::decode_for(bytes, *copy, Access::Read)
                .is_ok_and(|found| found.sequence < newest.sequence)
        })
        .map(|(copy, _)| *copy)
        .collect()
}

pub(crate) fn blocks_bytes(blocks: usize) -> u64 {
    u64_from_usize(blocks) * u64::from(BLOCK_BYTES)
}
