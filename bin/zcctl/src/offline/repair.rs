//! `zcctl repair`: restores structures with a valid copy, and lists those without.
//!
//! Repaired are copies of the superblock and of the volume table, and the label of a journal device whose other
//! contents prove that it belongs to the cache. Everything else either heals by itself (clean data is read from the
//! origin again, region map and checkpoint are rewritten by the next session at the price of a colder cache) or cannot
//! be repaired (unreadable dirty data).
//!
//! Invariants: nothing is written without `--yes`, and never more than announced; a copy is written from a valid one;
//! the file is locked against a daemon. Copies of the region map are left alone: a corrupt one makes the next start
//! distrust all mappings.

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use zc_core::limits::BLOCK_BYTES;
use zc_format::{JournalLabel, Superblock, VolumeTable};
use zc_io::{AlignedBuf, BlockFile, OpenOptions};

use super::check::check;
use super::cli::RepairArgs;
use super::image::{CopyState, Image, newest};
use super::report::{Class, Report};

/// Destination of a fix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Cache,
    Journal,
}

/// A write that repairs something.
struct Fix {
    target: Target,
    class: Class,
    what: String,
    offset_bytes: u64,
    bytes: Vec<u8>,
}

pub(crate) fn run(args: &RepairArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (fixes, report) = {
        let image = Image::open(&args.path, args.journal.as_deref())?;
        let report = check(&image, true)?;
        (plan(&image, &report), report)
    };
    let lost = beyond_repair(&report, &fixes);
    let done = args.yes && !fixes.is_empty();
    if done {
        carry_out(args, &fixes)?;
    }
    if args.json {
        let repaired: Vec<&str> = fixes.iter().map(|fix| fix.what.as_str()).collect();
        let lost: Vec<Value> =
            lost.iter().map(|(class, text)| json!({"class": class, "text": text})).collect();
        writeln!(out, "{:#}", json!({"repairable": repaired, "written": done, "beyond_repair": lost}))?;
    } else {
        print(out, &fixes, &lost, done)?;
    }
    let clean = lost.is_empty() && (fixes.is_empty() || done);
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(
    out: &mut dyn Write,
    fixes: &[Fix],
    lost: &[(&'static str, String)],
    done: bool,
) -> std::io::Result<()> {
    for fix in fixes {
        writeln!(out, "{} {}", if done { "repaired:" } else { "would repair:" }, fix.what)?;
    }
    for (class, text) in lost {
        writeln!(out, "not repaired [{class}] {}", crate::text::clean(text))?;
    }
    match (fixes.is_empty(), lost.is_empty(), done) {
        (true, true, _) => writeln!(out, "nothing to repair"),
        (false, _, false) => writeln!(out, "nothing was written; --yes writes it"),
        _ => Ok(()),
    }
}

fn carry_out(args: &RepairArgs, fixes: &[Fix]) -> anyhow::Result<()> {
    let options = OpenOptions { direct: false, write: true, create_len: None };
    let targets = [(Target::Cache, Some(&args.path)), (Target::Journal, args.journal.as_ref())];
    for (target, path) in targets {
        let mut fixes = fixes.iter().filter(|fix| fix.target == target).peekable();
        let Some(path) = path.filter(|_| fixes.peek().is_some()) else { continue };
        let file = BlockFile::open(path, options)?;
        for fix in fixes {
            file.write_blocking(fix.offset_bytes, &AlignedBuf::from(fix.bytes.as_slice()))?;
        }
        file.sync_blocking()?;
    }
    Ok(())
}

/// Returns the fixes from valid copies.
fn plan(image: &Image, report: &Report) -> Vec<Fix> {
    let mut fixes = Vec::new();
    let offsets = Superblock::offsets(image.geometry().device_bytes);
    let damaged = image.superblocks.faults.iter().map(|(copy, _)| *copy);
    for copy in damaged.chain(image.older_superblocks.iter().copied()) {
        let Some(offset_bytes) = offsets.get(copy).copied() else { continue };
        if offset_bytes + u64::from(BLOCK_BYTES) <= image.len_bytes() {
            let what = format!("superblock copy {copy}, from the newest valid one");
            let bytes = image.superblock.encode(copy);
            let target = Target::Cache;
            fixes.push(Fix { target, class: Class::Superblock, what, offset_bytes, bytes });
        }
    }
    if image.len_bytes() >= image.geometry().device_bytes {
        plan_volume_table(image, &mut fixes);
        fixes.extend(plan_journal_label(image, report));
    }
    fixes
}

/// Plans the rewrite of the label, if the ring contains everything that this cache's journal requires.
fn plan_journal_label(image: &Image, report: &Report) -> Option<Fix> {
    image.label_fault.as_ref()?;
    if report.problems.iter().any(|problem| problem.class == Class::Journal) {
        return None;
    }
    image.proved_journal_block().map(|last| Fix {
        target: Target::Journal,
        class: Class::JournalLabel,
        what: format!("the journal's label: block {last} behind it is this cache's"),
        offset_bytes: 0,
        bytes: JournalLabel::of(&image.superblock).encode(),
    })
}

fn plan_volume_table(image: &Image, fixes: &mut Vec<Fix>) {
    let tables: [CopyState<VolumeTable>; 2] = image.volume_tables();
    let Some((table, good)) = newest(&tables, |table| table.sequence) else { return };
    let other = 1 - good;
    let sound = match &tables[other] {
        CopyState::Valid(_) => true,
        // The second copy may never have been written.
        CopyState::Blank => table.sequence <= 1,
        CopyState::Damaged(_) | CopyState::Unreadable(_) | CopyState::IndexImage => false,
    };
    if !sound {
        fixes.push(Fix {
            target: Target::Cache,
            class: Class::VolumeTable,
            what: format!("volume table copy {other}, from copy {good}"),
            offset_bytes: image.geometry().volume_table[other],
            bytes: table.encode(other, image.geometry().salt),
        });
    }
}

/// Returns the remaining damage, with its cost.
fn beyond_repair(report: &Report, fixes: &[Fix]) -> Vec<(&'static str, String)> {
    let mut lost = Vec::new();
    for problem in &report.problems {
        let cost = match problem.class {
            Class::Superblock | Class::VolumeTable | Class::JournalLabel
                if fixes.iter().any(|fix| fix.class == problem.class) =>
            {
                continue;
            }
            Class::Superblock | Class::VolumeTable => {
                "no copy is left, so no daemon opens the cache: it has to be formatted anew"
            }
            Class::RegionMap | Class::Checkpoint => "the cache starts cold",
            Class::Journal => {
                "the cache starts cold; volumes that may have dirty data are fenced until \
                 `zcctl accept-loss` accepts the loss"
            }
            Class::JournalLabel => {
                "nothing on it proves that it is this cache's journal; name the right one, or have a blank \
                 file in its place, which costs what a lost journal costs"
            }
            Class::WeuHeader => "what the unit holds is read from the origin again",
            Class::Extent => "it is read from the origin again if it is clean",
            Class::Dirty => "only the cache had it; reads of it fail until it is written again",
            Class::Device => "the cache has to be formatted anew, unless the device gets its size back",
        };
        let times = if problem.times > 1 { format!(" ({} times)", problem.times) } else { String::new() };
        lost.push((problem.class.name(), format!("{}{times}: {cost}", problem.text)));
    }
    lost
}
