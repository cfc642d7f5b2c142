//! Certificates of an authority that the test made, by openssl.

use std::path::Path;
use std::process::Command;

use crate::tools::{require_tool, run_ok};

/// Makes `DIR/NAME-cert.pem` and `-key.pem` for a DNS name, signed by the authority in `dir`.
///
/// # Panics
/// A file or certificate cannot be made.
pub fn certificate(dir: &Path, name: &str, dns: &str) {
    let file = |end: &str| dir.join(format!("{name}-{end}.pem")).display().to_string();
    let (ca, ca_key) = (dir.join("ca-cert.pem"), dir.join("ca-key.pem"));
    let subject = format!("/CN={dns}");
    let openssl = |arguments: &[&str]| run_ok(Command::new(require_tool("openssl")).args(arguments));
    let extensions = dir.join(format!("{name}.ext"));
    let text = format!("subjectAltName=DNS:{dns}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(&extensions, text).expect("cannot write the extensions");
    let (key, request, cert) = (file("key"), file("request"), file("cert"));
    openssl(&[
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        &subject,
        "-keyout",
        &key,
        "-out",
        &request,
    ]);
    let (ca, ca_key, ext) =
        (ca.display().to_string(), ca_key.display().to_string(), extensions.display().to_string());
    openssl(&[
        "x509",
        "-req",
        "-in",
        &request,
        "-CA",
        &ca,
        "-CAkey",
        &ca_key,
        "-CAcreateserial",
        "-days",
        "30",
        "-extfile",
        &ext,
        "-out",
        &cert,
    ]);
}

/// Makes `DIR/ca-cert.pem` and `-key.pem`.
///
/// # Panics
/// A file or certificate cannot be made.
pub fn authority(dir: &Path) {
    std::fs::create_dir_all(dir).expect("cannot make the folder");
    let (key, cert) =
        (dir.join("ca-key.pem").display().to_string(), dir.join("ca-cert.pem").display().to_string());
    run_ok(Command::new(require_tool("openssl")).args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=test authority",
        "-keyout",
        &key,
        "-out",
        &cert,
    ]));
}
