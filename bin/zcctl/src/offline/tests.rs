//! Damage of each class is reported as that class, and a sound cache as clean.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use tempfile::TempDir;
use zc_core::{
    Codec, ExtentKey, ExtentNo, Fingerprint, Generation, JournalSeq, RegionKey, SectorSpan, VolumeId, WeuSeq,
    WeuSlot, u64_from_usize,
};
use zc_format::damage::{Damage, Effect, Image as Target, Place, apply};
use zc_format::{
    BLOCK, CheckpointHeader, ExtentHeader, GrowingUnit, JOURNAL_DEVICE, JournalBlock, OriginIdentity,
    OriginKind, Record, RegionMap, Summary, SummaryPlace, Superblock, VolumeRecord, VolumeTable, WeuEntry,
    WeuHeader, encode_checkpoint_block,
};

use super::check::check;
use super::image::Image;
use super::report::{Class, Report};
use crate::cli::Cli;

const PAYLOAD: [u8; 100] = [0x5a; 100];

/// A cache with one volume, two checkpoints, a journal, and WEUs in slots 0 (from the checkpoint) and 1 (from the
/// journal).
struct Cache {
    _dir: TempDir,
    path: PathBuf,
    /// Path of a separate journal.
    journal: Option<PathBuf>,
    superblock: Superblock,
}

fn run(args: &[&str]) -> (u8, String) {
    let cli = Cli::try_parse_from(std::iter::once(&"zcctl").chain(args)).unwrap();
    let mut out = Vec::new();
    let code = match crate::run(&cli.command, &mut out) {
        Ok(code) if code == std::process::ExitCode::SUCCESS => 0,
        Ok(_) => 1,
        Err(error) => {
            out = format!("{error:#}").into_bytes();
            2
        }
    };
    (code, String::from_utf8(out).unwrap())
}

fn format(path: &Path, more: &[&str]) -> (u8, String) {
    let mut args = vec!["format", path.to_str().unwrap(), "--weu-size", "32 KiB", "--extent-size", "4 KiB"];
    args.extend(more);
    run(&args)
}

