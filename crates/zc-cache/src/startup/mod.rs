//! Formatting, opening and closing a cache device, with the I/O injected.
//!
//! Job: find the newest state that the device proves, pass its records to the manager, determine their trust, and
//! open a new session durably. Everything read is verified; sizes are checked before use.
//!
//! # Causes of distrust of mappings
//! A restart trusts unmarked regions because region map, checkpoint and journal vouch for each other. The trust ends
//! when any of these hold: no valid checkpoint or region map; one copy of the region map is damaged, unreadable or
//! blank after the first (it may have been the newer one); the journal ends before the block that map or checkpoint
//! need, or before the end that the superblock names; the journal has run past the checkpoint (a newer checkpoint was
//! lost); the last session neither wrote the checkpoint nor began from it; checkpoint or journal name a newer region
//! map than was found. The checkpoint that the last session began from will do in place of one that it wrote, if the
//! journal is still complete from its start on.
//!
//! # Order of writes
//! Superblocks are rewritten in two halves with a flush between, so that one half is always whole. A format first
//! destroys the old superblocks, then writes the structures that they point at, then the new ones. Sessions count up
//! from the time of formatting, so that journal blocks, checkpoints and WEU headers left by an earlier cache are
//! distinguished by theirs.
//!
//! Out of scope: reading WEU headers (the manager does, while serving), checking the pairing with origins, reading
//! the intent log.

use found::{Journal, MediaState, Reader};
use media::BLOCK_BYTES;
use zc_core::{FingerprintKind, JournalSeq, RegionKey, VolumeId, WeuSeq, WeuSlot, usize_from_u64};
use zc_format::{
    BLOCK, CheckpointHeader, Features, FormatError, Geometry, ImageHead, JOURNAL_DEVICE, JournalLabel,
    REGION_MAP_BYTES, Record, RegionMap, SUPERBLOCK_COPIES, Salt, SummaryChain, Superblock, VolumeTable,
};

use crate::startup::tail::{Dangling, Tail, TailEnd, drop_incomplete};

mod found;
mod media;
pub(crate) mod tail;

pub use media::{DistrustReason, Media, StartError};

/// Blocks zeroed at once.
const WIPE_BLOCKS: u64 = 256;

/// Options of formatting.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Layout.
    pub geometry: Geometry,
    /// Identity of the new cache.
    pub uuid: [u8; 16],
    /// Fingerprint function.
    pub fingerprint_kind: FingerprintKind,
    /// A name for people, at most 64 bytes.
    pub label: String,
    /// Now, in seconds since 1970.
    pub now_unix_s: u64,
}

/// Options of opening.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions<'a> {
    /// The kernel's boot identity.
    pub boot_id: [u8; 16],
    /// Trust no mapping.
    pub cold: bool,
    /// Last session that is recorded outside the device (0: none). No number is given twice, even if the device is an
    /// older image of itself: structures of a later life of the device are distinguished by their session.
    pub session_floor: u64,
    /// Session whose intent log is available and complete, if any: it makes the start intact if that is the session
    /// found, in the same boot.
    pub intent_session: Option<u64>,
    /// The records of that log. They are replayed later; here they show which commits were durable.
    pub intents: &'a [Record],
    /// Last journal block that the intent log's session had written when intents were last trimmed (0: none). With an
    /// intent log, the journal has to reach it: trimmed records are there and nowhere else.
    pub intent_journal: JournalSeq,
}

/// An opened cache device.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The superblock as it is on media now: this session, not clean.
    pub superblock: Superblock,
    /// Its volumes.
    pub volumes: VolumeTable,
    /// Copy (0 or 1) of the volume table that holds them.
    pub volume_table_copy: usize,
    /// The other one does, too.
    pub volume_table_whole: bool,
    /// For the manager.
    pub start: StartState,
    /// Set if the last session ended cleanly.
    pub was_clean: bool,
    /// Reason that mappings are not trusted, if they are not.
    pub distrust: Option<DistrustReason>,
    /// Bytes read.
    pub bytes_read: u64,
    /// Dirty records without a commit so far.
    dangling: Dangling,
    /// The journal device is not the cache's yet.
    journal_lost: bool,
}

