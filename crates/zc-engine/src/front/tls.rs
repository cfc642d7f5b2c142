//! TLS of client connections, with rustls.
//!
//! Job: read certificate, key, client authority and revocation lists from their files ([`load`]), and translate
//! between a socket's bytes and a session's (`TlsLayer`): no sockets, bytes in and bytes out.
//!
//! Invariants: TLS 1.2 or later. With a client authority every client must present a certificate signed by it; a
//! client's names are the DNS names of that certificate, and nothing else. With revocation lists each certificate of
//! the client's chain must be absent from the list of its authority, and that list must exist. A layer buffers at most
//! one record of input beyond its latest input, and the driver's output. A connection does not outlive the settings
//! that admitted it: `Tls::refuses` finds those that new settings would refuse. With a client authority no session
//! is resumed, because a resumption would skip the check of the certificate, which may have expired.
//!
//! It does not fetch revocation lists, check their next update, or encrypt in the kernel.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateRevocationListDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use webpki::EndEntityCert;
use zc_config::NbdConfig;
use zc_io::Segment;
use zc_nbd::server::TlsMode;

use crate::error::EngineError;
use crate::pem::{self, refused};

/// TLS settings of connections.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    pub(crate) mode: TlsMode,
    /// `None` if TLS is off.
    config: Option<Arc<ServerConfig>>,
    /// The check of client certificates; `None` if clients show none.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// Reads the files of `[nbd]`.
///
/// # Errors
/// When a file is unreadable or not PEM, or key and certificate do not match.
pub fn load(nbd: &NbdConfig) -> Result<Tls, EngineError> {
    let mode = match nbd.tls {
        zc_config::Tls::Off => return Ok(Tls::default()),
        zc_config::Tls::Allowed => TlsMode::Allowed,
        zc_config::Tls::Required => TlsMode::Required,
    };
    let (Some(certificate), Some(key)) = (&nbd.tls_certificate, &nbd.tls_key) else {
        unreachable!("the configuration demands both")
    };
    let chain = pem::certificates(certificate)?;
    let private = pem::private_key(key, "nbd.tls_key")?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(certificate, &format!("TLS cannot be set up: {error}")))?;
    let clients = match &nbd.tls_client_ca {
        None => None,
        Some(path) => Some(verifier(path, nbd.tls_client_crl.as_deref(), provider)?),
    };
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
    };
    let mut config = builder
        .with_single_cert(chain, private)
        .map_err(|error| refused(certificate, &format!("certificate and key are of no use: {error}")))?;
    if clients.is_some() {
        // Sessions by identifier (TLS 1.2) and by ticket (TLS 1.3).
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Tls { mode, config: Some(Arc::new(config)), clients })
}

