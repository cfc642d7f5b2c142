//! `vm-load`: the test machine's writes before a power cut, and the check of the remaining state.
//!
//! Job: `write DIR REPORT` runs a few writers in steps until the power fails. A step makes a file durable as a whole
//! under its name, or overwrites blocks in the middle of a file and makes them durable; then the step is reported as
//! durable. `check DIR STEPS` checks that a file system is in a state that a disk may have after that: all durable
//! data is present, and no data is present that was never written.
//!
//! Invariants: contents are a function of writer, step and position, so that a check needs the numbers only. Each
//! sector names the step that wrote it. The step after the last durable one may be present completely, partially, or
//! not at all.
//!
//! It does not mount, and is independent of caches. It runs in the machine, and on the host to check the bare origin.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool reports to its terminal")]

use anyhow::{Context, bail, ensure};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use zc_core::{u64_from_usize, usize_from_u32, usize_from_u64};

const WRITERS: u64 = 3;
const SECTOR_BYTES: usize = usize_from_u32(zc_core::SECTOR_BYTES);
/// Blocks of the file that is overwritten in place, and its block, that of the file systems.
const SLOTS: u64 = 96;
const BLOCK_BYTES: u64 = 4096;
const BLOCK_SECTORS: u64 = 8;
/// Files of a writer that are kept; older ones are removed.
const KEPT: u64 = 12;
/// Bytes of the head of a sector.
const HEAD_BYTES: usize = 24;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir, report] => write(Path::new(dir), Path::new(report)),
        ["check", dir, steps] => Durable::parse(steps).and_then(|durable| check(Path::new(dir), &durable)),
        _ => Err(anyhow::anyhow!("usage: vm-load write DIR REPORT | check DIR STEPS")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The last durable step of each writer; `None`: not even its beginning. `any` for all: nothing is known, older states
/// are good, too.
#[derive(Debug, PartialEq, Eq)]
enum Durable {
    Steps(Vec<Option<u64>>),
    Any,
}

impl Durable {
    /// Numbers, separated by commas, `-` for none; or `any`.
    fn parse(text: &str) -> anyhow::Result<Self> {
        if text == "any" {
            return Ok(Self::Any);
        }
        let step = |word: &str| match word {
            "-" => Ok(None),
            number => number.parse().map(Some).with_context(|| format!("`{number}` is no step")),
        };
        let steps = text.split(',').map(step).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(u64_from_usize(steps.len()) == WRITERS, "there are {WRITERS} writers");
        Ok(Self::Steps(steps))
    }

    /// Returns a writer's last durable step, and the last one that it may have started.
    fn of(&self, writer: u64) -> (Option<u64>, u64) {
        match self {
            Self::Any => (None, u64::MAX),
            Self::Steps(steps) => {
                let step = steps.get(usize_from_u64(writer)).copied().flatten();
                (step, step.map_or(0, |step| step + 1))
            }
        }
    }
}

/// Action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Creates a new file of `bytes`.
    NewFile { bytes: u64 },
    /// Blocks of the writer's slots, from the first on.
    Overwrite { first: u64, count: u64 },
}

fn deed(writer: u64, step: u64) -> Deed {
    let chance = scramble(writer << 32 | step);
    if step.is_multiple_of(3) {
        Deed::NewFile { bytes: 1 + chance % 120_000 }
    } else {
        let count = 1 + chance % 4;
        Deed::Overwrite { first: (chance >> 8) % (SLOTS - count), count }
    }
}

/// Maps a number to a pseudo-random one (the finaliser of splitmix64).
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A sector: its writer, step and place, then half noise, half text. Some new files differ in their names only.
fn sector(writer: u64, step: u64, place: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [b'.'; SECTOR_BYTES];
    let head = [writer, step, place].map(u64::to_le_bytes).concat();
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    let mut state = scramble(writer ^ (step << 8) ^ (place << 40));
    for word in bytes[HEAD_BYTES..].chunks_mut(16) {
        state = scramble(state);
        let noise = state.to_le_bytes();
        let length = word.len().min(noise.len());
        word[..length].copy_from_slice(&noise[..length]);
    }
    bytes
}

/// Returns the step that wrote a sector: `Some(0)` for an empty one, `None` for contents of no step.
fn step_of(bytes: &[u8], writer: u64, place: u64) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let word = bytes.get(8..16)?;
    let step = u64::from_le_bytes(word.try_into().ok()?);
    (bytes == sector(writer, step, place)).then_some(step)
}

/// The contents of a new file. Every other one is the same for all writers.
fn file_contents(writer: u64, step: u64, bytes: u64) -> Vec<u8> {
    let (writer, step) = if step.is_multiple_of(2) { (u64::MAX, 0) } else { (writer, step) };
    let sectors = bytes.div_ceil(u64_from_usize(SECTOR_BYTES));
    let mut contents: Vec<u8> = (0..sectors).flat_map(|place| sector(writer, step, place)).collect();
    contents.truncate(usize_from_u64(bytes));
    contents
}