/// Returns the records of the intent log of an intact start that are to be replayed: commits whose extents are not on
/// the device were never answered.
pub fn drop_incomplete_intents<M: Media>(
    media: &mut M,
    opened: &mut Opened,
    records: Vec<Record>,
) -> Vec<Record> {
    let geometry = opened.superblock.geometry.clone();
    let dropped = &mut opened.start.dropped_commits;
    let kept = drop_incomplete(media, &geometry, &mut opened.dangling, dropped, records);
    opened.start.unproved_commits = opened.dangling.looked_at().to_vec();
    kept
}

impl StartState {
    /// Volumes with commits that do not count though clients may have been answered: nothing proves them, and there is no
    /// intent log that would. Clients that may still live are owed a failed flush
    /// ([`crate::config::VolumeConfig::lost_writes`]).
    #[must_use]
    pub fn doubtful_drops(&self) -> &[VolumeId] {
        if self.intact { &[] } else { &self.dropped_commits }
    }
}

/// Result of opening a cache device for the manager, besides the records to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartState {
    /// This session's number; larger than any before on this cache.
    pub session: u64,
    /// First session of this cache since it was formatted: WEU headers of older ones are another cache's.
    pub first_session: u64,
    /// Never written since it was formatted: there are no headers to read.
    pub fresh: bool,
    /// The last session ended cleanly, or the process died while the machine lived and the intent log (see
    /// [`crate::seam::Action::Intent`]; its records are replayed after the journal's) is valid for that session and
    /// boot. Then nothing has to be distrusted because of `active_regions`.
    pub intact: bool,
    /// Checkpoint, region map and journal are complete as far as they vouch for each other. If not, all mappings are
    /// distrusted; stored contents still serve as dedup targets.
    pub mapping_trusted: bool,
    /// Regions marked on media (after a clean stop: those of volumes that were not served).
    pub active_regions: Vec<RegionKey>,
    /// First WEU sequence number of this session; never used before, also not by a session that was cut off.
    pub weu_seq_next: WeuSeq,
    /// Next journal block to write.
    pub journal_next: JournalSeq,
    /// The cache's identity, if units of dirty extents may hold summaries.
    pub summary_uuid: Option<[u8; 16]>,
    /// The last of the replayed records: they came from summaries, and the journal lacks them.
    pub unjournaled: Vec<Record>,
    /// A slot that may hold summaries of the last session: they count until the next journal block is durable.
    pub summaries_in: Option<WeuSlot>,
    /// First journal block that the newest checkpoint needs.
    pub journal_start: JournalSeq,
    /// Commits in blocks before this one were durable when some later block was written.
    pub journal_proved: JournalSeq,
    /// Volumes with commits that are not complete and that nothing proves: they do not count.
    pub dropped_commits: Vec<VolumeId>,
    /// Volumes with commits that nothing proves and that count because all of them is there.
    pub unproved_commits: Vec<VolumeId>,
    /// Checkpoint and journal hold all records of dirty data.
    pub dirty_complete: bool,
    /// Volumes whose dirty data was incomplete at an earlier start, without an operator's acceptance since. The
    /// device keeps no record of it: the caller adds them.
    pub fenced: Vec<VolumeId>,
    /// Sequence of the newest checkpoint, if one is valid: until there is one, every start has to do without.
    pub checkpoint_found: Option<u64>,
    /// The next checkpoints number from here on.
    pub checkpoint_sequence: u64,
    /// Area (0 or 1) of the newest checkpoint.
    pub checkpoint_area: usize,
    /// Sequence of the newest region map, valid or seen mentioned.
    pub region_map_sequence: u64,
    /// Copy (0 or 1) that holds it.
    pub region_map_copy: usize,
    /// The index image that may be read in place of headers, and the checkpoint area (0 or 1) that it is in.
    pub index_image: Option<(ImageHead, usize)>,
}

impl StartState {
    /// A cache that was never written, without a device: for drivers that only count.
    #[must_use]
    pub const fn fresh() -> Self {
        Self {
            session: 2,
            first_session: 2,
            fresh: true,
            intact: true,
            mapping_trusted: true,
            active_regions: Vec::new(),
            weu_seq_next: WeuSeq(2 << 32),
            journal_next: JournalSeq(1),
            summary_uuid: Some([0; 16]),
            unjournaled: Vec::new(),
            summaries_in: None,
            journal_start: JournalSeq(1),
            journal_proved: JournalSeq(0),
            dropped_commits: Vec::new(),
            unproved_commits: Vec::new(),
            dirty_complete: true,
            fenced: Vec::new(),
            checkpoint_found: Some(1),
            checkpoint_sequence: 1,
            checkpoint_area: 0,
            region_map_sequence: 1,
            region_map_copy: 0,
            index_image: None,
        }
    }
}

