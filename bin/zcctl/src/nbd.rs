//! `zcctl attach --nbd` and `detach --nbd`: a volume as a block device of the kernel's NBD client, on machines without
//! ublk.
//!
//! Job: find a free /dev/nbdN and a Unix socket of the daemon, connect them with `nbd-client`, and record the volume,
//! for the udev rule of the stable link and for detaching.
//!
//! Invariants: the record exists before the device; a device in use is not detached unless forced, and the kernel's
//! dirty pages are written first.
//!
//! It does not reconnect when the daemon was killed. The kernel then fails requests; ublk waits.

use std::io::Write;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use zc_core::SECTOR_BYTES;
use zc_nbd::uri::{Endpoint, NbdUri};
use zc_ublk::registration::{NBD_RUN_DIR, link_name, link_path, register, registered, unregister};

use crate::control::ask;
use crate::dirty;
use crate::options::Daemon;
use crate::text;

const SYS_DIR: &str = "/sys/block";
/// Connections of a device, which share its requests.
const CONNECTIONS: &str = "2";

pub(crate) fn attach(volume: &str, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
    let socket = unix_socket(&status).context(
        "the daemon listens on no Unix socket, which this needs: set `unix` in [nbd], or use nbd-client by hand",
    )?;
    let known = volume_of(&status, volume).with_context(|| format!("there is no volume \"{volume}\""))?;
    if let Some(device) = known["info"]["device"].as_str() {
        bail!(
            "volume \"{volume}\" is {} already; two devices would have incoherent caches",
            text::clean(device)
        );
    }
    let numbers = device_numbers(Path::new(SYS_DIR))?;
    let notes = Path::new(NBD_RUN_DIR);
    if let Some(number) = attached(volume, &numbers, notes, Path::new(SYS_DIR)) {
        return tell(volume, number, daemon, out);
    }
    let free = |number: &u32| !is_connected(*number, Path::new(SYS_DIR));
    let number = numbers.into_iter().find(free).context(
        "there is no free /dev/nbdN: load the driver with `modprobe nbd`, or with more devices (`nbds_max=`)",
    )?;
    let origin = known["info"]["origin"].as_str().unwrap_or_default();
    // A file has no block size: the smallest request size is used.
    let block_bytes = logical_block_bytes(Path::new(origin)).unwrap_or(SECTOR_BYTES);
    register(notes, number, volume)?;
    let mut client = Command::new("nbd-client");
    client.arg("-unix").arg(socket).args(["-N", volume, "-C", CONNECTIONS, "-b", &block_bytes.to_string()]);
    if let Err(error) = run(client.arg(device_path(number))) {
        unregister(notes, number);
        return Err(error);
    }
    tell(volume, number, daemon, out)
}

pub(crate) fn detach(
    volume: &str,
    force: bool,
    keep_dirty: bool,
    daemon: &Daemon,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let (notes, sys) = (Path::new(NBD_RUN_DIR), Path::new(SYS_DIR));
    let Some(number) = attached(volume, &device_numbers(sys)?, notes, sys) else {
        bail!("volume \"{volume}\" is attached to no NBD device");
    };
    let path = device_path(number);
    if !force {
        write_out(&path)?;
    }
    run(Command::new("nbd-client").arg("-d").arg(&path))?;
    unregister(notes, number);
    writeln!(out, "{} is detached", text::clean(volume))?;
    if keep_dirty { Ok(ExitCode::SUCCESS) } else { dirty::flush_if_dirty(volume, daemon, out) }
}

