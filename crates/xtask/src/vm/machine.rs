//! One boot of the machine.
//!
//! Invariants: QEMU ends when this ends, whatever happened; disks other than the root are the scenario's files.

use anyhow::{Context, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::setup::Image;
use crate::run::{cargo, run};

const GUEST: &[(&str, &str)] = &[
    ("main.sh", include_str!("guest/main.sh")),
    ("lib.sh", include_str!("guest/lib.sh")),
    ("functional.sh", include_str!("guest/functional.sh")),
    ("crash.sh", include_str!("guest/crash.sh")),
    ("write.sh", include_str!("guest/write.sh")),
    ("verify.sh", include_str!("guest/verify.sh")),
    ("60-zcached.rules", include_str!("../../../../configs/60-zcached.rules")),
];
const INIT: &str = include_str!("guest/init.sh");
const PROGRAMS: [&str; 2] = ["zcached", "zcctl"];

/// Sizes of the disks in MiB: the SSD, the slow disk, a small one for what has to survive a boot.
const DISKS: [(&str, u64); 3] = [("ssd", 96), ("hdd", 512), ("small", 64)];
/// Operations per second of the slow disk.
const SLOW_IOPS: u32 = 400;
const MEMORY_MIB: u32 = 1024;

/// A place for the disks and the output of a scenario, gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Bench {
    dir: tempfile::TempDir,
}

/// A machine that runs.
#[derive(Debug)]
pub(crate) struct Machine {
    qemu: Child,
    results: PathBuf,
    console: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.qemu.kill();
        let _ended = self.qemu.wait();
    }
}

impl Bench {
    /// Builds our programs and packs them for the machine.
    pub(crate) fn new(image: &Image) -> anyhow::Result<Self> {
        run(cargo().args(["build", "--locked", "--package", "zcached", "--package", "zcctl"]))?;
        let bench = Self { dir: tempfile::tempdir().context("no place for temporary files")? };
        for (name, mib) in DISKS {
            let file = std::fs::File::create(bench.path(name)).context("cannot create a disk")?;
            file.set_len(mib << 20).context("cannot size a disk")?;
        }
        bench.pack(image)?;
        Ok(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The initial memory: busybox, the driver of the disks, and what will be /payload.
    fn pack(&self, image: &Image) -> anyhow::Result<()> {
        let tree = self.path("tree");
        let payload = tree.join("payload");
        for dir in [tree.join("bin"), payload.clone()] {
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let busybox = crate::packages::find("busybox").context("there is no busybox")?;
        copy(&busybox, &tree.join("bin/busybox"))?;
        copy(&image.driver(), &tree.join("virtio_blk.ko"))?;
        write(&tree.join("init"), INIT)?;
        for (name, text) in GUEST {
            write(&payload.join(name), text)?;
        }
        // Programs are beside our own.
        let own = std::env::current_exe().context("cannot tell where xtask itself was built")?;
        for name in PROGRAMS {
            let packed = payload.join(name);
            copy(&own.with_file_name(name), &packed)?;
            run(Command::new("strip").arg(&packed))?;
        }
        let script = "cd \"$1\" && find . | busybox cpio -o -H newc > \"$2\"";
        run(Command::new("sh").args(["-ec", script, "sh"]).arg(&tree).arg(self.path("initrd")))
    }

    /// Boots. With `rounds`, the scenario knows how much to do.
    pub(crate) fn boot(&self, image: &Image, scenario: &str, rounds: u32) -> anyhow::Result<Machine> {
        let (console, results) = (self.path("console"), self.path("results"));
        std::fs::write(&results, "").context("cannot write to the folder of the scenario")?;
        let mut command = self.qemu(image, scenario, rounds);
        command.arg("-display").arg("none").arg("-serial").arg(file_option(&console));
        command.arg("-serial").arg(file_option(&results)).args(["-monitor", "none"]);
        command.stdin(Stdio::null());
        let qemu = command.spawn().context("cannot start qemu-system-x86_64")?;
        Ok(Machine { qemu, results, console })
    }

    /// Boots with the console on this terminal, and waits for the end.
    pub(crate) fn shell(&self, image: &Image) -> anyhow::Result<()> {
        let mut command = self.qemu(image, "shell", 0);
        command.arg("-nographic").arg("-serial").arg("mon:stdio").args(["-serial", "null"]);
        run(&mut command)
    }

    fn qemu(&self, image: &Image, scenario: &str, rounds: u32) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        // QEMU 7.2 now and then leaves wrong flags behind a compare-and-exchange of 16 bytes, which this kernel uses only
        // if the processor says that it has it. One processor: with more, every wake-up of an idle one costs dear.
        command.args(["-accel", "tcg", "-cpu", "max,-cx16", "-smp", "1"]);
        command.args(["-m", &MEMORY_MIB.to_string(), "-nic", "none", "-no-reboot", "-nodefaults"]);
        command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(self.path("initrd"));
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check scenario={scenario} rounds={rounds}"
        ));
        command.arg("-drive").arg(drive(&image.root(), "snapshot=on"));
        for (name, _) in DISKS {
            let extra = if name == "hdd" {
                format!("throttling.iops-total={SLOW_IOPS}")
            } else {
                "cache=none".to_owned()
            };
            command.arg("-drive").arg(drive(&self.path(name), &format!("discard=unmap,{extra}")));
        }
        command
    }
}

fn drive(path: &Path, extra: &str) -> String {
    format!("if=virtio,format=raw,file={},{extra}", path.display())
}

fn file_option(path: &Path) -> String {
    format!("file:{}", path.display())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let done = std::fs::write(path, text)
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)));
    done.with_context(|| format!("cannot write {}", path.display()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "QEMU tells of what the machine writes to its ports through files only"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

impl Machine {
    /// What the machine has reported so far, whole lines.
    pub(crate) fn lines(&self) -> anyhow::Result<Vec<String>> {
        let text = std::fs::read(&self.results).context("cannot read the results")?;
        let text = String::from_utf8_lossy(&text);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect())
    }

    /// Lets it run until `done` says so of its lines, it switches itself off, or the time is over. `seen` is called with
    /// each new line.
    ///
    /// # Errors
    /// When the time is over.
    pub(crate) fn follow(
        &mut self,
        limit: Duration,
        mut seen: impl FnMut(&str),
        mut done: impl FnMut(&[String]) -> bool,
    ) -> anyhow::Result<Vec<String>> {
        let mut told = 0;
        let mut left = limit.as_millis() / 50;
        loop {
            let ended = self.qemu.try_wait().context("cannot wait for qemu")?.is_some();
            let lines = self.lines()?;
            lines[told..].iter().for_each(|line| seen(line));
            told = lines.len();
            if ended || done(&lines) {
                return Ok(lines);
            }
            if left == 0 {
                self.show_console();
                bail!("the machine did not end within {} s", limit.as_secs());
            }
            left -= 1;
            pause();
        }
    }

    /// The end of what it wrote to its console.
    pub(crate) fn show_console(&self) {
        let text = std::fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        println!("    the end of the console:");
        lines[lines.len().saturating_sub(CONSOLE_LINES)..].iter().for_each(|line| println!("    | {line}"));
    }
}

/// Lines of the console that are shown after a failure.
const CONSOLE_LINES: usize = 120;
