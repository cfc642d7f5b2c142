//! Dirty data: `flush`, `drop-dirty`, `accept-loss`, and `stop` while some exists.
//!
//! Job: request the flush, poll the daemon's counters until it is complete, show the progress. Time is the daemon's
//! own.
//!
//! Invariants: `flush` ends with 0 when everything that was dirty at its start is on the origin, regardless of later
//! writes; with 1 when the volume is fenced, because waiting does not help then. Progress goes to the standard error,
//! results to the standard output.
//!
//! It does not transfer data. A flush continues when this program is interrupted.

use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use crate::concerned::Concerned;
use crate::confirm::Consent;
use crate::control::ask;
use crate::options::Daemon;
use crate::text;
use crate::units::{bar, duration, share, size};

/// Polling interval.
const PAUSE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
const EXIT_NOT_DONE: u8 = 1;

/// State of a volume at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    uptime_ms: u64,
    bytes: u64,
    oldest_age_ms: u64,
    /// The newest epoch with dirty data.
    dirty_epoch: u64,
    /// The newest epoch that is on the origin with all before it.
    clean_epoch: u64,
    /// The open epoch.
    newest_epoch: u64,
    destaged_bytes: u64,
    fenced: bool,
    refused: u64,
}

impl Look {
    fn of(uptime_ms: &Value, dirty: &Value) -> anyhow::Result<Self> {
        let number = |value: &Value| value.as_u64().context("the daemon's reply lacks a number");
        Ok(Self {
            uptime_ms: number(uptime_ms)?,
            bytes: number(&dirty["bytes"])?,
            oldest_age_ms: number(&dirty["oldest_age_ms"])?,
            dirty_epoch: number(&dirty["dirty_epoch"])?,
            clean_epoch: number(&dirty["clean_epoch"])?,
            newest_epoch: number(&dirty["newest_epoch"])?,
            destaged_bytes: number(&dirty["destaged_bytes"])?,
            fenced: dirty["fenced"] == json!(true),
            refused: number(&dirty["refused"])?,
        })
    }
}

/// A flush as it was when it began.
#[derive(Debug, Clone, Copy)]
struct Progress {
    first: Look,
}

impl Progress {
    const fn elapsed_ms(&self, now: &Look) -> u64 {
        now.uptime_ms.saturating_sub(self.first.uptime_ms)
    }

    /// Returns `true` if everything that was dirty at the beginning is on the origin, regardless of later writes. The
    /// dirty data of a fenced volume is not completely known. Epochs restart with another cache, which the daemon
    /// accepts only when nothing is dirty.
    const fn is_done(&self, now: &Look) -> bool {
        let until = self.first.dirty_epoch;
        !now.fenced && (now.bytes == 0 || now.clean_epoch >= until || now.newest_epoch < until)
    }

    /// Returns the dirty bytes destaged since the start.
    const fn destaged_bytes(&self, now: &Look) -> u64 {
        now.destaged_bytes.saturating_sub(self.first.destaged_bytes)
    }

    /// Formats one line: bar, remaining bytes, rate, remaining time.
    fn line(&self, now: &Look) -> String {
        let most = self.first.bytes.max(1);
        let done = self.destaged_bytes(now).min(most);
        let left_bytes = self.first.bytes.saturating_sub(done);
        let bar = bar(done, most);
        let ms = self.elapsed_ms(now);
        let per_s = done.saturating_mul(1000).checked_div(ms).unwrap_or(0);
        let left = match left_bytes.saturating_mul(1000).checked_div(per_s) {
            Some(ms) => duration(ms),
            None => "?".to_owned(),
        };
        let refused = if now.refused > self.first.refused { ", the origin has errors" } else { "" };
        format!(
            "[{bar}] {}, {} left, {}/s, {left} to go{refused}",
            share(done, most),
            size(left_bytes),
            size(per_s)
        )
    }
}

