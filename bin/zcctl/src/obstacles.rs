//! `zcctl stop --dry-run`: obstacles to stopping the daemon permanently, as before its package is removed.
//!
//! Job: list dirty data, on a daemon's cache or recorded in the state directory, and users of volumes: clients,
//! mounts, swap space, devices on top such as those of LVM, and programs that have a device open such as a virtual
//! machine.
//!
//! Invariants: nothing is stopped or written. A failed check counts as an obstacle.
//!
//! It does not stop (`dirty` does).

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use zc_config::Config;

use crate::concerned::{Concerned, is_of_device};
use crate::control::ask;
use crate::options::{Daemon, SOCKET_DEFAULT, STATE_DIR_DEFAULT};
use crate::text;
use crate::units::size;

/// The configuration that packages use.
const CONFIG: &str = "/etc/zcached.toml";

/// Lists the obstacles to a permanent stop.
///
/// # Errors
/// When there is one.
pub(crate) fn run(daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let config = Config::load(Path::new(CONFIG)).ok();
    let socket = match &config {
        Some(config) if daemon.socket == Path::new(SOCKET_DEFAULT) => config.control.socket.clone(),
        _ => daemon.socket.clone(),
    };
    let state_dir = config.map_or_else(|| PathBuf::from(STATE_DIR_DEFAULT), |config| config.cache.state_dir);
    let found = match ask(&socket, &json!({"cmd": "status"})) {
        Ok(status) => {
            let connections = ask(&socket, &json!({"cmd": "connections"}))?;
            of_daemon(&status, &connections, Path::new("/"))
        }
        Err(error) if is_unanswered(&error) => of_state(&state_dir),
        Err(error) => vec![format!("cannot determine what the daemon serves: {error:#}")],
    };
    let found: Vec<String> = found.iter().map(|line| text::clean(line)).collect();
    if daemon.json {
        writeln!(out, "{:#}", json!({ "obstacles": found }))?;
    }
    if !found.is_empty() {
        bail!("{}", found.join("\nzcctl: "));
    }
    if !daemon.json {
        writeln!(out, "no obstacles to a stop")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// No process listens at the control socket.
fn is_unanswered(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory))
}

/// Obstacles by the records of a state directory, while no daemon runs.
fn of_state(dir: &Path) -> Vec<String> {
    let caches = match zc_daemon::remembered(dir) {
        Ok(caches) => caches,
        Err(error) => return vec![format!("cannot determine the dirty data of caches: {error}")],
    };
    let volumes = caches.iter().flat_map(|cache| cache.volumes.iter().map(move |volume| (cache, volume)));
    let dirty = volumes.filter(|(_, volume)| volume.may_be_dirty);
    let line = |(cache, volume): (&zc_daemon::RememberedCache, &zc_daemon::RememberedVolume)| {
        format!(
            "the cache {} has dirty data of volume \"{}\", not yet on its origin {}: start the daemon, then `zcctl \
             stop --flush`",
            cache.uuid,
            volume.name,
            volume.origin.display()
        )
    };
    dirty.map(line).collect()
}

/// Obstacles by a running daemon, and by the kernel whose /proc and /sys are in a folder.
fn of_daemon(status: &Value, connections: &Value, root: &Path) -> Vec<String> {
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    let list = |key: &str| status[key].as_array().into_iter().flatten();
    for volume in list("volumes") {
        let (dirty, bytes) = (&volume["dirty"], volume["dirty"]["bytes"].as_u64().unwrap_or(0));
        if bytes > 0 || dirty["fenced"] == json!(true) {
            found.push(format!(
                "volume \"{}\" has {} of dirty data, not yet on its origin: `zcctl stop --flush` writes it there",
                name(&volume["name"]),
                size(bytes)
            ));
        }
    }
    for volume in list("unserved_dirty") {
        found.push(format!(
            "the cache has dirty data of volume \"{}\", which is not served: add it to the configuration, restart \
             the daemon, then `zcctl stop --flush`",
            name(&volume["name"])
        ));
    }
    let mounts = fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
    let concerned = Concerned::from(connections, status, &mounts);
    found.extend(concerned.clients().map(|(volume, peer)| {
        format!("{peer} is connected to volume \"{volume}\": disconnect it, or move it to the origin")
    }));
    found.extend(concerned.mounted().map(|(device, volume, place)| {
        format!("{device} (volume \"{volume}\") is mounted at {place}: unmount it")
    }));
    let own = status["pid"].as_u64().map(|pid| pid.to_string()).unwrap_or_default();
    for volume in list("volumes") {
        if let Some(device) = volume["info"]["device"].as_str() {
            let users = users_of(device, &own, root);
            found.extend(users.into_iter().map(|(part, what)| {
                format!("{part} (volume \"{}\") is in use: {what}", name(&volume["name"]))
            }));
        }
    }
    found
}

