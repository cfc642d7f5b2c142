//! Write-back on an origin that serves about 300 requests a second, one at a time, as one disk does.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::run::{Case, Options, Sample, configuration};
use crate::harness::daemon::{Daemon, fill_file, make_cache};
use crate::harness::servers::Server;
use crate::load::{self, Durability};

/// Time of each request of the origin.
const DELAY: &str = "3ms";
/// Writes are measured for so long: less than fills the cache to its watermark.
const TIME_NS: u64 = 2_000_000_000;

/// What a slow origin takes by itself, and what it takes with the cache in front.
#[derive(Debug, Clone, Copy)]
pub struct Slow {
    /// The origin.
    pub origin: Sample,
    /// Write-back in front of it.
    pub write_back: Sample,
}

/// `nbdkit` mounted as a file; unmounted when dropped.
struct Mounted {
    fuse: Child,
    mount: PathBuf,
}

impl Mounted {
    fn new(dir: &Path, socket: &Path) -> anyhow::Result<Self> {
        let mount = dir.join("slow-origin.img");
        File::create(&mount)?;
        let pid = dir.join("fuse.pid");
        let made = Command::new("mkfifo").arg(&pid).status().context("cannot start mkfifo")?;
        anyhow::ensure!(made.success(), "mkfifo failed");
        let mut command = Command::new("nbdfuse");
        command.arg("--pidfile").arg(&pid).arg(&mount).arg("--unix").arg(socket);
        let fuse = command.stdin(Stdio::null()).spawn().context("cannot start nbdfuse")?;
        // It writes its process id when the file is there.
        std::fs::read_to_string(&pid)?;
        Ok(Self { fuse, mount })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _unmounted = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.mount).status();
        let _ended = self.fuse.kill();
        let _reaped = self.fuse.wait();
    }
}

/// Measures both.
///
/// # Errors
/// A program is missing, or a server fails.
pub fn run(options: &Options) -> anyhow::Result<Slow> {
    let dir = options.dir.join("slow");
    std::fs::create_dir_all(&dir)?;
    let image = dir.join("image.img");
    fill_file(&image, options.size_bytes)?;
    let socket = dir.join("origin.sock");
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket);
    command.args(["--filter=noparallel", "--filter=delay", "file"]).arg(&image);
    command.arg(format!("rdelay={DELAY}")).arg(format!("wdelay={DELAY}"));
    let server = Server::start(&mut command, &socket)?;
    let mounted = Mounted::new(&dir, server.socket())?;
    let volume = format!(
        "[[volume]]\nname = \"slow\"\norigin = {:?}\ndirect = false\nmode = \"write-back\"\n",
        mounted.mount
    );
    make_cache(&dir, 8 * options.size_bytes)?;
    let daemon = Daemon::serve(&dir, &configuration(&dir, 8 * options.size_bytes, &volume))?;
    let load = Case { depth: 32, durability: Durability::None }.load(TIME_NS, 1);
    let origin = Sample::of(&load::run(server.socket(), "", load)?);
    let write_back = Sample::of(&load::run(daemon.socket(), "slow", load)?);
    Ok(Slow { origin, write_back })
}
