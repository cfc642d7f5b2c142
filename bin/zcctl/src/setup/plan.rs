//! Plan of a setup: the cache device, the origins, and the configuration.
//!
//! Job: decide, or refuse with a reason.
//!
//! Invariants: the cache is an empty device that no program uses. Origins are named by the operator and never written.
//! No two devices overlap. The daemon accepts the configuration.
//!
//! It does not inspect devices (`machine`), or execute anything.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use toml_edit::Value as Toml;
use zc_config::Config;
use zc_ublk::Driver;

use super::machine::{Disk, Machine};
use super::signature::{CACHE, Content, PARTITIONS, STORE};
use crate::units::size;

/// Minimum size of an SSD that is chosen automatically.
const CHOSEN_BYTES_MIN: u64 = 1 << 30;

/// `[NAME=]DEVICE` from a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedOrigin {
    name: Option<String>,
    path: PathBuf,
}

impl FromStr for NamedOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !text.starts_with('/') => (Some(name), path),
            _ => (None, text),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_some_and(|name| name.is_empty() || !name.chars().all(plain)) {
            return Err("a name has letters, digits, hyphens, dots and underscores".to_owned());
        }
        Ok(Self { name: name.map(str::to_owned), path: path.into() })
    }
}

/// Operator's options.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) cache: Option<&'a Path>,
    pub(crate) origins: &'a [NamedOrigin],
    pub(crate) state_dir: &'a Path,
    pub(crate) socket: &'a Path,
}

#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: String,
    pub(crate) disk: Disk,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cache: Disk,
    pub(crate) origins: Vec<Origin>,
    /// The text of the configuration.
    pub(crate) config: String,
    pub(crate) warnings: Vec<String>,
    /// Volumes become ublk devices when the daemon starts; otherwise they are served over NBD.
    is_ublk: bool,
}

impl Plan {
    /// # Errors
    /// When the options would affect a device with users or contents, or are inconsistent.
    pub(crate) fn new(machine: &Machine, disks: &[Disk], wish: &Wish<'_>) -> anyhow::Result<Self> {
        let mut origins: Vec<Origin> = Vec::new();
        for (number, wanted) in (1..).zip(wish.origins) {
            let disk = find(machine, disks, &wanted.path)?;
            check_origin(&disk)?;
            let name = wanted.name.clone().unwrap_or_else(|| format!("disk{number}"));
            ensure!(origins.iter().all(|other| other.name != name), "two origins are named {name}");
            if let Some(other) = origins.iter().find(|other| overlap(&other.disk, &disk)) {
                bail!(
                    "{} and {} are one device, or one is a part of the other",
                    describe(&other.disk),
                    describe(&disk)
                );
            }
            origins.push(Origin { name, disk });
        }
        let cache = match wish.cache {
            Some(path) => find(machine, disks, path)?,
            None => chosen(disks, &origins)?,
        };
        check_cache(&cache)?;
        if let Some(origin) = origins.iter().find(|origin| overlap(&origin.disk, &cache)) {
            bail!(
                "{} cannot be the cache: it overlaps with the origin {}",
                describe(&cache),
                describe(&origin.disk)
            );
        }
        let mut warnings = warnings(&cache, &origins);
        let is_ublk = match machine.ublk() {
            Driver::Loaded | Driver::Loadable => true,
            Driver::Missing(why) => {
                warnings.push(format!(
                    "no block devices of ublk: {why}. NBD serves the volumes at {}; after a stop of the daemon such \
                     devices have to be attached again",
                    nbd_socket(wish.socket).display()
                ));
                false
            }
        };
        let (config, parsed) = config(&cache, &origins, is_ublk, wish)?;
        warnings.extend(zc_daemon::memory_warning(&parsed, cache.size_bytes));
        Ok(Self { cache, origins, config, warnings, is_ublk })
    }

