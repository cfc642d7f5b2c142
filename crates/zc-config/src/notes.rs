//! Consequences of a configuration that may surprise.
//!
//! Job: one sentence each, for `zcached check-config`. Invariant: notes are not mistakes; a daemon starts despite
//! them.
//!
//! It does not inspect devices.

use std::net::SocketAddr;

use zc_core::units::Millis;
use zc_core::{Ack, Destage, Mode};

use crate::{Config, DestageWindow, Fingerprint, Tls};

const NAMES_MAX: usize = 8;

impl Config {
    /// Returns the valid settings that may surprise.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let volatile = |volume: &&crate::VolumeConfig| {
            volume.mode == Mode::WriteBack && volume.ack != Some(Ack::Durable)
        };
        let weak = self.cache.fingerprint == Fingerprint::Sha1
            && self.cache.learned_recipes_bytes.is_some_and(|bytes| bytes > 0);
        let unused = weak.then(|| {
            "learned_recipes does nothing with fingerprint = \"sha1\": bytes could not be compared without the origin"
                .to_owned()
        });
        let in_memory = self.volumes.iter().filter(volatile).map(|volume| {
            let why = match volume.ack {
                Some(_) => "as configured with ack = \"volatile\"",
                None if self.cache.journal_path.is_some() => {
                    "the default unless journal_path turns out to be persistent memory"
                }
                None => "the default",
            };
            format!(
                "volume \"{}\": writes are acknowledged from memory ({why}), as by a disk with a volatile write \
                 cache: those that no flush followed are lost when the daemon is killed, and its block device is \
                 then removed, not taken over; ack = \"durable\" waits for the cache device instead",
                volume.name
            )
        });
        let coalesced = |volume: &&crate::VolumeConfig| {
            volume.mode == Mode::WriteBack && volume.destage == Destage::Coalesce
        };
        let unordered = self.volumes.iter().filter(coalesced).map(|volume| {
            format!(
                "volume \"{}\": with destage = \"coalesce\" the cache must not be lost while it has dirty data: the \
                 origin alone may then have a state that the volume never had",
                volume.name
            )
        });
        let windows = self.volumes.iter().filter(|volume| volume.mode == Mode::WriteBack);
        let useless = windows.filter_map(|volume| {
            let gap_ms = u64::from(DestageWindow::longest_gap_minutes(&volume.destage_window)?) * 60_000;
            (volume.max_dirty_age_ms / 2 < gap_ms).then(|| {
                format!(
                    "volume \"{}\": destage_window leaves {} between two windows, and dirty data goes to the origin \
                     at half of max_dirty_age in any case, which is after {}",
                    volume.name,
                    Millis(gap_ms),
                    Millis(volume.max_dirty_age_ms / 2)
                )
            })
        });
        let notes =
            unused.into_iter().chain(in_memory).chain(unordered).chain(useless).chain(self.unreached());
        notes.chain(self.exposed_addresses()).collect()
    }

    /// Returns the addresses at which other machines may have unintended access.
    #[must_use]
    pub fn exposed_addresses(&self) -> Vec<String> {
        let metrics = [("listen", self.metrics.listen), ("page", self.metrics.page)];
        let open = metrics.into_iter().filter_map(|(key, address)| {
            let address = address.filter(is_reachable)?;
            Some(format!(
                "metrics.{key}: every program that reaches {address} can read the names, sizes and counters of all \
                 volumes, without TLS \
                 and without a password; restrict access with a firewall"
            ))
        });
        let volumes = self.volumes.iter().filter(|volume| volume.nbd.export);
        let plain: Vec<&str> = volumes
            .filter(|volume| self.nbd.tls != Tls::Required && !volume.nbd.tls)
            .map(|volume| volume.name.as_str())
            .collect();
        let clients = self.nbd.listen.iter().filter(|address| is_reachable(address)).filter_map(|address| {
            if !plain.is_empty() {
                return Some(format!(
                    "nbd.listen: clients of {address} may use these volumes without TLS, so the network between can \
                     read and change their data: {}; set tls = \"required\" in [nbd], or listen on a loopback \
                     address",
                    brief(&plain)
                ));
            }
            self.nbd.tls_client_ca.is_none().then(|| {
                format!(
                    "nbd.listen: every client that reaches {address} may use the exports, because TLS requires no \
                     client certificate; set tls_client_ca in [nbd]"
                )
            })
        });
        open.chain(clients).collect()
    }

    /// Returns a sentence for each volume that no client can access before an operator attaches it.
    fn unreached(&self) -> impl Iterator<Item = String> {
        let has_sockets = !(self.nbd.listen.is_empty() && self.nbd.unix.is_empty());
        let is_reached =
            move |volume: &&crate::VolumeConfig| volume.ublk.attach || (volume.nbd.export && has_sockets);
        self.volumes.iter().filter(move |volume| !is_reached(volume)).map(|volume| {
            let why = if volume.nbd.export { "[nbd] listens nowhere" } else { "nbd.export is false" };
            format!(
                "volume \"{0}\": no client can access it until `zcctl attach {0}`: {why}, and ublk.attach is not set",
                volume.name
            )
        })
    }
}

/// Returns `true` if an address is reachable from other machines.
fn is_reachable(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Formats the first of these names.
fn brief(names: &[&str]) -> String {
    let first = names.iter().take(NAMES_MAX).map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_other_machines_reach_in_plain_text_are_named() {
        let tls = "tls_certificate = \"/c\"\ntls_key = \"/k\"\n";
        let notes = |nbd: &str, volume: &str| {
            let text = format!(
                "[cache]\npath = \"/srv/c\"\n[[volume]]\nname = \"v\"\norigin = \"/srv/v\"\n{volume}\n[nbd]\n{nbd}\n"
            );
            Config::parse(&text, "test.toml").unwrap().notes().concat()
        };
        for address in
            ["0.0.0.0:10809", "[::]:10809", "192.0.2.1:10809", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"]
        {
            let listen = format!("listen = [\"127.0.0.1:2\", \"{address}\"]\n");
            let (ip, _) = address.rsplit_once(':').unwrap();
            for mode in ["", "tls = \"off\"\n", &format!("tls = \"allowed\"\n{tls}tls_client_ca = \"/a\"\n")]
            {
                let said = notes(&format!("{listen}{mode}"), "");
                assert!(said.contains(&format!("nbd.listen: clients of {address} may")), "{said}");
            }
            let required = format!("{listen}tls = \"required\"\n{tls}");
            assert!(notes(&required, "").contains("set tls_client_ca"));
            assert_eq!(notes(&format!("{required}tls_client_ca = \"/a\"\n"), ""), "");
            let allowed = format!("{listen}tls = \"allowed\"\n{tls}tls_client_ca = \"/a\"\n");
            assert_eq!(notes(&allowed, "nbd.tls = true"), "", "no volume is exported without TLS");
            assert!(notes(&format!("{listen}[metrics]\nlisten = \"{ip}:9\""), "").contains("metrics.listen"));
        }
        for address in ["127.0.0.1:10809", "127.9.9.9:1", "[::1]:10809", "[::ffff:127.0.0.1]:1"] {
            let (ip, _) = address.rsplit_once(':').unwrap();
            let text = format!("listen = [\"{address}\"]\n[metrics]\nlisten = \"{ip}:9\"");
            assert_eq!(notes(&text, ""), "", "{address}");
        }
    }
}