impl Cache {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::filled(dir, None)
    }

    fn with_journal_elsewhere() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal.img");
        Self::filled(dir, Some(journal))
    }

    fn filled(dir: TempDir, journal: Option<PathBuf>) -> Self {
        let path = dir.path().join("cache.img");
        let mut args = vec!["--size", "1 MiB"];
        if let Some(journal) = &journal {
            args.extend(["--journal", journal.to_str().unwrap(), "--journal-size", "512 KiB"]);
        }
        assert_eq!(format(&path, &args).0, 0);
        let superblock = Image::open(&path, None).unwrap().superblock;
        let cache = Self { _dir: dir, path, journal, superblock };
        cache.fill();
        cache
    }

    fn put(&self, offset: u64, data: &[u8]) {
        let (path, offset) = match offset.checked_sub(JOURNAL_DEVICE) {
            Some(offset) => (self.journal.as_ref().unwrap(), offset),
            None => (&self.path, offset),
        };
        File::options().write(true).open(path).unwrap().write_all_at(data, offset).unwrap();
    }

    fn session(&self) -> u64 {
        self.superblock.session + 1
    }

    fn fill(&self) {
        let geometry = &self.superblock.geometry;
        self.put_superblock(true);
        let origin =
            OriginIdentity { kind: OriginKind::File, dev: 1, inode: 2, len_bytes: 1 << 20, mtime_ns: 3 };
        let volume = VolumeRecord {
            id: VolumeId(0),
            name: "vm".to_owned(),
            size_bytes: 1 << 20,
            region_bytes: 1 << 20,
            origin,
            stamp: 9,
            may_be_dirty: false,
        };
        for copy in 0..2 {
            let step = 2 + u64_from_usize(copy);
            let table = VolumeTable { sequence: step, records: vec![volume.clone()] };
            self.put(geometry.volume_table[copy], &table.encode(copy, geometry.salt));
            let regions = vec![RegionKey { volume: VolumeId(0), region: 0 }];
            let map = RegionMap {
                sequence: step,
                session: self.session(),
                journal_required: JournalSeq(4),
                regions,
            };
            self.put(geometry.region_map[copy], &map.encode(copy, geometry.salt));
            self.put_checkpoint(copy, step);
        }
        for sequence in 4..7 {
            let records = if sequence == 4 { vec![sealed(1)] } else { vec![Record::Zero { key: key(9) }] };
            self.put_journal(sequence, 3, records);
        }
        self.put_weu(0, 1);
        self.put_weu(1, 1);
    }

    fn put_superblock(&self, clean: bool) {
        let sequence = self.superblock.sequence + 1;
        let (session, journal_next) = (self.session(), JournalSeq(7));
        let superblock = Superblock { clean, sequence, session, journal_next, ..self.superblock.clone() };
        for (copy, offset) in Superblock::offsets(1 << 20).into_iter().enumerate() {
            self.put(offset, &superblock.encode(copy));
        }
    }

    fn put_checkpoint(&self, area: usize, sequence: u64) {
        let header = CheckpointHeader {
            sequence,
            session: self.session(),
            journal_start: JournalSeq(4),
            blocks: 1,
            records: 1,
            weu_seq_next: WeuSeq(10),
            region_map_sequence: 2,
        };
        let geometry = &self.superblock.geometry;
        self.put(
            geometry.checkpoint_block_offset(area, 0),
            &encode_checkpoint_block(sequence, 0, &[sealed(0)], geometry.salt),
        );
        self.put(geometry.checkpoint[area], &header.encode(area, geometry.salt));
    }

    fn put_journal(&self, sequence: u64, region_map_sequence: u64, records: Vec<Record>) {
        self.put_proof(sequence, region_map_sequence, 0, records);
    }

    /// Writes a block that proves commits before `proved` durable.
    fn put_proof(&self, sequence: u64, region_map_sequence: u64, proved: u64, records: Vec<Record>) {
        let block = JournalBlock {
            sequence: JournalSeq(sequence),
            session: self.session(),
            region_map_sequence,
            proved: JournalSeq(proved),
            growing: None,
            records,
        };
        self.put(
            self.superblock.geometry.journal_block_offset(block.sequence),
            &block.encode(self.superblock.geometry.salt),
        );
    }

    /// Block 7, behind which summaries lie in slot 3 from its second page on.
    fn put_growing(&self) {
        let unit = GrowingUnit { slot: WeuSlot(3), generation: Generation(1), page: 1 };
        let block = JournalBlock {
            sequence: JournalSeq(7),
            session: self.session(),
            region_map_sequence: 3,
            proved: JournalSeq(7),
            growing: Some(unit),
            records: vec![Record::Zero { key: key(9) }],
        };
        self.put(
            self.superblock.geometry.journal_block_offset(block.sequence),
            &block.encode(self.superblock.geometry.salt),
        );
    }

    /// The summary of a page of that unit: sectors of an extent are zero, that is epoch `ordinal + 1`.
    fn put_summary(&self, ordinal: u32) {
        let (volume, page) = (VolumeId(0), ordinal + 1);
        let span = SectorSpan::from_ends(0, 7).unwrap();
        let records = vec![
            Record::DirtyZero { key: key(u64::from(page)), span, no_hole: false },
            Record::Committed { volume, epoch: u64::from(page) },
        ];
        let summary = Summary {
            next: JournalSeq(8),
            session: self.session(),
            ordinal,
            first_page: page,
            region_map_sequence: 3,
            proved: JournalSeq(8),
            records,
        };
        let uuid = self.superblock.uuid;
        let place = SummaryPlace { uuid, slot: WeuSlot(3), generation: Generation(1), page };
        let mut bytes = vec![0; BLOCK];
        summary.encode_into(&place, &mut bytes);
        let slot = self.superblock.geometry.slot_offset(place.slot);
        self.put(slot + u64::from(page) * u64_from_usize(BLOCK), &bytes);
    }

    fn put_weu(&self, slot: u32, generation: u32) {
        let entry = WeuEntry {
            key: key(u64::from(slot)),
            offset_bytes: 0,
            stored_bytes: 100,
            codec: Codec::Lz4,
            fingerprint: Fingerprint([7; 32]),
            dirty: None,
        };
        let weu = WeuHeader {
            slot: WeuSlot(slot),
            generation: Generation(generation),
            weu_seq: WeuSeq(u64::from(slot)),
            session: self.session(),
            entries: vec![entry],
        };
        let extent = ExtentHeader {
            slot: weu.slot,
            generation: weu.generation,
            weu_seq: weu.weu_seq,
            stored_bytes: 100,
            raw_bytes: 4096,
            first_sector: 0,
            key: entry.key,
            codec: entry.codec,
            fingerprint: entry.fingerprint,
        };
        let mut bytes = vec![0; 192];
        extent.seal(0, &PAYLOAD, &mut bytes, self.superblock.geometry.salt);
        let offset = self.superblock.geometry.slot_offset(weu.slot);
        self.put(offset, &bytes);
        let mut tail = vec![0; zc_core::usize_from_u32(WeuHeader::encoded_bytes(1))];
        weu.encode_into(&mut tail, self.superblock.geometry.salt);
        self.put(offset + (32 << 10) - u64_from_usize(tail.len()), &tail);
    }

    fn damage(&self, place: Place, effect: Effect) {
        let plan = Damage::At(place, effect).plan(&self.superblock.geometry, 1);
        assert!(!plan.is_empty(), "{place}");
        let open = || OnDisk(File::options().read(true).write(true).open(&self.path).unwrap());
        apply(&plan, &mut open(), &mut open()).unwrap();
    }

    fn check(&self) -> Report {
        check(&Image::open(&self.path, None).unwrap(), true).unwrap()
    }

    /// The classes of all problems, each once.
    fn classes(&self) -> Vec<Class> {
        let mut classes: Vec<Class> = self.check().problems.iter().map(|problem| problem.class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

struct OnDisk(File);

impl Target for OnDisk {
    type Error = std::io::Error;

    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
        self.0.read_exact_at(buf, offset_bytes)
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), Self::Error> {
        self.0.write_all_at(data, offset_bytes)
    }

    fn truncate(&mut self, len_bytes: u64) -> Result<(), Self::Error> {
        self.0.set_len(len_bytes)
    }
}

fn key(extent: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(0), extent: ExtentNo(extent) }
}

