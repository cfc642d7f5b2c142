//! NBD URIs, as far as a suite on plain sockets needs them.
//!
//! Job: `nbd://HOST[:PORT]/NAME` and `nbd+unix:///NAME?socket=PATH`, with percent escapes.
//!
//! Out of scope: TLS schemes and query parameters other than `socket`; they are refused.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A server and one of its exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// Address of the server.
    pub address: Address,
    /// The export's name; empty for the default export.
    pub export: String,
}

/// Reason why a URI is unsupported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{uri}` is no NBD URI that this suite can use: {why}")]
pub struct UriError {
    uri: String,
    why: &'static str,
}

/// The port that is registered for NBD.
const NBD_PORT: u16 = 10_809;

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        let fail = |why| UriError { uri: uri.to_owned(), why };
        if let Some(rest) = uri.strip_prefix("nbd+unix://") {
            let (path, query) = rest.split_once('?').ok_or_else(|| fail("no `?socket=PATH`"))?;
            let socket =
                query.strip_prefix("socket=").ok_or_else(|| fail("the only parameter known is `socket`"))?;
            let socket = unescape(socket).ok_or_else(|| fail("a percent escape is broken"))?;
            let name = path.strip_prefix('/').ok_or_else(|| fail("a Unix socket has no host"))?;
            let export = unescape(name).ok_or_else(|| fail("a percent escape is broken"))?;
            return Ok(Self { address: Address::Unix(socket.into()), export });
        }
        let rest = uri.strip_prefix("nbd://").ok_or_else(|| fail("it begins with nbd:// or nbd+unix://"))?;
        if rest.contains('?') {
            return Err(fail("parameters are not known for TCP"));
        }
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let export = unescape(name).ok_or_else(|| fail("a percent escape is broken"))?;
        let (host, port) = split_port(host).ok_or_else(|| fail("the port is no number"))?;
        if host.is_empty() {
            return Err(fail("no host"));
        }
        Ok(Self { address: Address::Tcp(host.to_owned(), port), export })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(host, port) => write!(f, "nbd://{host}:{port}/{}", self.export),
            Address::Unix(path) => write!(f, "nbd+unix:///{}?socket={}", self.export, path.display()),
        }
    }
}

/// Host and port; an IPv6 address stands in brackets, which are dropped.
fn split_port(host: &str) -> Option<(&str, u16)> {
    if let Some(rest) = host.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = if port.is_empty() { NBD_PORT } else { port.strip_prefix(':')?.parse().ok()? };
        return Some((host, port));
    }
    match host.split_once(':') {
        None => Some((host, NBD_PORT)),
        Some((host, port)) => Some((host, port.parse().ok()?)),
    }
}

/// Resolves percent escapes.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(rest.next()?)? * 16 + digit(rest.next()?)?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Uri {
        Uri { address: Address::Tcp(host.to_owned(), port), export: export.to_owned() }
    }

    #[test]
    fn the_usual_forms_are_read() {
        assert_eq!("nbd://box".parse(), Ok(tcp("box", 10_809, "")));
        assert_eq!("nbd://box:1/a%20b".parse(), Ok(tcp("box", 1, "a b")));
        assert_eq!("nbd://[::1]:77/x".parse(), Ok(tcp("::1", 77, "x")));
        let unix = Uri { address: Address::Unix("/tmp/s".into()), export: "d".to_owned() };
        assert_eq!("nbd+unix:///d?socket=/tmp/s".parse(), Ok(unix.clone()));
        assert_eq!(unix.to_string().parse(), Ok(unix));
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        for bad in
            ["nbds://x", "nbd://", "nbd://x:y/", "nbd+unix://h/?socket=/s", "nbd+unix:///d", "nbd://x/%4"]
        {
            assert!(bad.parse::<Uri>().is_err(), "{bad}");
        }
    }
}
