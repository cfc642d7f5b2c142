//! Users affected by the end of a daemon: connected clients and mounted volumes.
//!
//! Job: list them before a stop. It does not refuse: requests to block devices wait for the next daemon, and clients
//! may reconnect to it.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use crate::control::ask;
use crate::options::Daemon;
use crate::text;

/// Mounts in the namespace of this process.
const MOUNTS: &str = "/proc/self/mounts";

/// Clients and mounted volumes that notice the end of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Concerned {
    /// Connections by volume and client.
    clients: BTreeMap<(String, String), u64>,
    /// Device, volume and where it is mounted.
    mounted: Vec<(String, String, String)>,
}

impl Concerned {
    /// Queries the daemon and the kernel.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub(crate) fn of(daemon: &Daemon) -> anyhow::Result<Self> {
        let connections = ask(&daemon.socket, &json!({"cmd": "connections"}))?;
        let status = ask(&daemon.socket, &json!({"cmd": "status"}))?;
        // Without /proc no mounts are known.
        let mounts = std::fs::read_to_string(MOUNTS).unwrap_or_default();
        Ok(Self::from(&connections, &status, &mounts))
    }

    pub(crate) fn from(connections: &Value, status: &Value, mounts: &str) -> Self {
        let text = |value: &Value| text::clean(value.as_str().unwrap_or("-"));
        let mut found = Self::default();
        for connection in connections["connections"].as_array().into_iter().flatten() {
            let client = (text(&connection["export"]), text(&connection["peer"]));
            *found.clients.entry(client).or_default() += 1;
        }
        for volume in status["volumes"].as_array().into_iter().flatten() {
            let Some(device) = volume["info"]["device"].as_str() else { continue };
            let places = places_of(mounts, device).map(text::clean);
            found.mounted.extend(places.map(|place| (text::clean(device), text(&volume["name"]), place)));
        }
        found
    }

    /// Volume and address of each connected client.
    pub(crate) fn clients(&self) -> impl Iterator<Item = (&str, &str)> {
        self.clients.keys().map(|(volume, peer)| (volume.as_str(), peer.as_str()))
    }

    /// Device, volume and place of each mount.
    pub(crate) fn mounted(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.mounted.iter().map(|(device, volume, place)| (device.as_str(), volume.as_str(), place.as_str()))
    }

    pub(crate) fn tell(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for ((volume, peer), count) in &self.clients {
            let connections = if *count == 1 { "connection" } else { "connections" };
            writeln!(out, "connected to volume {volume}: {peer}, {count} {connections}")?;
        }
        for (device, volume, place) in &self.mounted {
            writeln!(out, "{device} (volume {volume}) is mounted at {place}; it waits for the next daemon")?;
        }
        Ok(())
    }

    /// The connected clients and the mounted volumes as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let client = |((volume, peer), count): (&(String, String), &u64)| json!({"volume": volume, "peer": peer, "connections": count});
        let clients: Vec<Value> = self.clients.iter().map(client).collect();
        let mount = |(device, volume, place): &(String, String, String)| json!({"device": device, "volume": volume, "mounted_at": place});
        let mounted: Vec<Value> = self.mounted.iter().map(mount).collect();
        json!({"clients": clients, "mounted": mounted})
    }
}

/// Returns the mount points of a device and its partitions.
fn places_of<'a>(mounts: &'a str, device: &str) -> impl Iterator<Item = &'a str> {
    let device = device.to_owned();
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ');
        let (source, place) = (fields.next()?, fields.next()?);
        is_of_device(source, &device).then_some(place)
    })
}

/// Returns `true` if a path is that of a device, or of a partition of it.
pub(crate) fn is_of_device(path: &str, device: &str) -> bool {
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    path.strip_prefix(device)
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('p').is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_mounts_are_named() {
        let connections = json!({"connections": [
            {"export": "vm", "peer": "192.0.2.1:7"}, {"export": "vm", "peer": "user 0"},
            {"export": "vm", "peer": "user 0"}]});
        let status = json!({"volumes": [{"name": "vm", "info": {"device": "/dev/ublkb1"}},
            {"name": "other", "info": {"device": null}}]});
        let mounts = "/dev/ublkb1 /mnt ext4 rw 0 0\n/dev/ublkb1p2 /a\\040b xfs rw 0 0\n\
            /dev/ublkb10 /no ext4 rw 0 0\nproc /proc proc rw 0 0\n";
        let found = Concerned::from(&connections, &status, mounts);
        let mut out = Vec::new();
        found.tell(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[0], "connected to volume vm: 192.0.2.1:7, 1 connection");
        assert_eq!(lines[1], "connected to volume vm: user 0, 2 connections");
        assert!(lines[2].starts_with("/dev/ublkb1 (volume vm) is mounted at /mnt;"), "{text}");
        assert!(lines[3].contains("/a\\040b") && !text.contains("/no"), "{text}");
        assert_eq!(found.to_json()["mounted"][0]["mounted_at"], "/mnt");
    }
}
