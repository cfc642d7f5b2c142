//! `zcctl volume`: adds, removes, shows, warms and changes volumes of a running daemon without a restart.
//!
//! Job: write the daemon's configuration file, request a reload, and report the result. The book explains why the file
//! is changed, and by this program (`docs/src/operations.md`).
//!
//! Invariants: the daemon accepts the new file before it replaces the old one. If the daemon does not apply the
//! change, the old text is restored. A volume is removed when no client uses it and it has no dirty data, or when the
//! operator discards that data.
//!
//! It does not change a file that differs from the one that the daemon has read.

pub(crate) mod edit;
pub(crate) mod file;
mod pin;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use zc_core::Mode;
use zc_core::units::{ByteSize, ByteSpan};
use zc_nbd::uri::NbdUri;

use crate::control::ask;
use crate::dirty;
use crate::erase::erased;
use crate::options::{Daemon, Listing};
use crate::text;
use crate::units::size;
use crate::volumes;
use crate::warm::{self, WarmArgs};

use edit::Setting;
use file::{ConfigFile, Replaced};

/// Exit status of a change that is written and needs a restart.
pub(crate) const EXIT_LATER: u8 = 1;

/// Volumes of a running daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Add a volume, and serve it at once.
    ///
    /// The volume is written to the daemon's configuration file, behind the last one.
    ///
    /// Exit status: 0 it is served, 1 it is served and a part of its settings needs a restart, 2 not possible, and
    /// nothing is changed.
    Add(AddArgs),
    /// Remove a volume once it has no dirty data; its origin stays.
    ///
    /// The daemon refuses while clients are connected or the volume is a block device. Its dirty data is written to the
    /// origin first.
    ///
    /// Exit status: 0 done, 1 the origin does not answer, 2 not possible, and the volume is served as before.
    Remove {
        /// Name of the volume.
        volume: String,
        /// Discard its dirty data, and report the amount.
        #[arg(long)]
        force: bool,
        /// Print what would be done, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Succeed also if there is no such volume.
        #[arg(long)]
        if_present: bool,
        /// Erase its cached data, like `zcctl cache erase`.
        #[arg(long)]
        erase: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Read ranges of a volume into the cache.
    ///
    /// The daemon reads uncached data from the origin, regardless of the volume's admission policy. Requests of
    /// clients have priority. Ranges are read in the given order, those of a recording last. The warm-up ends with
    /// this command.
    ///
    /// Exit status: 0 done, 1 cancelled, or the origin failed for a part, 2 not possible.
    Warm(WarmArgs),
    /// List the volumes.
    ///
    /// With -o, --no-headings or --bytes the cells are single words. Columns: as of status.
    List {
        #[command(flatten)]
        daemon: Daemon,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a volume and its settings.
    Show {
        /// Name of the volume.
        volume: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Change settings of a volume, in the file and in the daemon.
    ///
    /// Exit status: 0 in force, 1 written, and a part of it needs a restart, 2 not possible, and nothing is changed.
    Set {
        /// Name of the volume.
        volume: String,
        /// Keys of a volume section, such as mode=write-back.
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<Setting>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Pin ranges of a volume: they are cached, and stay.
    ///
    /// The daemon reads uncached data in the background. Pins are in the configuration file, under the key pin.
    ///
    /// Exit status: 0 in force, 1 written, and needs a restart, 2 not possible, and nothing is changed.
    Pin(PinArgs),
    /// Unpin ranges of a volume; they age like anything else.
    ///
    /// Exit status: 0 in force, 1 written, and needs a restart, 2 not possible, and nothing is changed.
    Unpin(PinArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// Name of the volume.
    volume: String,
    /// Ranges such as 0-64MiB or 1GiB-; 0- is all of it.
    #[arg(required = true, value_name = "START-END")]
    ranges: Vec<ByteSpan>,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Name of the volume.
    volume: String,
    /// File, block device, volume of a store or NBD URI to be cached.
    #[arg(long, value_name = "PATH")]
    origin: String,
    /// Mode; default is write-through.
    #[arg(long, value_parser = PossibleValuesParser::new(Mode::WORDS.iter().map(|(word, _)| *word)))]
    mode: Option<String>,
    /// Size of the origin to make, if it does not exist.
    #[arg(long)]
    size: Option<ByteSize>,
    /// Further keys of a volume section, such as ublk.attach=true.
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<Setting>,
    /// Succeed also if a volume of this name and origin is served.
    ///
    /// Its settings stay as they are.
    #[arg(long)]
    if_missing: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(crate) fn run(command: &VolumeCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        VolumeCommand::Add(args) => add(args, out),
        VolumeCommand::Remove { volume, force, dry_run, if_present, erase, daemon } => {
            let how = Removal { force: *force, dry_run: *dry_run, if_present: *if_present, erase: *erase };
            remove(volume, &how, daemon, out)
        }
        VolumeCommand::Warm(args) => warm::run(args, out),
        VolumeCommand::List { daemon, listing } => list(daemon, listing, out),
        VolumeCommand::Show { volume, daemon } => show(volume, daemon, out),
        VolumeCommand::Set { volume, settings, daemon } => set(volume, settings, daemon, out),
        VolumeCommand::Pin(args) => change_pins(args, pin::with, out),
        VolumeCommand::Unpin(args) => change_pins(args, pin::without, out),
    }
}

/// Key for the volume as a whole in the daemon's replies.
fn key_of(volume: &str) -> String {
    format!("volume \"{volume}\"")
}

/// The daemon's configuration file, locked, as the daemon has read it.
pub(crate) fn held_file(daemon: &Daemon) -> anyhow::Result<ConfigFile> {
    let answer = ask(&daemon.socket, &json!({"cmd": "config"}))?;
    let path = answer["path"].as_str().context("the daemon does not report its configuration file")?;
    let file = ConfigFile::open(Path::new(path))?;
    // Queried with the lock held: no other `zcctl` changes it from now on.
    let answer = ask(&daemon.socket, &json!({"cmd": "config"}))?;
    let unread: Vec<&str> =
        answer["unread"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !unread.is_empty() {
        bail!(
            "{} has changes that the daemon has not read: {}; `zcctl reload` first, or revert them",
            file.path().display(),
            text::clean_lines(&unread.join(", "))
        );
    }
    Ok(file)
}

/// Returns the entry for a key in a list of a reply, with its reason if it has one.
fn named(answer: &Value, list: &str, key: &str) -> Option<String> {
    let is_it = |entry: &&str| *entry == key || entry.starts_with(&format!("{key} ("));
    let entries = answer[list].as_array().into_iter().flatten().filter_map(Value::as_str);
    entries.into_iter().find(is_it).map(str::to_owned)
}

/// Returns the daemon's reason why a volume cannot be added or removed.
fn refusal(answer: &Value, volume: &str) -> Option<String> {
    let key = key_of(volume);
    let why = named(answer, "needs_restart", &key)?;
    let why = why.strip_prefix(&key).unwrap_or(&why).trim();
    Some(why.trim_start_matches('(').trim_end_matches(')').to_owned())
}

/// Writes the file if the daemon accepts it; returns the daemon's forecast, and the previous contents for a rollback.
fn write(file: &ConfigFile, new: &str, daemon: &Daemon) -> anyhow::Result<(Value, Replaced)> {
    file.replace(new, |candidate| check(candidate, daemon))
}

pub(crate) fn check(candidate: &Path, daemon: &Daemon) -> anyhow::Result<Value> {
    let path = candidate.to_str().context("the path of the configuration is not UTF-8")?;
    ask(&daemon.socket, &json!({"cmd": "check-config", "path": path}))
}

/// Requests a reload. If `done` reports that the change was not applied, the old file is restored.
fn reload(
    replaced: Replaced,
    daemon: &Daemon,
    done: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<Value> {
    let result = ask(&daemon.socket, &json!({"cmd": "reload"})).and_then(|answer| {
        done(&answer)?;
        Ok(answer)
    });
    result.map_err(|error| {
        let back = replaced.undo().and_then(|()| ask(&daemon.socket, &json!({"cmd": "reload"})).map(drop));
        match back {
            Ok(()) => error.context("nothing is changed"),
            Err(worse) => error
                .context(format!("the configuration file is changed and could not be restored: {worse:#}")),
        }
    })
}

/// Shows the result of a change. A needed restart has an exit status of its own.
fn show_change(answer: &Value, line: &str, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let later: Vec<&str> =
        answer["needs_restart"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(out, "{line}")?;
        for key in &later {
            writeln!(out, "needs a restart: {}", text::clean(key))?;
        }
    }
    Ok(if later.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_LATER) })
}

/// The part of an answer that is about a volume.
fn about(answer: &Value, volume: &str) -> Value {
    let key = key_of(volume);
    let own = |list: &str| {
        let entries = answer[list].as_array().into_iter().flatten();
        entries.filter(|entry| entry.as_str().is_some_and(|entry| entry.starts_with(&key))).cloned().collect()
    };
    json!({ "volume": volume, "applied": Value::Array(own("applied")), "needs_restart": Value::Array(own("needs_restart")) })
}

fn add(args: &AddArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let AddArgs { volume, daemon, .. } = args;
    let origin = absolute(&args.origin)?;
    let mut settings = vec![Setting::new("origin", &origin)];
    settings.extend(args.mode.as_deref().map(|mode| Setting::new("mode", mode)));
    settings.extend(args.size.map(|size| Setting::new("create_size", &size.0.to_string())));
    for setting in &args.settings {
        if setting.key == "name" || settings.iter().any(|given| given.key == setting.key) {
            bail!("{} is given twice", setting.key);
        }
        settings.push(setting.clone());
    }
    let file = held_file(daemon)?;
    if args.if_missing && is_served_already(volume, &origin, daemon)? {
        return show_change(
            &unchanged(volume),
            &format!("{} is served already", text::clean(volume)),
            daemon,
            out,
        );
    }
    let new = edit::add(file.text(), volume, &settings)?;
    let (_, replaced) = file.replace(&new, |candidate| {
        let forecast = check(candidate, daemon)?;
        refusal(&forecast, volume)
            .map_or(Ok(forecast), |why| bail!("volume \"{volume}\" cannot be added: {why}"))
    })?;
    let answer = reload(replaced, daemon, |answer| {
        let is_served = named(answer, "applied", &key_of(volume)).is_some();
        if is_served { Ok(()) } else { bail!("volume \"{volume}\" is not served") }
    })?;
    let name = text::clean(volume);
    show_change(
        &about(&answer, volume),
        &format!("{name} is served, and written to {}", file.path().display()),
        daemon,
        out,
    )
}

/// Returns `true` if a volume of this name is served from this origin.
///
/// # Errors
/// When it has another origin, or is configured but not served.
fn is_served_already(volume: &str, origin: &str, daemon: &Daemon) -> anyhow::Result<bool> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    if is_in(&status["absent"], volume) {
        bail!("volume \"{volume}\" is in the configuration, but not served: `zcctl status` shows the reason");
    }
    let Some(entry) = entry_of(&status, volume) else { return Ok(false) };
    let served = entry["info"]["origin"].as_str().unwrap_or_default();
    if served != origin {
        bail!("volume \"{volume}\" exists with another origin, {}", text::clean(served));
    }
    Ok(true)
}

/// Reply if no change was needed.
fn unchanged(volume: &str) -> Value {
    json!({ "volume": volume, "applied": [], "needs_restart": [] })
}

/// Makes a path absolute, because the daemon has another working folder. A volume of a store and an export of a server
/// have no path.
fn absolute(origin: &str) -> anyhow::Result<String> {
    if origin.starts_with("store:") {
        return Ok(origin.to_owned());
    }
    if ["nbd:", "nbd+unix:", "nbds:", "nbds+unix:"].iter().any(|scheme| origin.starts_with(scheme)) {
        // As the daemon writes it.
        return Ok(origin.parse::<NbdUri>()?.to_string());
    }
    let path = std::path::absolute(origin).context("cannot determine the path of the origin")?;
    path.into_os_string().into_string().map_err(|_| anyhow::anyhow!("the path of the origin is not UTF-8"))
}

/// Options of a removal.
struct Removal {
    /// Its dirty data is discarded.
    force: bool,
    dry_run: bool,
    if_present: bool,
    /// Erase its cached data.
    erase: bool,
}

/// Shows the effect of a removal.
fn would_remove(
    volume: &str,
    force: bool,
    dirty_bytes: Option<u64>,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let (bytes, name) = (dirty_bytes.unwrap_or(0), text::clean(volume));
    let loses = if force { bytes } else { 0 };
    if daemon.json {
        let answer =
            json!({"volume": volume, "dry_run": true, "dirty_bytes": bytes, "would_lose_bytes": loses});
        writeln!(out, "{answer:#}")?;
    } else if loses > 0 {
        writeln!(out, "{name} would be removed, and {} that only the cache has would be lost", size(loses))?;
    } else {
        writeln!(out, "{name} would be removed, after {} of dirty data are on its origin", size(bytes))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(volume: &str, how: &Removal, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Removal { force, dry_run, if_present, erase } = *how;
    let file = held_file(daemon)?;
    if if_present && !is_known(volume, daemon)? {
        return show_change(
            &unchanged(volume),
            &format!("there is no volume {}", text::clean(volume)),
            daemon,
            out,
        );
    }
    let new = edit::remove(file.text(), volume)?;
    // Obstacles other than dirty data are reported before any change.
    file.try_out(&new, |candidate| check(candidate, daemon))?;
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    let is_served = is_in(&status["volumes"], volume);
    if !is_served && is_in(&status["unserved_dirty"], volume) {
        bail!(
            "volume \"{volume}\" is not served, and the cache has dirty data of it; bring its origin back, or start \
             the daemon with --drop-dirty {volume}"
        );
    }
    in_the_way(&status, volume, daemon)?;
    let left = dirty_of(&status, volume);
    if dry_run {
        return would_remove(volume, force, left, daemon, out);
    }
    if left.is_some() && !force {
        let code = dirty::flush_if_dirty(
            volume,
            &Daemon { json: false, socket: daemon.socket.clone() },
            &mut std::io::stderr(),
        )?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    let lost = if force && left.is_some() { give_up(volume, daemon)? } else { 0 };
    let (_, replaced) = write_without(&file, &new, volume, daemon)?;
    let answer = reload(replaced, daemon, |answer| match refusal(answer, volume) {
        Some(why) => bail!("volume \"{volume}\" cannot be removed: {why}"),
        None => Ok(()),
    })?;
    let mut answer = about(&answer, volume);
    answer["lost_bytes"] = json!(lost);
    let name = text::clean(volume);
    let erasure = if erase {
        let erased =
            erased(daemon).with_context(|| format!("{name} is removed, and not erased from the cache"))?;
        answer["erased"] = erased.to_json();
        format!("; {}", erased.describe())
    } else {
        String::new()
    };
    let loss = if lost > 0 {
        format!("; {} ({lost} bytes) that only the cache had are lost", size(lost))
    } else {
        String::new()
    };
    show_change(
        &answer,
        &format!("{name} is removed, also from {}{loss}{erasure}", file.path().display()),
        daemon,
        out,
    )
}

fn write_without(
    file: &ConfigFile,
    new: &str,
    volume: &str,
    daemon: &Daemon,
) -> anyhow::Result<(Value, Replaced)> {
    file.replace(new, |candidate| {
        let forecast = check(candidate, daemon)?;
        refusal(&forecast, volume)
            .map_or(Ok(forecast), |why| bail!("volume \"{volume}\" cannot be removed: {why}"))
    })
}

/// Discards dirty data; returns its bytes.
fn give_up(volume: &str, daemon: &Daemon) -> anyhow::Result<u64> {
    let answer = ask(&daemon.socket, &json!({"cmd": "drop-dirty", "volume": volume}))?;
    Ok(answer["dropped"]["bytes"].as_u64().unwrap_or(0))
}

/// Returns `true` if the daemon has a volume, or dirty data of it.
fn is_known(volume: &str, daemon: &Daemon) -> anyhow::Result<bool> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    Ok(["volumes", "absent", "unserved_dirty"].iter().any(|list| is_in(&status[*list], volume)))
}

fn is_in(list: &Value, volume: &str) -> bool {
    list.as_array().into_iter().flatten().any(|entry| entry["name"] == volume)
}

fn entry_of<'v>(status: &'v Value, volume: &str) -> Option<&'v Value> {
    status["volumes"].as_array()?.iter().find(|entry| entry["name"] == volume)
}

/// Refuses while a device or a client uses the volume.
fn in_the_way(status: &Value, volume: &str, daemon: &Daemon) -> anyhow::Result<()> {
    if let Some(device) = entry_of(status, volume).and_then(|entry| entry["info"]["device"].as_str()) {
        bail!("volume \"{volume}\" is {}; `zcctl detach {volume}` first", text::clean(device));
    }
    let connections = ask(&daemon.socket, &json!({"cmd": "connections"}))?;
    let connected = connections["connections"].as_array().into_iter().flatten();
    let peers: Vec<String> = connected
        .filter(|connection| connection["export"] == volume)
        .map(|connection| {
            format!(
                "{} (connection {})",
                text::clean(connection["peer"].as_str().unwrap_or("-")),
                connection["id"]
            )
        })
        .collect();
    if !peers.is_empty() {
        bail!(
            "clients of volume \"{volume}\" are connected: {}; close them, or type `zcctl disconnect --volume \
             {volume}`",
            peers.join(", ")
        );
    }
    Ok(())
}

/// Returns the dirty bytes, also if unknown, or `None`.
fn dirty_of(status: &Value, volume: &str) -> Option<u64> {
    let dirty = &entry_of(status, volume)?["dirty"];
    let bytes = dirty["bytes"].as_u64().unwrap_or(0);
    (bytes > 0 || dirty["fenced"] == json!(true)).then_some(bytes)
}

fn list(daemon: &Daemon, listing: &Listing, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    if daemon.json {
        let answer = json!({ "volumes": status["volumes"], "absent": status["absent"] });
        writeln!(out, "{answer:#}")?;
    } else if listing.is_asked() {
        volumes::table(&status, listing, out)?;
    } else {
        volumes::for_people(&status, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(volume: &str, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    let absent = status["absent"].as_array().into_iter().flatten().find(|entry| entry["name"] == volume);
    if let Some(absent) = absent {
        if daemon.json {
            writeln!(out, "{absent:#}")?;
        } else {
            let why = absent["why"].as_str().unwrap_or("-").to_owned();
            text::pairs(out, &[("volume", volume.to_owned()), ("state", "absent".to_owned()), ("why", why)])?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let config = ask(&daemon.socket, &json!({"cmd": "config", "volume": volume}))?;
    let entry = entry_of(&status, volume).with_context(|| format!("there is no volume \"{volume}\""))?;
    if daemon.json {
        let mut answer = entry.clone();
        answer["settings"] = config["settings"].clone();
        writeln!(out, "{answer:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    text::pairs(out, &volumes::facts(entry))?;
    writeln!(out)?;
    let row = |setting: &Value| {
        let field = |name: &str| setting[name].as_str().unwrap_or("-").to_owned();
        let live = if setting["live"] == json!(true) { "at once" } else { "after a restart" };
        vec![field("key"), field("value"), live.to_owned()]
    };
    let rows: Vec<Vec<String>> = config["settings"].as_array().into_iter().flatten().map(row).collect();
    text::table(out, &["setting", "value", "a change is in force"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

fn set(volume: &str, settings: &[Setting], daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    for fixed in ["name", "origin", "create_size"] {
        if settings.iter().any(|setting| setting.key == fixed) {
            bail!("{fixed} cannot be changed: `zcctl volume remove {volume}`, then `zcctl volume add`");
        }
    }
    let file = held_file(daemon)?;
    put(&file, volume, settings, daemon, out)
}

/// Pins or unpins ranges: `change` makes the new list of the old one.
fn change_pins(
    args: &PinArgs,
    change: fn(&[ByteSpan], &[ByteSpan]) -> Vec<ByteSpan>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let PinArgs { volume, ranges, daemon } = args;
    let file = held_file(daemon)?;
    let before = edit::texts(file.text(), volume, pin::KEY)?;
    let before: Vec<ByteSpan> = before.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let after = change(&before, ranges);
    put(&file, volume, &[Setting::new(pin::KEY, &pin::to_toml(&after))], daemon, out)
}

/// Writes settings of a volume, and has the daemon take them on.
fn put(
    file: &ConfigFile,
    volume: &str,
    settings: &[Setting],
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let new = edit::set(file.text(), volume, settings)?;
    let (_, replaced) = write(file, &new, daemon)?;
    let answer = reload(replaced, daemon, |_| Ok(()))?;
    let mut answer = about(&answer, volume);
    // Earlier changes that wait for a restart are irrelevant here.
    let given = |entry: &Value| {
        let key = entry.as_str().and_then(|entry| entry.strip_prefix(&format!("{}: ", key_of(volume))));
        // A reason may follow the key, in brackets.
        let key = key.map(|key| key.split_once(" (").map_or(key, |(key, _)| key));
        key.is_some_and(|key| settings.iter().any(|setting| setting.key == key))
    };
    if let Some(later) = answer["needs_restart"].as_array_mut() {
        later.retain(given);
    }
    let applied: Vec<String> = answer["applied"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|key| text::clean(key.strip_prefix(&format!("{}: ", key_of(volume))).unwrap_or(key)))
        .collect();
    let line = match &applied[..] {
        [] => format!("{} is written", file.path().display()),
        keys => format!("in force: {}", keys.join(", ")),
    };
    show_change(&answer, &line, daemon, out)
}