/// Makes an empty cache. Sessions count up from the time of formatting, or from the last session of a cache that was
/// there before, so that remnants of it are distinguished by their session.
///
/// # Errors
/// When the device fails or is smaller than the geometry.
pub fn format<M: Media>(media: &mut M, options: &FormatOptions) -> Result<Superblock, StartError> {
    let geometry = &Geometry { salt: Salt::of(&options.uuid), ..options.geometry.clone() };
    let salt = geometry.salt;
    check_size(media, geometry)?;
    let old = read_superblock(media).map_or(0, |superblock| superblock.session + 1);
    let base = options.now_unix_s.max(old).max(1);
    let zeros = vec![0; BLOCK];
    for offset in
        Superblock::offsets(media.len_bytes()).into_iter().chain(Superblock::offsets(geometry.device_bytes))
    {
        write(media, offset, &zeros)?;
    }
    flush(media)?;
    let table = VolumeTable { sequence: 1, records: Vec::new() };
    write(media, geometry.volume_table[0], &table.encode(0, salt))?;
    write(media, geometry.volume_table[1], &table.encode(1, salt))?;
    let map = RegionMap { sequence: 1, session: base, journal_required: JournalSeq(0), regions: Vec::new() };
    write(media, geometry.region_map[0], &map.encode(0, salt))?;
    write(media, geometry.region_map[1], &vec![0; usize_from_u64(REGION_MAP_BYTES)])?;
    let header = CheckpointHeader {
        sequence: 1,
        session: base,
        journal_start: JournalSeq(1),
        blocks: 0,
        records: 0,
        weu_seq_next: WeuSeq(0),
        region_map_sequence: 1,
    };
    write(media, geometry.checkpoint[0], &header.encode(0, salt))?;
    write(media, geometry.checkpoint[1], &zeros)?;
    if !geometry.has_journal_device() {
        write(media, geometry.journal_block_offset(JournalSeq(1)), &zeros)?;
    }
    flush(media)?;
    let superblock = Superblock {
        uuid: options.uuid,
        features: Features::of(geometry),
        geometry: geometry.clone(),
        fingerprint_kind: options.fingerprint_kind,
        sequence: 1,
        session: base,
        clean: true,
        distrusted: false,
        boot_id: [0; 16],
        created_unix_s: base,
        journal_next: JournalSeq(1),
        checkpoint: 0,
        index_image: 0,
        label: options.label.clone(),
    };
    if geometry.has_journal_device() {
        adopt_journal_device(media, &superblock)?;
    }
    write_superblock(media, &superblock)?;
    Ok(superblock)
}

/// Makes a device the journal device of a cache: empties the ring, then writes its owner.
fn adopt_journal_device<M: Media>(media: &mut M, superblock: &Superblock) -> Result<(), StartError> {
    let ring = superblock.geometry.journal_blocks;
    let zeros = vec![0; usize_from_u64(WIPE_BLOCKS * BLOCK_BYTES)];
    // A label that was there vouches for nothing any more.
    write(media, JOURNAL_DEVICE, &zeros[..BLOCK])?;
    let mut block = 0;
    while block < ring {
        let count = WIPE_BLOCKS.min(ring - block);
        let offset = JOURNAL_DEVICE + (1 + block) * BLOCK_BYTES;
        write(media, offset, &zeros[..usize_from_u64(count * BLOCK_BYTES)])?;
        block += count;
    }
    flush(media)?;
    write(media, JOURNAL_DEVICE, &JournalLabel::of(superblock).encode())?;
    flush(media)
}

