//! Power cuts: QEMU is stopped at a random time and killed, its disks lose unflushed data, and the next boot must find
//! all durable data.
//!
//! Invariants: everything that the machine had reported when it was stopped must be present; later actions do not
//! count. The folders of the last two boots are checked after every cut.
//!
//! Model of a cut: processor and memory stop between two instructions. Each disk has a volatile write cache: flushed
//! data stays; of the rest it keeps all, nothing, some requests, or pieces of requests (`loss`). Requests that QEMU
//! had not completed are lost.
//!
//! It does not corrupt flushed data. A cache device that lies is covered by the simulator.

use anyhow::{Context, bail};
use std::process::Command;
use std::time::Duration;
use zc_core::{u64_from_usize, usize_from_u64};

use crate::chance::Chance;
use crate::host::packages::find;
use crate::host::run::run_quietly;
use crate::machine::{Bench, Setting, load_program};
use crate::mode::{FileSystem, Mode};
use crate::report::{Line, judge};
use crate::scenarios::{limit, show};
use crate::setup::Image;

/// Parameters of the cuts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) cuts: u32,
    pub(crate) mode: Mode,
    pub(crate) fs: FileSystem,
    pub(crate) seed: u64,
    /// The kernel of the machine suppresses flushes: then a loss must be detected, or the check proves nothing.
    pub(crate) is_canary: bool,
}

/// Writers of `vm-load`.
const WRITERS: usize = 3;
/// Steps after which the power may go, counted from the beginning of a life.
const STEPS_MAX: u64 = 120;
/// Texts of errors that mean data loss.
const LOSSES: [&str; 3] = ["bare origin", r#""clean","ok":false"#, r#""whole","ok":false"#];
/// Largest age of dirty data in milliseconds; each boot uses one of these.
const DIRTY_AGES_MS: [&str; 3] = ["100", "1000", "30000"];
/// One cut in this number hits the start, while the machine recovers from the previous one.
const EARLY_ONE_IN: u64 = 4;
const EARLY_MS_MAX: u64 = 6_000;

/// A folder on the volume, and the last durable step of each writer in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    life: u32,
    durable: [Option<u64>; WRITERS],
}

impl Folder {
    /// Formats it for the kernel's command line and `vm-load`.
    fn argument(&self) -> String {
        format!("life.{}:{}", self.life, self.steps())
    }

    fn steps(&self) -> String {
        self.durable.map(|step| step.map_or_else(|| "-".to_owned(), |step| step.to_string())).join(",")
    }
}

/// Cuts the power repeatedly on the same disks, then shuts the machine down in order and checks the bare origin.
pub(crate) fn power_cut(image: &Image, plan: Plan) -> anyhow::Result<()> {
    let (mode, fs) = (plan.mode.name(), plan.fs.name());
    println!("    power cut, {} times, {mode}, {fs}, seed {}", plan.cuts, plan.seed);
    let bench = Bench::new(image)?;
    let again = || format!("--mode {mode} --fs {fs} --seed {}", plan.seed);
    let result = lives(image, &bench, plan, &mode, &fs).with_context(again);
    if plan.is_canary {
        let Err(error) = result else { bail!("flushes were dropped, and nothing was missed") };
        let text = format!("{error:#}");
        // Other errors do not show a loss.
        if !LOSSES.iter().any(|loss| text.contains(loss)) {
            return Err(error);
        }
        println!("    as it should be: {text}");
        return Ok(());
    }
    if result.is_err() {
        println!("    the disks are kept in {}", bench.keep().display());
    }
    result
}

fn lives(image: &Image, bench: &Bench, plan: Plan, mode: &str, fs: &str) -> anyhow::Result<()> {
    let mut chance = Chance::new(plan.seed);
    let mut folders: Vec<Folder> = Vec::new();
    for number in 1..=plan.cuts {
        let life = Life { image, bench, plan, mode, fs, number };
        life.live(&mut folders, &mut chance).with_context(|| format!("cut {number}"))?;
    }
    let left = left(&folders);
    let settings = [("mode", mode), ("fs", fs), ("left", left.as_str()), ("age", "1000")];
    let mut machine = bench.boot(image, "cut", &settings)?;
    let lines = machine.follow(limit(0), show, |_| false)?;
    judge(&lines, &[]).inspect_err(|_| machine.show_console())
}

fn left(folders: &[Folder]) -> String {
    folders.iter().map(Folder::argument).collect::<Vec<_>>().join(";")
}

/// From power-on to the cut.
struct Life<'a> {
    image: &'a Image,
    bench: &'a Bench,
    plan: Plan,
    mode: &'a str,
    fs: &'a str,
    number: u32,
}

