//! A certificate for servers under test, made by openssl.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// File of the certificate in the folder that it was made in.
pub(crate) fn certificate(dir: &Path) -> PathBuf {
    dir.join("cert.pem")
}

/// File of its key.
pub(crate) fn key(dir: &Path) -> PathBuf {
    dir.join("key.pem")
}

/// Makes a certificate of 127.0.0.1 that signs itself, good for a day, with such a key, as openssl names it.
pub(crate) fn make(dir: &Path, key_kind: &str) -> anyhow::Result<()> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", key_kind, "-nodes", "-days", "1", "-subj", "/CN=localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=IP:127.0.0.1"])
        .arg("-keyout")
        .arg(key(dir))
        .arg("-out")
        .arg(certificate(dir))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("openssl is needed for a certificate")?;
    ensure!(made.success(), "openssl makes no certificate");
    Ok(())
}
