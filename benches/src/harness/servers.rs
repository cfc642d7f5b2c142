//! The compared servers, as child processes with a Unix socket each.
//!
//! Invariants: dropping a server ends its process; a failed start is an error with the last output.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::clock::pause;

/// Attempts to reach a server that starts, 20 ms apart.
const ATTEMPTS: u32 = 500;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts `command` and waits until `socket` accepts connections; the output goes to a file beside it.
    pub(crate) fn start(command: &mut Command, socket: &Path) -> anyhow::Result<Self> {
        let shown = command.get_program().to_string_lossy().into_owned();
        let log = socket.with_extension("log");
        let said = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let mut server = Self { child, socket: socket.to_owned() };
        for _ in 0..ATTEMPTS {
            if UnixStream::connect(socket).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{shown} ended with {status}; see {}", log.display());
            }
            pause(Duration::from_millis(20));
        }
        bail!("{shown} does not answer on {}; see {}", socket.display(), log.display())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _reaped = self.child.wait();
    }
}

/// Returns the program of that name beside this executable.
pub(crate) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.parent().unwrap_or_else(|| Path::new(".")).join(name);
    if !program.is_file() {
        bail!("{} is missing; `cargo xtask bench` builds it", program.display());
    }
    Ok(program)
}

/// `qemu-nbd` straight on the file, direct I/O through io_uring.
pub(crate) fn qemu(dir: &Path, file: &Path) -> anyhow::Result<Server> {
    let socket = dir.join("qemu.sock");
    let mut command = Command::new("qemu-nbd");
    command.args(["--format=raw", "--cache=none", "--aio=io_uring", "--persistent", "--shared=8"]);
    command.arg("--socket").arg(&socket).arg(file);
    Server::start(&mut command, &socket)
}

/// `nbdkit file`: from the page cache, once that is warm.
pub(crate) fn nbdkit_file(dir: &Path, file: &Path) -> anyhow::Result<Server> {
    nbdkit(dir, "nbdkit-file.sock", &["file".to_owned(), file.display().to_string()])
}

/// `nbdkit null`: nothing behind it.
pub(crate) fn nbdkit_null(dir: &Path, size_bytes: u64) -> anyhow::Result<Server> {
    nbdkit(dir, "nbdkit-null.sock", &["null".to_owned(), format!("size={size_bytes}")])
}

fn nbdkit(dir: &Path, socket: &str, plugin: &[String]) -> anyhow::Result<Server> {
    let socket = dir.join(socket);
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket).args(plugin);
    Server::start(&mut command, &socket)
}

/// Starts the null export of this program; it polls for `poll_max_us` before it sleeps.
pub(crate) fn null(dir: &Path, size_bytes: u64, poll_max_us: u32) -> anyhow::Result<Server> {
    let socket = dir.join(format!("null-{poll_max_us}.sock"));
    let mut command = floor_server(&socket)?;
    command.args(["--size", &size_bytes.to_string(), "--poll-max", &poll_max_us.to_string()]);
    Server::start(&mut command, &socket)
}

/// The floor: a server that does nothing but raw I/O on the file, on a Unix socket and on TCP.
pub(crate) fn floor(dir: &Path, file: &Path, tcp: SocketAddr) -> anyhow::Result<Server> {
    let socket = dir.join("floor.sock");
    let mut command = floor_server(&socket)?;
    command.arg("--file").arg(file).arg("--tcp").arg(tcp.to_string());
    Server::start(&mut command, &socket)
}

/// This program as a server.
fn floor_server(socket: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("floor-server").arg(socket);
    Ok(command)
}

/// An address of this machine that no server listens on now.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no address of TCP is free")?;
    Ok(listener.local_addr()?)
}

/// Returns `true` if a program can be started.
pub(crate) fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdin(Stdio::null()).output().is_ok()
}
