//! Origins that are NBD exports: of another server, and each for one volume only.
//!
//! It does not resolve names, so a daemon that is its own origin under another name is not detected here.

use std::net::IpAddr;

use zc_nbd::uri::{Endpoint, NbdUri};

use crate::key_lines::volume_key;
use crate::section::Sheet;
use crate::{NbdConfig, VolumeConfig};

/// Reports exports that are used by two volumes, or are this daemon's own.
pub(crate) fn check(sheet: &mut Sheet, volumes: &[VolumeConfig], nbd: &NbdConfig) {
    let remote = volumes.iter().filter_map(|volume| Some((volume, volume.remote.as_ref()?)));
    let remote: Vec<_> = remote.collect();
    for (number, (volume, uri)) in remote.iter().enumerate() {
        let what = match remote[..number].iter().find(|(_, other)| other == uri) {
            Some((other, _)) => format!("it is the origin of volume \"{}\" already", other.name),
            None if is_own(uri, nbd) => {
                "it is an export of this daemon, which would be its own origin".to_owned()
            }
            None => continue,
        };
        let key = volume_key(&volume.name, "origin");
        let at = sheet.key_places.iter().find(|(place, _)| *place == key).map_or(0, |(_, at)| *at);
        sheet.mistake(at, format!("volume.origin: {uri}: {what}"));
    }
}

/// Returns `true` if the daemon listens on that address, by its text.
fn is_own(uri: &NbdUri, nbd: &NbdConfig) -> bool {
    match &uri.endpoint {
        Endpoint::Unix { socket } => nbd.unix.iter().any(|own| own.as_os_str() == socket.as_str()),
        Endpoint::Tcp { host, port } => {
            let address: Option<IpAddr> =
                if host == "localhost" { Some([127, 0, 0, 1].into()) } else { host.parse().ok() };
            let Some(address) = address.map(|address| address.to_canonical()) else { return false };
            nbd.listen.iter().any(|own| {
                let is_here = own.ip() == address || (own.ip().is_unspecified() && address.is_loopback());
                own.port() == *port && is_here
            })
        }
    }
}
