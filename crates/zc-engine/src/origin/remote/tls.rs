//! TLS of connections to servers, with rustls.
//!
//! Job: read the authorities, the certificate and the key of an origin ([`TlsSettings`]), and stand between a socket and
//! the bytes of a session ([`TlsLayer`]).
//!
//! Invariants: TLS 1.2 or later. The server's certificate must be signed by one of the authorities, and bear the server's
//! name. The files are read for each connection, so a renewed certificate needs no reload. The buffers of a
//! layer are bounded: about one record of input, and 64 KiB of output.
//!
//! Out of scope: revocation, and resumed sessions.

use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use zc_config::{OriginTls, SYSTEM_AUTHORITIES};
use zc_nbd::uri::{Endpoint, NbdUri};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::pem::{self, refused};

/// Name of a server behind a Unix socket, unless the configuration has one.
const LOCAL_NAME: &str = "localhost";

/// Settings of a connection, from the files as they are now.
#[derive(Debug, Clone)]
pub(crate) struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or is of no use, or the server has no name that a certificate can bear.
    pub(crate) fn load(uri: &NbdUri, tls: &OriginTls) -> Result<Self, EngineError> {
        let name = match (&tls.server_name, &uri.endpoint) {
            (Some(name), _) => name.as_str(),
            (None, Endpoint::Tcp { host, .. }) => host.as_str(),
            (None, Endpoint::Unix { .. }) => LOCAL_NAME,
        };
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            let why = format!("\"{name}\" is no name that a certificate has; set origin_tls.server_name");
            EngineError::refused(Refusal::RemoteOrigin { origin: uri.to_string(), why })
        })?;
        let (path, roots) = authorities(tls.ca.as_deref())?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&path, &format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots);
        let config = match (&tls.certificate, &tls.key) {
            (Some(certificate), Some(key)) => builder
                .with_client_auth_cert(
                    pem::certificates(certificate)?,
                    pem::private_key(key, "origin_tls.key")?,
                )
                .map_err(|error| {
                    refused(certificate, &format!("certificate and key are of no use: {error}"))
                })?,
            _ => builder.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// A layer that begins the handshake.
    pub(crate) fn layer(&self) -> io::Result<TlsLayer> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let connection = Box::new(connection.map_err(io::Error::other)?);
        Ok(TlsLayer { connection, has_received: false, has_input: false })
    }
}

/// Authorities that may sign the server's certificate, and their file. Those of the system may include some that rustls
/// cannot use.
fn authorities(path: Option<&Path>) -> Result<(PathBuf, RootCertStore), EngineError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = path else {
        let system = SYSTEM_AUTHORITIES.map(Path::new);
        let found = system.iter().find(|path| path.exists()).unwrap_or(&system[0]);
        let (usable, _) = roots.add_parsable_certificates(pem::certificates(found)?);
        if usable == 0 {
            return Err(refused(found, "it has no certificate authority"));
        }
        return Ok((found.to_path_buf(), roots));
    };
    for authority in pem::certificates(path)? {
        roots
            .add(authority)
            .map_err(|error| refused(path, &format!("not a certificate authority: {error}")))?;
    }
    Ok((path.to_owned(), roots))
}

/// TLS between socket and session.
#[derive(Debug)]
pub(crate) struct TlsLayer {
    connection: Box<ClientConnection>,
    /// Bytes of the server were decrypted: it accepts the client.
    has_received: bool,
    /// The last receive filled its buffer, so decrypted bytes may be left.
    has_input: bool,
}

impl TlsLayer {
    /// Receives decrypted bytes. 0: the server closed the connection.
    ///
    /// # Errors
    /// As the socket, which includes that nothing is there; or the server's certificate is not accepted, or the server
    /// refuses the client.
    pub(crate) fn receive(&mut self, from: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        let received = self.decrypt(from, into);
        match received {
            Ok(bytes @ 1..) => {
                self.has_received = true;
                Ok(bytes)
            }
            Ok(0) if !self.has_received => Err(Self::ended("it closed the connection")),
            Err(error) if !self.has_received && error.kind() == io::ErrorKind::ConnectionReset => {
                Err(Self::ended(&error.to_string()))
            }
            other => other,
        }
    }

    /// With TLS 1.3 a client has finished its handshake when the server checks its certificate.
    fn ended(how: &str) -> io::Error {
        io::Error::other(format!(
            "the server ended TLS in its handshake: {how}; it may require another origin_tls.certificate"
        ))
    }

    fn decrypt(&mut self, from: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        self.has_input = false;
        loop {
            match self.connection.reader().read(&mut into[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A killed server sends no closure alert.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(filled),
                Err(error) => return Err(error),
            }
            if filled == into.len() {
                self.has_input = true;
                return Ok(filled);
            }
            match self.connection.read_tls(from) {
                Err(error) if filled > 0 && error.kind() == io::ErrorKind::WouldBlock => return Ok(filled),
                Ok(0) => return Ok(filled),
                received => received?,
            };
            if let Err(error) = self.connection.process_new_packets() {
                // The server's log gets the reason.
                let _broken_already = self.send_records(from);
                let text = format!("TLS with the server failed: {error}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
    }

    pub(crate) const fn has_input(&self) -> bool {
        self.has_input
    }

    /// Encrypts pieces and sends as much as the socket takes. Returns the count of bytes that were encrypted.
    ///
    /// # Errors
    /// Sends bytes as the socket does; `None` if it accepts none now.
    pub(crate) fn send(&mut self, into: &mut impl Write, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_records(into)?;
        if pieces.is_empty() {
            return Ok(0);
        }
        let taken = self.connection.writer().write_vectored(pieces)?;
        match self.send_records(into) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    fn send_records(&mut self, into: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(into)?;
        }
        Ok(())
    }

    pub(crate) fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends the TLS closure alert, if the socket accepts it.
    pub(crate) fn close(&mut self, into: &mut impl Write) {
        self.connection.send_close_notify();
        let _broken_already = self.send_records(into);
    }
}
