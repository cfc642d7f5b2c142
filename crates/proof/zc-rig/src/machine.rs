//! One boot of the machine.
//!
//! Invariants: QEMU ends when this ends, whatever happened; disks other than the root are the scenario's files.

use anyhow::{Context, bail, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::chance::Chance;
use crate::host::run::{build_dir, cargo, run, run_quietly};
use crate::loss::{LOG_BYTES, SECTOR_BYTES};
use crate::setup::Image;

const GUEST: &[(&str, &str)] = &[
    ("main.sh", include_str!("guest/main.sh")),
    ("lib.sh", include_str!("guest/lib.sh")),
    ("functional.sh", include_str!("guest/functional.sh")),
    ("crash.sh", include_str!("guest/crash.sh")),
    ("cut.sh", include_str!("guest/cut.sh")),
    ("faults.sh", include_str!("guest/faults.sh")),
    ("monitor.sh", include_str!("guest/monitor.sh")),
    ("rivals.sh", include_str!("guest/rivals.sh")),
    ("stores.sh", include_str!("guest/stores.sh")),
    ("contenders.sh", include_str!("guest/contenders.sh")),
    ("install.sh", include_str!("guest/install.sh")),
    ("late.sh", include_str!("guest/late.sh")),
    ("booted.sh", include_str!("guest/booted.sh")),
    ("install-root.sh", include_str!("guest/install-root.sh")),
    ("rooted.sh", include_str!("guest/rooted.sh")),
    ("60-zcached.rules", include_str!("../../../../configs/60-zcached.rules")),
];
const INIT: &str = include_str!("guest/init.sh");
/// Features of the processor, and excluded ones. QEMU 7.2 occasionally leaves wrong flags after a compare-and-exchange
/// of 16 bytes, which this kernel uses only if the processor reports it. Byte string instructions, long vectors and
/// the checksum instruction cost several times their alternatives: sealing 4 KiB takes 51 us with the latter and 14 us
/// without, BLAKE3 of 8 KiB 235 us with vectors of 32 bytes and 92 us with the oldest ones. The kernel's drivers for
/// AES and for checksums by carry-less multiplication, which udev loads, require SSE4.1.
const PROCESSOR: &str = "max,-aes,-pclmulqdq,-cx16,-erms,-fsrm,-sse4.1,-sse4.2,-avx,-avx2";
/// Our programs: the last one is this package's own.
const PROGRAMS: [&str; 3] = ["zcached", "zcctl", LOAD];
const LOAD: &str = "vm-load";
/// Environment variable that `cargo xtask test` sets for steps that begin after it has built the programs.
const BUILT: &str = "ZC_XTASK_BUILT";

/// Operations per second of the slow disk.
const SLOW_IOPS: u32 = 400;

/// Hardware of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Hardware {
    /// Number of processors. With more than one, every wake-up of an idle one is expensive.
    pub(crate) processors: u32,
    pub(crate) memory_mib: u32,
    /// `vdb` and so on, in this order.
    pub(crate) disks: Vec<Disk>,
    /// Our programs are built as for a release.
    pub(crate) is_release: bool,
    /// The third serial port leads to QEMU's own monitor: the machine may change the speed of its disks.
    pub(crate) has_monitor: bool,
    /// `true` if writes to its root disk persist across boots.
    pub(crate) keeps_root: bool,
    /// Further files in /payload.
    pub(crate) packed: Vec<Packed>,
}

/// A file for the machine.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    /// Its name in /payload.
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

/// A disk of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) content: Content,
    /// Operations per second, if they are limited.
    pub(crate) iops: Option<u32>,
    /// The host's page cache is left out.
    pub(crate) is_direct: bool,
    /// A write that is under way when the power goes may be torn at multiples of this.
    pub(crate) torn_at_bytes: u64,
}

/// Initial contents of a disk.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Nothing.
    EmptyMib(u64),
    /// Contents of this file, which is not changed; writes of the machine are discarded when it ends.
    CopyOf(PathBuf),
}

