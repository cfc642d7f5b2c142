//! Listening sockets.
//!
//! Invariants: a Unix socket path in use by a live server is never taken over; one that no server answers on (left behind
//! by a killed daemon) is replaced. A Unix socket has its mode and its group before its path exists: it is made in a
//! folder that no other user may enter, and moved. No step waits for another process. Sockets are removed again at the
//! end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, chmodat, chownat, fcntl_getfl, fcntl_setfl, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    sockopt,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zc_io::SharedFd;
use zc_nbd::uri::of_socket;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::{BACKLOG, DESCRIPTORS_MIN, OTHER_DESCRIPTORS};

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    pub(crate) fd: SharedFd,
    pub(crate) is_tcp: bool,
    /// As an NBD URI, with the port that a TCP socket got.
    pub address: String,
    /// Removed with the listener.
    _path: Option<SocketPath>,
}

/// A Unix socket's path, removed on drop.
#[derive(Debug)]
pub struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        // The socket file may be gone already.
        drop(std::fs::remove_file(&self.0));
    }
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn tcp(address: SocketAddr) -> Result<Self, EngineError> {
        let listener = bind_tcp(address)
            .map_err(|source| EngineError::io(format!("cannot listen on {address}"), source))?;
        let bound = listener.local_addr().unwrap_or(address);
        lengthen(&listener);
        Ok(Self { fd: SharedFd::new(listener), is_tcp: true, address: tcp_uri(bound), _path: None })
    }

    /// Listens on a Unix socket, replacing one that no server answers on.
    ///
    /// # Errors
    /// When a server has it, or the path cannot be used.
    pub fn unix(path: &Path, access: Access) -> Result<Self, EngineError> {
        let (listener, guard) = bind_unix(path, access)?;
        let address = of_socket(path.as_os_str().as_bytes());
        let fd = SharedFd::new(listener);
        Ok(Self { fd, is_tcp: false, address, _path: Some(guard) })
    }
}

/// Gives a listening socket a longer queue: a flood of clients must not keep others from getting into it.
fn lengthen(socket: &impl AsFd) {
    if let Err(errno) = listen(socket, BACKLOG) {
        tracing::debug!("the queue of a listening socket stays short: {errno}");
    }
}

/// Raises the limit of open files as far as allowed, and warns if it is below the need of the connections.
///
/// # Errors
/// If it is below the daemon's own need.
pub fn raise_descriptor_limit(connections: usize) -> Result<(), EngineError> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = setrlimit(Resource::Nofile, raised).map_or(limit.current, |()| limit.maximum);
    if let Some(most) = now.filter(|most| *most < DESCRIPTORS_MIN) {
        return Err(EngineError::refused(Refusal::FewDescriptors { most, needed: DESCRIPTORS_MIN }));
    }
    let wanted = zc_core::u64_from_usize(connections) + OTHER_DESCRIPTORS;
    if let Some(most) = now.filter(|most| *most < wanted) {
        tracing::warn!(
            "{most} files may be open at once (RLIMIT_NOFILE), {connections} connections need {wanted}; \
             further ones will wait"
        );
    }
    Ok(())
}

impl Listener {
    /// Adopts a socket on which another program, such as a service manager, listens for the daemon.
    pub fn adopt(fd: OwnedFd) -> Result<Self, EngineError> {
        let fail = |errno| EngineError::io("a passed socket is of no use", errno);
        if !sockopt::socket_acceptconn(&fd).unwrap_or(false) {
            return Err(EngineError::refused(Refusal::NotListening));
        }
        let address = getsockname(&fd).map_err(fail)?;
        let ip = SocketAddr::try_from(address.clone()).ok();
        let unix = SocketAddrUnix::try_from(address).ok();
        let address = match (ip, unix.as_ref().and_then(SocketAddrUnix::path)) {
            (Some(address), _) => tcp_uri(address),
            (None, Some(path)) => of_socket(path.to_bytes()),
            (None, None) => "a passed socket".to_owned(),
        };
        let blocking = fcntl_getfl(&fd).and_then(|flags| fcntl_setfl(&fd, flags - OFlags::NONBLOCK));
        blocking.map_err(fail)?;
        Ok(Self { fd: SharedFd::new(fd), is_tcp: ip.is_some(), address, _path: None })
    }
}

/// An address as a URI. The zone of a link-local address follows a percent sign, which is encoded (RFC 6874).
fn tcp_uri(address: SocketAddr) -> String {
    format!("nbd://{}", address.to_string().replace('%', "%25"))
}

/// Listens at an address; the IPv6 wildcard includes IPv4, regardless of `net.ipv6.bindv6only`.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, false)?;
    }
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    Ok(TcpListener::from(fd))
}

/// The number of a group, given by name or number.
pub fn group_id(group: &str) -> Result<u32, EngineError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let file = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let found = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let number = (fields.next() == Some(group)).then(|| fields.nth(1)).flatten();
        number.and_then(|number| number.parse().ok())
    });
    found.ok_or_else(|| EngineError::refused(Refusal::NoGroup(group.to_owned())))
}

/// Rights to connect to a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The permission bits.
    pub mode: u32,
    /// Number of the group; the daemon's by default.
    pub group: Option<u32>,
}

impl Access {
    /// The daemon's user, and root.
    pub const OWNER: Self = Self { mode: 0o600, group: None };
}