/// Returns a verifier of client certificates against authorities and revocation lists in files.
fn verifier(
    path: &Path,
    lists: Option<&Path>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, EngineError> {
    let mut roots = RootCertStore::empty();
    for authority in pem::certificates(path)? {
        roots
            .add(authority)
            .map_err(|error| refused(path, &format!("not a certificate authority: {error}")))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(lists) = lists {
        builder = builder
            .with_crls(pem::parts::<CertificateRevocationListDer<'static>>(lists, "the revocation lists")?);
    }
    builder.build().map_err(|error| match (error, lists) {
        (VerifierBuilderError::InvalidCrl(error), Some(lists)) => {
            refused(lists, &format!("not a revocation list: {error:?}"))
        }
        (error, _) => refused(path, &format!("clients cannot be verified: {error}")),
    })
}

impl Tls {
    /// Returns a layer for a connection whose client requested TLS; `None` without TLS.
    pub(crate) fn layer(&self) -> Option<TlsLayer> {
        let config = Arc::clone(self.config.as_ref()?);
        let mut connection = ServerConnection::new(config).ok()?;
        // Output is bounded by the driver, as for plain connections.
        connection.set_buffer_limit(None);
        Some(TlsLayer { connection: Box::new(connection), is_over: false })
    }

    /// Returns the reason why these settings would refuse an existing connection: TLS was switched on or off, or its
    /// certificate is no longer valid.
    pub(crate) fn refuses(&self, layer: Option<&TlsLayer>) -> Option<String> {
        let Some(layer) = layer else {
            return (self.mode == TlsMode::Required).then(|| "TLS is required now".to_owned());
        };
        if self.config.is_none() {
            return Some("TLS is now off".to_owned());
        }
        let clients = self.clients.as_ref()?;
        let Some([own, between @ ..]) = layer.connection.peer_certificates() else {
            return Some("clients must show a certificate now".to_owned());
        };
        let verified = clients.verify_client_cert(own, between, UnixTime::now());
        verified.err().map(|error| format!("its certificate is no longer valid: {error}"))
    }
}

/// TLS between socket and session.
#[derive(Debug)]
pub(crate) struct TlsLayer {
    connection: Box<ServerConnection>,
    /// The client closed the session.
    is_over: bool,
}

/// Result of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) plain_bytes: usize,
    /// The client closed the session: no data will follow.
    pub(crate) is_over: bool,
}

/// Most bytes to which records decrypt beyond the bytes received at once: a record that began earlier.
pub(crate) const RECORD_BYTES_MAX: usize = 32 << 10;

impl TlsLayer {
    /// Processes received bytes and writes the plain text to the start of `plain`. Bytes after the client's close are
    /// ignored.
    ///
    /// # Errors
    /// When they are not TLS, or the client's certificate is refused. [`Self::take_output`] then returns an alert.
    pub(crate) fn receive(&mut self, mut received: &[u8], plain: &mut [u8]) -> io::Result<Received> {
        let mut result = Received { plain_bytes: 0, is_over: self.is_over };
        while !received.is_empty() && !result.is_over {
            self.connection.read_tls(&mut received)?;
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            result.plain_bytes += self.drain(&mut plain[result.plain_bytes..])?;
            result.is_over = state.peer_has_closed();
        }
        self.is_over = result.is_over;
        Ok(result)
    }

    fn drain(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            if filled == plain.len() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is too long"));
            }
            match self.connection.reader().read(&mut plain[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(filled),
                // The end without a goodbye; the socket's own end follows.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(filled),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns `true` if the client has closed the session: no data will follow.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns `true` if the handshake is through.
    pub(crate) fn is_up(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// The DNS names in the client's certificate.
    pub(crate) fn names(&self) -> Vec<String> {
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        let parsed = certificate.and_then(|certificate| EndEntityCert::try_from(certificate).ok());
        parsed.map_or_else(Vec::new, |parsed| parsed.valid_dns_names().map(str::to_owned).collect())
    }

    pub(crate) fn encrypt(&mut self, segments: &[Segment]) {
        let mut writer = self.connection.writer();
        for segment in segments {
            let written = writer.write_all(segment.bytes());
            assert!(written.is_ok(), "a layer without a bound takes everything: {written:?}");
        }
    }

    /// Returns `true` if the layer has something of its own to send: handshake, alerts.
    pub(crate) fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Everything there is to send.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.connection.wants_write() {
            let written = self.connection.write_tls(&mut output);
            assert!(written.is_ok(), "memory takes everything: {written:?}");
        }
        output
    }
}

/// Layers for tests of this crate.
#[cfg(test)]
pub(crate) mod tests_support {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use super::*;

    pub(crate) const CERTIFICATE: &[u8] = include_bytes!("../../testdata/cert.pem");
    pub(crate) const KEY: &[u8] = include_bytes!("../../testdata/key.pem");

    /// A server's layer that has seen nothing yet.
    pub(crate) fn layer() -> TlsLayer {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(KEY).unwrap())
            .unwrap();
        Tls { mode: TlsMode::Allowed, config: Some(Arc::new(server)), clients: None }.layer().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::tests_support::{CERTIFICATE, KEY, layer};
    use super::*;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, SupportedProtocolVersion};

    /// A client and a layer that have shaken hands.
    fn connected() -> (ClientConnection, TlsLayer) {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut layer = layer();
        let client = shake_hands(Arc::new(client), &mut layer);
        (client, layer)
    }

    fn shake_hands(config: Arc<ClientConfig>, layer: &mut TlsLayer) -> ClientConnection {
        let mut client = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        while client.is_handshaking() || !layer.is_up() {
            let sent = sent(&mut client);
            assert_eq!(layer.receive(&sent, &mut [0; 64]).unwrap().plain_bytes, 0);
            let output = layer.take_output();
            let mut output = &output[..];
            while !output.is_empty() {
                client.read_tls(&mut output).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        client
    }

    /// Performs two handshakes of a client that resumes its session if allowed, and presents a certificate if
    /// requested.
    fn handshakes(tls: &Tls, version: &'static SupportedProtocolVersion) -> [HandshakeKind; 2] {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], PrivateKeyDer::from_pem_slice(KEY).unwrap())
            .unwrap();
        let client = Arc::new(client);
        [(); 2].map(|()| {
            let mut layer = tls.layer().unwrap();
            let _client = shake_hands(Arc::clone(&client), &mut layer);
            assert_eq!(layer.connection.peer_certificates().is_some(), tls.clients.is_some());
            layer.connection.handshake_kind().unwrap()
        })
    }

    #[test]
    fn certificates_of_clients_are_checked_at_each_connection() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&certificate, CERTIFICATE).unwrap();
        std::fs::write(&key, KEY).unwrap();
        let tls = |client_ca: &str| {
            let text = format!(
                "[cache]\npath = \"/srv/c\"\n[nbd]\ntls = \"required\"\ntls_certificate = \"{}\"\n\
                 tls_key = \"{}\"\n{client_ca}[[volume]]\nname = \"v\"\norigin = \"/srv/v\"\n",
                certificate.display(),
                key.display()
            );
            load(&zc_config::Config::parse(&text, "test.toml").unwrap().nbd).unwrap()
        };
        let client_ca = format!("tls_client_ca = \"{}\"\n", certificate.display());
        for version in [&TLS12, &TLS13] {
            let unnamed = handshakes(&tls(""), version);
            assert_eq!(unnamed, [HandshakeKind::Full, HandshakeKind::Resumed], "{version:?}");
            let named = handshakes(&tls(&client_ca), version);
            assert_eq!(named, [HandshakeKind::Full; 2], "{version:?}");
        }
    }

    fn sent(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn what_comes_behind_a_goodbye_is_ignored() {
        let mut plain = vec![0; RECORD_BYTES_MAX];
        for (more, later) in [(0, 1), (8192, 0), (8192, 8192)] {
            let (mut client, mut layer) = connected();
            client.writer().write_all(b"last").unwrap();
            client.send_close_notify();
            let bytes = [sent(&mut client), vec![0x17; more]].concat();
            assert_eq!(
                layer.receive(&bytes, &mut plain).unwrap(),
                Received { plain_bytes: 4, is_over: true }
            );
            assert_eq!(&plain[..4], b"last");
            let after = layer.receive(&vec![0x17; later], &mut plain).unwrap();
            assert_eq!(after, Received { plain_bytes: 0, is_over: true });
        }
    }

    #[test]
    fn bytes_that_are_no_tls_are_an_error() {
        let (_, mut layer) = connected();
        layer.receive(&[0x47; 512], &mut [0; 64]).unwrap_err();
    }
}