/// Returns `true` if the journal device is the cache's; `false` for one that has no valid label.
///
/// # Errors
/// When it is another's.
fn is_own_journal<M: Media>(media: &mut M, superblock: &Superblock) -> Result<bool, StartError> {
    let mut block = vec![0; BLOCK];
    let label = media.read(JOURNAL_DEVICE, &mut block).ok().and_then(|()| JournalLabel::decode(&block).ok());
    match label {
        Some(label) if label == JournalLabel::of(superblock) => Ok(true),
        Some(_) => Err(StartError::ForeignJournal),
        None => Ok(false),
    }
}

/// Opens a cache: [`look`], then [`begin`].
///
/// # Errors
/// The errors of both.
pub fn open<M: Media>(
    media: &mut M,
    options: &OpenOptions<'_>,
    sink: &mut dyn FnMut(&Record),
) -> Result<Opened, StartError> {
    let opened = look(media, options, sink)?;
    begin(media, &opened)?;
    Ok(opened)
}

/// Durably begins the session that [`look`] has prepared. From here on the device does not show any more which
/// structures a start missed: a caller that has to record it ([`StartState::dirty_complete`]) does so before.
///
/// # Errors
/// When the device fails.
pub fn begin<M: Media>(media: &mut M, opened: &Opened) -> Result<(), StartError> {
    if opened.journal_lost {
        adopt_journal_device(media, &opened.superblock)?;
    }
    // After a killed daemon the replayed contents may not be durable yet; the superblock implies that they are.
    flush(media)?;
    write_superblock(media, &opened.superblock)
}

/// Reads superblock, volume table, region map, checkpoint and journal, and prepares a session. Records of checkpoint
/// and journal go to `sink` in the order of replay. Nothing is written.
///
/// # Errors
/// When the device fails, is too small, or holds no cache. Damage to anything but all superblocks or both volume tables
/// is no error: it costs trust.
pub fn look<M: Media>(
    media: &mut M,
    options: &OpenOptions<'_>,
    sink: &mut dyn FnMut(&Record),
) -> Result<Opened, StartError> {
    let (previous, bytes_read) = newest_superblock(media)?;
    let journal_lost = previous.geometry.has_journal_device() && !is_own_journal(media, &previous)?;
    let geometry = previous.geometry.clone();
    let mut reader =
        Reader { media, geometry: &geometry, first_session: previous.created_unix_s, bytes_read };
    let (volumes, volume_table_copy, volume_table_whole) = reader.volume_table()?;
    let maps = reader.region_maps();
    let mut tail = Tail::new(sink);
    let checkpoints = reader.checkpoint(&previous, &mut |record| tail.checkpointed(record));
    let mut journal = Journal::after(&checkpoints, reader.first_session);
    if !journal_lost {
        reader.replay_journal(&mut journal, &mut tail);
    }
    let by_intent = previous.boot_id == options.boot_id && options.intent_session == Some(previous.session);
    let mut chain =
        if previous.clean { SummaryChain::default() } else { reader.summaries(previous.uuid, &journal) };
    if by_intent {
        // The intent log has all records of the session, acknowledged or not. It is replayed later: clean data may be
        // overwritten already, and durable data may be damaged, so that has to be determined before commits are
        // checked.
        tail.foresee_all(&core::mem::take(&mut chain).summaries, options.intents);
    }
    journal.note_maps(&chain.summaries);
    let TailEnd { dangling, proved, dropped: dropped_commits, unjournaled } =
        tail.finish(reader.media, &geometry, chain.summaries);
    let bytes_read = reader.bytes_read;
    let required = journal_required(&previous, options, by_intent);
    let found = MediaState { maps, checkpoints, journal };
    let cut_off = (previous.distrusted && !previous.clean).then_some(DistrustReason::CutOff);
    let dirty_complete = !journal_lost && !chain.broken && found.lacks(required).is_none();
    let distrust = found.distrust_reason(options.cold, required).or(cut_off);
    let mut superblock = next_superblock(&previous, options, &found);
    superblock.distrusted = distrust.is_some();
    let index_image = if distrust.is_none() { index_image(media, &previous, &found) } else { None };
    let MediaState { maps, checkpoints, journal } = found;
    let start = StartState {
        session: superblock.session,
        first_session: superblock.created_unix_s + 1,
        fresh: previous.session == previous.created_unix_s,
        intact: previous.clean || by_intent,
        mapping_trusted: distrust.is_none(),
        active_regions: maps.newest.as_ref().map(|(map, _)| map.regions.clone()).unwrap_or_default(),
        weu_seq_next: WeuSeq(superblock.session << 32),
        journal_next: journal.next,
        summary_uuid: (!geometry.has_journal_device()).then_some(previous.uuid),
        unjournaled,
        summaries_in: journal.growing_in(&geometry).filter(|_| !previous.clean).map(|unit| unit.slot),
        journal_start: checkpoints.journal_start(),
        journal_proved: proved,
        dropped_commits,
        unproved_commits: dangling.looked_at().to_vec(),
        dirty_complete,
        fenced: Vec::new(),
        // Beyond any attempt of an earlier session that was cut off: its record blocks must not verify for ours.
        checkpoint_sequence: checkpoints.sequence_seen.max(superblock.session << 20),
        checkpoint_found: checkpoints.newest.as_ref().map(|(header, _)| header.sequence),
        checkpoint_area: checkpoints.newest.as_ref().map_or(1, |(_, area)| *area),
        region_map_sequence: maps.mentioned().max(checkpoints.map_sequence).max(journal.map_sequence),
        region_map_copy: maps.newest.as_ref().map_or(1, |(_, copy)| *copy),
        index_image,
    };
    Ok(Opened {
        superblock,
        volumes,
        volume_table_copy,
        volume_table_whole,
        start,
        was_clean: previous.clean,
        distrust,
        bytes_read,
        dangling,
        journal_lost,
    })
}