impl Hardware {
    /// The SSD, torn at sectors, the slow disk, a small one for data that must survive a boot.
    pub(crate) fn usual() -> Self {
        let disk = |name, mib, torn_at_bytes| Disk {
            name,
            content: Content::EmptyMib(mib),
            iops: None,
            is_direct: true,
            torn_at_bytes,
        };
        let slow = Disk { iops: Some(SLOW_IOPS), is_direct: false, ..disk(ORIGIN, 512, 4096) };
        let disks = vec![disk(SSD, 96, 512), slow, disk("small", 64, 4096)];
        Self {
            processors: 1,
            memory_mib: 1024,
            disks,
            is_release: false,
            has_monitor: false,
            keeps_root: false,
            packed: Vec::new(),
        }
    }
}

/// The first of the usual disks.
pub(crate) const SSD: &str = "ssd";
const ORIGIN: &str = "hdd";
/// The root disk of a machine that keeps it.
pub(crate) const ROOT: &str = "root";

/// Parameter of the kernel's command line for the scenario.
pub(crate) type Setting<'a> = (&'a str, &'a str);

/// Disks and output of a scenario, removed on drop.
#[derive(Debug)]
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    hardware: Hardware,
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
    /// Builds our programs and packs them for a machine with the usual hardware.
    pub(crate) fn new(image: &Image) -> anyhow::Result<Self> {
        Self::with(image, Hardware::usual())
    }

    /// Builds our programs and packs them for a machine with this hardware.
    pub(crate) fn with(image: &Image, hardware: Hardware) -> anyhow::Result<Self> {
        if hardware.is_release {
            let release = ["build", "--locked", "--release", "--package", "zcached", "--package", "zcctl"];
            run(cargo().args(release))?;
        }
        if std::env::var_os(BUILT).is_none() {
            // Without packages: with the features of the default members.
            let programs = ["--bin", "zcached", "--bin", "zcctl", "--bin", LOAD];
            run(cargo().args(["build", "--locked"]).args(programs))?;
        }
        let bench = Self { dir: tempfile::tempdir().context("no place for temporary files")?, hardware };
        bench.empty_disks()?;
        if bench.hardware.keeps_root {
            duplicate(&image.root(), &bench.path(ROOT))?;
        }
        bench.pack(image)?;
        Ok(bench)
    }

    /// Makes the disks as they are at first.
    pub(crate) fn empty_disks(&self) -> anyhow::Result<()> {
        for disk in &self.hardware.disks {
            if let Content::EmptyMib(mib) = disk.content {
                sparse(&self.path(disk.name), mib << 20)?;
            }
        }
        Ok(())
    }

    /// A file in the place of the scenario.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Builds the initramfs: busybox, the driver of the disks, and the contents of /payload.
    fn pack(&self, image: &Image) -> anyhow::Result<()> {
        let tree = self.path("tree");
        let payload = tree.join("payload");
        for dir in [tree.join("bin"), payload.clone()] {
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let busybox = crate::host::packages::find("busybox").context("there is no busybox")?;
        copy(&busybox, &tree.join("bin/busybox"))?;
        copy(&image.driver(), &tree.join("virtio_blk.ko"))?;
        write(&tree.join("init"), INIT)?;
        for (name, text) in GUEST {
            write(&payload.join(name), text)?;
        }
        for name in PROGRAMS {
            let packed = payload.join(name);
            copy(&self.program(name)?, &packed)?;
            run_quietly(Command::new("strip").arg(&packed), &[0])?;
        }
        for file in &self.hardware.packed {
            copy(&file.path, &payload.join(file.name))?;
        }
        let script = "cd \"$1\" && find . | busybox cpio -o -H newc > \"$2\"";
        let mut command = Command::new("sh");
        run_quietly(command.args(["-ec", script, "sh"]).arg(&tree).arg(self.path("initrd")), &[0])
    }

    /// A program of ours as it was built for this machine.
    fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        if self.hardware.is_release && name != LOAD {
            return Ok(build_dir()?.join("release").join(name));
        }
        beside_our_own(name)
    }

    /// Boots, with words for the scenario.
    pub(crate) fn boot(
        &self,
        image: &Image,
        scenario: &str,
        settings: &[Setting<'_>],
    ) -> anyhow::Result<Machine> {
        self.start(self.qemu(image, &line(scenario, settings), &|disk| Some(self.plain_disk(disk))))
    }

    /// Boots with an initramfs that was built in the machine, with a kernel parameter, and without the disk `missing`.
    pub(crate) fn boot_from(
        &self,
        image: &Image,
        initramfs: &Path,
        settings: &[Setting<'_>],
        word: &str,
        missing: Option<&str>,
    ) -> anyhow::Result<Machine> {
        // The package that has /sbin/init is not among the root's.
        let line = format!("{} init=/lib/systemd/systemd {word}", line("rooted", settings));
        let is_there = |disk: &Disk| missing != Some(disk.name);
        let mut command = self.qemu(image, &line, &|disk| is_there(disk).then(|| self.plain_disk(disk)));
        // The later one counts.
        command.arg("-initrd").arg(initramfs);
        self.start(command)
    }

    /// Boots with disks from which [`Self::lose`] removes unflushed data.
    pub(crate) fn boot_to_lose(
        &self,
        image: &Image,
        scenario: &str,
        settings: &[Setting<'_>],
    ) -> anyhow::Result<Machine> {
        for disk in &self.hardware.disks {
            duplicate(&self.path(disk.name), &self.in_use(disk))?;
            sparse(&self.log(disk), LOG_BYTES)?;
        }
        let mut command = self.qemu(image, &line(scenario, settings), &|disk| Some(self.logged_disk(disk)));
        for property in ["write-zeroes", "request-merging"] {
            command.arg("-global").arg(format!("virtio-blk-device.{property}=off"));
        }
        self.start(command)
    }

    /// Applies a power cut to the disks. Returns the numbers of requests, or pieces, that each kept and lost.
    pub(crate) fn lose(&self, chance: &mut Chance) -> anyhow::Result<String> {
        let mut lost = Vec::new();
        for disk in &self.hardware.disks {
            let loss = crate::loss::cut(&self.path(disk.name), &self.log(disk), disk.torn_at_bytes, chance)?;
            lost.push(format!("{} {}/{}", disk.name, loss.kept, loss.lost));
        }
        Ok(lost.join(", "))
    }

    /// A copy of the slow disk, to be changed at will.
    pub(crate) fn copy_of_origin(&self) -> anyhow::Result<PathBuf> {
        let copy = self.path("bare");
        duplicate(&self.path(ORIGIN), &copy)?;
        Ok(copy)
    }

    /// An empty folder.
    pub(crate) fn empty_folder(&self) -> anyhow::Result<PathBuf> {
        let folder = self.path("folder");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).context("cannot remove a temporary folder")?;
        }
        std::fs::create_dir(&folder).context("cannot create a temporary folder")?;
        Ok(folder)
    }

    /// Keeps all files, and returns their folder.
    pub(crate) fn keep(self) -> PathBuf {
        self.dir.keep()
    }

    fn in_use(&self, disk: &Disk) -> PathBuf {
        self.path(&format!("{}.used", disk.name))
    }

    fn log(&self, disk: &Disk) -> PathBuf {
        self.path(&format!("{}.log", disk.name))
    }

    fn start(&self, mut command: Command) -> anyhow::Result<Machine> {
        let (console, results) = (self.path("console"), self.path("results"));
        std::fs::write(&results, "").context("cannot write to the folder of the scenario")?;
        command.arg("-display").arg("none").arg("-serial").arg(file_option(&console));
        command.arg("-serial").arg(file_option(&results)).args(["-monitor", "none"]);
        if self.hardware.has_monitor {
            // Two ends of one socket, both in QEMU: the port, and the monitor that answers it.
            let socket = self.path("monitor");
            let end = |id: &str, role: &str| format!("socket,id={id},path={}{role}", socket.display());
            command.arg("-chardev").arg(end("monitor", ",server=on,wait=off"));
            command.arg("-chardev").arg(end("port", ""));
            command.args(["-mon", "chardev=monitor,mode=control", "-serial", "chardev:port"]);
        }
        command.stdin(Stdio::null());
        let qemu = command.spawn().context("cannot start qemu-system-x86_64")?;
        Ok(Machine { qemu, results, console })
    }

    /// Boots with the console on this terminal, and waits for the end.
    pub(crate) fn shell(&self, image: &Image) -> anyhow::Result<()> {
        let mut command = self.qemu(image, &line("shell", &[]), &|disk| Some(self.plain_disk(disk)));
        command.arg("-nographic").arg("-serial").arg("mon:stdio").args(["-serial", "null"]);
        run(&mut command)
    }

    fn qemu(&self, image: &Image, line: &str, disk_option: &dyn Fn(&Disk) -> Option<String>) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-cpu", PROCESSOR]);
        command.args([
            "-smp",
            &self.hardware.processors.to_string(),
            "-m",
            &self.hardware.memory_mib.to_string(),
            "-nic",
            "none",
            "-no-reboot",
            "-nodefaults",
        ]);
        command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(self.path("initrd"));
        command.arg("-append").arg(line);
        let (root, keep) =
            if self.hardware.keeps_root { (self.path(ROOT), "") } else { (image.root(), ",snapshot=on") };
        command.arg("-drive").arg(format!("if=virtio,format=raw,file={}{keep}", root.display()));
        for option in self.hardware.disks.iter().filter_map(disk_option) {
            command.arg("-drive").arg(option);
        }
        command
    }

    fn plain_disk(&self, disk: &Disk) -> String {
        let cache = if disk.is_direct { ",cache=none" } else { "" };
        let (path, keep) = match &disk.content {
            Content::EmptyMib(_) => (self.path(disk.name), ""),
            Content::CopyOf(path) => (path.clone(), ",snapshot=on"),
        };
        let (name, path) = (disk.name, path.display());
        format!("if=virtio,id={name},format=raw,file={path},discard=unmap{cache}{keep}{}", throttle(disk))
    }

    /// Every request goes to a log, too. QEMU may garble the log when a command writes zeros, and cannot log requests
    /// of very many parts, as it makes them by merging; so there are neither, the machine writes zeros. That the files
    /// are not flushed does not matter as long as this host stays up.
    fn logged_disk(&self, disk: &Disk) -> String {
        let file = |key: &str, path: &Path| {
            format!(
                "{key}.driver=file,{key}.filename={},{key}.discard=unmap,{key}.cache.no-flush=on",
                path.display()
            )
        };
        format!(
            "if=virtio,driver=blklogwrites,discard=unmap,log-sector-size={SECTOR_BYTES},{},{}{}",
            file("file", &self.in_use(disk)),
            file("log", &self.log(disk)),
            throttle(disk)
        )
    }
}

