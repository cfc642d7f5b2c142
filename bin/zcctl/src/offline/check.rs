//! `zcctl check`: verifies all structures on the device and their consistency.
//!
//! Problems are written structures that are corrupt, and everything that would make a daemon distrust its cache.
//! Possible results of a crash (an older copy, a half-written checkpoint beside the valid one) are notes as long as
//! the last session did not end cleanly.

use std::io::Write;
use std::process::ExitCode;

use zc_core::{JournalSeq, u64_from_usize};
use zc_format::recover::ReplayEnd;
use zc_format::{CheckpointHeader, RegionMap};

use super::cli::CheckArgs;
use super::dirty::Dirty;
use super::image::{CopyState, Image, Journal, newest};
use super::report::{Class, Report};
use super::slots::Slots;
use crate::units::size;

pub(crate) fn run(args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let image = Image::open(&args.path, args.journal.as_deref())?;
    let report = check(&image, args.data)?;
    if args.json {
        writeln!(out, "{:#}", report.to_json())?;
    } else {
        writeln!(out, "{}: a cache of {}", args.path.display(), size(image.geometry().device_bytes))?;
        report.write(out)?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks everything; with `data` every stored extent, too.
pub(crate) fn check(image: &Image, data: bool) -> anyhow::Result<Report> {
    let mut report = Report::default();
    check_superblocks(image, &mut report);
    if image.len_bytes() < image.geometry().device_bytes {
        let (have, need) = (image.len_bytes(), image.geometry().device_bytes);
        report.problem(
            Class::Device,
            format!("the device has {have} bytes, the cache on it {need}: truncated"),
        );
        return Ok(report);
    }
    let tables = image.volume_tables();
    check_copies(&mut report, Class::VolumeTable, &tables, |table| table.sequence);
    let volumes = newest(&tables, |table| table.sequence).map_or(0, |(table, _)| table.records.len());
    report.count("volumes", u64_from_usize(volumes));
    let maps = image.region_maps();
    check_copies(&mut report, Class::RegionMap, &maps, |map| map.sequence);
    let map = newest(&maps, |map| map.sequence).map(|(map, _)| map);
    report.count("regions marked", u64_from_usize(map.map_or(0, |map| map.regions.len())));
    let checkpoints = image.checkpoints();
    check_copies(&mut report, Class::Checkpoint, &checkpoints, |header| header.sequence);

    let mut slots = Slots::default();
    let mut dirty = Dirty::default();
    let count = image.geometry().slots;
    let newest_checkpoint = newest(&checkpoints, |header| header.sequence);
    for (area, found) in checkpoints.iter().enumerate() {
        let Some(header) = found.valid() else { continue };
        let is_newest = newest_checkpoint.is_some_and(|(_, newest)| newest == area);
        let records = check_checkpoint(image, header, area, is_newest, &mut report);
        if is_newest {
            slots.replay(&records, count);
            dirty.replay(&records);
            report.count("checkpoint records", u64_from_usize(records.len()));
        }
    }
    check_index_image(image, &mut report);
    let checkpoint = newest_checkpoint.map(|(header, _)| header);
    let journal = image.journal(checkpoint)?;
    check_journal(image, &journal, map, checkpoint, &mut report);
    slots.replay(journal.records(), count);
    dirty.replay(journal.records());
    report.count("journal blocks", u64_from_usize(journal.blocks.len()));
    report.count("summaries", u64_from_usize(journal.chain.summaries.len()));
    if slots.outside > 0 {
        let text = format!("{} records name slots beyond the last of {count}", slots.outside);
        report.problem(Class::Journal, text);
    }
    slots.check(image, data, &mut report);
    if !dirty.is_empty() {
        dirty.check(image, &slots, data, &mut report);
    }
    Ok(report)
}

fn check_superblocks(image: &Image, report: &mut Report) {
    for (copy, fault) in &image.superblocks.faults {
        report.problem(Class::Superblock, format!("copy {copy}: {fault}"));
    }
    for copy in &image.older_superblocks {
        report.note(format!("superblock copy {copy} is older than the newest: a rewrite was interrupted"));
    }
    if !image.superblock.clean {
        report.note("the last session did not end cleanly; the next start replays the journal".to_owned());
    }
    if image.superblock.distrusted && !image.superblock.clean {
        let text = "the last session distrusted all mappings and did not end cleanly, so the next start distrusts them as \
             well";
        report.problem(Class::RegionMap, text.to_owned());
    }
    report.count("session", image.superblock.session);
}

/// Checks two alternating copies, of which the older one is never written before the second update.
fn check_copies<T>(
    report: &mut Report,
    class: Class,
    copies: &[CopyState<T>; 2],
    sequence: impl Fn(&T) -> u64,
) {
    let name = class.name();
    let first = newest(copies, &sequence).is_some_and(|(found, _)| sequence(found) <= 1);
    for (copy, found) in copies.iter().enumerate() {
        match found {
            CopyState::Valid(_) | CopyState::IndexImage => {}
            CopyState::Blank if first => {}
            CopyState::Blank => report.problem(class, format!("{name} copy {copy} is zero")),
            CopyState::Damaged(fault) => report.problem(class, format!("{name} copy {copy}: {fault}")),
            CopyState::Unreadable(error) => report.problem(class, format!("{name} copy {copy}: {error}")),
        }
    }
}

/// Faults of the index image only cost start-up time.
fn check_index_image(image: &Image, report: &mut Report) {
    if image.superblock.index_image == 0 {
        return;
    }
    match image.index_image() {
        Some((valid, pieces)) if valid == pieces => report.count("index image pieces", pieces),
        Some((valid, pieces)) => report.note(format!(
            "{} of {pieces} pieces of the index image are damaged: the next start reads headers, which takes longer",
            pieces - valid
        )),
        None => report
            .note("the index image is damaged: the next start reads headers, which takes longer".to_owned()),
    }
}

fn check_checkpoint(
    image: &Image,
    header: &CheckpointHeader,
    area: usize,
    is_newest: bool,
    report: &mut Report,
) -> Vec<zc_format::Record> {
    let found = image.checkpoint_records(header, area);
    let what = format!("checkpoint {} in area {area}", header.sequence);
    for (block, fault) in &found.bad_blocks {
        let text = format!("{what}: block {block} of {}: {fault}", header.blocks);
        if is_newest || image.superblock.clean {
            report.problem(Class::Checkpoint, text);
        } else {
            report.note(format!("{text} (the area was being rewritten)"));
        }
    }
    let count = u64_from_usize(found.records.len());
    if found.bad_blocks.is_empty() && count != header.records {
        let text = format!("{what} has {count} records, its header says {}", header.records);
        report.problem(Class::Checkpoint, text);
    }
    found.records
}

fn check_journal(
    image: &Image,
    journal: &Journal,
    map: Option<&RegionMap>,
    checkpoint: Option<&CheckpointHeader>,
    report: &mut Report,
) {
    if let Some(fault) = &image.label_fault {
        report.problem(Class::JournalLabel, fault.clone());
    }
    let next = journal.next;
    let by_superblock = JournalSeq(image.superblock.journal_next.0.saturating_sub(1));
    let mut required = map.map_or(JournalSeq(0), |map| map.journal_required).max(by_superblock);
    required =
        required.max(JournalSeq(checkpoint.map_or(1, |header| header.journal_start.0).saturating_sub(1)));
    if required >= next {
        let text = format!("it ends before block {next}, but block {required} was durable");
        report.problem(Class::Journal, text);
    }
    if checkpoint.is_some_and(|header| !image.superblock.goes_on_from(header)) {
        let text =
            format!("the last session began from checkpoint {}, which is lost", image.superblock.checkpoint);
        report.problem(Class::Checkpoint, text);
    }
    if let Some((first, why, count)) = &journal.unreadable {
        let text = format!("{count} of its blocks cannot be read, the first of them block {first}: {why}");
        report.problem(Class::Journal, text);
    }
    if journal.end == Some(ReplayEnd::Overrun) {
        let text =
            format!("it has run past the newest checkpoint at block {next}: a newer checkpoint was lost");
        report.problem(Class::Journal, text);
    } else if let Some(beyond) = journal.beyond {
        let text = format!("block {next} is missing or damaged, but block {beyond} is there");
        if image.superblock.clean || journal.proved_beyond > next {
            report.problem(Class::Journal, text);
        } else {
            report.note(format!("journal: {text} (what was being written when the session was cut off)"));
        }
    }
    if journal.chain.broken {
        let text = format!("a summary behind block {next} is missing or damaged: a commit is lost");
        report.problem(Class::Journal, text);
    }
    let by_blocks = journal.blocks.iter().map(|block| block.region_map_sequence);
    let by_summaries = journal.chain.summaries.iter().map(|summary| summary.region_map_sequence);
    let mentioned = by_blocks.chain(by_summaries).max().unwrap_or(0);
    let mentioned = mentioned.max(checkpoint.map_or(0, |header| header.region_map_sequence));
    let found = map.map_or(0, |map| map.sequence);
    if map.is_some() && mentioned > found {
        let text = format!("region map {mentioned} is mentioned, the newest found is {found}");
        report.problem(Class::RegionMap, text);
    }
}
