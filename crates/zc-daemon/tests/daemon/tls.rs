//! Clients whose bytes come over TLS.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use zc_daemon::Daemon;

use crate::raw::{choose, greet, header, raw};
use crate::rig::Rig;

/// Time-out of a test for expected bytes.
const PATIENCE: Duration = Duration::from_secs(20);

type Secured = StreamOwned<ClientConnection, UnixStream>;

fn testdata(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../zc-engine/testdata").join(name).display().to_string()
}

/// A rig that offers TLS and has all the patience there is.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.nbd = format!(
        "tls = \"required\"\ntls_certificate = \"{}\"\ntls_key = \"{}\"\nstall_timeout = \"1 h\"",
        testdata("cert.pem"),
        testdata("key.pem")
    );
    rig
}

/// A connection over TLS that is through with the handshake.
fn secured(rig: &Rig) -> Secured {
    let certificate = CertificateDer::from_pem_file(testdata("cert.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut stream = raw(rig);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    greet(&mut stream);
    stream.write_all(b"IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
    let mut acknowledged = [0; 20];
    stream.read_exact(&mut acknowledged).unwrap();
    let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(client, stream);
    choose(&mut stream);
    stream
}

/// Waits until the server has released every connection and its memory.
fn wait_until_released(daemon: &Daemon) {
    while !daemon.registry().connections.is_empty() {
        // A turn of the data plane.
        let _turn = daemon.stats().unwrap();
    }
    assert_eq!(daemon.stats().unwrap().driver.payload_bytes, 0);
}

/// A connection that stopped within the payload of a WRITE of 1 MiB, which the server waits for.
fn halfway(rig: &Rig, daemon: &Daemon) -> Secured {
    let mut stream = secured(rig);
    stream.write_all(&[&header(1, 9, 0, 1 << 20)[..], &[1; 4096]].concat()).unwrap();
    while daemon.stats().unwrap().driver.payload_bytes == 0 {}
    stream
}

#[test]
fn a_goodbye_within_a_write_ends_it_at_once() {
    let rig = rig();
    let daemon = rig.start(&["v"]);
    // The socket stays open: only the TLS close reaches the server.
    let mut stream = halfway(&rig, &daemon);
    stream.conn.send_close_notify();
    stream.conn.complete_io(&mut stream.sock).unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "a goodbye, and no reply");
    wait_until_released(&daemon);
    // Together with the last bytes, and with the end of the stream behind it.
    let mut stream = halfway(&rig, &daemon);
    stream.conn.writer().write_all(&[2; 4096]).unwrap();
    stream.conn.send_close_notify();
    let mut bytes = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut bytes).unwrap();
    }
    stream.sock.write_all(&bytes).unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
    wait_until_released(&daemon);
    assert!(daemon.stop().unwrap());
    assert!(
        std::fs::read(rig.path("v.img")).unwrap().iter().all(|&byte| byte == 0),
        "half a write is no write"
    );
}

#[test]
fn a_cut_wire_within_a_write_ends_it_at_once() {
    let rig = rig();
    let daemon = rig.start(&["v"]);
    let mut stream = halfway(&rig, &daemon);
    stream.sock.shutdown(Shutdown::Write).unwrap();
    stream.sock.read_to_end(&mut Vec::new()).unwrap();
    wait_until_released(&daemon);
    // The same behind a goodbye.
    let mut stream = halfway(&rig, &daemon);
    stream.conn.send_close_notify();
    stream.conn.complete_io(&mut stream.sock).unwrap();
    stream.sock.shutdown(Shutdown::Write).unwrap();
    stream.sock.read_to_end(&mut Vec::new()).unwrap();
    wait_until_released(&daemon);
    assert!(daemon.stop().unwrap());
}

#[test]
fn bytes_that_are_no_tls_within_a_write_end_it_at_once() {
    let rig = rig();
    let daemon = rig.start(&["v"]);
    let mut stream = halfway(&rig, &daemon);
    stream.sock.write_all(&[0x47; 512]).unwrap();
    stream.sock.read_to_end(&mut Vec::new()).unwrap();
    wait_until_released(&daemon);
    assert!(daemon.stop().unwrap());
}

#[test]
fn what_was_asked_before_a_goodbye_is_answered() {
    let rig = rig();
    let daemon = rig.start(&["v"]);
    let mut stream = secured(&rig);
    // A read, and a write that is cut off, in one piece with the goodbye.
    stream.conn.writer().write_all(&header(0, 7, 0, 512)).unwrap();
    stream.conn.writer().write_all(&header(1, 8, 0, 1 << 20)).unwrap();
    stream.conn.send_close_notify();
    let mut bytes = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut bytes).unwrap();
    }
    stream.sock.write_all(&bytes).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    assert_eq!(replies.len(), 16 + 512, "the read's reply and a goodbye");
    assert_eq!(replies[8..16], 7_u64.to_be_bytes());
    wait_until_released(&daemon);
    assert!(daemon.stop().unwrap());
}
