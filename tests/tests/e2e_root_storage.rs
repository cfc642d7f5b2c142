//! The daemon below the root file system: names that systemd spares, and a daemon that comes back.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use zc_tests::{Companion, World, bounded, program};

/// Far longer than a start takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon as an initramfs starts it, and the process that starts it again.
struct Kept<'a> {
    world: &'a World,
    mark: PathBuf,
    /// Messages of daemons to a service manager.
    notes: UnixDatagram,
    keeper: Option<Companion>,
}

impl<'a> Kept<'a> {
    fn start(world: &'a World) -> Self {
        let (mark, socket) = (world.path("root"), world.path("notify"));
        let notes = UnixDatagram::bind(&socket).expect("a socket can be made");
        notes.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
        let mut command = Command::new(program("zcached"));
        command.arg("--root-storage").arg(&mark).arg("--config").arg(world.configure());
        let keeper = Some(Companion::start(command.env("NOTIFY_SOCKET", socket)));
        Self { world, mark, notes, keeper }
    }

    /// The number of the daemon that serves next.
    fn next_daemon(&self) -> u64 {
        let mut note = [0; 512];
        loop {
            let len = match self.notes.recv(&mut note) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                received => received.expect("a daemon becomes ready"),
            };
            if note[..len].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                return self.world.status()["pid"].as_u64().expect("a daemon has a number");
            }
        }
    }

    fn stop(&self) {
        assert!(self.world.zcctl_output(&["stop"]).status.success());
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // Where the test failed: first the one that would start another daemon.
        if let Some(keeper) = self.keeper.take() {
            drop(keeper);
            let _stopped = self.world.zcctl_output(&["stop"]);
        }
    }
}

fn kill(pid: u64) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::KILL).expect("the daemon can be killed");
}

fn name_of(pid: &str) -> String {
    let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("the process is there");
    words.split('\0').next().unwrap_or_default().to_owned()
}

#[test]
fn a_daemon_comes_back_until_its_file_is_gone() {
    let world = World::new(16, 16);
    let mut kept = Kept::start(&world);
    let first = kept.next_daemon();
    let keeper = std::fs::read_to_string(&kept.mark).expect("the file says who keeps the daemon");
    assert_eq!([name_of(&first.to_string()), name_of(&keeper)], ["@zcached", "@zcached"]);
    let mut client = world.connect("disk");
    client.write(0, &[7; 8192]).expect("write");
    client.flush().expect("flush");

    kill(first);
    let second = kept.next_daemon();
    assert_ne!(second, first);
    assert_eq!(world.connect("disk").read(0, 8192).expect("read"), [7; 8192]);

    // An operator's stop is a restart.
    kept.stop();
    assert_ne!(kept.next_daemon(), second);

    std::fs::remove_file(&kept.mark).expect("the file is there");
    kept.stop();
    let keeper = kept.keeper.take().expect("it was started");
    assert_eq!(keeper.wait().code(), Some(0));
}

#[test]
fn a_mistake_of_the_first_start_is_not_tried_again() {
    let world = World::new(16, 16);
    let mark = world.path("root");
    let output = bounded("sh")
        .args(["-c", "exec \"$0\" --root-storage \"$1\" --config /nonexistent.toml"])
        .arg(program("zcached"))
        .arg(&mark)
        .output()
        .expect("zcached starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!mark.exists());
}