/// The block that the journal has to reach: superblock and intent log record that it did.
fn journal_required(previous: &Superblock, options: &OpenOptions<'_>, by_intent: bool) -> JournalSeq {
    let by_superblock = JournalSeq(previous.journal_next.0.saturating_sub(1));
    let trimmed = if by_intent && !previous.clean { options.intent_journal } else { JournalSeq(0) };
    trimmed.max(by_superblock)
}

/// The index image that the superblock names, if nothing that a start finds is newer than it.
fn index_image<M: Media>(
    media: &mut M,
    previous: &Superblock,
    found: &MediaState,
) -> Option<(ImageHead, usize)> {
    let named = previous.clean && previous.index_image != 0 && previous.index_image == previous.session;
    let (newest, area) = found.checkpoints.newest.as_ref().filter(|_| named)?;
    let area = 1 - area;
    let head = image_head(media, &previous.geometry, area)?;
    let (map, _) = found.maps.newest.as_ref()?;
    let is_newest = head.session == previous.session
        && head.journal_next == previous.journal_next
        && head.journal_next == found.journal.next
        && head.checkpoint == newest.sequence
        && head.region_map_sequence == map.sequence;
    is_newest.then_some((head, area))
}

/// The head of the image in a checkpoint area, if one is there.
fn image_head<M: Media>(media: &mut M, geometry: &Geometry, area: usize) -> Option<ImageHead> {
    let mut block = vec![0; BLOCK];
    media.read(geometry.image_block_offset(area, 0), &mut block).ok()?;
    ImageHead::decode(&block, area, geometry.checkpoint_blocks, geometry.salt).ok()
}

/// Superblock of the session that begins, which trusts the findings.
fn next_superblock(previous: &Superblock, options: &OpenOptions<'_>, found: &MediaState) -> Superblock {
    let mut superblock = previous.clone();
    superblock.sequence += 1;
    superblock.session = previous.session.max(options.session_floor) + 1;
    superblock.clean = false;
    superblock.distrusted = false;
    superblock.boot_id = options.boot_id;
    superblock.features.begin_session();
    superblock.journal_next = found.journal.next;
    superblock.checkpoint = found.checkpoints.newest.as_ref().map_or(0, |(header, _)| header.sequence);
    // Changes of the session are not in the image.
    superblock.index_image = 0;
    superblock
}

/// Writes a new volume table, with a larger sequence than before, over both copies, one after the other, `newest` last:
/// it holds the table before this one for certain. A copy that is damaged later costs nothing then.
///
/// # Errors
/// When the device fails.
pub fn write_volume_table<M: Media>(
    media: &mut M,
    geometry: &Geometry,
    table: &VolumeTable,
    newest: usize,
) -> Result<(), StartError> {
    for copy in [1 - (newest & 1), newest & 1] {
        write(media, geometry.volume_table[copy], &table.encode(copy, geometry.salt))?;
        flush(media)?;
    }
    Ok(())
}

