//! TLS for the suite's connections.
//!
//! Invariant: any server certificate is accepted. The suite judges the protocol, over a channel that need not be
//! private; its caller is responsible for the server's identity.
//!
//! It does not present a certificate of its own.

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Creates a client that supports only these versions, before its handshake; `asked` is set when the server requests a
/// certificate.
pub(crate) fn client(
    versions: &[&'static SupportedProtocolVersion],
    asked: &Arc<AtomicBool>,
) -> Result<ClientConnection, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let any = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_client_cert_resolver(Arc::new(NoCertificate(Arc::clone(asked))));
    let name = ServerName::try_from("localhost").map_err(|error| Error::General(error.to_string()))?;
    ClientConnection::new(Arc::new(config), name)
}

/// Takes any certificate, and any signature that its key did not even have to make.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Has no certificate, and records a request for one.
#[derive(Debug)]
struct NoCertificate(Arc<AtomicBool>);

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Returns the hello of a client that supports TLS 1.1 and nothing newer.
pub(crate) fn old_hello() -> Vec<u8> {
    const SUITES: [u16; 7] = [0xc014, 0xc013, 0xc00a, 0xc009, 0x0035, 0x002f, 0x00ff];
    /// Groups (x25519, P-256) and point formats (uncompressed).
    const EXTENSIONS: [u8; 16] = [0, 10, 0, 6, 0, 4, 0, 29, 0, 23, 0, 11, 0, 2, 1, 0];
    let mut body = vec![3, 2];
    body.extend([0x5a; 32]);
    body.extend([0, 0, 14]);
    body.extend(SUITES.iter().flat_map(|suite| suite.to_be_bytes()));
    body.extend([1, 0, 0, 16]);
    body.extend(EXTENSIONS);
    let mut hello = vec![1, 0, 0];
    hello.push(u8::try_from(body.len()).unwrap_or(u8::MAX));
    hello.extend(body);
    let mut record = vec![0x16, 3, 1, 0];
    record.push(u8::try_from(hello.len()).unwrap_or(u8::MAX));
    record.extend(hello);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_the_old_hello_are_those_of_what_follows() {
        let hello = old_hello();
        assert_eq!(usize::from(hello[4]), hello.len() - 5);
        assert_eq!(usize::from(hello[8]), hello.len() - 9);
    }
}