/// Destages a volume's dirty data and waits for completion.
pub(crate) fn flush(volume: &str, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let answer = ask(&daemon.socket, &json!({"cmd": "flush", "volume": volume}))?;
    let progress = Progress { first: Look::of(&answer["uptime_ms"], &answer["dirty"])? };
    let shows = std::io::stderr().is_terminal() && !daemon.json;
    let mut now = progress.first;
    let mut is_told = false;
    while !progress.is_done(&now) && !now.fenced {
        poll(&mut [], Some(&PAUSE)).context("cannot wait")?;
        let stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
        now = Look::of(&stats["uptime_ms"], &stats["dirty"][volume])?;
        if shows {
            // Back to the start of the line, and clear it.
            write!(std::io::stderr(), "\r\u{1b}[K{}", progress.line(&now))?;
        } else if now.refused > progress.first.refused && !std::mem::replace(&mut is_told, true) {
            let name = text::clean(volume);
            writeln!(
                std::io::stderr(),
                "zcctl: the origin of volume {name} has errors; refused writes are retried until they succeed, even \
                 if this command is interrupted"
            )?;
        }
    }
    if shows && now != progress.first {
        writeln!(std::io::stderr())?;
    }
    let done = progress.is_done(&now);
    let (bytes, ms) = (progress.destaged_bytes(&now), progress.elapsed_ms(&now));
    if daemon.json {
        let left = json!({"bytes": now.bytes, "oldest_age_ms": now.oldest_age_ms, "fenced": now.fenced});
        let answer =
            json!({"volume": volume, "done": done, "flushed_bytes": bytes, "elapsed_ms": ms, "left": left});
        writeln!(out, "{answer:#}")?;
    } else if done {
        let name = text::clean(volume);
        if progress.first.bytes == 0 {
            writeln!(out, "{name} has no dirty data")?;
        } else {
            writeln!(out, "{name}: {} of dirty data written to the origin in {}", size(bytes), duration(ms))?;
        }
    }
    if done {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        std::io::stderr(),
        "zcctl: volume {} is fenced, and may have dirty data; `zcctl reattach` uses a cache device that is back, \
         `zcctl accept-loss` serves the volume without writes that only a lost journal had",
        text::clean(volume)
    )?;
    Ok(ExitCode::from(EXIT_NOT_DONE))
}

/// Flushes a volume that has dirty data or is fenced. Any other volume is left alone.
pub(crate) fn flush_if_dirty(volume: &str, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
    let dirty = &stats["dirty"][volume];
    if dirty["bytes"].as_u64().unwrap_or(0) == 0 && dirty["fenced"] != json!(true) {
        return Ok(ExitCode::SUCCESS);
    }
    flush(volume, daemon, out)
}

pub(crate) struct Stop {
    /// Destage everything first.
    pub(crate) flush_first: bool,
    /// Leave it on the cache.
    pub(crate) keep_dirty: bool,
    /// Wait until the daemon has ended.
    pub(crate) waits: bool,
}

