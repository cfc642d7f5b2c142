//! The stub's side of TLS.

use super::{Pipe, Rules};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// The type of a record that carries a handshake.
const HANDSHAKE: u8 = 0x16;

/// TLS 1.2 and 1.3.
pub(super) fn both_versions() -> Arc<ServerConfig> {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| Arc::new(config(rustls::ALL_VERSIONS))))
}

/// TLS 1.3 only.
pub(super) fn newest_version() -> Arc<ServerConfig> {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| Arc::new(config(&[&rustls::version::TLS13]))))
}

fn config(versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    let (key, certificate) = keys();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// A key and a certificate that it signed itself.
fn keys() -> (PrivateKeyDer<'static>, CertificateDer<'static>) {
    let folder = tempfile::tempdir().unwrap();
    let (key, certificate) = (folder.path().join("key.pem"), folder.path().join("certificate.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-days", "30", "-subj", "/CN=localhost"]);
    let made = openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(made.status.success(), "openssl makes no certificate: {}", String::from_utf8_lossy(&made.stderr));
    (PrivateKeyDer::from_pem_file(key).unwrap(), CertificateDer::from_pem_file(certificate).unwrap())
}

/// The handshake; `None` if it fails.
pub(super) fn start(pipe: &mut Pipe, rules: &Rules) -> Option<()> {
    if rules.tls_old {
        // The part of a reply that the suite checks.
        pipe.read(1)?;
        pipe.write(&[HANDSHAKE])?;
        return None;
    }
    let mut server = Box::new(ServerConnection::new((rules.tls_config)()).unwrap());
    while server.is_handshaking() {
        server.complete_io(&mut pipe.stream).ok()?;
    }
    pipe.tls = Some(server);
    Some(())
}