fn slots_path(dir: &Path, writer: u64) -> PathBuf {
    dir.join(format!("slots.{writer}"))
}

fn file_path(dir: &Path, writer: u64, step: u64) -> PathBuf {
    dir.join(format!("file.{writer}.{step}"))
}

/// Writes until an operation fails, as it does at a power failure.
fn write(dir: &Path, report: &Path) -> anyhow::Result<()> {
    let place = || format!("cannot write to {}", dir.display());
    std::fs::create_dir(dir).with_context(place)?;
    sync_folder(dir.parent().unwrap_or(dir))?;
    let report = OpenOptions::new().append(true).open(report).context("no program reads the report")?;
    let report = Arc::new(Mutex::new(report));
    let run = |writer: u64| {
        let (dir, report) = (dir.to_owned(), Arc::clone(&report));
        std::thread::spawn(move || write_steps(&dir, writer, &report))
    };
    let writers: Vec<_> = (0..WRITERS).map(run).collect();
    for writer in writers {
        match writer.join() {
            Ok(result) => result.with_context(place)?,
            Err(_) => bail!("a writer panicked"),
        }
    }
    Ok(())
}

fn write_steps(dir: &Path, writer: u64, report: &Mutex<File>) -> anyhow::Result<()> {
    let slots = File::create(slots_path(dir, writer))?;
    slots.write_all_at(&vec![0; usize_from_u64(SLOTS * BLOCK_BYTES)], 0)?;
    slots.sync_all()?;
    sync_folder(dir)?;
    for step in 0_u64.. {
        if step > 0 {
            take_step(dir, writer, step, &slots)?;
        }
        let line = format!("{{\"writer\":{writer},\"durable\":{step}}}\n");
        let mut report = report.lock().map_err(|_| anyhow::anyhow!("a writer panicked"))?;
        report.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn take_step(dir: &Path, writer: u64, step: u64, slots: &File) -> anyhow::Result<()> {
    match deed(writer, step) {
        Deed::NewFile { bytes } => {
            let path = dir.join(format!("new.{writer}"));
            let mut file = File::create(&path)?;
            file.write_all(&file_contents(writer, step, bytes))?;
            file.sync_all()?;
            std::fs::rename(&path, file_path(dir, writer, step))?;
            sync_folder(dir)?;
            // Space that is freed is trimmed and used again. This need not be durable.
            if let Some(old) = step.checked_sub(KEPT).filter(|old| *old > 0) {
                std::fs::remove_file(file_path(dir, writer, old))?;
            }
        }
        Deed::Overwrite { first, count } => {
            let places = first * BLOCK_SECTORS..(first + count) * BLOCK_SECTORS;
            let bytes: Vec<u8> = places.flat_map(|place| sector(writer, step, place)).collect();
            slots.write_all_at(&bytes, first * BLOCK_BYTES)?;
            slots.sync_data()?;
        }
    }
    Ok(())
}

fn sync_folder(dir: &Path) -> anyhow::Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("cannot sync {}", dir.display()))
}

/// Checks the remaining state.
fn check(dir: &Path, durable: &Durable) -> anyhow::Result<()> {
    if !dir.is_dir() {
        let lost = (0..WRITERS).find(|writer| durable.of(*writer).0.is_some());
        ensure!(lost.is_none(), "{} was durable and is not there", dir.display());
        return Ok(());
    }
    let mut files = 0;
    for writer in 0..WRITERS {
        let (last, begun) = durable.of(writer);
        check_slots(dir, writer, last, begun)?;
        files += check_files(dir, writer, last, begun)?;
    }
    println!("{}: {files} files are whole, and {WRITERS} times {SLOTS} blocks", dir.display());
    Ok(())
}

/// Every sector is of the last durable step that wrote it, or of the one that was under way.
fn check_slots(dir: &Path, writer: u64, last: Option<u64>, begun: u64) -> anyhow::Result<()> {
    let path = slots_path(dir, writer);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && last.is_none() => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    ensure!(
        last.is_none() || u64_from_usize(bytes.len()) == SLOTS * BLOCK_BYTES,
        "{} has {} bytes",
        path.display(),
        bytes.len()
    );
    let owed = owed_steps(writer, last.unwrap_or(0));
    for (place, found) in (0_u64..).zip(bytes.chunks(SECTOR_BYTES)) {
        let block = place / BLOCK_SECTORS;
        let Some(step) = step_of(found, writer, place) else {
            bail!("sector {place} of {} was never written like this: {found:02x?}", path.display());
        };
        let at_least = owed.get(usize_from_u64(block)).copied().unwrap_or(0);
        let may_be = step == at_least || step > at_least && step <= begun && writes(writer, step, block);
        ensure!(
            may_be,
            "sector {place} of {} is of step {step}; step {at_least} was durable, step {begun} may have begun",
            path.display()
        );
    }
    Ok(())
}