fn sealed(slot: u32) -> Record {
    let weu_seq = WeuSeq(u64::from(slot));
    Record::SlotSealed { slot: WeuSlot(slot), generation: Generation(1), weu_seq, header_bytes: 4096 }
}

#[test]
fn a_sound_cache_is_clean_and_everything_was_looked_at() {
    let cache = Cache::new();
    let report = cache.check();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    for count in [("volumes", 1), ("WEUs in use", 2), ("extents verified", 2), ("journal blocks", 3)] {
        assert!(report.counts.contains(&count), "{count:?} in {report:?}");
    }
    let path = cache.path.to_str().unwrap();
    assert_eq!(run(&["check", path]).0, 0);
}

#[test]
fn a_new_cache_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache.img");
    format(&path, &["--size", "1 MiB"]);
    let report = check(&Image::open(&path, None).unwrap(), true).unwrap();
    assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
}

#[test]
fn each_kind_of_damage_is_reported_as_its_class() {
    let cases = [
        (Place::Superblock(1), Class::Superblock),
        (Place::VolumeTable(0), Class::VolumeTable),
        (Place::RegionMap(0), Class::RegionMap),
        (Place::CheckpointHeader(0), Class::Checkpoint),
        (Place::CheckpointBlock { area: 1, block: 0 }, Class::Checkpoint),
        (Place::JournalBlock(JournalSeq(4)), Class::Journal),
        (Place::JournalBlock(JournalSeq(5)), Class::Journal),
        (Place::JournalBlock(JournalSeq(6)), Class::Journal),
        (Place::WeuHeader(WeuSlot(1)), Class::WeuHeader),
        (Place::InlineHeader(WeuSlot(0)), Class::Extent),
        (Place::ExtentBody(WeuSlot(0)), Class::Extent),
    ];
    for (place, class) in cases {
        for effect in [Effect::Flip, Effect::Zero] {
            let cache = Cache::new();
            cache.damage(place, effect);
            let classes = cache.classes();
            assert!(classes.contains(&class), "{effect:?} of {place}: {classes:?}");
            // Losing the newest checkpoint's or journal's records hides the slots in them.
            assert!(classes.iter().all(|found| *found == class), "{effect:?} of {place}: {classes:?}");
            assert_eq!(run(&["check", cache.path.to_str().unwrap(), "--data"]).0, 1, "{place}");
        }
    }
}

