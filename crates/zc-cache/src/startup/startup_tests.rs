//! Tests of starting and stopping over a device in memory.

use zc_core::{ErrorKind, ExtentKey, ExtentNo, VolumeId, u64_from_usize};
use zc_format::{JournalBlock, PlanOptions};

use super::*;

struct Memory {
    bytes: Vec<u8>,
    journal: Vec<u8>,
    bad: Vec<u64>,
    /// Reads of these places fail, once for each time they are listed.
    failing: Vec<u64>,
    writes_left: Option<u32>,
    /// Set if there was a flush since the last write.
    flushed: bool,
    /// Writes that came after a write, without a flush between.
    unordered: u32,
}

impl Memory {
    fn at(&mut self, offset_bytes: u64) -> (&mut Vec<u8>, usize) {
        match offset_bytes.checked_sub(JOURNAL_DEVICE) {
            Some(offset_bytes) => (&mut self.journal, usize_from_u64(offset_bytes)),
            None => (&mut self.bytes, usize_from_u64(offset_bytes)),
        }
    }
}

impl Media for Memory {
    fn len_bytes(&self) -> u64 {
        u64_from_usize(self.bytes.len())
    }

    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        let range = offset_bytes..offset_bytes + u64_from_usize(buf.len());
        if self.bad.iter().any(|bad| range.contains(bad)) {
            return Err(ErrorKind::Io);
        }
        if let Some(found) = self.failing.iter().position(|at| range.contains(at)) {
            self.failing.remove(found);
            return Err(ErrorKind::Io);
        }
        let (bytes, start) = self.at(offset_bytes);
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind> {
        if let Some(left) = &mut self.writes_left {
            *left = left.checked_sub(1).ok_or(ErrorKind::Io)?;
        }
        self.unordered += u32::from(!core::mem::take(&mut self.flushed));
        let (bytes, start) = self.at(offset_bytes);
        bytes[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        self.flushed = true;
        Ok(())
    }
}

const DEVICE_BYTES: u64 = 2 << 20;
const JOURNAL_BYTES: u64 = 512 << 10;

fn plan() -> PlanOptions {
    PlanOptions {
        device_bytes: DEVICE_BYTES,
        weu_bytes: 32 << 10,
        extent_bytes: 4096,
        align_bytes: 0,
        journal_blocks: Some(4),
    }
}

fn formatted() -> (Memory, Geometry) {
    formatted_as(Geometry::plan(&plan()).unwrap())
}

fn formatted_as(geometry: Geometry) -> (Memory, Geometry) {
    let mut memory = Memory {
        bytes: vec![0x5a; usize_from_u64(DEVICE_BYTES)],
        journal: vec![0x5a; usize_from_u64(JOURNAL_BYTES)],
        bad: Vec::new(),
        failing: Vec::new(),
        writes_left: None,
        flushed: false,
        unordered: 0,
    };
    let options = FormatOptions {
        geometry,
        uuid: [7; 16],
        fingerprint_kind: FingerprintKind::Blake3,
        label: "test".to_owned(),
        now_unix_s: 1000,
    };
    let superblock = format(&mut memory, &options).unwrap();
    (memory, superblock.geometry)
}

fn open_it(memory: &mut Memory) -> (Result<Opened, StartError>, Vec<Record>) {
    let mut records = Vec::new();
    let options = OpenOptions { boot_id: [1; 16], ..OpenOptions::default() };
    let opened = open(memory, &options, &mut |record| records.push(*record));
    (opened, records)
}

fn reason(memory: &mut Memory) -> Option<DistrustReason> {
    open_it(memory).0.unwrap().distrust
}

fn record(extent: u64) -> Record {
    Record::Zero { key: ExtentKey { volume: VolumeId(0), extent: ExtentNo(extent) } }
}

fn put_journal(memory: &mut Memory, geometry: &Geometry, sequence: u64, session: u64, map: u64) {
    put_proof(memory, geometry, sequence, session, map, 0);
}

/// A block that says that commits before `proved` are durable.
fn put_proof(memory: &mut Memory, geometry: &Geometry, sequence: u64, session: u64, map: u64, proved: u64) {
    let sequence = JournalSeq(sequence);
    let block = JournalBlock {
        sequence,
        session,
        region_map_sequence: map,
        proved: JournalSeq(proved),
        growing: None,
        records: vec![record(sequence.0)],
    };
    memory.write(geometry.journal_block_offset(sequence), &block.encode(geometry.salt)).unwrap();
}

fn put_map(memory: &mut Memory, geometry: &Geometry, copy: usize, sequence: u64, journal_required: u64) {
    let key = RegionKey { volume: VolumeId(0), region: 5 };
    let map = RegionMap {
        sequence,
        session: 1001,
        journal_required: JournalSeq(journal_required),
        regions: vec![key],
    };
    memory.write(geometry.region_map[copy], &map.encode(copy, geometry.salt)).unwrap();
}

#[test]
fn a_fresh_cache_opens_trusted_and_the_next_start_sees_an_unclean_stop() {
    let (mut memory, _) = formatted();
    let first = open_it(&mut memory).0.unwrap();
    assert!(first.start.fresh && first.start.intact && first.start.mapping_trusted);
    assert_eq!((first.start.session, first.start.first_session), (1001, 1001));
    let second = open_it(&mut memory).0.unwrap();
    assert!(!second.start.fresh && !second.start.intact && second.start.mapping_trusted);
    assert!(second.start.weu_seq_next > first.start.weu_seq_next);
    mark_clean(&mut memory, &second.superblock, JournalSeq(1), 0).unwrap();
    assert!(open_it(&mut memory).0.unwrap().start.intact);
}

#[test]
fn the_journal_replays_in_order_and_ends_at_a_block_of_an_older_session() {
    let (mut memory, geometry) = formatted();
    put_journal(&mut memory, &geometry, 1, 1001, 1);
    put_journal(&mut memory, &geometry, 2, 1002, 1);
    put_journal(&mut memory, &geometry, 3, 1001, 1);
    let (opened, records) = open_it(&mut memory);
    assert_eq!(opened.unwrap().start.journal_next, JournalSeq(3));
    assert_eq!(records, vec![record(1), record(2)]);
}

/// A session that began from the newer checkpoint may have lost journal blocks that it made up for, and given their
/// numbers to others.
#[test]
fn an_older_checkpoint_will_do_as_long_as_no_session_began_from_the_newer_one() {
    let header = |sequence, session, journal_start| CheckpointHeader {
        sequence,
        session,
        journal_start: JournalSeq(journal_start),
        blocks: 0,
        records: 0,
        weu_seq_next: WeuSeq(0),
        region_map_sequence: 1,
    };
    for began in [false, true] {
        let (mut memory, geometry) = formatted();
        let opened = open_it(&mut memory).0.unwrap();
        let (session, at) = (opened.superblock.session, geometry.checkpoint[1]);
        put_journal(&mut memory, &geometry, 1, session, 1);
        memory.write(at, &header(2, session, 2).encode(1, geometry.salt)).unwrap();
        if began {
            assert_eq!(open_it(&mut memory).0.unwrap().distrust, None);
        }
        memory.bytes[usize_from_u64(at) + 100] ^= 1;
        let opened = open_it(&mut memory).0.unwrap();
        assert_eq!(opened.distrust, began.then_some(DistrustReason::OldCheckpoint));
        assert_eq!(opened.start.dirty_complete, !began);
    }
}

#[test]
fn a_checkpoint_that_can_be_read_again_is_not_that_of_the_sessions_that_went_on_without_it() {
    let (mut memory, geometry) = formatted();
    let session = open_it(&mut memory).0.unwrap().superblock.session;
    let at = geometry.checkpoint[1];
    let header = CheckpointHeader {
        sequence: 2,
        session,
        journal_start: JournalSeq(9),
        blocks: 0,
        records: 0,
        weu_seq_next: WeuSeq(0),
        region_map_sequence: 1,
    };
    memory.write(at, &header.encode(1, geometry.salt)).unwrap();
    memory.bytes[usize_from_u64(at) + 100] ^= 1;
    let opened = open_it(&mut memory).0.unwrap();
    put_journal(&mut memory, &geometry, 1, opened.superblock.session, 1);
    mark_clean(&mut memory, &opened.superblock, JournalSeq(2), 0).unwrap();
    memory.bytes[usize_from_u64(at) + 100] ^= 1;
    let (opened, records) = open_it(&mut memory);
    let opened = opened.unwrap();
    assert_eq!((opened.distrust, records), (None, vec![record(1)]));
    assert!(opened.start.dirty_complete && opened.start.checkpoint_sequence >= 2);
}

/// Its number was given again, and the checkpoint begins with the block that did not arrive.
#[test]
fn a_block_of_a_session_before_the_checkpoint_s_is_not_replayed() {
    let (mut memory, geometry) = formatted();
    let checkpoint = |session| CheckpointHeader {
        sequence: 2,
        session,
        journal_start: JournalSeq(5),
        blocks: 0,
        records: 0,
        weu_seq_next: WeuSeq(0),
        region_map_sequence: 1,
    };
    put_journal(&mut memory, &geometry, 5, 1002, 1);
    for (session, replayed) in [(1002, vec![record(5)]), (1003, vec![])] {
        memory.write(geometry.checkpoint[1], &checkpoint(session).encode(1, geometry.salt)).unwrap();
        assert_eq!(open_it(&mut memory).1, replayed, "a checkpoint of session {session}");
    }
}

#[test]
fn a_region_map_that_became_blank_is_damaged_and_one_that_was_never_written_is_not() {
    let (mut memory, geometry) = formatted();
    assert_eq!(reason(&mut memory), None, "a fresh cache has one map");
    put_map(&mut memory, &geometry, 1, 2, 0);
    put_map(&mut memory, &geometry, 0, 3, 0);
    let at = usize_from_u64(geometry.region_map[0]);
    memory.bytes[at..at + usize_from_u64(REGION_MAP_BYTES)].fill(0);
    assert_eq!(reason(&mut memory), Some(DistrustReason::DamagedRegionMap));
}

#[test]
fn what_does_not_vouch_for_each_other_is_distrusted() {
    let (mut memory, geometry) = formatted();
    put_map(&mut memory, &geometry, 1, 2, 1);
    let short = DistrustReason::Journal { next: JournalSeq(1), required: JournalSeq(1) };
    assert_eq!(reason(&mut memory), Some(short));
    put_journal(&mut memory, &geometry, 1, 1001, 2);
    let opened = open_it(&mut memory).0.unwrap();
    assert_eq!(opened.distrust, Some(DistrustReason::CutOff), "distrust lasts until a clean stop");
    mark_clean(&mut memory, &opened.superblock, opened.start.journal_next, 0).unwrap();
    let opened = open_it(&mut memory).0.unwrap();
    assert_eq!((opened.distrust, opened.start.active_regions.len()), (None, 1));
    put_journal(&mut memory, &geometry, 2, 1001, 3);
    assert_eq!(reason(&mut memory), Some(DistrustReason::OldRegionMap { mentioned: 3, found: 2 }));
    put_journal(&mut memory, &geometry, 5, 1001, 2);
    assert_eq!(reason(&mut memory), Some(DistrustReason::OldCheckpoint));
    memory.bytes[usize_from_u64(geometry.region_map[0]) + 100] ^= 1;
    assert_eq!(reason(&mut memory), Some(DistrustReason::DamagedRegionMap));
    memory.bad.push(geometry.region_map[1]);
    assert_eq!(reason(&mut memory), Some(DistrustReason::RegionMap));
    memory.bad.push(geometry.checkpoint[0]);
    assert_eq!(reason(&mut memory), Some(DistrustReason::Checkpoint));
}

#[test]
fn any_three_superblocks_may_be_lost_and_a_session_cut_off_while_opening_is_not_reused() {
    for keep in 0..SUPERBLOCK_COPIES {
        let (mut memory, geometry) = formatted();
        for (copy, offset) in Superblock::offsets(geometry.device_bytes).into_iter().enumerate() {
            if copy != keep {
                memory.bytes[usize_from_u64(offset) + 9] ^= 1;
            }
        }
        assert_eq!(open_it(&mut memory).0.unwrap().start.session, 1001);
    }
    for writes in 0..SUPERBLOCK_COPIES {
        let (mut memory, _) = formatted();
        memory.writes_left = u32::try_from(writes).ok();
        assert!(open_it(&mut memory).0.err().is_some());
        memory.writes_left = None;
        let session = open_it(&mut memory).0.unwrap().start.session;
        assert_eq!(session, if writes == 0 { 1001 } else { 1002 });
    }
}

#[test]
fn another_device_and_a_shrunk_one_are_refused() {
    let mut blank = Memory {
        bytes: vec![0; 1 << 20],
        journal: Vec::new(),
        bad: Vec::new(),
        failing: Vec::new(),
        writes_left: None,
        flushed: false,
        unordered: 0,
    };
    assert!(matches!(open_it(&mut blank).0, Err(StartError::NotACache)));
    // An unreadable device may contain a cache.
    blank.bad = vec![0];
    assert!(matches!(open_it(&mut blank).0, Err(StartError::Device("read", ErrorKind::Io))));
    let (mut memory, geometry) = formatted();
    memory.bytes.truncate(usize_from_u64(geometry.device_bytes) - BLOCK);
    assert!(matches!(open_it(&mut memory).0, Err(StartError::Truncated { .. })));
}

/// Its sessions and numbers may be the same: a clock that stands still, and superblocks that were wiped.
#[test]
fn what_an_older_cache_left_in_the_same_places_under_the_same_numbers_is_not_read() {
    let (mut memory, old) = formatted();
    let session = open_it(&mut memory).0.unwrap().superblock.session;
    let options = FormatOptions {
        geometry: old.clone(),
        uuid: [8; 16],
        fingerprint_kind: FingerprintKind::Blake3,
        label: String::new(),
        now_unix_s: 1000,
    };
    Superblock::offsets(DEVICE_BYTES).into_iter().for_each(|at| memory.write(at, &[0; BLOCK]).unwrap());
    let new = format(&mut memory, &options).unwrap();
    assert_eq!((new.session, open_it(&mut memory).0.unwrap().superblock.session), (1000, session));
    for (geometry, counts) in [(&old, false), (&new.geometry, true)] {
        // The last session's own, by its number.
        let session = read_superblock(&mut memory).unwrap().session;
        let checkpoint = CheckpointHeader {
            sequence: 2,
            session,
            journal_start: JournalSeq(1),
            blocks: 0,
            records: 0,
            weu_seq_next: WeuSeq(0),
            region_map_sequence: 9,
        };
        put_journal(&mut memory, geometry, 1, session, 1);
        memory.write(geometry.checkpoint[1], &checkpoint.encode(1, geometry.salt)).unwrap();
        put_map(&mut memory, geometry, 1, 9, 1);
        let table = VolumeTable { sequence: 9, records: Vec::new() };
        memory.write(geometry.volume_table[1], &table.encode(1, geometry.salt)).unwrap();
        let (opened, records) = open_it(&mut memory);
        let opened = opened.unwrap();
        let start = &opened.start;
        let found = (opened.volumes.sequence, start.checkpoint_area == 1, start.active_regions.len());
        assert_eq!(found, if counts { (9, true, 1) } else { (1, false, 0) });
        assert_eq!(records.len(), usize::from(counts));
    }
}

#[test]
fn formatting_again_never_reuses_session_numbers() {
    let (mut memory, geometry) = formatted();
    for _ in 0..3 {
        open_it(&mut memory).0.unwrap();
    }
    let options = FormatOptions {
        geometry,
        uuid: [8; 16],
        fingerprint_kind: FingerprintKind::Sha1,
        label: String::new(),
        now_unix_s: 5,
    };
    assert_eq!(format(&mut memory, &options).unwrap().session, 1004);
    assert!(open_it(&mut memory).0.unwrap().start.fresh);
}

fn with_journal_device() -> (Memory, Geometry) {
    formatted_as(Geometry::plan_with_journal_device(&plan(), JOURNAL_BYTES).unwrap())
}

#[test]
fn a_journal_device_is_replayed_and_a_lost_one_costs_trust_only() {
    let (mut memory, geometry) = with_journal_device();
    let session = open_it(&mut memory).0.unwrap().superblock.session;
    put_journal(&mut memory, &geometry, 1, session, 1);
    put_journal(&mut memory, &geometry, 2, session, 1);
    put_map(&mut memory, &geometry, 1, 2, 2);
    let (opened, records) = open_it(&mut memory);
    assert_eq!((opened.unwrap().distrust, records), (None, vec![record(1), record(2)]));
    // An operator put in another disk.
    memory.journal.fill(0x5a);
    let (opened, records) = open_it(&mut memory);
    let lost = DistrustReason::Journal { next: JournalSeq(1), required: JournalSeq(2) };
    assert_eq!((opened.unwrap().distrust, records), (Some(lost), Vec::new()));
    assert!(memory.journal[BLOCK..].iter().all(|byte| *byte == 0), "wiped before it is used");
}

#[test]
fn after_a_clean_stop_the_journal_device_may_be_new() {
    let (mut memory, _) = with_journal_device();
    let superblock = open_it(&mut memory).0.unwrap().superblock;
    mark_clean(&mut memory, &superblock, JournalSeq(1), 0).unwrap();
    memory.journal.fill(0);
    let opened = open_it(&mut memory).0.unwrap();
    assert!(opened.was_clean && opened.distrust.is_none());
    assert!(!opened.start.dirty_complete, "the lost one may have told of dirty data");
    assert!(open_it(&mut memory).0.unwrap().start.dirty_complete, "who has to know was told");
}

#[test]
fn a_lost_journal_device_is_missed_until_a_session_begins() {
    let (mut memory, _) = with_journal_device();
    let superblock = open_it(&mut memory).0.unwrap().superblock;
    mark_clean(&mut memory, &superblock, JournalSeq(1), 0).unwrap();
    memory.journal.fill(0x5a);
    let (bytes, journal) = (memory.bytes.clone(), memory.journal.clone());
    for _ in 0..2 {
        let found = look(&mut memory, &OpenOptions::default(), &mut |_| ()).unwrap();
        assert!(!found.start.dirty_complete, "the daemon may have died before it recorded that");
        assert!(memory.bytes == bytes && memory.journal == journal, "nothing is written");
    }
}

#[test]
fn blocks_that_only_the_superblock_knows_of_are_missed() {
    let (mut memory, geometry) = formatted();
    let opened = open_it(&mut memory).0.unwrap();
    put_journal(&mut memory, &geometry, 1, opened.superblock.session, 1);
    put_journal(&mut memory, &geometry, 2, opened.superblock.session, 1);
    mark_clean(&mut memory, &opened.superblock, JournalSeq(3), 0).unwrap();
    let image = memory.bytes.clone();
    let whole = open_it(&mut memory).0.unwrap();
    assert_eq!((whole.distrust, whole.superblock.journal_next), (None, JournalSeq(3)));
    for (lost, next) in [(1, 1), (2, 2)] {
        memory.bytes.clone_from(&image);
        let at = usize_from_u64(geometry.journal_block_offset(JournalSeq(lost)));
        memory.bytes[at + 70] ^= 1;
        let expected = DistrustReason::Journal { next: JournalSeq(next), required: JournalSeq(2) };
        let found = open_it(&mut memory).0.unwrap();
        assert_eq!((found.distrust, found.start.dirty_complete), (Some(expected), false));
    }
    // A daemon that does not know the field writes nothing there.
    memory.bytes.clone_from(&image);
    mark_clean(&mut memory, &opened.superblock, JournalSeq(0), 0).unwrap();
    let at = usize_from_u64(geometry.journal_block_offset(JournalSeq(2)));
    memory.bytes[at + 70] ^= 1;
    assert_eq!(open_it(&mut memory).0.unwrap().distrust, None);
}

#[test]
fn what_was_replayed_is_durable_before_the_superblock_says_so() {
    let (mut memory, geometry) = formatted();
    put_journal(&mut memory, &geometry, 1, 1001, 1);
    memory.unordered = 0;
    assert_eq!(open_it(&mut memory).0.unwrap().superblock.journal_next, JournalSeq(2));
    assert_eq!(memory.unordered, 2, "of each half of the superblock the second copy, and nothing else");
}

#[test]
fn another_caches_journal_device_is_refused_and_untouched() {
    let (mut memory, geometry) = with_journal_device();
    let mut other = read_superblock(&mut memory).unwrap();
    other.uuid = [8; 16];
    let label = JournalLabel::of(&other).encode();
    memory.write(JOURNAL_DEVICE, &label).unwrap();
    put_journal(&mut memory, &geometry, 1, 5000, 1);
    let (journal, bytes) = (memory.journal.clone(), memory.bytes.clone());
    assert_eq!(open_it(&mut memory).0.unwrap_err(), StartError::ForeignJournal);
    assert!(memory.journal == journal && memory.bytes == bytes);
}

#[test]
fn an_older_image_gives_no_session_twice() {
    let (mut memory, _) = formatted();
    let image = memory.bytes.clone();
    let seen = (0..3).map(|_| open_it(&mut memory).0.unwrap().superblock.session).max().unwrap();
    memory.bytes = image;
    let options = OpenOptions { session_floor: seen, ..OpenOptions::default() };
    let opened = open(&mut memory, &options, &mut |_| {}).unwrap();
    assert_eq!((opened.superblock.session, opened.start.session), (seen + 1, seen + 1));
    assert!(opened.start.weu_seq_next.0 >= (seen + 1) << 32);
}

/// With a journal of so many blocks, of which these are there; the last says that all before it are durable.
fn with_blocks(journal_blocks: u64, there: impl IntoIterator<Item = u64>) -> (Memory, Geometry) {
    let geometry = Geometry::plan(&PlanOptions { journal_blocks: Some(journal_blocks), ..plan() }).unwrap();
    let (mut memory, geometry) = formatted_as(geometry);
    for sequence in there {
        put_proof(&mut memory, &geometry, sequence, 1001, 1, sequence);
    }
    (memory, geometry)
}

#[test]
fn a_damaged_region_map_does_not_hide_that_the_journal_lacks_something() {
    let (mut memory, geometry) = with_blocks(8, [1, 3]);
    memory.bytes[usize_from_u64(geometry.region_map[0]) + 100] ^= 1;
    let opened = open_it(&mut memory).0.unwrap();
    assert_eq!(opened.distrust, Some(DistrustReason::RegionMap));
    assert!(!opened.start.dirty_complete);
    let (mut memory, geometry) = with_blocks(8, [1, 2, 3]);
    memory.bytes[usize_from_u64(geometry.region_map[0]) + 100] ^= 1;
    assert!(open_it(&mut memory).0.unwrap().start.dirty_complete, "the map says nothing of that");
}

#[test]
fn what_cannot_be_read_or_is_damaged_far_on_is_not_taken_for_the_end_of_the_journal() {
    let (mut memory, geometry) = with_blocks(8, [1, 2, 3]);
    memory.bad.push(geometry.journal_block_offset(JournalSeq(2)));
    let opened = open_it(&mut memory).0.unwrap();
    assert_eq!((opened.start.journal_next, opened.start.dirty_complete), (JournalSeq(2), false));
    let (mut memory, geometry) = with_blocks(8, [1]);
    memory.bad.push(geometry.journal_block_offset(JournalSeq(2)));
    assert!(!open_it(&mut memory).0.unwrap().start.dirty_complete, "it may have been written");
    // Seventy blocks are gone, sixty-five behind them are there.
    let (mut memory, _) = with_blocks(200, (1..=3).chain(74..=138));
    assert!(!open_it(&mut memory).0.unwrap().start.dirty_complete);
}

#[test]
fn what_can_be_read_at_a_second_attempt_is_there() {
    let (mut memory, geometry) = with_blocks(8, [1, 2, 3]);
    memory.failing = vec![geometry.journal_block_offset(JournalSeq(2)); 3];
    assert_eq!(open_it(&mut memory).0.unwrap().start.journal_next, JournalSeq(4));
    assert!(memory.failing.is_empty());
}

#[test]
fn looking_leaves_what_tells_that_something_is_missing() {
    let (mut memory, _) = with_blocks(8, [1, 3]);
    let look_at = |memory: &mut Memory| {
        let opened = look(memory, &OpenOptions::default(), &mut |_| ()).unwrap();
        (opened.start.dirty_complete, opened.superblock.session)
    };
    let before = memory.bytes.clone();
    assert_eq!(look_at(&mut memory), (false, 1001));
    assert!(memory.bytes == before, "nothing is written");
    assert_eq!(look_at(&mut memory), (false, 1001));
}

#[test]
fn either_copy_of_the_volume_table_may_be_lost() {
    let (mut memory, geometry) = formatted();
    let opened = open_it(&mut memory).0.unwrap();
    let mut newest = opened.volume_table_copy;
    let mut table = opened.volumes;
    for lost in [0, 1, 1, 0] {
        table.sequence += 1;
        write_volume_table(&mut memory, &geometry, &table, newest).unwrap();
        assert!(open_it(&mut memory).0.unwrap().volume_table_whole);
        memory.bytes[usize_from_u64(geometry.volume_table[lost]) + 9] ^= 1;
        let found = open_it(&mut memory).0.unwrap();
        assert_eq!((&found.volumes, found.volume_table_copy), (&table, 1 - lost));
        assert!(!found.volume_table_whole);
        newest = found.volume_table_copy;
        // Cut off before the second copy is written: the one that was sound is untouched, or both are.
        memory.writes_left = Some(1);
        let next = VolumeTable { sequence: table.sequence + 1, ..table.clone() };
        write_volume_table(&mut memory, &geometry, &next, newest).unwrap_err();
        memory.writes_left = None;
        memory.bytes[usize_from_u64(geometry.volume_table[lost]) + 9] ^= 1;
        assert_eq!(open_it(&mut memory).0.unwrap().volumes, table);
    }
}

#[test]
fn what_another_cache_left_at_the_end_of_a_larger_device_does_not_count() {
    let (mut memory, geometry) = formatted();
    let ours = open_it(&mut memory).0.unwrap().superblock;
    let larger = memory.bytes.len() + (1 << 20);
    memory.bytes.resize(larger, 0);
    let mut theirs = Superblock { uuid: [8; 16], sequence: ours.sequence + 100, ..ours };
    theirs.geometry.device_bytes = u64_from_usize(larger);
    theirs.geometry.salt = Salt::of(&theirs.uuid);
    for (copy, offset) in Superblock::offsets(u64_from_usize(larger)).into_iter().enumerate().skip(2) {
        memory.write(offset, &theirs.encode(copy)).unwrap();
    }
    let found = open_it(&mut memory).0.unwrap().superblock;
    assert_eq!((found.uuid, found.geometry), ([7; 16], geometry));
}
