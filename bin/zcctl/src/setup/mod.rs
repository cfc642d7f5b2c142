//! `zcctl setup`: prepares disks for a daemon.
//!
//! Job: list the devices, show a plan, and execute it: write the configuration, make the cache, print the next
//! commands.
//!
//! Invariants: without --yes nothing is written. Only the cache, which was empty and unused, and a new configuration
//! file are written. If the cache cannot be made, the file is removed again. Origins are opened read-only.
//!
//! It does not start the daemon, or make file systems.

mod machine;
mod plan;
pub(crate) mod signature;

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use zc_io::{BlockFile, OpenOptions};

use crate::offline;
use crate::offline::cli::FormatArgs;
use crate::options::{SOCKET_DEFAULT, STATE_DIR_DEFAULT};
use crate::text;
use crate::units::size;

use machine::{Disk, Machine};
use plan::{NamedOrigin, Plan, Wish};

/// Mode of a configuration that setup makes: all users may read it.
const CONFIG_MODE: u32 = 0o644;

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    /// Disk to be cached; nothing is written to it.
    #[arg(long = "origin", value_name = "[NAME=]DEVICE")]
    origins: Vec<NamedOrigin>,
    /// The device for the cache; default is the only free SSD.
    #[arg(long, value_name = "DEVICE", requires = "origins")]
    cache: Option<PathBuf>,
    /// Write the configuration and make the cache.
    #[arg(long, requires = "origins")]
    yes: bool,
    /// Show the plan alone, as without --yes.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// The configuration file, which must not exist.
    #[arg(long, value_name = "PATH", default_value = "/etc/zcached.toml")]
    config: PathBuf,
    /// State directory of the daemon.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR_DEFAULT)]
    state_dir: PathBuf,
    /// Control socket of the daemon.
    #[arg(long, value_name = "PATH", default_value = SOCKET_DEFAULT)]
    socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &SetupArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let machine = Machine::under(Path::new("/"));
    let disks = machine.disks().context("cannot list the block devices")?;
    if args.origins.is_empty() {
        show_disks(args, &disks, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wish = Wish {
        cache: args.cache.as_deref(),
        origins: &args.origins,
        state_dir: &args.state_dir,
        socket: &args.socket,
    };
    let plan = Plan::new(&machine, &disks, &wish)?;
    check_now(args, &plan)?;
    if args.yes {
        carry_out(args, &plan)?;
    }
    show_plan(args, &plan, out)?;
    Ok(ExitCode::SUCCESS)
}

fn show_disks(args: &SetupArgs, disks: &[Disk], out: &mut dyn Write) -> anyhow::Result<()> {
    if args.json {
        let devices: Vec<Value> = disks.iter().map(Disk::to_json).collect();
        writeln!(out, "{:#}", json!({ "devices": devices, "plan": null, "done": false }))?;
        return Ok(());
    }
    let row = |disk: &Disk| {
        let use_of_it = match &disk.used {
            Some(used) => used.clone(),
            None if disk.is_free() && disk.rotational == Some(false) => {
                "free: usable as the cache".to_owned()
            }
            None => "free".to_owned(),
        };
        vec![
            disk.path.display().to_string(),
            size(disk.size_bytes),
            disk.kind().to_owned(),
            disk.content.describe(),
            use_of_it,
        ]
    };
    let rows: Vec<Vec<String>> = disks.iter().map(row).collect();
    text::table(out, &["device", "size", "kind", "holds", "use"], &rows)?;
    writeln!(out, "\nName the disks to be cached: zcctl setup --origin [NAME=]DEVICE [--cache DEVICE]")?;
    Ok(())
}

/// Checks that need an attempt: exclusive access to the devices, and absence of the file.
fn check_now(args: &SetupArgs, plan: &Plan) -> anyhow::Result<()> {
    if fs::symlink_metadata(&args.config).is_ok() {
        bail!(
            "{} exists, and setup does not change it; `zcctl volume add` adds a volume to a running daemon",
            args.config.display()
        );
    }
    let devices = std::iter::once(&plan.cache).chain(plan.origins.iter().map(|origin| &origin.disk));
    for disk in devices {
        BlockFile::open(&disk.path, OpenOptions { direct: false, write: false, create_len: None })?;
    }
    Ok(())
}

fn carry_out(args: &SetupArgs, plan: &Plan) -> anyhow::Result<()> {
    let place = args.config.display();
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(CONFIG_MODE).open(&args.config)?;
        file.write_all(plan.config.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {place}"))?;
    format_cache(args, plan).inspect_err(|_| drop(fs::remove_file(&args.config)))
}

/// Formats the cache like `zcctl format`, which checks its contents again.
fn format_cache(args: &SetupArgs, plan: &Plan) -> anyhow::Result<()> {
    let format = FormatArgs::of(&plan.cache.path, &args.state_dir)?;
    // The plan has already printed the output of `format`.
    offline::format::run(&format, &mut std::io::sink()).map(drop)
}

fn show_plan(args: &SetupArgs, plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.json {
        let plan = plan.to_json(&args.config);
        writeln!(out, "{:#}", json!({ "devices": null, "plan": plan, "done": args.yes }))?;
        return Ok(());
    }
    let config = args.config.display().to_string();
    let cache =
        format!("{} ({}, {})", plan.cache.path.display(), plan.cache.kind(), size(plan.cache.size_bytes));
    let mut rows = vec![("cache", cache)];
    for origin in &plan.origins {
        let (disk, name) = (&origin.disk, &origin.name);
        let line = format!(
            "{name}: {} ({}, {}, {}), which is not written to",
            disk.path.display(),
            disk.kind(),
            size(disk.size_bytes),
            disk.content.describe()
        );
        rows.push(("volume", line));
    }
    rows.push(("configuration", config));
    text::pairs(out, &rows)?;
    for warning in &plan.warnings {
        writeln!(out, "Careful: {}", text::clean(warning))?;
    }
    if args.yes {
        writeln!(out, "\nDone: the configuration is written, and the cache is made. Type next:")?;
    } else {
        writeln!(out, "\n{}", plan.config)?;
        writeln!(out, "Nothing is written. --yes writes this configuration and makes the cache. Then type:")?;
    }
    let (commands, lines) = plan.next(&args.config);
    for command in commands {
        writeln!(out, "  {command}")?;
    }
    if !lines.is_empty() {
        writeln!(out, "Lines for /etc/fstab; adapt the mount points:")?;
    }
    for line in lines {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