/// Binds a Unix socket, replacing one that no server answers on.
pub fn bind_unix(path: &Path, access: Access) -> Result<(UnixListener, SocketPath), EngineError> {
    let fail = |source| EngineError::io(format!("cannot listen on {}", path.display()), source);
    if check_unix(path)? {
        std::fs::remove_file(path).map_err(fail)?;
    }
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(fail)?;
    match listen_privately(parent, path, access) {
        Ok(listener) => Ok((listener, SocketPath(path.to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken(path)),
        Err(error) => Err(fail(error)),
    }
}

fn taken(path: &Path) -> EngineError {
    EngineError::InUse(format!("cannot listen on {}: another server does already", path.display()))
}

/// Returns `true` if there is a socket without a server.
///
/// # Errors
/// When a server has it, or when it is not a socket.
pub fn check_unix(path: &Path) -> Result<bool, EngineError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(false) };
    if !metadata.file_type().is_socket() {
        return Err(EngineError::refused(Refusal::NoSocket(path.to_owned())));
    }
    let fail = |source| EngineError::io(format!("cannot listen on {}", path.display()), source);
    if is_answered(path).map_err(fail)? { Err(taken(path)) } else { Ok(true) }
}

/// Returns `true` if a server has the socket. Never blocks: a full queue or a stopped server counts as one.
fn is_answered(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(connect(&fd, &SocketAddrUnix::new(path)?) != Err(Errno::CONNREFUSED))
}

/// A folder beside the socket that only the daemon's user may access; removed on drop.
struct PrivateFolder {
    path: PathBuf,
    fd: OwnedFd,
}

impl PrivateFolder {
    fn new(parent: &Path) -> io::Result<Self> {
        let path = parent.join(format!(".zcached-{}", uuid::Uuid::new_v4().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let nest = Self { fd: openat(CWD, &path, flags, Mode::empty())?, path };
        let found = std::fs::File::from(nest.fd.try_clone()?).metadata()?;
        if found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0 {
            Ok(nest)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "another process replaces folders beside it"))
        }
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // A missing entry counts as removed.
        let _gone = unlinkat(&self.fd, "s", AtFlags::empty());
        drop(std::fs::remove_dir(&self.path));
    }
}

/// Listens on a socket that has its mode and group from the moment that others can reach it.
fn listen_privately(parent: &Path, path: &Path, access: Access) -> io::Result<UnixListener> {
    let nest = PrivateFolder::new(parent)?;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // By the folder's descriptor: its path may be longer than an address, and may lead elsewhere by now.
    bind(&fd, &SocketAddrUnix::new(format!("/proc/self/fd/{}/s", nest.fd.as_raw_fd()))?)?;
    chownat(&nest.fd, "s", None, access.group.map(Gid::from_raw), AtFlags::SYMLINK_NOFOLLOW)?;
    chmodat(&nest.fd, "s", Mode::from_raw_mode(access.mode), AtFlags::empty())?;
    listen(&fd, BACKLOG)?;
    renameat_with(&nest.fd, "s", CWD, path, RenameFlags::NOREPLACE)?;
    Ok(fd.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_left_alone_and_a_stale_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/nbd.sock");
        let first = Listener::unix(&path, Access::OWNER).unwrap();
        assert!(Listener::unix(&path, Access::OWNER).unwrap_err().to_string().contains("another server"));
        drop(first);
        assert!(!path.exists(), "removed at the end");
        // A socket file without a listener, as left by a killed daemon.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path, Access::OWNER).unwrap());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::unix(&path, Access::OWNER).unwrap_err().is_refusal());
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
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Listener::adopt(one.into()).unwrap_err().is_refusal());
    }

    #[test]
    fn unix_sockets_get_their_mode_and_groups_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let own = rustix::process::getgid().as_raw();
        for mode in [0o600, 0o640, 0o666] {
            let listener = Listener::unix(&path, Access { mode, group: Some(own) }).unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!((metadata.mode() & 0o777, metadata.gid()), (mode, own));
            let names = std::fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(names, 1, "nothing but the socket is left");
            drop(listener);
        }
        assert_eq!((group_id("root").unwrap(), group_id("17").unwrap()), (0, 17));
        assert!(group_id("no such group").unwrap_err().is_refusal());
    }

    #[test]
    fn a_path_that_appears_meanwhile_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("nbd.sock"));
        std::fs::write(&victim, "secret").unwrap();
        std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let error = listen_privately(dir.path(), &path, Access { mode: 0o666, group: None }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_server_that_accepts_no_client_is_found_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("squatted.sock");
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&fd, 0).unwrap();
        let _first_fills_the_queue = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let error = Listener::unix(&path, Access::OWNER).unwrap_err();
        assert!(error.to_string().contains("another server"), "{error}");
    }

    #[test]
    fn addresses_are_uris() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b&c.sock");
        let listener = Listener::unix(&path, Access::OWNER).unwrap();
        assert!(listener.address.ends_with("/a%20b%26c.sock"), "{}", listener.address);
        drop(listener);
        let passed = Listener::adopt(UnixListener::bind(&path).unwrap().into()).unwrap();
        assert!(passed.address.ends_with("/a%20b%26c.sock"), "{}", passed.address);
        assert_eq!(tcp_uri("[fe80::1%2]:7".parse().unwrap()), "nbd://[fe80::1%252]:7");
    }

    #[test]
    fn tcp_tells_the_port_it_got() {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.address.rsplit_once(':').unwrap().1;
        assert_ne!(port.parse::<u16>().unwrap(), 0);
    }
}