    /// Commands that follow, in their order, and lines for /etc/fstab.
    pub(crate) fn next(&self, config_path: &Path) -> (Vec<String>, Vec<String>) {
        let mut commands = vec![
            format!("zcached check-config {}", config_path.display()),
            "systemctl enable --now zcached".to_owned(),
        ];
        let mut lines = Vec::new();
        if !self.is_ublk {
            commands.push("modprobe nbd".to_owned());
            commands.extend(self.origins.iter().map(|origin| format!("zcctl attach {} --nbd", origin.name)));
        }
        for Origin { name, disk } in &self.origins {
            let device = format!("/dev/disk/by-id/zcached-{name}");
            let kind = match &disk.content {
                Content::Nothing => {
                    commands.push(format!("mkfs.ext4 {device}"));
                    "ext4"
                }
                Content::Known("ext") => "ext4",
                Content::Known(kind @ ("xfs" | "btrfs" | "f2fs")) => kind,
                Content::Known(_) | Content::Unknown | Content::Unreadable(_) => continue,
            };
            if !self.is_ublk {
                // No program attaches such a device at the next boot.
                commands.push(format!("mount {device} /mnt/{name}"));
                continue;
            }
            let options = "defaults,x-systemd.after=zcached.service";
            lines.push(format!("{device} /mnt/{name} {kind} {options} 0 2"));
        }
        (commands, lines)
    }

    pub(crate) fn to_json(&self, config_path: &Path) -> Value {
        let (next, fstab) = self.next(config_path);
        let origin = |origin: &Origin| json!({ "volume": origin.name, "path": origin.disk.path });
        json!({
            "cache": self.cache.path,
            "origins": self.origins.iter().map(origin).collect::<Vec<_>>(),
            "config_path": config_path,
            "config": self.config,
            "warnings": self.warnings,
            "next": next,
            "fstab": fstab,
        })
    }
}

fn describe(disk: &Disk) -> String {
    disk.path.display().to_string()
}

fn find(machine: &Machine, disks: &[Disk], path: &Path) -> anyhow::Result<Disk> {
    let name = machine.name_of(path).with_context(|| format!("cannot use {}", path.display()))?;
    let disk = disks.iter().find(|disk| disk.name == name);
    disk.cloned().with_context(|| format!("{} is no disk, partition or volume of one", path.display()))
}

/// The only SSD that is free.
fn chosen(disks: &[Disk], origins: &[Origin]) -> anyhow::Result<Disk> {
    let fits = |disk: &&Disk| {
        disk.is_free()
            && disk.rotational == Some(false)
            && disk.size_bytes >= CHOSEN_BYTES_MIN
            && !disk.name.starts_with("loop")
            && origins.iter().all(|origin| !overlap(&origin.disk, disk))
    };
    let free: Vec<&Disk> = disks.iter().filter(fits).collect();
    match free[..] {
        [only] => Ok(only.clone()),
        [] => bail!("no SSD is free: `zcctl setup` lists the devices; name an empty one with --cache"),
        _ => {
            let names: Vec<String> = free.iter().map(|disk| describe(disk)).collect();
            bail!("several SSDs are free: {}; choose one with --cache", names.join(", "))
        }
    }
}

fn check_cache(cache: &Disk) -> anyhow::Result<()> {
    let place = describe(cache);
    if let Some(used) = &cache.used {
        bail!("{place} cannot be the cache: {used}");
    }
    ensure!(!cache.read_only, "{place} cannot be the cache: it is read-only");
    match &cache.content {
        Content::Nothing => Ok(()),
        Content::Unreadable(why) => bail!("{place} cannot be read ({why}); setup needs root"),
        content => bail!(
            "{place} cannot be the cache: it contains {}, and setup writes only to empty devices. If none of it is \
             needed, `blkdiscard {place}` empties an SSD",
            content.object()
        ),
    }
}

