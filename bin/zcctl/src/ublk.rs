//! `zcctl ublk`: devices according to the kernel, independent of a daemon.
//!
//! Invariants: a device of another program is shown and never changed; one that a living process serves is left to it.
//! It does not attach or take over; a daemon does both.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};
use zc_ublk::registration::{RUN_DIR, is_ours, registered, unregister};
use zc_ublk::{Controller, DeviceInfo, DeviceState, ProcessState, holder_of, preflight};

use crate::cli::Ublk;
use crate::columns::{self, Cell, Column};
use crate::options::Listing;
use crate::text;

pub(crate) fn run(command: &Ublk, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Ublk::Probe => {
            let found = preflight()?;
            writeln!(out, "ublk can be used; features {:#x}", found.features.0)?;
            Ok(ExitCode::SUCCESS)
        }
        Ublk::List { json, listing } => {
            let mut control = Controller::open()?;
            let devices = control.list()?;
            // A device may be removed at the same time; the rest of its line is then omitted.
            let mut cpus = |info: &DeviceInfo| {
                let queues =
                    (0..info.queues).map(|queue| control.queue_cpus(info.id, queue).unwrap_or_default());
                queues.collect::<Vec<_>>()
            };
            let devices: Vec<_> = devices.iter().map(|info| (*info, cpus(info))).collect();
            list(&devices, *json, listing, out)?;
            Ok(ExitCode::SUCCESS)
        }
        Ublk::Gc { force } => gc(*force, out),
    }
}

fn volume(info: &DeviceInfo) -> String {
    if is_ours(info.stamp) {
        registered(Path::new(RUN_DIR), info.id).unwrap_or_else(|| "?".to_owned())
    } else {
        "-".to_owned()
    }
}

/// Shows devices, each with the CPUs of its queues.
fn list(
    devices: &[(DeviceInfo, Vec<String>)],
    as_json: bool,
    listing: &Listing,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let served = |info: &DeviceInfo| holder_of(info) == ProcessState::Alive;
    if as_json {
        let row = |(info, cpus): &(DeviceInfo, Vec<String>)| {
            json!({
                "device": info.path(), "volume": volume(info), "ours": is_ours(info.stamp),
                "state": info.state.word(), "served": served(info), "pid": info.pid,
                "queues": info.queues, "queue_depth": info.depth, "request_bytes_max": info.request_bytes_max,
                "flags": info.flags, "queue_cpus": cpus,
            })
        };
        let rows: Vec<Value> = devices.iter().map(row).collect();
        writeln!(out, "{:#}", Value::Array(rows))?;
        return Ok(());
    }
    if listing.is_asked() {
        let pid = |info: &DeviceInfo| served(info).then(|| info.pid.to_string());
        let columns: [Column<'_, (DeviceInfo, Vec<String>)>; 7] = [
            ("device", &|(info, _)| Cell::Text(Some(info.path()))),
            ("volume", &|(info, _)| Cell::Text(Some(volume(info)))),
            ("state", &|(info, _)| Cell::Text(Some(info.state.word().to_owned()))),
            ("pid", &|(info, _)| Cell::Text(pid(info))),
            ("queues", &|(info, _)| Cell::Count(info.queues.into())),
            ("depth", &|(info, _)| Cell::Count(info.depth.into())),
            ("cpus", &|(_, cpus)| Cell::Text(Some(cpus.join(";")))),
        ];
        return columns::print(&columns, devices, listing, out);
    }
    let row = |(info, cpus): &(DeviceInfo, Vec<String>)| {
        vec![
            info.path(),
            text::clean(&volume(info)),
            info.state.word().to_owned(),
            if served(info) { info.pid.to_string() } else { "none".to_owned() },
            format!("{} x {}", info.queues, info.depth),
            cpus.join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
    Ok(text::table(out, &["device", "volume", "state", "served by", "queues", "used from CPUs"], &rows)?)
}

/// Returns `true` if a device of ours appears permanently orphaned.
fn is_orphan(info: &DeviceInfo, holder: ProcessState) -> bool {
    is_ours(info.stamp) && (holder == ProcessState::Gone || info.state == DeviceState::Dead)
}

fn gc(force: bool, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut control = Controller::open()?;
    let mut code = ExitCode::SUCCESS;
    for info in control.list()?.into_iter().filter(|info| is_orphan(info, holder_of(info))) {
        let path = info.path();
        // Opening it would wait for the missing daemon, so the user is taken from the kernel's records.
        if let Some(user) = zc_io::block_device_user(Path::new(&path)).filter(|_| !force) {
            writeln!(out, "{path} is left alone: {user}")?;
            code = ExitCode::FAILURE;
            continue;
        }
        control.stop(info.id).with_context(|| format!("{path} cannot be stopped"))?;
        control.delete(info.id).with_context(|| format!("{path} cannot be removed"))?;
        unregister(Path::new(RUN_DIR), info.id);
        writeln!(out, "{path} is removed")?;
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(stamp: u64, state: DeviceState) -> DeviceInfo {
        DeviceInfo {
            id: 90_000,
            queues: 1,
            depth: 8,
            request_bytes_max: 4096,
            state,
            pid: 0,
            flags: 0,
            stamp,
        }
    }

    #[test]
    fn only_our_own_orphans_are_removed() {
        let ours = zc_ublk::registration::stamp(&[0; 16], "a");
        assert!(is_orphan(&info(ours, DeviceState::Quiesced), ProcessState::Gone));
        assert!(is_orphan(&info(ours, DeviceState::Dead), ProcessState::Alive));
        assert!(!is_orphan(&info(ours, DeviceState::Live), ProcessState::Alive));
        assert!(!is_orphan(&info(7, DeviceState::Dead), ProcessState::Gone));
    }

    #[test]
    fn devices_are_shown_with_their_state() {
        let mut text = Vec::new();
        let quiesced = (info(7, DeviceState::Quiesced), vec!["0-3".to_owned()]);
        list(&[quiesced], false, &Listing::default(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            ["/dev/ublkb90000", "quiesced", "none", "0-3"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        let columns = vec!["state".to_owned(), "pid".to_owned()];
        let chosen = Listing { columns, no_headings: true, bytes: false };
        let mut words = Vec::new();
        list(&[(info(7, DeviceState::Quiesced), vec![])], false, &chosen, &mut words).unwrap();
        assert_eq!(String::from_utf8(words).unwrap(), "quiesced\t-\n");
        let mut json = Vec::new();
        list(&[(info(7, DeviceState::Live), vec!["1".to_owned()])], true, &Listing::default(), &mut json)
            .unwrap();
        let value: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&value[0]["state"], &value[0]["ours"]), (&json!("live"), &json!(false)));
        assert_eq!(value[0]["queue_cpus"], json!(["1"]));
    }
}