/// Users of a device or a partition of it, other than mounts: the device or partition, and how it is used.
fn users_of(device: &str, own_pid: &str, root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let swaps = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let swap = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    found.extend(
        swap.filter(|part| is_of_device(part, device))
            .map(|part| (part.to_owned(), "it is swap space (`swapoff`)".to_owned())),
    );
    let block = root.join("sys/class/block");
    for part in names(&block) {
        let path = format!("/dev/{part}");
        if is_of_device(&path, device) {
            let holders = names(&block.join(&part).join("holders"));
            found.extend(
                holders.into_iter().map(|holder| (path.clone(), format!("/dev/{holder} is built on it"))),
            );
        }
    }
    for pid in
        names(&root.join("proc")).into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    {
        if pid == own_pid {
            continue;
        }
        let folder = root.join("proc").join(&pid);
        let opened = names(&folder.join("fd")).into_iter().filter_map(|fd| {
            let to = fs::read_link(folder.join("fd").join(fd)).ok()?;
            to.to_str().filter(|to| is_of_device(to, device)).map(str::to_owned)
        });
        let mut opened: Vec<String> = opened.collect();
        opened.dedup();
        let program = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        found.extend(
            opened.into_iter().map(|part| (part, format!("{} (process {pid}) has it open", program.trim()))),
        );
    }
    found
}

/// Entries of a folder, in order; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn dirty_data_clients_and_all_users_of_devices_are_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mounts", "/dev/ublkb1 /mnt ext4 rw 0 0\n");
        write(
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/ublkb1p2 partition 1 0 -2\n/dev/ublkb10 partition 1 0 -2\n",
        );
        write("sys/class/block/ublkb1p3/holders/dm-0", "");
        write("sys/class/block/ublkb10/holders/dm-1", "");
        for (pid, program, to) in
            [("7", "qemu", "/dev/ublkb1"), ("8", "cat", "/dev/ublkb10"), ("9", "zcached", "/dev/ublkb1")]
        {
            write(&format!("proc/{pid}/comm"), &format!("{program}\n"));
            fs::create_dir_all(root.path().join(format!("proc/{pid}/fd"))).unwrap();
            symlink(to, root.path().join(format!("proc/{pid}/fd/5"))).unwrap();
        }
        let status = json!({
            "pid": 9,
            "volumes": [
                {"name": "vm", "info": {"device": "/dev/ublkb1"}, "dirty": {"bytes": 8 << 20, "fenced": false}},
                {"name": "lost", "info": {"device": null}, "dirty": {"bytes": 0, "fenced": true}},
                {"name": "clean", "info": {"device": null}, "dirty": {"bytes": 0, "fenced": false}},
            ],
            "unserved_dirty": [{"name": "old", "origin": "/o"}],
        });
        let connections = json!({"connections": [{"export": "clean", "peer": "192.0.2.1:7"}]});
        let found = of_daemon(&status, &connections, root.path());
        let starts = [
            "volume \"vm\" has 8.0 MiB of dirty data",
            "volume \"lost\" has",
            "the cache has dirty data of volume \"old\"",
            "192.0.2.1:7 is connected to volume \"clean\"",
            "/dev/ublkb1 (volume \"vm\") is mounted at /mnt",
            "/dev/ublkb1p2 (volume \"vm\") is in use: it is swap space",
            "/dev/ublkb1p3 (volume \"vm\") is in use: /dev/dm-0 is built on it",
            "/dev/ublkb1 (volume \"vm\") is in use: qemu (process 7) has it open",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (line, start) in found.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert!(found[0].contains("`zcctl stop --flush`"));
        let nothing = json!({"pid": 9, "volumes": [{"name": "clean", "info": {"device": "/dev/ublkb2"}, "dirty": {"bytes": 0}}]});
        assert_eq!(of_daemon(&nothing, &json!({"connections": []}), root.path()), [""; 0]);
    }

    #[test]
    fn without_a_daemon_the_state_directory_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of_state(&dir.path().join("none")), [""; 0]);
        fs::write(dir.path().join(format!("{}.json", "0".repeat(32))), "{").unwrap();
        assert!(of_state(dir.path())[0].starts_with("cannot determine"), "{:?}", of_state(dir.path()));
    }
}
