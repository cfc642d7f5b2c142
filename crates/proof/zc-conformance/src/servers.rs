//! The NBD servers that the conformance suite is run against: ours and three others, each on files of its own.
//!
//! Invariants: every server ends with the value that started it; it listens on a Unix socket in a temporary folder,
//! but for nbd-server, which gets a free port of 127.0.0.1 (on its Unix socket it serves one connection only); nothing
//! outside of that folder is written.

use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use zc_conformance::{Address, Uri};

/// Size of every export: large enough for a payload of 32 MiB next to the small cases.
const EXPORT_BYTES: u64 = 96 << 20;

/// File for the process id of nbd-server.
const PID_FILE: &str = "nbd-server.pid";

/// Number of connection attempts to a starting server, and the pause in between.
const ATTEMPTS: u32 = 400;
const PAUSE: Duration = Duration::from_millis(50);

/// A known server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Ours, from the folder that this program was built into.
    Zcached,
    /// nbdkit with its file plugin.
    Nbdkit,
    /// qemu-nbd on a raw file.
    QemuNbd,
    /// The reference server.
    NbdServer,
}

impl Kind {
    /// As in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zcached => "zcached",
            Self::Nbdkit => "nbdkit",
            Self::QemuNbd => "qemu-nbd",
            Self::NbdServer => "nbd-server",
        }
    }

    /// The settings in which it is judged. qemu-nbd cannot leave TLS to the client.
    pub(crate) fn settings(self) -> &'static [Tls] {
        match self {
            Self::QemuNbd => &[Tls::Off, Tls::Required],
            _ => &[Tls::Off, Tls::Allowed, Tls::Required],
        }
    }

    /// Returns the program's version text.
    pub(crate) fn version(self) -> anyhow::Result<String> {
        let output = Command::new(self.program()?)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {} --version", self.name()))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        Ok(number.unwrap_or("of unknown version").trim_end_matches([',', '.']).to_owned())
    }

    fn program(self) -> anyhow::Result<PathBuf> {
        if self != Self::Zcached {
            return Ok(self.name().into());
        }
        let own = std::env::current_exe().context("cannot tell where this program was built")?;
        Ok(own.with_file_name("zcached"))
    }
}

/// TLS policy of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    /// TLS is not offered.
    Off,
    /// The client chooses.
    Allowed,
    /// Without TLS, the server allows nothing else.
    Required,
}

/// The processes of one server. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    tls: Tls,
    folder: tempfile::TempDir,
    children: Vec<Child>,
    /// Port of nbd-server.
    port: u16,
}