#[test]
fn payload_damage_is_seen_with_data_only() {
    let cache = Cache::new();
    cache.damage(Place::ExtentBody(WeuSlot(0)), Effect::Flip);
    let path = cache.path.to_str().unwrap();
    assert_eq!((run(&["check", path]).0, run(&["check", path, "--data"]).0), (0, 1));
}

#[test]
fn a_slot_of_another_generation_is_a_problem_unless_a_crash_explains_it() {
    let cache = Cache::new();
    cache.put_weu(0, 2);
    assert_eq!(cache.classes(), [Class::WeuHeader], "newer than a clean stop knows");
    cache.put_superblock(false);
    let report = cache.check();
    assert!(report.is_clean() && report.notes.len() == 2, "{report:?}");
    cache.put_weu(0, 0);
    assert_eq!(cache.classes(), [Class::WeuHeader], "rolled back");
}

#[test]
fn a_slot_that_a_start_gave_up_is_not_looked_at() {
    let cache = Cache::new();
    let given_up = |slot| Record::SlotSealed {
        slot: WeuSlot(slot),
        generation: Generation(2),
        weu_seq: WeuSeq(99),
        header_bytes: 0,
    };
    cache.put_journal(7, 3, vec![given_up(0), given_up(2)]);
    assert!(cache.check().is_clean(), "slot 0 has an older header, slot 2 has none");
}

#[test]
fn a_retired_slot_is_not_looked_at() {
    let cache = Cache::new();
    let retired = Record::SlotRetired { slot: WeuSlot(1), generation: Generation(1) };
    cache.put_journal(7, 3, vec![retired]);
    cache.damage(Place::WeuHeader(WeuSlot(1)), Effect::Flip);
    assert_eq!(cache.classes(), []);
}

#[test]
fn a_lost_region_map_and_a_record_of_no_slot_are_problems() {
    let cache = Cache::new();
    cache.put_journal(7, 4, vec![]);
    assert_eq!(cache.classes(), [Class::RegionMap]);
    let cache = Cache::new();
    cache.put_journal(7, 3, vec![sealed(100_000)]);
    assert_eq!(cache.classes(), [Class::Journal]);
}

#[test]
fn a_cut_off_device_is_a_problem_and_something_else_is_an_error() {
    let cache = Cache::new();
    File::options().write(true).open(&cache.path).unwrap().set_len(512 << 10).unwrap();
    let classes = cache.classes();
    assert!(classes.contains(&Class::Device), "{classes:?}");
    std::fs::write(&cache.path, vec![1; 1 << 20]).unwrap();
    let (code, text) = run(&["check", cache.path.to_str().unwrap()]);
    assert!(code == 2 && text.contains("no valid superblock"), "{text}");
    assert_eq!(run(&["check", "/nonexistent"]).0, 2);
}

#[test]
fn repair_writes_what_has_a_sound_copy_and_nothing_without_being_told_to() {
    for place in [Place::Superblock(0), Place::Superblock(3), Place::VolumeTable(0), Place::VolumeTable(1)] {
        let cache = Cache::new();
        let path = cache.path.to_str().unwrap();
        let sound = std::fs::read(&cache.path).unwrap();
        cache.damage(place, Effect::Flip);
        let damaged = std::fs::read(&cache.path).unwrap();
        let (code, text) = run(&["repair", path]);
        assert!(code == 1 && text.contains("would repair"), "{place}: {text}");
        assert!(std::fs::read(&cache.path).unwrap() == damaged, "{place}: nothing is written");
        let (code, text) = run(&["repair", path, "--yes"]);
        assert!(code == 0 && text.contains("repaired:"), "{place}: {text}");
        assert_eq!(cache.classes(), [], "{place}");
        let table = matches!(place, Place::VolumeTable(_));
        assert!(table || std::fs::read(&cache.path).unwrap() == sound, "{place}: as it was");
        assert_eq!(run(&["repair", path]), (0, "nothing to repair\n".to_owned()));
    }
}

