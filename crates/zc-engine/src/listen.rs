//! Listening sockets.
//!
//! Invariants: a Unix socket path in use by a live server is never taken over; one that nobody answers on (left behind
//! by a killed daemon) is replaced. Sockets are removed again at the end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zc_io::SharedFd;

use crate::error::EngineError;
use crate::limits::{BACKLOG, OTHER_DESCRIPTORS};

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) fd: SharedFd,
    pub(crate) is_tcp: bool,
    /// As an NBD URI, with the port that a TCP socket got.
    pub(crate) address: String,
    /// Removed when the listener goes.
    _path: Option<SocketPath>,
}

/// A Unix socket's path, removed on drop.
#[derive(Debug)]
pub(crate) struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        // Gone already is as good.
        drop(std::fs::remove_file(&self.0));
    }
}

impl Listener {
    pub(crate) fn tcp(address: SocketAddr) -> Result<Self, EngineError> {
        let listener = TcpListener::bind(address)
            .map_err(|source| EngineError::io(format!("cannot listen on {address}"), source))?;
        let bound = listener.local_addr().unwrap_or(address);
        lengthen(&listener);
        Ok(Self {
            fd: Arc::new(OwnedFd::from(listener)),
            is_tcp: true,
            address: format!("nbd://{bound}"),
            _path: None,
        })
    }

    pub(crate) fn unix(path: &Path) -> Result<Self, EngineError> {
        let (listener, guard) = bind_unix(path)?;
        let address = format!("nbd+unix:///?socket={}", path.display());
        lengthen(&listener);
        let fd = Arc::new(OwnedFd::from(listener));
        Ok(Self { fd, is_tcp: false, address, _path: Some(guard) })
    }
}

/// Gives a listening socket a longer queue: a flood of clients must not keep others from getting into it.
fn lengthen(listener: &impl AsFd) {
    if let Err(errno) = rustix::net::listen(listener, BACKLOG) {
        tracing::debug!("the queue of a listening socket stays short: {errno}");
    }
}

/// Raises the bound of open files as far as the system allows, and says so if it is less than connections may take.
pub(crate) fn raise_descriptor_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = setrlimit(Resource::Nofile, raised).map_or(limit.current, |()| limit.maximum);
    let wanted = zc_core::u64_from_usize(connections) + OTHER_DESCRIPTORS;
    if let Some(most) = now.filter(|most| *most < wanted) {
        tracing::warn!(
            "{most} files may be open at once (RLIMIT_NOFILE), {connections} connections need {wanted}; \
             further ones will wait"
        );
    }
}

/// Binds a Unix socket, replacing one that nobody answers on.
pub(crate) fn bind_unix(path: &Path) -> Result<(UnixListener, SocketPath), EngineError> {
    let fail = |source| EngineError::io(format!("cannot listen on {}", path.display()), source);
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            let text = format!("cannot listen on {}: there is something that is no socket", path.display());
            return Err(EngineError::Refused(text));
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(fail)?;
            }
            _ => {
                let text = format!("cannot listen on {}: another server does already", path.display());
                return Err(EngineError::InUse(text));
            }
        }
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(fail)?;
    }
    let listener = UnixListener::bind(path).map_err(fail)?;
    Ok((listener, SocketPath(path.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_left_alone_and_a_stale_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/nbd.sock");
        let first = Listener::unix(&path).unwrap();
        assert!(Listener::unix(&path).unwrap_err().to_string().contains("another server"));
        drop(first);
        assert!(!path.exists(), "removed at the end");
        // What a killed daemon leaves behind: a socket file without a listener.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path).unwrap());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::unix(&path).unwrap_err().is_refusal());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }

    #[test]
    fn tcp_tells_the_port_it_got() {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.address.rsplit_once(':').unwrap().1;
        assert_ne!(port.parse::<u16>().unwrap(), 0);
    }
}