/// The last step up to `last` that wrote each block.
fn owed_steps(writer: u64, last: u64) -> Vec<u64> {
    let newest = |block| (1..=last).rev().find(|step| writes(writer, *step, block)).unwrap_or(0);
    (0..SLOTS).map(newest).collect()
}

fn writes(writer: u64, step: u64, block: u64) -> bool {
    matches!(deed(writer, step), Deed::Overwrite { first, count } if (first..first + count).contains(&block))
}

/// Every file that has its name is whole; those that were durable are there. Returns how many.
fn check_files(dir: &Path, writer: u64, last: Option<u64>, begun: u64) -> anyhow::Result<u64> {
    let prefix = format!("file.{writer}.");
    let mut there = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let name = entry?.file_name();
        let Some(step) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else { continue };
        let step: u64 = step.parse().with_context(|| format!("a file with the name {}", name.display()))?;
        let path = dir.join(&name);
        let Deed::NewFile { bytes } = deed(writer, step) else { bail!("no step makes {}", path.display()) };
        let found = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(step <= begun, "{} was not begun", path.display());
        ensure!(found == file_contents(writer, step, bytes), "{} has wrong contents", path.display());
        there.insert(step);
    }
    let Some(last) = last else { return Ok(u64_from_usize(there.len())) };
    // The step that was under way may have removed one more.
    for step in (last + 2).saturating_sub(KEPT).max(1)..=last {
        let is_file = matches!(deed(writer, step), Deed::NewFile { .. });
        ensure!(!is_file || there.contains(&step), "file {step} of writer {writer} was durable and is lost");
    }
    Ok(u64_from_usize(there.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a folder in which every writer has completed this number of steps.
    fn after(steps: u64) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for writer in 0..WRITERS {
            let slots = File::create(slots_path(dir.path(), writer)).unwrap();
            slots.write_all_at(&vec![0; usize_from_u64(SLOTS * BLOCK_BYTES)], 0).unwrap();
            (1..=steps).for_each(|step| take_step(dir.path(), writer, step, &slots).unwrap());
        }
        dir
    }

    fn judge(dir: &Path, durable: &str) -> Result<(), String> {
        check(dir, &Durable::parse(durable).unwrap()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_is_there_is_good_up_to_one_step_more_than_was_durable() {
        let dir = after(60);
        judge(dir.path(), "60,60,60").unwrap();
        judge(dir.path(), "59,60,59").unwrap();
        judge(dir.path(), "any").unwrap();
        // Some step of the last few overwrote blocks that no later one wrote, or made a file.
        assert!(judge(dir.path(), "50,60,60").is_err());
        assert!(judge(dir.path(), "60,60,70").is_err());
    }

    #[test]
    fn each_kind_of_damage_is_found() {
        let harm = |harm: &dyn Fn(&Path), durable: &str| {
            let dir = after(60);
            harm(dir.path());
            judge(dir.path(), durable)
        };
        let newest = (1..=60).rev().find(|step| matches!(deed(1, *step), Deed::NewFile { .. })).unwrap();
        let lost = harm(&|dir| std::fs::remove_file(file_path(dir, 1, newest)).unwrap(), "60,60,60");
        assert!(lost.unwrap_err().contains("is lost"));
        let cut_short = |dir: &Path| {
            File::options().write(true).open(file_path(dir, 1, newest)).unwrap().set_len(0).unwrap();
        };
        assert!(harm(&cut_short, "any").unwrap_err().contains("wrong contents"));
        let (block, step) = (0..SLOTS).zip(owed_steps(0, 60)).find(|(_, step)| *step > 1).unwrap();
        let put = |bytes: Vec<u8>, sector: u64| {
            move |dir: &Path| {
                let slots = File::options().write(true).open(slots_path(dir, 0)).unwrap();
                slots.write_all_at(&bytes, (block * BLOCK_SECTORS + sector) * 512).unwrap();
            }
        };
        let old = sector(0, step - 1, block * BLOCK_SECTORS + 3).to_vec();
        assert!(harm(&put(old, 3), "60,60,60").unwrap_err().contains("is of step"));
        assert!(harm(&put(vec![0; 512], 3), "60,60,60").unwrap_err().contains("is of step 0"));
        let misplaced = sector(0, step, block * BLOCK_SECTORS + 4).to_vec();
        assert!(harm(&put(misplaced, 3), "any").unwrap_err().contains("never written"));
        assert!(harm(&put(vec![1; 512], 3), "any").unwrap_err().contains("never written"));
    }

    #[test]
    fn a_folder_that_was_not_durable_may_be_missing() {
        let missing = Path::new("/no-such-folder");
        judge(missing, "-,-,-").unwrap();
        judge(missing, "any").unwrap();
        assert!(judge(missing, "-,0,-").unwrap_err().contains("not there"));
        Durable::parse("1,2").unwrap_err();
        Durable::parse("1,2,x").unwrap_err();
    }
}