impl Server {
    /// Starts a server on new files and returns when it listens.
    ///
    /// # Errors
    /// It cannot be started, or it ends or does not listen within 20 s.
    pub(crate) fn start(kind: Kind, tls: Tls) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let mut server = Self { kind, tls, folder, children: Vec::new(), port: free_port()? };
        for name in ["disk", "frozen"] {
            let path = server.path(&format!("{name}.img"));
            let file =
                std::fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            file.set_len(EXPORT_BYTES).with_context(|| format!("cannot size {}", path.display()))?;
        }
        if tls != Tls::Off {
            server.make_keys()?;
        }
        server.launch()?;
        Ok(server)
    }

    /// Starts the processes again on the same files, after they ended.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        self.launch()
    }

    /// The export that may be written, and the one that is read-only.
    pub(crate) fn uris(&self) -> (Uri, Uri) {
        let uri = |socket: &str, export: &str| Uri {
            address: Address::Unix(self.path(socket)),
            export: export.to_owned(),
        };
        let tcp = |export: &str| Uri {
            address: Address::Tcp("127.0.0.1".to_owned(), self.port),
            export: export.to_owned(),
        };
        match self.kind {
            Kind::Zcached => (uri("nbd.sock", "disk"), uri("nbd.sock", "frozen")),
            Kind::NbdServer => (tcp("disk"), tcp("frozen")),
            Kind::Nbdkit => (uri("nbd.sock", ""), uri("frozen.sock", "")),
            Kind::QemuNbd => (uri("nbd.sock", "disk"), uri("frozen.sock", "frozen")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates an authority and a certificate signed by it, under the names that nbdkit and qemu-nbd expect. The suite
    /// accepts any.
    fn make_keys(&self) -> anyhow::Result<()> {
        let make = |name: &str, subject: &str, more: &[&OsStr]| {
            let mut command = Command::new("openssl");
            command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
            command.args(["-nodes", "-days", "30", "-subj", subject]).args(more);
            command.arg("-keyout").arg(self.path(&format!("{name}-key.pem")));
            command.arg("-out").arg(self.path(&format!("{name}-cert.pem")));
            let output = command.output().context("cannot start openssl")?;
            if !output.status.success() {
                bail!("openssl makes no certificate: {}", String::from_utf8_lossy(&output.stderr));
            }
            Ok(())
        };
        make("ca", "/CN=conformance", &[])?;
        let (ca, ca_key) = (self.path("ca-cert.pem"), self.path("ca-key.pem"));
        let words =
            ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"];
        let mut signed: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
        signed.extend(["-CA".as_ref(), ca.as_os_str(), "-CAkey".as_ref(), ca_key.as_os_str()]);
        make("server", "/CN=localhost", &signed)
    }

    fn launch(&mut self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Zcached => self.launch_zcached(),
            Kind::NbdServer => self.launch_nbd_server(),
            Kind::Nbdkit => {
                let (writable, frozen) = (
                    nbdkit(self.folder.path(), "disk", self.tls),
                    nbdkit(self.folder.path(), "frozen", self.tls),
                );
                self.spawn(writable, "nbd.sock")?;
                self.spawn(frozen, "frozen.sock")
            }
            Kind::QemuNbd => {
                let (writable, frozen) = (
                    qemu_nbd(self.folder.path(), "disk", self.tls),
                    qemu_nbd(self.folder.path(), "frozen", self.tls),
                );
                self.spawn(writable, "nbd.sock")?;
                self.spawn(frozen, "frozen.sock")
            }
        }
    }

    fn launch_zcached(&mut self) -> anyhow::Result<()> {
        let dir = self.folder.path().display();
        let files =
            format!("tls_certificate = \"{dir}/server-cert.pem\"\ntls_key = \"{dir}/server-key.pem\"\n");
        let tls = match self.tls {
            Tls::Off => String::new(),
            Tls::Allowed => format!("tls = \"allowed\"\n{files}"),
            Tls::Required => format!("tls = \"required\"\n{files}"),
        };
        let volume = |name: &str| format!("[[volume]]\nname = \"{name}\"\norigin = \"{dir}/{name}.img\"\n");
        let text = format!(
            "[cache]\npath = \"{dir}/cache.img\"\nsize = \"64 MiB\"\nstate_dir = \"{dir}/state\"\n\
             {}{}nbd.read_only = true\n[nbd]\nlisten = []\nunix = [\"{dir}/nbd.sock\"]\n{tls}\
             [control]\nsocket = \"{dir}/control.sock\"\n",
            volume("disk"),
            volume("frozen"),
        );
        let config = self.path("zcached.toml");
        std::fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = Command::new(self.kind.program()?);
        command.arg("--config").arg(config);
        self.spawn(command, "nbd.sock")
    }

    /// nbd-server goes into the background by itself and writes its process id; in the foreground it serves one
    /// connection only.
    fn launch_nbd_server(&mut self) -> anyhow::Result<()> {
        let dir = self.folder.path().display();
        let force = if self.tls == Tls::Required { "force_tls = true\n" } else { "" };
        let files = format!("certfile = {dir}/server-cert.pem\nkeyfile = {dir}/server-key.pem\n");
        let tls = if self.tls == Tls::Off { String::new() } else { format!("{files}{force}") };
        let text = format!(
            "[generic]\nlistenaddr = 127.0.0.1\nport = {}\nallowlist = true\n{tls}\
             [disk]\nexportname = {dir}/disk.img\nflush = true\nfua = true\ntrim = true\n\
             [frozen]\nexportname = {dir}/frozen.img\nreadonly = true\n",
            self.port
        );
        let config = self.path("nbd-server.conf");
        std::fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = Command::new(self.kind.program()?);
        command.arg("-C").arg(config).arg("-p").arg(self.path(PID_FILE));
        let status = command.stdin(Stdio::null()).status().context("cannot start nbd-server")?;
        if !status.success() {
            bail!("nbd-server: {status}");
        }
        for _ in 0..ATTEMPTS {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            pause();
        }
        bail!("nbd-server does not listen on port {}", self.port)
    }

    /// Stops the nbd-server that wrote its process ID, if there is one.
    fn stop_nbd_server(&self) {
        let path = self.path(PID_FILE);
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        if let Ok(id) = text.trim().parse::<u32>() {
            // The process may have exited already.
            Command::new("kill").arg(id.to_string()).stderr(Stdio::null()).status().ok();
        }
        std::fs::remove_file(path).ok();
    }

    /// Starts a process and waits until it listens on `socket`.
    fn spawn(&mut self, mut command: Command, socket: &str) -> anyhow::Result<()> {
        let log_path = self.path("log");
        let open = || std::fs::File::options().create(true).append(true).open(&log_path);
        let (out, err) = (open().context("cannot open a log")?, open().context("cannot open a log")?);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.kind.name()))?;
        self.children.push(child);
        let socket = self.path(socket);
        for _ in 0..ATTEMPTS {
            if UnixStream::connect(&socket).is_ok() {
                return Ok(());
            }
            let child = self.children.last_mut().context("the child is in the list")?;
            if let Some(status) = child.try_wait().context("cannot wait for a child")? {
                bail!("{} ended at once ({status}):\n{}", self.kind.name(), log(&log_path));
            }
            pause();
        }
        bail!("{} does not listen on {}:\n{}", self.kind.name(), socket.display(), log(&log_path));
    }

    fn stop(&mut self) {
        self.stop_nbd_server();
        for mut child in self.children.drain(..) {
            // A process that has ended cannot be killed; it must only be reaped.
            child.kill().ok();
            child.wait().ok();
        }
        for socket in ["nbd.sock", "frozen.sock", "control.sock"] {
            std::fs::remove_file(self.path(socket)).ok();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// nbdkit on `NAME.img`, read-only if that is `frozen`.
fn nbdkit(folder: &Path, name: &str, tls: Tls) -> Command {
    let frozen = name == "frozen";
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--unix"]).arg(folder.join(if frozen {
        "frozen.sock"
    } else {
        "nbd.sock"
    }));
    if frozen {
        command.arg("--readonly");
    }
    if tls != Tls::Off {
        command.arg(if tls == Tls::Required { "--tls=require" } else { "--tls=on" });
        command.arg("--tls-certificates").arg(folder);
    }
    command.arg("file").arg(folder.join(format!("{name}.img")));
    command
}

