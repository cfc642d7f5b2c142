//! Origins that are NBD exports: of another server, each for one volume only, with TLS or without.
//!
//! It does not read certificates or resolve names, so a daemon that is its own origin under another name is not detected
//! here.

use std::net::IpAddr;

use zc_nbd::uri::{Endpoint, NbdUri};

use crate::key_lines::volume_key;
use crate::section::{ParseState, Section, brief};
use crate::{NbdConfig, OriginTls, VolumeConfig};

/// Files in which systems keep the authorities that they trust; the first that is there counts.
pub const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Longest name of a server in its certificate (RFC 1035).
const SERVER_NAME_BYTES_MAX: usize = 253;

/// Reads `[volume.origin_tls]`. `is_secured`: the origin is named by `nbds`.
pub(crate) fn tls(volume: &mut Section<'_, '_>, is_secured: bool) -> OriginTls {
    let value = volume.get("origin_tls");
    if let Some(value) = value.filter(|_| !is_secured) {
        volume.mistake(
            value.span().start,
            "origin_tls",
            "it is for origins that begin with nbds:// or nbds+unix://",
        );
    }
    let prefix = format!("{}origin_tls.", volume.prefix);
    let mut section = Section::new(volume.sheet, "volume.origin_tls", value);
    section.prefix = prefix;
    let ca = section.read_path("ca").map(|path| path.value);
    let (certificate, key) = (section.read_path("certificate"), section.read_path("key"));
    match (&certificate, &key) {
        (Some(certificate), None) => section.mistake(certificate.at, "certificate", "key is needed with it"),
        (None, Some(key)) => section.mistake(key.at, "key", "certificate is needed with it"),
        _ => {}
    }
    let config = OriginTls {
        ca,
        certificate: certificate.map(|path| path.value),
        key: key.map(|path| path.value),
        server_name: server_name(&mut section),
    };
    section.finish();
    config
}

fn server_name(section: &mut Section<'_, '_>) -> Option<String> {
    let name = section.text("server_name")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if !(1..=SERVER_NAME_BYTES_MAX).contains(&name.value.len()) || !name.value.bytes().all(is_plain) {
        let what = format!("\"{}\" is neither a host name nor an IP address", brief(&name.value));
        section.mistake(name.at, "server_name", what);
        return None;
    }
    Some(name.value)
}

/// Reports exports that are used by two volumes, or are this daemon's own.
pub(crate) fn check(sheet: &mut ParseState, volumes: &[VolumeConfig], nbd: &NbdConfig) {
    let remote = volumes.iter().filter_map(|volume| Some((volume, volume.remote.as_ref()?)));
    let remote: Vec<_> = remote.collect();
    for (number, (volume, uri)) in remote.iter().enumerate() {
        let is_same = |other: &NbdUri| other.endpoint == uri.endpoint && other.export == uri.export;
        let what = match remote[..number].iter().find(|(_, other)| is_same(other)) {
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