/// Marks the session as ended cleanly, with the journal's end ([`crate::manager::CacheManager::journal_next`]) and its
/// index image ([`crate::manager::CacheManager::index_image`]), after [`crate::seam::Action::Stopped`] with `clean`; the
/// last thing before the device is closed.
///
/// # Errors
/// When the device fails; the next start then takes the stop for unclean.
pub fn mark_clean<M: Media>(
    media: &mut M,
    superblock: &Superblock,
    journal_next: JournalSeq,
    index_image: u64,
) -> Result<(), StartError> {
    let clean = Superblock {
        clean: true,
        distrusted: false,
        journal_next,
        index_image,
        sequence: superblock.sequence + 1,
        ..superblock.clone()
    };
    write_superblock(media, &clean)
}

/// Writes all copies of the superblock, in two halves.
///
/// # Errors
/// When the device fails.
pub fn write_superblock<M: Media>(media: &mut M, superblock: &Superblock) -> Result<(), StartError> {
    let offsets = Superblock::offsets(superblock.geometry.device_bytes);
    for half in [[0, 2], [1, 3]] {
        for copy in half {
            write(media, offsets[copy], &superblock.encode(copy))?;
        }
        flush(media)?;
    }
    Ok(())
}

/// The newest valid superblock, without changing anything.
///
/// # Errors
/// When there is none, or it is of an unknown version, or the device is too small for it.
pub fn read_superblock<M: Media>(media: &mut M) -> Result<Superblock, StartError> {
    newest_superblock(media).map(|(superblock, _)| superblock)
}

/// With the bytes read. Copies at the end are looked for by the size of the device, then by the size that a copy at
/// the start names: a device may have grown.
fn newest_superblock<M: Media>(media: &mut M) -> Result<(Superblock, u64), StartError> {
    let mut bytes_read = 0;
    let mut newest: Option<Superblock> = None;
    let (mut unknown, mut unreadable) = (None, None);
    let len = media.len_bytes();
    let mut sizes = vec![len];
    while let Some(size) = sizes.pop() {
        for (copy, offset) in Superblock::offsets(size).into_iter().enumerate().take(SUPERBLOCK_COPIES) {
            let mut block = vec![0; BLOCK];
            if offset.checked_add(BLOCK_BYTES).is_none_or(|end| end > len) {
                continue;
            }
            bytes_read += BLOCK_BYTES;
            if let Err(error) = media.read(offset, &mut block) {
                unreadable = Some(StartError::Device("read", error));
                continue;
            }
            match Superblock::decode(&block, copy) {
                // Remnants of another cache at the end of a device that has become larger are not a copy of this one.
                Ok(found) if newest.as_ref().is_some_and(|best| found.uuid != best.uuid) => {}
                Ok(found) if newest.as_ref().is_none_or(|best| found.sequence > best.sequence) => {
                    if found.geometry.device_bytes != size && found.geometry.device_bytes <= len {
                        sizes = vec![found.geometry.device_bytes];
                    }
                    newest = Some(found);
                }
                Err(FormatError::Version) => unknown = Some(FormatError::Version),
                Ok(_) | Err(_) => {}
            }
        }
    }
    let Some(newest) = newest else {
        // An unreadable device may be a cache: the message does not advise to make one there.
        return Err(unknown.map(StartError::Format).or(unreadable).unwrap_or(StartError::NotACache));
    };
    check_size(media, &newest.geometry)?;
    Ok((newest, bytes_read))
}

fn check_size<M: Media>(media: &M, geometry: &Geometry) -> Result<(), StartError> {
    let (need_bytes, have_bytes) = (geometry.device_bytes, media.len_bytes());
    if need_bytes > have_bytes { Err(StartError::Truncated { have_bytes, need_bytes }) } else { Ok(()) }
}

fn write<M: Media>(media: &mut M, offset_bytes: u64, data: &[u8]) -> Result<(), StartError> {
    media.write(offset_bytes, data).map_err(|kind| StartError::Device("written", kind))
}

fn flush<M: Media>(media: &mut M) -> Result<(), StartError> {
    media.flush().map_err(|kind| StartError::Device("flushed", kind))
}

#[cfg(test)]
#[path = "startup_tests.rs"]
mod tests;