/// The kernel's command line.
fn line(scenario: &str, settings: &[Setting<'_>]) -> String {
    let mut line = format!("console=ttyS0 quiet panic=-1 mitigations=off no_timer_check scenario={scenario}");
    for (name, value) in settings {
        line.push_str(&format!(" {name}={value}"));
    }
    line
}

fn throttle(disk: &Disk) -> String {
    disk.iops.map_or_else(String::new, |iops| format!(",throttling.iops-total={iops}"))
}

/// Path of a program built beside this one.
pub(crate) fn beside_our_own(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this task itself was built")?;
    Ok(own.with_file_name(name))
}

/// The program that writes and judges files.
pub(crate) fn load_program() -> anyhow::Result<PathBuf> {
    beside_our_own(LOAD)
}

fn sparse(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).context("cannot create a disk")?;
    file.set_len(bytes).context("cannot size a disk")
}

/// Copies a disk with its holes.
fn duplicate(from: &Path, to: &Path) -> anyhow::Result<()> {
    run_quietly(Command::new("cp").args(["--reflink=auto", "--sparse=always"]).arg(from).arg(to), &[0])
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
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// Polling interval of the machine's state.
const POLL: Duration = Duration::from_millis(50);
/// Polls until all threads of the machine have stopped, at most.
const STOP_TRIES: u32 = 400;

/// Returns `true` if all threads of a process are stopped.
fn every_thread_stands(id: &str) -> anyhow::Result<bool> {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).context("qemu went away")?;
    for thread in threads {
        let path = thread.context("cannot list the threads of qemu")?.path().join("stat");
        let stat = std::fs::read_to_string(&path).context("a thread of qemu went away")?;
        // The state stands behind the name, which is in parentheses.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        if state != Some('T') {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Machine {
    /// Returns the machine's complete report lines so far.
    pub(crate) fn lines(&self) -> anyhow::Result<Vec<String>> {
        let text = std::fs::read(&self.results).context("cannot read the results")?;
        let text = String::from_utf8_lossy(&text);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect())
    }

    /// Runs it until `done` accepts its lines, it switches itself off, or the time limit. `seen` is called with each
    /// new line.
    ///
    /// # Errors
    /// When the time limit is reached.
    pub(crate) fn follow(
        &mut self,
        limit: Duration,
        mut seen: impl FnMut(&str),
        mut done: impl FnMut(&[String]) -> bool,
    ) -> anyhow::Result<Vec<String>> {
        let mut passed_on = 0;
        let mut left = limit.as_millis() / POLL.as_millis();
        loop {
            let ended = self.qemu.try_wait().context("cannot wait for qemu")?.is_some();
            let lines = self.lines()?;
            lines[passed_on..].iter().for_each(|line| seen(line));
            passed_on = lines.len();
            if ended || done(&lines) {
                return Ok(lines);
            }
            if left == 0 {
                self.show_console();
                bail!("the machine did not end within {} s", limit.as_secs());
            }
            left -= 1;
            wait(POLL);
        }
    }

    /// Runs it until all these texts appear on its console, or it ends.
    ///
    /// # Errors
    /// When they do not appear.
    pub(crate) fn until_said(&mut self, words: &[&str], limit: Duration) -> anyhow::Result<()> {
        let mut left = limit.as_millis() / POLL.as_millis();
        loop {
            let ended = self.qemu.try_wait().context("cannot wait for qemu")?.is_some();
            let text = std::fs::read(&self.console).context("cannot read the console")?;
            let text = String::from_utf8_lossy(&text);
            let Some(unsaid) = words.iter().find(|words| !text.contains(**words)) else { return Ok(()) };
            if ended || left == 0 {
                self.show_console();
                bail!("the console does not say \"{unsaid}\"");
            }
            left -= 1;
            wait(POLL);
        }
    }

    /// Runs it for a time.
    pub(crate) fn run_on(&self, time: Duration) {
        wait(time);
    }

    /// Stops it between two instructions, with the disks' pending operations completed, and returns its reports.
    ///
    /// # Errors
    /// It cannot be stopped.
    pub(crate) fn cut_power(&mut self) -> anyhow::Result<Vec<String>> {
        let id = self.qemu.id().to_string();
        let stopped = Command::new("kill").args(["-STOP", &id]).status().context("cannot stop qemu")?;
        ensure!(stopped.success(), "qemu cannot be stopped");
        for _ in 0..STOP_TRIES {
            if every_thread_stands(&id)? {
                return self.lines();
            }
            wait(POLL);
        }
        bail!("qemu does not stop");
    }

    /// Prints the end of its console output.
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