fn tell(volume: &str, number: u32, daemon: &Daemon, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let device = device_path(number);
    if daemon.json {
        let answer = json!({"volume": volume, "device": device, "link": link_path(volume)});
        writeln!(out, "{answer:#}")?;
    } else {
        writeln!(out, "{} is {}", text::clean(volume), device.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn device_path(number: u32) -> PathBuf {
    Path::new("/dev").join(format!("nbd{number}"))
}

/// A Unix socket that the daemon listens on.
fn unix_socket(status: &Value) -> Option<String> {
    let listening = status["listening"].as_array()?;
    listening.iter().find_map(|address| match address.as_str()?.parse::<NbdUri>().ok()?.endpoint {
        Endpoint::Unix { socket } => Some(socket),
        Endpoint::Tcp { .. } => None,
    })
}

fn volume_of<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["volumes"].as_array()?.iter().find(|volume| volume["name"] == name)
}

/// Numbers of the NBD devices that the kernel has, lowest first.
fn device_numbers(sys: &Path) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(sys).with_context(|| format!("cannot list {}", sys.display()))? {
        let name = entry.with_context(|| format!("cannot list {}", sys.display()))?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix("nbd")).and_then(|rest| rest.parse().ok());
        numbers.extend::<Option<u32>>(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A connected device has a `pid` there.
fn is_connected(number: u32, sys: &Path) -> bool {
    sys.join(format!("nbd{number}/pid")).exists()
}

/// The device that is connected for a volume.
fn attached(volume: &str, numbers: &[u32], notes: &Path, sys: &Path) -> Option<u32> {
    let is_it =
        |number: u32| is_connected(number, sys) && registered(notes, number) == Some(link_name(volume));
    numbers.iter().copied().find(|number| is_it(*number))
}

/// The logical block of a block device or the disk that it is a part of; `None`: a file.
fn logical_block_bytes(origin: &Path) -> Option<u32> {
    let number = std::fs::metadata(origin).ok()?.st_rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let here = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let places = ["queue/logical_block_size", "../queue/logical_block_size"].map(|place| here.join(place));
    places.iter().find_map(|place| std::fs::read_to_string(place).ok()?.trim().parse().ok())
}

/// Checks that the device is not in use, and writes the kernel's dirty pages.
fn write_out(path: &Path) -> anyhow::Result<()> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let device = rustix::fs::open(path, flags, Mode::empty());
    if device.as_ref().err() == Some(&rustix::io::Errno::BUSY) {
        bail!("{} is in use: unmount it and release the devices built on it, or use --force", path.display());
    }
    let device = device.with_context(|| format!("{} cannot be opened", path.display()))?;
    rustix::fs::fsync(&device).with_context(|| format!("{} cannot be flushed", path.display()))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            anyhow::anyhow!("there is no nbd-client: install it (Debian: `apt install nbd-client`)")
        }
        _ => anyhow::Error::new(error).context("cannot start nbd-client"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("nbd-client failed ({}): {}", output.status, text::clean(said.trim()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A /sys/block with three devices, of which the second is connected.
    fn kernel() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        for name in ["nbd10", "nbd0", "nbd1", "sda", "nbdx"] {
            std::fs::create_dir(sys.path().join(name)).unwrap();
        }
        std::fs::write(sys.path().join("nbd1/pid"), "7").unwrap();
        sys
    }

    #[test]
    fn devices_are_found_by_number_and_connected_ones_by_their_note() {
        let (sys, notes) = (kernel(), tempfile::tempdir().unwrap());
        let numbers = device_numbers(sys.path()).unwrap();
        assert_eq!(numbers, [0, 1, 10]);
        let found = |volume| attached(volume, &numbers, notes.path(), sys.path());
        assert_eq!(found("my disk"), None);
        for number in [1, 10] {
            register(notes.path(), number, "my disk").unwrap();
        }
        assert_eq!((found("my disk"), found("other")), (Some(1), None));
        std::fs::remove_file(sys.path().join("nbd1/pid")).unwrap();
        assert_eq!(found("my disk"), None, "its note outlived it");
    }

    #[test]
    fn socket_and_volume_are_those_of_the_status() {
        let status = json!({
            "listening": ["nbd://127.0.0.1:10809", "nbd+unix:///?socket=/run/z%20.sock"],
            "volumes": [{"name": "a"}, {"name": "b", "info": {"origin": "/dev/sdb"}}],
        });
        assert_eq!(unix_socket(&status).as_deref(), Some("/run/z .sock"));
        assert_eq!(volume_of(&status, "b").unwrap()["info"]["origin"], "/dev/sdb");
        assert!(volume_of(&status, "c").is_none());
        assert_eq!(unix_socket(&json!({"listening": ["nbd://h"]})), None);
    }

    #[test]
    fn a_file_has_no_logical_block() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(logical_block_bytes(file.path()), None);
        assert_eq!(logical_block_bytes(Path::new("/no/such/origin")), None);
    }
}
