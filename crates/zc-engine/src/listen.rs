//! Listening sockets.
//!
//! Invariants: a Unix socket path in use by a live server is never taken over; one that nobody answers on (left behind
//! by a killed daemon) is replaced. Sockets are removed again at the end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fchmod, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};
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
    path: Option<SocketPath>,
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
            path: None,
        })
    }

    pub(crate) fn unix(path: &Path) -> Result<Self, EngineError> {
        let (listener, guard) = bind_unix(path)?;
        let address = format!("nbd+unix:///?socket={}", path.display());
        let fd = Arc::new(OwnedFd::from(listener));
        Ok(Self { fd, is_tcp: false, address, path: Some(guard) })
    }
}

/// Gives a listening socket a longer queue: a flood of clients must not keep others from getting into it.
fn lengthen(socket: &impl AsFd) {
    if let Err(errno) = listen(socket, BACKLOG) {
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

impl Listener {
    /// Takes a socket over that somebody else listens on for us, such as a service manager.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<Self, EngineError> {
        let fail = |what: &str| EngineError::Refused(format!("a passed socket is of no use: {what}"));
        if !sockopt::socket_acceptconn(&fd).unwrap_or(false) {
            return Err(fail("it does not listen for connections"));
        }
        let address = getsockname(&fd).map_err(|errno| fail(&errno.to_string()))?;
        let ip = SocketAddr::try_from(address.clone()).ok();
        let unix = SocketAddrUnix::try_from(address).ok();
        let address = match (ip, unix.as_ref().and_then(SocketAddrUnix::path)) {
            (Some(address), _) => format!("nbd://{address}"),
            (None, Some(path)) => format!("nbd+unix:///?socket={}", path.to_string_lossy()),
            (None, None) => "a passed socket".to_owned(),
        };
        let blocking = fcntl_getfl(&fd).and_then(|flags| fcntl_setfl(&fd, flags - OFlags::NONBLOCK));
        blocking.map_err(|errno| fail(&errno.to_string()))?;
        Ok(Self { fd: Arc::new(fd), is_tcp: ip.is_some(), address, path: None })
    }

    /// Says who may connect, if this is a Unix socket of ours.
    pub(crate) fn set_access(&self, mode: u32, group: Option<u32>) -> Result<(), EngineError> {
        let Some(SocketPath(path)) = &self.path else { return Ok(()) };
        let fail =
            |source| EngineError::io(format!("cannot set mode and group of {}", path.display()), source);
        std::os::unix::fs::chown(path, None, group).map_err(fail)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(fail)
    }
}

/// The number of a group, given by name or number.
pub(crate) fn group_id(group: &str) -> Result<u32, EngineError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let file = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let found = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = (fields.next() == Some(group)).then(|| fields.nth(1)).flatten();
        number.and_then(|number| number.parse().ok())
    });
    found.ok_or_else(|| EngineError::Refused(format!("nbd.unix_group: there is no group \"{group}\" here")))
}

/// Binds a Unix socket that only its owner may use, replacing one that nobody answers on.
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
    let listener = listen_privately(path).map_err(fail)?;
    Ok((listener, SocketPath(path.to_owned())))
}

/// Listens on a socket that nobody but its owner may connect to: from the beginning, whatever the umask. A socket's
/// mode before it is bound is what its file gets.
fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    listen(&fd, BACKLOG)?;
    Ok(fd.into())
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
    fn passed_sockets_are_taken_if_they_listen() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let address = format!("nbd://{}", tcp.local_addr().unwrap());
        let listener = Listener::adopt(tcp.into()).unwrap();
        assert_eq!((listener.address, listener.is_tcp), (address, true));
        assert!(!fcntl_getfl(&*listener.fd).unwrap().contains(OFlags::NONBLOCK));
        let (one, _two) = UnixStream::pair().unwrap();
        assert!(Listener::adopt(one.into()).unwrap_err().is_refusal());
    }

    #[test]
    fn unix_sockets_get_their_mode_and_groups_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let listener = Listener::unix(&path).unwrap();
        let own = rustix::process::getgid().as_raw();
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600, "from the beginning");
        listener.set_access(0o640, Some(own)).unwrap();
        assert_eq!(mode(), 0o640);
        assert_eq!((group_id("root").unwrap(), group_id("17").unwrap()), (0, 17));
        assert!(group_id("no such group").unwrap_err().is_refusal());
    }

    #[test]
    fn tcp_tells_the_port_it_got() {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.address.rsplit_once(':').unwrap().1;
        assert_ne!(port.parse::<u16>().unwrap(), 0);
    }
}
