//! NBD addresses as URIs (NetworkBlockDevice/nbd, doc/uri.md).
//!
//! Job: parse `nbd://host[:port]/export` and `nbd+unix:///export?socket=PATH`, and both with TLS (`nbds`), with percent
//! encoding.
//!
//! Invariants: a parsed URI has a host or an absolute or relative socket path; an export name obeys the protocol.
//!
//! Out of scope: vsock, user names, query keys about TLS, and resolving hosts.

use crate::proto::limits::STRING_BYTES_MAX;

/// Default TCP port of NBD (IANA).
pub const DEFAULT_PORT: u16 = 10809;

/// Address of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP.
    Tcp {
        /// Host name or address, IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Unix socket.
    Unix {
        /// Path of the socket.
        socket: String,
    },
}

/// A parsed NBD URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUri {
    /// Address of the server.
    pub endpoint: Endpoint,
    /// The export; empty for the default one.
    pub export: String,
    /// TLS is required.
    pub tls: bool,
}

/// Reason why a text is not a supported NBD URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NBD URI \"{uri}\": {problem}")]
pub struct UriError {
    uri: String,
    problem: &'static str,
}

impl core::str::FromStr for NbdUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        parse(uri).map_err(|problem| UriError { uri: uri.to_owned(), problem })
    }
}

impl core::fmt::Display for NbdUri {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let export = encode(&self.export);
        let scheme = if self.tls { "nbds" } else { "nbd" };
        match &self.endpoint {
            Endpoint::Unix { socket } => {
                write!(formatter, "{scheme}+unix:///{export}?socket={}", encode(socket))
            }
            Endpoint::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "{scheme}://[{host}]:{port}/{export}")
            }
            Endpoint::Tcp { host, port } => write!(formatter, "{scheme}://{host}:{port}/{export}"),
        }
    }
}

fn parse(uri: &str) -> Result<NbdUri, &'static str> {
    let (scheme, rest) = uri.split_once("://").ok_or("it does not start with nbd:// or nbd+unix://")?;
    let (scheme, tls) = match scheme {
        "nbds" => ("nbd", true),
        "nbds+unix" => ("nbd+unix", true),
        plain => (plain, false),
    };
    if rest.contains('#') {
        return Err("a fragment (#) has no meaning here; write %23 in names");
    }
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = before_query.split_once('/').unwrap_or((before_query, ""));
    let export = decode(path)?;
    if export.len() > STRING_BYTES_MAX || export.contains('\0') {
        return Err("the export name is longer than 4096 bytes or holds a NUL");
    }
    let mut socket = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let value =
            pair.strip_prefix("socket=").ok_or("behind the question mark only socket=PATH is known")?;
        if socket.replace(decode(value)?).is_some() {
            return Err("the socket is named twice");
        }
    }
    let endpoint = match (scheme, socket) {
        ("nbd+unix", Some(socket)) if !socket.is_empty() && !socket.contains('\0') => {
            if !authority.is_empty() {
                return Err("a Unix socket has no host; write nbd+unix:///export?socket=PATH");
            }
            Endpoint::Unix { socket }
        }
        ("nbd+unix", _) => return Err("the socket is missing; write nbd+unix:///export?socket=PATH"),
        ("nbd", None) => tcp(authority)?,
        ("nbd", Some(_)) => return Err("a socket needs the scheme nbd+unix"),
        _ => return Err("the scheme is none of nbd, nbds, nbd+unix and nbds+unix"),
    };
    Ok(NbdUri { endpoint, export, tls })
}

fn tcp(authority: &str) -> Result<Endpoint, &'static str> {
    if authority.contains('@') {
        return Err("user names are not supported");
    }
    let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) =
            bracketed.split_once(']').ok_or("the closing bracket of the address is missing")?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or("no port after ]")?) })
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte)) {
        return Err("the host is neither a name nor an address");
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().ok().filter(|&port| port > 0).ok_or("the port is not within 1 and 65535")?
        }
        Some(_) => return Err("the port is not a number; put IPv6 addresses in brackets"),
    };
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

fn decode(text: &str) -> Result<String, &'static str> {
    const BAD: &str = "a percent sign is not followed by two hexadecimal digits";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(BAD);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).map_err(|_| BAD)?);
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8")
}