#[test]
fn repair_says_what_it_cannot_repair() {
    let cache = Cache::new();
    let path = cache.path.to_str().unwrap();
    cache.damage(Place::JournalBlock(JournalSeq(4)), Effect::Flip);
    cache.damage(Place::RegionMap(1), Effect::Flip);
    let before = std::fs::read(&cache.path).unwrap();
    let (code, text) = run(&["repair", path, "--yes", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 1);
    let lost = json["beyond_repair"].as_array().unwrap();
    assert!(lost.iter().any(|l| l["class"] == "journal") && lost.iter().any(|l| l["class"] == "region-map"));
    assert!(std::fs::read(&cache.path).unwrap() == before);
}

#[test]
fn dirty_data_is_counted_and_read() {
    let cache = Cache::new();
    let dirty = |slot, span| Record::Dirty {
        key: key(5),
        span,
        slot: WeuSlot(slot),
        generation: Generation(1),
        offset_units: 0,
        pages: 1,
    };
    let volume = VolumeId(0);
    let whole = SectorSpan::from_ends(0, 7).unwrap();
    let records = vec![
        dirty(0, whole),
        Record::DirtyZero { key: key(6), span: whole, no_hole: false },
        Record::Committed { volume, epoch: 1 },
        dirty(1, whole),
        Record::Committed { volume, epoch: 2 },
        Record::DirtyZero { key: key(7), span: whole, no_hole: false },
    ];
    cache.put_journal(7, 3, records);
    let report = cache.check();
    assert!(report.is_clean() && report.notes.len() == 1, "{report:?}");
    for count in [("dirty epochs", 2), ("dirty pieces", 3), ("dirty bytes", 3 * 4096)] {
        assert!(report.counts.contains(&count), "{count:?} in {report:?}");
    }
    cache.damage(Place::ExtentBody(WeuSlot(1)), Effect::Flip);
    assert_eq!(cache.classes(), [Class::Extent, Class::Dirty]);
    cache.put_journal(8, 3, vec![Record::Clean { volume, epoch: 2 }]);
    assert_eq!(cache.classes(), [Class::Extent], "the origin has it by now");
}

#[test]
fn what_summaries_tell_counts_until_the_session_ends_in_order() {
    let cache = Cache::new();
    cache.put_superblock(false);
    cache.put_growing();
    (0..3).for_each(|ordinal| cache.put_summary(ordinal));
    let report = cache.check();
    assert!(report.is_clean(), "{report:?}");
    for count in [("summaries", 3), ("dirty epochs", 3), ("dirty bytes", 3 * 4096)] {
        assert!(report.counts.contains(&count), "{count:?} in {report:?}");
    }
    let (_, dump) = run(&["dump", "journal", cache.path.to_str().unwrap(), "--json"]);
    assert!(dump.contains("\"summary\": 2") && dump.contains("\"summaries\": 3"), "{dump}");
    let second = cache.superblock.geometry.slot_offset(WeuSlot(3)) + 2 * u64_from_usize(BLOCK);
    cache.put(second, &[0; BLOCK]);
    assert_eq!(cache.classes(), [Class::Journal], "the third tells that the second is lost");
    cache.put_superblock(true);
    assert!(cache.check().is_clean(), "the journal has everything after a clean stop");
}

#[test]
fn json_says_what_text_says() {
    let cache = Cache::new();
    cache.damage(Place::WeuHeader(WeuSlot(0)), Effect::Flip);
    let (_, text) = run(&["check", cache.path.to_str().unwrap(), "--json"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["clean"], false);
    assert_eq!(value["problems"][0]["class"], "weu-header");
}

#[test]
fn dumps_show_every_structure() {
    let cache = Cache::new();
    let path = cache.path.to_str().unwrap();
    let cases = [
        ("superblock", "extent_bytes", "4096"),
        ("volumes", "vm", "\"file\""),
        ("regions", "journal_required", "\"region\": 0"),
        ("checkpoint", "slot-sealed", "\"slot\": 0"),
        ("journal", "zero", "\"extent\": 9"),
    ];
    for (structure, human, json) in cases {
        let (code, text) = run(&["dump", structure, path]);
        assert!(code == 0 && text.contains(human), "{text}");
        let (_, text) = run(&["dump", structure, path, "--json"]);
        assert!(text.contains(json), "{text}");
        let _value: serde_json::Value = serde_json::from_str(&text).unwrap();
    }
    let (_, text) = run(&["dump", "weu", path, "--slot", "1"]);
    assert!(text.contains("codec=lz4") && text.contains("generation"), "{text}");
    assert_eq!(run(&["dump", "weu", path, "--slot", "9999"]).0, 2);
    assert_eq!(run(&["dump", "weu", path, "--slot", "2"]).0, 2, "an empty slot");
}

#[test]
fn format_refuses_what_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache.img");
    assert_eq!(format(&path, &["--size", "1 MiB"]).0, 0);
    let (code, text) = format(&path, &[]);
    assert!(code == 2 && text.contains("is a cache already"), "{text}");
    assert_eq!(format(&path, &["--force"]).0, 0);
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let (code, text) = format(&path, &[]);
    assert!(code == 2 && text.contains("contains "), "{text}");
    let (code, text) = format(&path, &["--size", "2 MiB"]);
    assert!(code == 2 && text.contains("1.0 MiB"), "{text}");
    assert_eq!(format(&dir.path().join("none"), &[]).0, 2, "a missing file needs a size");
}

#[test]
fn a_cache_in_use_is_refused() {
    let cache = Cache::new();
    let options = zc_io::OpenOptions { direct: false, write: true, create_len: None };
    let _daemon = zc_io::BlockFile::open(&cache.path, options).unwrap();
    let (code, text) = run(&["check", cache.path.to_str().unwrap()]);
    assert!(code == 2 && text.contains("cache.img"), "{text}");
}

#[test]
fn completions_and_manual_are_made() {
    assert!(run(&["completions", "bash"]).1.contains("_zcctl"));
    assert!(run(&["man"]).1.contains(".TH zcctl"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(&["man", "--dir", dir.path().to_str().unwrap()]).0, 0);
    for (page, part) in [("zcctl.1", "zcctl-dump(1)"), ("zcctl-dump.1", "journal"), ("zcctl-ublk-gc.1", "gc")]
    {
        let text = std::fs::read_to_string(dir.path().join(page)).unwrap().replace('\\', "");
        assert!(text.contains(part), "{page}: {text}");
    }
    let (code, text) = run(&["man", "--dir", "/nowhere"]);
    assert!(code == 2 && text.contains("into /nowhere"), "{text}");
}

#[test]
fn what_a_start_would_not_believe_is_a_problem_and_not_a_note() {
    let cache = Cache::new();
    cache.put_superblock(false);
    cache.put_proof(9, 3, 7, Vec::new());
    let report = cache.check();
    assert!(report.is_clean() && report.notes.len() == 2, "it may have been in flight: {report:?}");
    cache.put_proof(11, 3, 8, Vec::new());
    assert_eq!(cache.classes(), [Class::Journal], "block 7 was durable");
    let cache = Cache::new();
    let before = &cache.superblock;
    let (sequence, session) = (before.sequence + 2, cache.session());
    let distrusted = Superblock {
        clean: false,
        distrusted: true,
        sequence,
        session,
        journal_next: JournalSeq(7),
        ..before.clone()
    };
    for (copy, offset) in Superblock::offsets(1 << 20).into_iter().enumerate() {
        cache.put(offset, &distrusted.encode(copy));
    }
    assert_eq!(cache.classes(), [Class::RegionMap]);
}

#[test]
fn a_journal_elsewhere_has_to_be_named_and_has_to_be_the_right_one() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, journal) = (dir.path().join("cache.img"), dir.path().join("journal.img"));
    let (cache_name, journal_name) = (cache.to_str().unwrap(), journal.to_str().unwrap());
    let more = ["--size", "1 MiB", "--journal", journal_name, "--journal-size", "512 KiB"];
    assert_eq!(format(&cache, &more).0, 0);
    assert_eq!(std::fs::metadata(&journal).unwrap().len(), 512 << 10);
    let (code, text) = run(&["check", cache_name]);
    assert!(code == 2 && text.contains("--journal has to name it"), "{text}");
    assert_eq!(run(&["check", cache_name, "--journal", journal_name]).0, 0);
    assert_eq!(run(&["dump", "journal", cache_name, "--journal", journal_name, "--json"]).0, 0);
    let (code, text) = run(&["dump", "superblock", cache_name, "--json"]);
    assert!(code == 0 && text.contains("\"journal_device\": true"), "{text}");

    let other = dir.path().join("other.img");
    let (code, text) = format(&other, &more);
    assert!(code == 2 && text.contains("contains "), "{text}");
    assert_eq!(format(&other, &[&more[..], &["--force"]].concat()).0, 0);
    let (code, text) = run(&["check", cache_name, "--journal", journal_name]);
    assert!(code == 2 && text.contains("the journal of another cache"), "{text}");
    // A journal that does not give some of its blocks is a problem among others.
    assert_eq!(format(&cache, &[&more[..], &["--force"]].concat()).0, 0);
    File::options().write(true).open(&journal).unwrap().set_len(64 << 10).unwrap();
    let (code, text) = run(&["check", cache_name, "--journal", journal_name]);
    assert!(code == 1 && text.contains("cannot be read"), "{code} {text}");
}

