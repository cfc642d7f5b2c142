//! Certificates, keys and revocation lists in PEM files.
//!
//! Job: read them for both ends of TLS: clients of the daemon (`front/tls`), and servers of remote origins
//! (`origin/remote/tls`).
//!
//! Invariants: a read ends at [`TLS_FILE_BYTES_MAX`], and an error names the file.

use std::io;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zc_config::SmallFile;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::TLS_FILE_BYTES_MAX;

/// The error that a file of TLS is of no use.
pub(crate) fn refused(path: &Path, what: &str) -> EngineError {
    EngineError::refused(Refusal::Tls { path: path.to_owned(), what: what.to_owned() })
}

fn cannot_read(path: &Path, what: &str, error: &io::Error) -> EngineError {
    refused(path, &format!("{what} cannot be read: {error}"))
}

/// All the PEM parts of one kind in a file. `what` names them in errors.
pub(crate) fn parts<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, EngineError> {
    let file = SmallFile::read(path, TLS_FILE_BYTES_MAX).map_err(|error| cannot_read(path, what, &error))?;
    let parts: Result<Vec<T>, _> = T::pem_slice_iter(&file.bytes).collect();
    let parts = parts.map_err(|error| refused(path, &format!("{what} cannot be read: {error}")))?;
    if parts.is_empty() {
        return Err(refused(path, &format!("{what} cannot be read: there are none in PEM form")));
    }
    Ok(parts)
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EngineError> {
    parts(path, "the certificates")
}

/// The private key in a file, which the configuration names by `setting`. Warns if others may read or change it.
pub(crate) fn private_key(path: &Path, setting: &str) -> Result<PrivateKeyDer<'static>, EngineError> {
    let file = SmallFile::read(path, TLS_FILE_BYTES_MAX)
        .map_err(|error| cannot_read(path, "the private key", &error))?;
    if let Some(warning) = exposed(path, setting, file.mode) {
        tracing::warn!("{warning}");
    }
    PrivateKeyDer::from_pem_slice(&file.bytes)
        .map_err(|error| refused(path, &format!("the private key cannot be read: {error}")))
}

/// Returns a warning if a private key may be read or changed by users who should not. A group may read it, as with
/// Debian's `ssl-cert`.
fn exposed(key: &Path, setting: &str, mode: u32) -> Option<String> {
    let place = key.display();
    (mode & 0o027 != 0).then(|| {
        format!(
            "{setting}: {place} has mode {mode:04o}, so other users may read or change it; type `chmod 0600 {place}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_are_refused_and_a_key_that_others_may_read_is_reported() {
        for path in ["/dev/zero", "/nonexistent"] {
            let error = certificates(Path::new(path)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}: the certificates cannot be read")), "{error}");
        }
        let warned = |mode| exposed(Path::new("/k"), "nbd.tls_key", mode).is_some();
        assert_eq!([0o600, 0o400, 0o640].map(warned), [false; 3]);
        assert_eq!([0o644, 0o660, 0o602].map(warned), [true; 3]);
    }
}