/// The URI of a Unix socket, without an export: `nbd+unix:///?socket=PATH`. Paths need not be UTF-8.
#[must_use]
pub fn of_socket(path: &[u8]) -> String {
    format!("nbd+unix:///?socket={}", encode_bytes(path))
}

fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

fn encode_bytes(bytes: &[u8]) -> String {
    let mut encoded = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp_uri(host: &str, port: u16, export: &str) -> NbdUri {
        let endpoint = Endpoint::Tcp { host: host.to_owned(), port };
        NbdUri { endpoint, export: export.to_owned(), tls: false }
    }

    #[test]
    fn usual_uris_parse() {
        assert_eq!("nbd://host".parse(), Ok(tcp_uri("host", 10809, "")));
        assert_eq!("nbd://host/".parse(), Ok(tcp_uri("host", 10809, "")));
        assert_eq!("nbd://host:99/a/b".parse(), Ok(tcp_uri("host", 99, "a/b")));
        assert_eq!("nbd://[::1]:99/a%20b".parse(), Ok(tcp_uri("::1", 99, "a b")));
        assert_eq!("nbd://[::1]/x".parse(), Ok(tcp_uri("::1", 10809, "x")));
        let endpoint = Endpoint::Unix { socket: "/run/z c".to_owned() };
        let unix = NbdUri { endpoint, export: "v".to_owned(), tls: false };
        assert_eq!("nbd+unix:///v?socket=/run/z%20c".parse(), Ok(unix.clone()));
        assert_eq!("nbd+unix:///v?&socket=/run/z c".parse(), Ok(unix.clone()));
        assert_eq!("nbds://host/a".parse(), Ok(NbdUri { tls: true, ..tcp_uri("host", 10809, "a") }));
        assert_eq!("nbds+unix:///v?socket=/run/z%20c".parse(), Ok(NbdUri { tls: true, ..unix }));
    }

    #[test]
    fn a_socket_path_is_encoded() {
        assert_eq!(of_socket(b"/run/a.sock"), "nbd+unix:///?socket=/run/a.sock");
        assert_eq!(of_socket(b"/run/a b&c#?%\xff"), "nbd+unix:///?socket=/run/a%20b%26c%23%3F%25%FF");
    }

    #[test]
    fn bad_uris_are_refused_with_the_reason() {
        let cases = [
            ("host:10809", "does not start"),
            ("http://host/", "scheme"),
            ("nbdx://host/", "scheme"),
            ("nbds:///x", "host"),
            ("nbds+unix:///x", "socket"),
            ("nbd:///x", "host"),
            ("nbd://:99/x", "host"),
            ("nbd://h:0/x", "port"),
            ("nbd://h:99999/x", "port"),
            ("nbd://h:+9/x", "port"),
            ("nbd://fe80::1/x", "port"),
            ("nbd://[::1/x", "bracket"),
            ("nbd://u@h/x", "user"),
            ("nbd://h/%4", "percent"),
            ("nbd://h/%zz", "percent"),
            ("nbd://h/%ff", "UTF-8"),
            ("nbd://h/%00", "NUL"),
            ("nbd://h/a#b", "fragment"),
            ("nbd://h/x?socket=/s", "nbd+unix"),
            ("nbd+unix:///x", "socket"),
            ("nbd+unix:///x?socket=", "socket"),
            ("nbd+unix:///x?socket=/a&socket=/b", "twice"),
            ("nbd+unix:///x?socket=/a&tls-hostname=b", "only socket=PATH"),
            ("nbd://h/x?tls=on", "only socket=PATH"),
            ("nbd+unix://h/x?socket=/s", "host"),
        ];
        for (uri, reason) in cases {
            let error = uri.parse::<NbdUri>().unwrap_err().to_string();
            assert!(error.contains(reason), "{uri}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_uris_parse_back(export in "[^\0]{0,20}", socket in "[^\0]{1,20}", port in 1_u16.., v6 in any::<bool>(), tls in any::<bool>()) {
            let host = if v6 { "fe80::1" } else { "example.org" };
            let tcp = NbdUri { tls, ..tcp_uri(host, port, &export) };
            prop_assert_eq!(tcp.to_string().parse(), Ok(tcp));
            let unix = NbdUri { endpoint: Endpoint::Unix { socket }, export, tls };
            prop_assert_eq!(unix.to_string().parse(), Ok(unix));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,60}") {
            if let Ok(uri) = text.parse::<NbdUri>() {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
