//! The daemon that runs with a configuration, if any.
//!
//! Job: query the addresses, files and devices of a daemon at the control socket, so that a check can distinguish
//! resources of the daemon from those of another program.
//!
//! Invariants: no wait exceeds [`ANSWER_MS_MAX`], and no reply larger than [`ANSWER_BYTES_MAX`] is read.
//!
//! It does not change anything in the daemon.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use zc_nbd::uri::{Endpoint, NbdUri};

/// Time-out in milliseconds after which a daemon counts as hung.
const ANSWER_MS_MAX: u64 = 5_000;
/// Name of the daemon's process.
const PROGRAM: &str = "zcached";
/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Process behind a control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Running {
    NoProcess,
    /// A process that cannot be queried, or does not respond: possibly the daemon.
    Silent,
    /// A program that is no zcached.
    Other,
    Daemon(Held),
}

/// Addresses and files that a daemon holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    ports: BTreeSet<u16>,
    paths: BTreeSet<PathBuf>,
}

impl Running {
    /// Queries a control socket.
    pub(crate) fn at(socket: &Path) -> Self {
        let stream = match connected(socket) {
            Ok(stream) => stream,
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR | Errno::NOTSOCK) => {
                return Self::NoProcess;
            }
            Err(_) => return Self::Silent,
        };
        match ask(&stream) {
            None if is_foreign(&stream) => Self::Other,
            None => Self::Silent,
            Some(line) => match serde_json::from_slice(&line) {
                Ok(answer) => Held::of(&answer).map_or(Self::Other, Self::Daemon),
                Err(_) => Self::Other,
            },
        }
    }

    /// Returns `true` if the port that is in use is the daemon's, as far as that can be found out.
    pub(crate) fn has_port(&self, address: SocketAddr) -> bool {
        self.has(|held| held.ports.contains(&address.port()))
    }

    /// Returns `true` if the file, device or socket that is in use is the daemon's, as far as that can be found out.
    pub(crate) fn has_path(&self, path: &Path) -> bool {
        let real = path.canonicalize();
        let is_it = |held: &PathBuf| {
            held == path
                || real.as_ref().is_ok_and(|real| held.canonicalize().is_ok_and(|held| held == *real))
        };
        self.has(|held| held.paths.iter().any(is_it))
    }

    fn has(&self, what: impl FnOnce(&Held) -> bool) -> bool {
        match self {
            Self::NoProcess | Self::Other => false,
            Self::Silent => true,
            Self::Daemon(held) => what(held),
        }
    }
}

impl Held {
    /// From the answer to `status`; `None` if it is none.
    fn of(answer: &Value) -> Option<Self> {
        let mut held = Self::default();
        let cache = answer["cache"]["path"].as_str()?;
        held.paths.insert(cache.into());
        let list = |key: &str| answer[key].as_array().into_iter().flatten();
        let origins = list("volumes").filter_map(|volume| volume["info"]["origin"].as_str());
        let stores = list("stores").filter_map(|store| store["path"].as_str());
        held.paths.extend(origins.chain(stores).map(PathBuf::from));
        for uri in list("listening").filter_map(Value::as_str) {
            if let Ok(Endpoint::Unix { socket }) = uri.parse().map(|uri: NbdUri| uri.endpoint) {
                held.paths.insert(socket.into());
            } else {
                held.ports.extend(uri.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()));
            }
        }
        let web = ["metrics", "page"].into_iter().filter_map(|key| answer[key].as_str());
        let port = |url: &str| url.strip_prefix("http://")?.split('/').next()?.parse().ok();
        held.ports.extend(web.filter_map(port).map(|address: SocketAddr| address.port()));
        Some(held)
    }
}

/// Never blocks: a process with a full queue owns the socket, and is not queried.
fn connected(socket: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&fd, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(fd);
    let wait = Some(Duration::from_millis(ANSWER_MS_MAX));
    let set = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(wait));
    set.and_then(|()| stream.set_write_timeout(wait)).map_err(|_| Errno::IO)?;
    Ok(stream)
}

/// Returns `true` if the process that listens is known to run another program. One in another namespace is not known.
fn is_foreign(stream: &UnixStream) -> bool {
    let Ok(peer) = socket_peercred(stream) else { return false };
    let name = std::fs::read_to_string(format!("/proc/{}/comm", peer.pid.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim_end() != PROGRAM)
}

fn ask(mut stream: &UnixStream) -> Option<Vec<u8>> {
    stream.write_all(b"{\"cmd\":\"status\"}\n").ok()?;
    let mut line = Vec::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut line).ok()?;
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Parses the state behind a socket whose server returns `answer`.
    fn found(answer: &'static str) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
        });
        let running = Running::at(&path);
        server.join().unwrap();
        running
    }

    #[test]
    fn a_daemon_has_what_its_status_names() {
        let running = found(concat!(
            r#"{"cache":{"path":"/c"},"volumes":[{"info":{"origin":"/o"}}],"stores":[{"path":"/t"}],"#,
            r#""listening":["nbd://[::]:7","nbd+unix:///?socket=/a%20b"],"metrics":"http://127.0.0.1:9/metrics"}"#,
            "\n"
        ));
        for path in ["/c", "/o", "/t", "/a b"] {
            assert!(running.has_path(Path::new(path)), "{path}: {running:?}");
        }
        assert!(!running.has_path(Path::new("/x")));
        let port = |port| running.has_port(SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(port(7) && port(9) && !port(8));
    }

    #[test]
    fn what_is_no_daemon_has_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Running::at(&dir.path().join("none")), Running::NoProcess);
        drop(UnixListener::bind(dir.path().join("stale")).unwrap());
        assert_eq!(Running::at(&dir.path().join("stale")), Running::NoProcess);
        assert_eq!(found("220 mail\n"), Running::Other);
        assert_eq!(found("{}\n"), Running::Other);
        let silent = UnixListener::bind(dir.path().join("silent")).unwrap();
        assert_eq!(Running::at(&dir.path().join("silent")), Running::Other, "this process is no daemon");
        drop(silent);
        assert!(!Running::Other.has_path(Path::new("/c")) && Running::Silent.has_path(Path::new("/c")));
    }
}