/// qemu-nbd on `NAME.img`, read-only if that is `frozen`.
fn qemu_nbd(folder: &Path, name: &str, tls: Tls) -> Command {
    let frozen = name == "frozen";
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--discard=unmap", "--shared=32", "--export-name", name]);
    command.arg("--socket").arg(folder.join(if frozen { "frozen.sock" } else { "nbd.sock" }));
    if frozen {
        command.arg("--read-only");
    }
    if tls != Tls::Off {
        let object =
            format!("tls-creds-x509,id=tls0,dir={},endpoint=server,verify-peer=no", folder.display());
        command.args(["--object", &object, "--tls-creds", "tls0"]);
    }
    command.arg(folder.join(format!("{name}.img")));
    command
}

fn log(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "another project's server does not tell when it listens")]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// A port of 127.0.0.1 that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr().context("cannot tell the port of a socket")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_an_error_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server { kind: Kind::Nbdkit, tls: Tls::Off, folder, children: Vec::new(), port: 0 };
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such file >&2; exit 3"]);
        let error = server.spawn(command, "nbd.sock").unwrap_err().to_string();
        assert!(error.contains("ended at once") && error.contains("no such file"), "{error}");
    }

    #[test]
    fn a_server_ends_with_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let socket = std::os::unix::net::UnixListener::bind(folder.path().join("nbd.sock")).unwrap();
        let mut server = Server { kind: Kind::Nbdkit, tls: Tls::Off, folder, children: Vec::new(), port: 0 };
        let mut command = Command::new("sleep");
        command.arg("1000");
        server.spawn(command, "nbd.sock").unwrap();
        let pid = server.children[0].id();
        drop(server);
        drop(socket);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