pub(crate) fn stop(how: &Stop, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if how.flush_first {
        let stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
        for volume in stats["dirty"].as_object().into_iter().flatten().map(|(name, _)| name) {
            let code = flush_if_dirty(volume, daemon, out)?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
        }
    }
    let concerned = Concerned::of(daemon)?;
    if !daemon.json {
        concerned.tell(out)?;
    }
    let process = if how.waits { process_of(daemon)? } else { None };
    // Data written since the flush is destaged by the daemon, which takes only a moment.
    let request = json!({"cmd": "stop", "keep_dirty": how.keep_dirty, "flush": how.flush_first});
    let mut answer = ask(&daemon.socket, &request)?;
    answer["concerned"] = concerned.to_json();
    let ended = process.is_some_and(|process| wait_for_end(&process).is_ok());
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(out, "{}", if ended { "stopped" } else { "stopping" })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The daemon's process; none if it is out of sight, as in a container of its own.
fn process_of(daemon: &Daemon) -> anyhow::Result<Option<OwnedFd>> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    let number = status["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    Ok(number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
}

fn wait_for_end(process: &OwnedFd) -> rustix::io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], None) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// Discards a volume's dirty data.
pub(crate) fn drop_dirty(
    volume: &str,
    consent: &Consent,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
    let dirty = &stats["dirty"][volume];
    if dirty.is_null() {
        bail!("there is no volume \"{}\"", text::clean(volume));
    }
    let look = Look::of(&stats["uptime_ms"], dirty)?;
    let has_nothing = look.bytes == 0 && !look.fenced;
    if !consent.yes && has_nothing {
        writeln!(out, "{} has no dirty data", text::clean(volume))?;
        return Ok(ExitCode::SUCCESS);
    }
    let loss = format!(
        "this would lose {} of acknowledged writes to volume {}, the oldest {} ago, for good; its origin would be \
         as it was before them (`zcctl flush` loses nothing)",
        size(look.bytes),
        text::clean(volume),
        duration(look.oldest_age_ms)
    );
    if consent.dry_run {
        return shown(
            &loss,
            &json!({"volume": volume, "dry_run": true, "would_lose_bytes": look.bytes}),
            daemon,
            out,
        );
    }
    consent.ask(&loss)?;
    let answer = ask(&daemon.socket, &json!({"cmd": "drop-dirty", "volume": volume}))?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        let lost = answer["dropped"]["bytes"].as_u64().unwrap_or(0);
        writeln!(
            out,
            "{}: {} of dirty data are dropped; these writes are lost",
            text::clean(volume),
            size(lost)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the loss without changing anything.
fn shown(loss: &str, answer: &Value, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(out, "{loss}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the daemon's counters of a volume's dirty data.
fn dirty_of(volume: &str, daemon: &Daemon) -> anyhow::Result<Value> {
    let mut stats = ask(&daemon.socket, &json!({"cmd": "stats"}))?;
    let dirty = stats["dirty"][volume].take();
    if dirty.is_null() {
        bail!("there is no volume \"{}\"", text::clean(volume));
    }
    Ok(dirty)
}

/// Discards only the unreadable dirty data of a volume.
pub(crate) fn give_up_unreadable(
    volume: &str,
    consent: &Consent,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let name = text::clean(volume);
    if !consent.yes {
        let dirty = dirty_of(volume, daemon)?;
        let number = |key: &str| dirty[key].as_u64().unwrap_or(0);
        let bytes = number("unreadable_bytes");
        if bytes == 0 {
            writeln!(
                out,
                "{name}: nothing is known to be unreadable; `zcctl flush {name}` reads all dirty data"
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let loss = format!(
            "this would put zeros in place of {} of volume {name} that cannot be read from the cache, the first at \
             offset {}, for good (rewriting these bytes and flushing loses nothing)",
            size(bytes),
            number("stuck_offset_bytes")
        );
        if consent.dry_run {
            return shown(
                &loss,
                &json!({"volume": volume, "dry_run": true, "would_lose_bytes": bytes}),
                daemon,
                out,
            );
        }
        consent.ask(&loss)?;
    }
    let request = json!({"cmd": "drop-dirty", "volume": volume, "unreadable": true});
    let answer = ask(&daemon.socket, &request)?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        let lost = answer["given_up_bytes"].as_u64().unwrap_or(0);
        writeln!(
            out,
            "{name}: {} of dirty data that cannot be read are dropped; they are zeros now",
            size(lost)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Unfences a volume in its recovered state.
pub(crate) fn accept_loss(
    volume: &str,
    consent: &Consent,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let name = text::clean(volume);
    if !consent.yes {
        if dirty_of(volume, daemon)?["fenced"] != json!(true) {
            bail!("volume \"{name}\" is not fenced");
        }
        let loss = format!(
            "this would serve volume {name} in its recovered state: without writes that only the damaged journal \
             recorded, or on an origin that has changed. If the undamaged cache, or the right origin, may come \
             back, wait for it"
        );
        if consent.dry_run {
            return shown(&loss, &json!({"volume": volume, "dry_run": true}), daemon, out);
        }
        consent.ask(&loss)?;
    }
    let answer = ask(&daemon.socket, &json!({"cmd": "accept-loss", "volume": volume}))?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(out, "{name} is served in its recovered state")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The cache device is in use again.
pub(crate) fn reattached(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "the cache {} is in use again", text::clean(answer["path"].as_str().unwrap_or("-")))?;
    for (name, dirty) in answer["dirty"].as_object().into_iter().flatten() {
        if dirty["fenced"] == json!(true) || dirty["bytes"] != json!(0) {
            writeln!(out, "{}: dirty data {}", text::clean(name), cell(dirty))?;
        }
    }
    for name in answer["lost_writes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        writeln!(
            out,
            "{0}: writes that no client had flushed are lost, and its next flush fails once; unmount its file \
             systems, run fsck, and mount them again",
            text::clean(name)
        )?;
    }
    Ok(())
}

/// Formats a volume's dirty data as a table cell.
pub(crate) fn cell(dirty: &Value) -> String {
    let number = |name: &str| dirty[name].as_u64().unwrap_or(0);
    if dirty["fenced"] == json!(true) {
        return format!("FENCED with {}", size(number("bytes")));
    }
    if number("bytes") == 0 {
        return "-".to_owned();
    }
    format!("{}, {}", size(number("bytes")), duration(number("oldest_age_ms")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn look(uptime_ms: u64, bytes: u64, clean_epoch: u64) -> Look {
        Look {
            uptime_ms,
            bytes,
            oldest_age_ms: 0,
            dirty_epoch: 9,
            clean_epoch,
            newest_epoch: 10,
            destaged_bytes: 0,
            fenced: false,
            refused: 0,
        }
    }

    #[test]
    fn a_flush_is_done_when_what_was_dirty_then_is_not_any_more() {
        let progress = Progress { first: look(10_000, 1 << 20, 7) };
        assert!(!progress.is_done(&look(10_100, 1 << 20, 8)));
        assert!(progress.is_done(&look(10_100, 0, 9)));
        // Later writes do not delay the end, however old they are.
        assert!(progress.is_done(&look(10_100, 1 << 20, 9)));
        // An epoch that began before the request does.
        assert!(!progress.is_done(&look(90_000_000, 1 << 20, 8)));
        // Another cache has other epochs.
        assert!(progress.is_done(&Look { newest_epoch: 3, ..look(10_100, 512, 2) }));
        // A volume whose dirty data is not completely known is not reported as clean.
        assert!(!progress.is_done(&Look { fenced: true, ..look(10_100, 0, 9) }));
    }

    #[test]
    fn progress_has_rate_and_time_to_go() {
        let progress = Progress { first: look(0, 4 << 20, 0) };
        let line = progress.line(&Look { refused: 1, destaged_bytes: 1 << 20, ..look(2_000, 7 << 20, 0) });
        for part in
            ["[#######....", "25.0 %", "3.0 MiB left", "512.0 KiB/s", "6.0 s to go", "origin has errors"]
        {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(progress.line(&look(0, 4 << 20, 0)).contains("? to go"));
    }

    #[test]
    fn a_cell_says_size_and_age_or_worse() {
        assert_eq!(cell(&json!({"bytes": 0})), "-");
        assert_eq!(cell(&json!({"bytes": 1 << 20, "oldest_age_ms": 1500})), "1.0 MiB, 1.5 s");
        assert!(cell(&json!({"bytes": 1 << 20, "fenced": true})).starts_with("FENCED"));
        assert_eq!(cell(&Value::Null), "-");
    }
}
