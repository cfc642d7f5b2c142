//! `zcctl cache replace` and `zcctl cache resize`: moves the cache to another device, or recreates it on one that has
//! grown.
//!
//! Job: destage dirty data while the cache is still in use, request the exchange from the daemon, and write the new
//! path to the daemon's configuration file.
//!
//! Invariants: the daemon confirms that the exchange is possible before anything is changed. The configuration file
//! follows the daemon: if it cannot be written, the daemon finds its cache by a record of its own, and this program
//! reports that.
//!
//! It does not open the cache. The daemon checks the new device, formats and uses it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::confirm::Consent;
use crate::control::ask;
use crate::dirty;
use crate::options::Daemon;
use crate::setup::signature::{CACHE, Content, content};
use crate::text::{self, number, string};
use crate::units::size;
use crate::volume::file::ConfigFile;
use crate::volume::{EXIT_LATER, check, edit, held_file};

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    /// Block device, or file that exists, to be the cache.
    device: PathBuf,
    /// Overwrite a cache, or any other data, that is there.
    #[arg(long)]
    force: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    daemon: Daemon,
}

/// Moves the cache.
pub(super) fn replace(args: &ReplaceArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let daemon = &args.daemon;
    let device = std::path::absolute(&args.device).context("cannot determine the path of the device")?;
    let path = device.to_str().context("the path of the device is not UTF-8")?;
    let holds = content(&device);
    refuse_filled(&device, &holds, args.force)?;
    let file = held_file(daemon)?;
    let request =
        |dry_run| json!({"cmd": "replace-cache", "path": path, "force": args.force, "dry_run": dry_run});
    let mut plan = ask(&daemon.socket, &request(true))?;
    let new = edit::set_cache(file.text(), path, number(&plan["size_bytes"]))?;
    file.try_out(&new, |candidate| check(candidate, daemon))?;
    plan["holds"] = json!(holds.describe());
    if args.dry_run {
        return show_plan(&plan, &holds, daemon, out);
    }
    let code = flush_all(daemon)?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    let mut answer = ask(&daemon.socket, &request(false))?;
    let written = write(&file, &new, daemon);
    answer["configured"] = json!(written.is_ok());
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(
            out,
            "the cache is {} now, {}, and empty; {} is not needed any more",
            text::clean(path),
            size(number(&answer["size_bytes"])),
            string(&answer["from"])
        )?;
    }
    let Err(error) = written else { return Ok(ExitCode::SUCCESS) };
    writeln!(
        std::io::stderr(),
        "zcctl: {} is not changed: {error:#}. Write the new path there as cache.path. Until then the daemon finds \
         its cache by a record in its state directory",
        file.path().display()
    )?;
    Ok(ExitCode::from(EXIT_LATER))
}

/// Recreates the cache on its device.
pub(super) fn resize(args: &ResizeArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let daemon = &args.daemon;
    let file = held_file(daemon)?;
    let plan = ask(&daemon.socket, &json!({"cmd": "resize-cache", "dry_run": true}))?;
    let (place, bytes) = (string(&plan["to"]), size(number(&plan["size_bytes"])));
    if args.consent.dry_run && daemon.json {
        writeln!(out, "{plan:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let loss = format!(
        "{place} has {bytes} now. The cache would be made anew, and the {} that it holds would be read from the \
         origins again; no volume loses data",
        size(number(&plan["used_bytes"]))
    );
    if args.consent.dry_run {
        writeln!(out, "{loss}")?;
        return Ok(ExitCode::SUCCESS);
    }
    args.consent.ask(&loss)?;
    let code = flush_all(daemon)?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    let answer = ask(&daemon.socket, &json!({"cmd": "resize-cache"}))?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(out, "the cache {place} has {bytes} now, and is empty")?;
    }
    // A size in the file matters only when a cache is made, and a start reports the difference.
    let path = plan["to"].as_str().unwrap_or_default();
    let new = edit::set_cache(file.text(), path, number(&answer["size_bytes"]))?;
    if new != file.text() {
        write(&file, &new, daemon)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a device that is not empty, and names its contents. The daemon checks caches further.
fn refuse_filled(device: &Path, holds: &Content, force: bool) -> anyhow::Result<()> {
    match holds {
        Content::Nothing | Content::Known(CACHE) | Content::Unreadable(_) => Ok(()),
        _ if force => Ok(()),
        other => bail!("{} contains {}; --force destroys it", device.display(), other.object()),
    }
}

fn show_plan(
    plan: &Value,
    holds: &Content,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if daemon.json {
        writeln!(out, "{plan:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let dirty = plan["dirty"].as_object().into_iter().flatten();
    let dirty_bytes: u64 = dirty.map(|(_, volume)| number(&volume["bytes"])).sum();
    let lost = match holds {
        Content::Nothing => "nothing".to_owned(),
        other => other.describe(),
    };
    text::pairs(
        out,
        &[
            ("cache now", string(&plan["from"])),
            ("cache then", format!("{}, {}", string(&plan["to"]), size(number(&plan["size_bytes"])))),
            ("to the origins first", size(dirty_bytes)),
            ("to be read again", size(number(&plan["used_bytes"]))),
            ("lost on the new device", lost),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Destages all dirty data, and shows the progress.
fn flush_all(daemon: &Daemon) -> anyhow::Result<ExitCode> {
    let quiet = Daemon { json: false, socket: daemon.socket.clone() };
    let stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
    for (volume, _) in stats["dirty"].as_object().into_iter().flatten() {
        let code = dirty::flush_if_dirty(volume, &quiet, &mut std::io::stderr())?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the configuration file, and has the daemon read it.
fn write(file: &ConfigFile, new: &str, daemon: &Daemon) -> anyhow::Result<()> {
    let _replaced = file.replace(new, |candidate| check(candidate, daemon))?;
    ask(&daemon.socket, &json!({"cmd": "reload"})).map(drop)
}