#[test]
fn a_damaged_label_is_written_anew_where_the_journal_itself_proves_whose_it_is() {
    let cache = Cache::with_journal_elsewhere();
    let (path, journal) = (cache.path.to_str().unwrap(), cache.journal.as_deref().unwrap());
    let with = |command, more: &[&'static str]| {
        run(&[&[command, path, "--journal", journal.to_str().unwrap()], more].concat())
    };
    assert_eq!(with("check", &[]).0, 0);
    let sound = std::fs::read(journal).unwrap();
    for label in [vec![0; BLOCK], vec![0xeb; BLOCK]] {
        cache.put(JOURNAL_DEVICE, &label);
        let (code, text) = with("check", &[]);
        assert!(code == 1 && text.contains("[journal-label]"), "{text}");
        let (code, text) = with("repair", &[]);
        assert!(code == 1 && text.contains("would repair: the journal's label: block 6 "), "{text}");
        assert!(std::fs::read(journal).unwrap()[..BLOCK] == label, "nothing is written");
        assert_eq!(with("repair", &["--yes"]).0, 0);
        assert!(std::fs::read(journal).unwrap() == sound, "as it was");
    }
    // Another file, a session that this cache never had, or a journal that lacks a block: no proof.
    let place = |sequence| cache.superblock.geometry.journal_block_offset(JournalSeq(sequence));
    let last = &sound[usize::try_from(place(6) - JOURNAL_DEVICE).unwrap()..][..BLOCK];
    let salt = cache.superblock.geometry.salt;
    let last = JournalBlock::decode(last, JournalSeq(6), salt).unwrap();
    let later = JournalBlock { session: cache.session() + 1, ..last }.encode(salt);
    for (sequence, damage) in [(5, &[0; BLOCK][..]), (6, &later), (6, &[0; BLOCK])] {
        cache.put(JOURNAL_DEVICE, &sound);
        cache.put(JOURNAL_DEVICE, &[0; BLOCK]);
        cache.put(place(sequence), damage);
        let before = std::fs::read(journal).unwrap();
        let (code, text) = with("repair", &["--yes"]);
        assert!(code == 1 && text.contains("not repaired [journal-label]"), "{text}");
        assert!(std::fs::read(journal).unwrap() == before);
    }
}

#[test]
fn units_begin_where_they_are_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache.img");
    assert_eq!(format(&path, &["--size", "4 MiB", "--align", "1 MiB"]).0, 0);
    let geometry = Image::open(&path, None).unwrap().superblock.geometry;
    assert_eq!(geometry.slots_offset, 1 << 20);
}