impl Life<'_> {
    fn live(&self, folders: &mut Vec<Folder>, chance: &mut Chance) -> anyhow::Result<()> {
        let (number, left) = (self.number.to_string(), left(folders));
        let age = DIRTY_AGES_MS[usize_from_u64(chance.below(u64_from_usize(DIRTY_AGES_MS.len())))];
        let mut settings: Vec<Setting<'_>> =
            vec![("mode", self.mode), ("fs", self.fs), ("left", &left), ("life", &number), ("age", age)];
        if self.plan.is_canary {
            settings.push(("canary", "1"));
        }
        let mut machine = self.bench.boot_to_lose(self.image, "cut", &settings)?;
        let is_early = !folders.is_empty() && chance.below(EARLY_ONE_IN) == 0;
        let wanted = chance.below(STEPS_MAX);
        let is_due = |lines: &[String]| {
            has_failed(lines) || if is_early { has_booted(lines) } else { steps(lines) > wanted }
        };
        let quiet = |_: &str| {};
        let lines = machine.follow(limit(0), quiet, is_due)?;
        if has_failed(&lines) || !has_booted(&lines) || !is_due(&lines) {
            machine.show_console();
            bail!("the machine failed, or went away before its power was cut: {}", lines.join(" "));
        }
        machine.run_on(Duration::from_millis(chance.below(if is_early { EARLY_MS_MAX } else { 300 })));
        let lines = machine.cut_power()?;
        if has_failed(&lines) {
            machine.show_console();
            bail!("the machine failed before its power was cut: {}", lines.join(" "));
        }
        drop(machine);
        let losses = self.bench.lose(chance)?;
        // A life that was cut off before it could write may have made its folder, or not.
        folders.push(Folder { life: self.number, durable: durable(&lines) });
        if folders.len() > 2 {
            folders.remove(0);
        }
        let phase = if is_early { "while it started" } else { "under load" };
        println!("    cut {} {phase}: {} steps; unflushed kept/lost: {losses}", self.number, steps(&lines));
        self.look_at_origin(folders)
    }

    /// The origin alone, without the cache: in write-through it has everything that is durable, in write-back it is as
    /// some moment of the volume was.
    fn look_at_origin(&self, folders: &[Folder]) -> anyhow::Result<()> {
        if self.plan.fs != FileSystem::Ext4 {
            return Ok(());
        }
        let copy = self.bench.copy_of_origin()?;
        let checked = self.bench.empty_folder()?;
        if self.plan.mode == Mode::WriteBack && !has_file_system(&copy)? {
            return Ok(());
        }
        let tool = |name: &str| find(name).map(Command::new).with_context(|| format!("there is no {name}"));
        // 1: changes by the journal's replay.
        run_quietly(tool("e2fsck")?.arg("-fp").arg(&copy), &[0, 1]).context("the bare origin is damaged")?;
        run_quietly(tool("e2fsck")?.arg("-fn").arg(&copy), &[0]).context("the bare origin is damaged")?;
        let everything = format!("rdump / {}", checked.display());
        run_quietly(tool("debugfs")?.arg("-R").arg(everything).arg(&copy), &[0])?;
        for folder in folders {
            let known = match self.plan.mode {
                Mode::WriteThrough => folder.steps(),
                Mode::WriteBack => "any".to_owned(),
            };
            let place = checked.join(format!("life.{}", folder.life));
            let mut check = Command::new(load_program()?);
            run_quietly(check.arg("check").arg(place).arg(known), &[0]).context("on the bare origin")?;
        }
        Ok(())
    }
}

/// Returns `true` if an ext4 exists: the first cut may precede all destaging.
fn has_file_system(image: &std::path::Path) -> anyhow::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut magic = [0; 2];
    let file = std::fs::File::open(image).context("cannot open the copy of the origin")?;
    file.read_exact_at(&mut magic, 1024 + 56).context("cannot read the copy of the origin")?;
    Ok(magic == [0x53, 0xef])
}

fn durable(lines: &[String]) -> [Option<u64>; WRITERS] {
    let mut newest = [None; WRITERS];
    for line in lines {
        if let Ok(Line::Durable { writer, step }) = Line::parse(line)
            && let Some(known) = newest.get_mut(writer)
        {
            *known = Some(step).max(*known);
        }
    }
    newest
}

/// Durable steps of all writers.
fn steps(lines: &[String]) -> u64 {
    durable(lines).into_iter().flatten().sum()
}

fn has_booted(lines: &[String]) -> bool {
    lines.iter().any(|line| matches!(Line::parse(line), Ok(Line::Check { .. })))
}

fn has_failed(lines: &[String]) -> bool {
    lines.iter().any(|line| matches!(Line::parse(line), Ok(Line::Check { ok: false, .. })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_durable_step_of_each_writer_must_be_there() {
        let lines: Vec<String> = [(0, 0), (2, 0), (0, 1), (2, 1), (2, 2)]
            .map(|(writer, step)| format!("{{\"writer\":{writer},\"durable\":{step}}}"))
            .into();
        let folder = Folder { life: 4, durable: durable(&lines) };
        assert_eq!(folder.argument(), "life.4:1,-,2");
        assert_eq!(steps(&lines), 3);
        assert_eq!(left(&[folder.clone(), folder]), "life.4:1,-,2;life.4:1,-,2");
    }
}