fn check_origin(origin: &Disk) -> anyhow::Result<()> {
    let place = describe(origin);
    if let Some(used) = &origin.used {
        bail!(
            "{place} cannot be an origin: {used}. End that first, because another program would corrupt its data"
        );
    }
    ensure!(!origin.read_only, "{place} cannot be an origin: it is read-only");
    match &origin.content {
        Content::Known(CACHE | STORE) => {
            bail!("{place} cannot be an origin: it is {}", origin.content.describe())
        }
        Content::Unreadable(why) => bail!("{place} cannot be read ({why}); setup needs root"),
        _ => Ok(()),
    }
}

/// Returns `true` if both are the same disk, or one is a partition of the other.
fn overlap(one: &Disk, other: &Disk) -> bool {
    one.name == other.name
        || one.parent.as_deref() == Some(&other.name)
        || other.parent.as_deref() == Some(&one.name)
}

fn warnings(cache: &Disk, origins: &[Origin]) -> Vec<String> {
    let mut warnings = Vec::new();
    if cache.rotational != Some(false) {
        warnings.push(format!(
            "{} is not an SSD according to the kernel; the cache will be slow",
            describe(cache)
        ));
    }
    for disk in std::iter::once(cache).chain(origins.iter().map(|origin| &origin.disk)) {
        if !disk.has_id() {
            let what = "has no name in /dev/disk/by-id; another device may have its name after a boot";
            warnings.push(format!("{} {what}", describe(disk)));
        }
    }
    for Origin { name, disk } in origins {
        let place = describe(disk);
        match &disk.content {
            Content::Nothing => {}
            Content::Known(PARTITIONS) => warnings.push(format!(
                "{place} has partitions: volume {name} will have them, too; use them there, not on the disk"
            )),
            content => warnings.push(format!(
                "{place} holds {}: take it out of /etc/fstab, also by its UUID; both at once destroy it",
                content.describe()
            )),
        }
    }
    warnings
}

/// Returns the NBD socket on machines without ublk: beside the control socket.
fn nbd_socket(control: &Path) -> PathBuf {
    control.with_file_name("nbd.sock")
}

/// Returns the text of the configuration, and its parsed form.
fn config(
    cache: &Disk,
    origins: &[Origin],
    is_ublk: bool,
    wish: &Wish<'_>,
) -> anyhow::Result<(String, Config)> {
    let text = |path: &Path| {
        let text = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
        anyhow::Ok(Toml::from(text).to_string())
    };
    let mut out = String::from("# Made by `zcctl setup`. zcached.toml(5) explains every key.\n\n[cache]\n");
    writeln!(out, "# {}, {}", cache.kind(), size(cache.size_bytes))?;
    writeln!(out, "path = {}\nstate_dir = {}", text(&cache.path)?, text(wish.state_dir)?)?;
    for Origin { name, disk } in origins {
        writeln!(out, "\n[[volume]]\nname = {}", Toml::from(name.as_str()))?;
        writeln!(out, "# {}, {}, {}", disk.kind(), size(disk.size_bytes), disk.content.describe())?;
        writeln!(out, "origin = {}", text(&disk.path)?)?;
        if is_ublk {
            writeln!(out, "ublk.attach = true")?;
        }
    }
    out.push_str("\n[nbd]\n");
    if is_ublk {
        out.push_str("# The volumes are block devices; nothing listens.\nlisten = []\n");
    } else {
        out.push_str(
            "# This kernel has no ublk; `zcctl attach VOLUME --nbd` makes a block device.\nlisten = []\n",
        );
        writeln!(out, "unix = [{}]", text(&nbd_socket(wish.socket))?)?;
    }
    writeln!(out, "\n[control]\nsocket = {}", text(wish.socket)?)?;
    let parsed =
        Config::parse(&out, "the configuration").context("the daemon would refuse the configuration")?;
    Ok((out, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::machine::tests::MadeUp;

    const STATE: &str = "/var/lib/zcached";
    const SOCKET: &str = "/run/zcached/control.sock";

    fn planned(made: &MadeUp, cache: Option<&str>, origins: &[&str]) -> anyhow::Result<Plan> {
        let at = |name: &str| made.folder.path().join("dev").join(name);
        let cache = cache.map(at);
        let named = |text: &&str| match text.split_once('=') {
            Some((name, device)) => format!("{name}={}", at(device).display()),
            None => at(text).display().to_string(),
        };
        let origins: Vec<NamedOrigin> = origins.iter().map(|text| named(text).parse().unwrap()).collect();
        let (state_dir, socket) = (Path::new(STATE), Path::new(SOCKET));
        let wish = Wish { cache: cache.as_deref(), origins: &origins, state_dir, socket };
        let machine = made.machine();
        Plan::new(&machine, &machine.disks().unwrap(), &wish)
    }

    fn refusal(made: &MadeUp, cache: Option<&str>, origins: &[&str]) -> String {
        format!("{:#}", planned(made, cache, origins).unwrap_err())
    }

    /// An SSD, a disk with a file system, an empty one, and one that is in use.
    fn machine() -> MadeUp {
        let made = MadeUp::new();
        made.disk("nvme0n1", "259:0", 1024, false);
        made.disk("sda", "8:0", 4, true);
        made.disk("sdb", "8:16", 4, true);
        made.disk("sdc", "8:32", 4, true);
        made.partition("sdc", "sdc1", "8:33", 2);
        made.id("nvme-Fast_1", "nvme0n1");
        made.id("ata-Full_1", "sda");
        made.id("ata-Empty_1", "sdb");
        made.put("sda", 1024 + 56, b"\x53\xef");
        made.write("proc/self/mountinfo", b"22 1 8:33 / /home rw - ext4 /dev/sdc1 rw\n");
        made
    }

    #[test]
    fn the_only_free_ssd_becomes_the_cache() {
        let made = machine();
        let plan = planned(&made, None, &["sda", "fresh=sdb"]).unwrap();
        assert!(plan.cache.path.ends_with("by-id/nvme-Fast_1"));
        let config = Config::parse(&plan.config, "test").unwrap();
        let volumes: Vec<_> =
            config.volumes.iter().map(|volume| (volume.name.as_str(), volume.ublk.attach)).collect();
        assert_eq!(volumes, [("disk1", true), ("fresh", true)]);
        assert!(config.volumes[0].origin.ends_with("by-id/ata-Full_1"));
        let [warning] = &plan.warnings[..] else { panic!("{:?}", plan.warnings) };
        assert!(warning.contains("holds ext: take it out of /etc/fstab"), "{warning}");
        let (commands, lines) = plan.next(Path::new("/etc/zcached.toml"));
        let expected = [
            "zcached check-config /etc/zcached.toml",
            "systemctl enable --now zcached",
            "mkfs.ext4 /dev/disk/by-id/zcached-fresh",
        ];
        assert_eq!(commands, expected);
        let options = "ext4 defaults,x-systemd.after=zcached.service 0 2";
        let line = |name: &str| format!("/dev/disk/by-id/zcached-{name} /mnt/{name} {options}");
        assert_eq!(lines, [line("disk1"), line("fresh")]);
    }

    #[test]
    fn without_ublk_nbd_serves_the_volumes() {
        let made = machine();
        made.write("proc/sys/kernel/osrelease", b"6.1.0\n");
        made.without_ublk();
        let plan = planned(&made, None, &["sda", "fresh=sdb"]).unwrap();
        let config = Config::parse(&plan.config, "test").unwrap();
        assert!(config.volumes.iter().all(|volume| !volume.ublk.attach), "{}", plan.config);
        assert_eq!(config.nbd.unix, [Path::new("/run/zcached/nbd.sock")]);
        assert!(config.nbd.listen.is_empty() && config.notes().is_empty(), "{:?}", config.notes());
        let warning = plan.warnings.last().unwrap();
        assert!(warning.contains("no ublk") && warning.contains("/run/zcached/nbd.sock"), "{warning}");
        let (commands, lines) = plan.next(Path::new("/etc/zcached.toml"));
        let expected = [
            "zcached check-config /etc/zcached.toml",
            "systemctl enable --now zcached",
            "modprobe nbd",
            "zcctl attach disk1 --nbd",
            "zcctl attach fresh --nbd",
            "mount /dev/disk/by-id/zcached-disk1 /mnt/disk1",
            "mkfs.ext4 /dev/disk/by-id/zcached-fresh",
            "mount /dev/disk/by-id/zcached-fresh /mnt/fresh",
        ];
        assert_eq!(commands, expected);
        assert!(lines.is_empty(), "{lines:?}");
        // A module that the unit loads.
        made.write("lib/modules/6.1.0/modules.dep", b"kernel/drivers/block/ublk_drv.ko:\n");
        assert!(planned(&made, None, &["sda"]).unwrap().config.contains("ublk.attach = true"));
    }

    #[test]
    fn what_is_in_use_or_holds_something_is_no_cache() {
        let made = machine();
        assert!(
            refusal(&made, Some("sda"), &["sdb"])
                .contains("it contains an ext2/3/4 file system, and setup writes only to empty devices")
        );
        assert!(refusal(&made, Some("sdc"), &["sdb"]).contains("sdc1 on it: it is mounted at /home"));
        assert!(refusal(&made, Some("sdc1"), &["sdb"]).contains("it is mounted at /home"));
        assert!(refusal(&made, Some("none"), &["sdb"]).contains("cannot use"));
        made.write("sys/block/nvme0n1/ro", b"1\n");
        assert!(refusal(&made, Some("nvme0n1"), &["sdb"]).contains("it is read-only"));
        assert!(refusal(&made, None, &["sdb"]).contains("no SSD is free"));
        let slow = planned(&made, Some("sdb"), &["sda"]).unwrap();
        assert!(slow.warnings[0].contains("is not an SSD"), "{:?}", slow.warnings);
    }

    #[test]
    fn several_free_ssds_are_a_choice_of_the_operator() {
        let made = machine();
        made.disk("nvme1n1", "259:1", 2048, false);
        let why = refusal(&made, None, &["sdb"]);
        assert!(
            why.contains("several SSDs are free") && why.contains("nvme-Fast_1") && why.contains("nvme1n1"),
            "{why}"
        );
        planned(&made, None, &["sdb", "nvme1n1"]).expect("one of them is an origin");
        let plan = planned(&made, Some("nvme1n1"), &["sdb"]).unwrap();
        assert!(plan.warnings[0].contains("has no name in /dev/disk/by-id"), "{:?}", plan.warnings);
    }

    #[test]
    fn an_origin_is_in_no_use_and_overlaps_with_nothing() {
        let made = machine();
        assert!(refusal(&made, None, &["sdc1"]).contains("cannot be an origin: it is mounted at /home"));
        assert!(refusal(&made, None, &["sda", "sda"]).contains("are one device"));
        assert!(refusal(&made, None, &["a=sda", "a=sdb"]).contains("two origins are named a"));
        made.write("proc/self/mountinfo", b"");
        assert!(refusal(&made, None, &["sdc", "sdc1"]).contains("one is a part of the other"));
        assert!(refusal(&made, Some("sdc"), &["sdc1"]).contains("it overlaps with the origin"));
        made.put("sdb", 4, b"zcached\x01");
        assert!(refusal(&made, None, &["sdb"]).contains("it is a zcached cache"));
    }

    #[test]
    fn names_are_read() {
        let read = |text: &str| text.parse::<NamedOrigin>();
        assert_eq!(read("/dev/a=b").unwrap(), NamedOrigin { name: None, path: "/dev/a=b".into() });
        assert_eq!(
            read("vm.1=/dev/a").unwrap(),
            NamedOrigin { name: Some("vm.1".into()), path: "/dev/a".into() }
        );
        read("a b=/dev/a").unwrap_err();
        read("=/dev/a").unwrap_err();
    }
}
