//! The block devices of a machine: sizes, kinds, users, contents.
//!
//! Job: read /sys/block, /proc and /dev, under a root that is passed in.
//!
//! Invariants: a device is in use if it, a partition of it, or its disk is. Uses that the kernel does not list are
//! detected by an exclusive open later. Nothing is written.
//!
//! It does not choose (`plan`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use zc_ublk::Driver;

use super::signature::{Content, content};

/// The kernel's unit of sizes in /sys.
const SECTOR_BYTES: u64 = 512;
/// Devices that neither cache nor origin can be: memory, drives for removable media, and those that a daemon serves.
const LEFT_OUT: [&str; 8] = ["ram", "zram", "sr", "fd", "mtdblock", "nbd", "ublkb", "nullb"];
/// Less descriptive names in /dev/disk/by-id, which are sorted last.
const BARE_IDS: [&str; 4] = ["wwn-", "nvme-eui.", "nvme-nvme.", "lvm-pv-uuid-"];

/// Root of the kernel's file systems.
#[derive(Debug)]
pub(crate) struct Machine {
    root: PathBuf,
}

/// A disk, a partition, or a device that is made of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The kernel's name.
    pub(crate) name: String,
    /// A lasting path in /dev/disk/by-id if there is one, else the path in /dev.
    pub(crate) path: PathBuf,
    pub(crate) parent: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) rotational: Option<bool>,
    pub(crate) read_only: bool,
    /// User of the disk: a clause such as "it is mounted at /srv".
    pub(crate) used: Option<String>,
    pub(crate) content: Content,
}

impl Disk {
    /// Returns `true` if the name is stable across additions and removals of disks.
    pub(crate) fn has_id(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "by-id")
    }

    /// Returns `true` if a cache may take it: no program uses it, and it is empty.
    pub(crate) fn is_free(&self) -> bool {
        self.used.is_none() && !self.read_only && self.content == Content::Nothing
    }

    /// Returns "ssd", "disk", or "?" if the kernel does not report it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self.rotational {
            Some(true) => "disk",
            Some(false) => "ssd",
            None => "?",
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "path": self.path,
            "partition_of": self.parent,
            "size_bytes": self.size_bytes,
            "rotational": self.rotational,
            "read_only": self.read_only,
            "used": self.used,
            "content": self.content.describe(),
            "free": self.is_free(),
        })
    }
}

/// Kernel information beyond single devices.
struct Kernel {
    mounts: String,
    swaps: String,
    /// Names in /dev/disk/by-id, with the kernel's.
    ids: Vec<(String, PathBuf)>,
}

impl Machine {
    /// A machine whose /sys, /proc and /dev are in this folder.
    pub(crate) fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn device(&self, name: &str) -> PathBuf {
        // A slash in a name of /dev is an exclamation mark in /sys.
        self.root.join("dev").join(name.replace('!', "/"))
    }

    /// The kernel's name of the device at a path, wherever links lead.
    pub(crate) fn name_of(&self, path: &Path) -> io::Result<String> {
        let (path, folder) = (fs::canonicalize(path)?, fs::canonicalize(self.root.join("dev"))?);
        let name = path.strip_prefix(folder).map_err(|_| io::Error::other("it is no device in /dev"))?;
        Ok(name.to_string_lossy().replace('/', "!"))
    }

    /// Returns `true` if the kernel has ublk.
    pub(crate) fn ublk(&self) -> Driver {
        zc_ublk::driver(&self.root)
    }

    /// Returns the devices, each disk before its partitions.
    ///
    /// # Errors
    /// When the kernel does not list them.
    pub(crate) fn disks(&self) -> io::Result<Vec<Disk>> {
        let read = |path: &str| fs::read_to_string(self.root.join(path)).unwrap_or_default();
        let kernel =
            Kernel { mounts: read("proc/self/mountinfo"), swaps: read("proc/swaps"), ids: self.ids() };
        let mut disks = Vec::new();
        for name in names(&self.root.join("sys/block"))? {
            if LEFT_OUT.iter().any(|kind| is_of(&name, kind)) {
                continue;
            }
            let folder = self.root.join("sys/block").join(&name);
            let mut group = vec![self.disk(&name, None, &folder, &kernel)];
            for part in
                names(&folder)?.into_iter().filter(|part| folder.join(part).join("partition").exists())
            {
                group.push(self.disk(&part, Some(&name), &folder.join(&part), &kernel));
            }
            share_uses(&mut group);
            disks.extend(group.into_iter().filter(|disk| disk.size_bytes > 0));
        }
        Ok(disks)
    }

    fn disk(&self, name: &str, parent: Option<&str>, folder: &Path, kernel: &Kernel) -> Disk {
        let attribute =
            |path: &str| fs::read_to_string(folder.join(path)).ok().map(|text| text.trim().to_owned());
        // The queue of a partition is that of its disk.
        let rotational = attribute("queue/rotational").or_else(|| attribute("../queue/rotational"));
        let size_bytes =
            attribute("size").and_then(|sectors| sectors.parse::<u64>().ok()).unwrap_or(0) * SECTOR_BYTES;
        let device = self.device(name);
        let content = if size_bytes > 0 { content(&device) } else { Content::Nothing };
        let id = kernel.ids.iter().find(|(of, _)| of == name).map(|(_, id)| id.clone());
        Disk {
            name: name.to_owned(),
            used: kernel.used(&device, attribute("dev").as_deref()).or_else(|| holder(folder)),
            path: id.unwrap_or(device),
            parent: parent.map(str::to_owned),
            size_bytes,
            rotational: rotational.map(|text| text == "1"),
            read_only: attribute("ro").is_some_and(|text| text != "0"),
            content,
        }
    }

    /// Returns the names in /dev/disk/by-id with their targets, most descriptive first.
    fn ids(&self) -> Vec<(String, PathBuf)> {
        let folder = self.root.join("dev/disk/by-id");
        let mut ids = names(&folder).unwrap_or_default();
        ids.sort_by_key(|id| (BARE_IDS.iter().any(|bare| id.starts_with(bare)), id.len()));
        let named = |id: String| {
            let path = folder.join(id);
            Some((self.name_of(&path).ok()?, path))
        };
        ids.into_iter().filter_map(named).collect()
    }
}

impl Kernel {
    /// Returns the use of the device itself as a mount or swap space.
    fn used(&self, device: &Path, number: Option<&str>) -> Option<String> {
        let device = device.to_string_lossy();
        let mounted = self.mounts.lines().find_map(|line| {
            let (fields, source) = line.split_once(" - ")?;
            let mut fields = fields.split(' ').skip(2);
            let is_it = fields.next() == number;
            let place = fields.nth(1)?;
            // A file system over several devices has a number of its own.
            (is_it || source.split(' ').nth(1) == Some(&*device)).then(|| place.replace("\\040", " "))
        });
        let is_swap =
            || self.swaps.lines().skip(1).any(|line| line.split_whitespace().next() == Some(&*device));
        mounted
            .map(|place| format!("it is mounted at {place}"))
            .or_else(|| is_swap().then(|| "it is swap space".to_owned()))
    }
}

/// Returns the device on top of a disk: device mapper, md and others.
fn holder(folder: &Path) -> Option<String> {
    let holders = folder.join("holders");
    let holder = names(&holders).ok()?.into_iter().next()?;
    let name = fs::read_to_string(holders.join(&holder).join("dm/name")).ok();
    let named = name.map_or_else(String::new, |name| format!(" ({})", name.trim()));
    Some(format!("it is used by {holder}{named}"))
}

/// A disk is in use when a partition is, and a partition when its disk is as a whole.
fn share_uses(group: &mut [Disk]) {
    let Some((disk, parts)) = group.split_first_mut() else { return };
    let own = disk.used.clone();
    let part = parts.iter().find_map(|part| Some(format!("{} on it: {}", part.name, part.used.as_ref()?)));
    disk.used = disk.used.take().or(part);
    for part in parts {
        let whole = own.as_ref().map(|used| format!("{}, which it is on: {used}", disk.name));
        part.used = part.used.take().or(whole);
    }
}

/// Returns `true` if a name is one of a kind: its letters, then a number.
fn is_of(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the entries of a folder, sorted.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    Ok(names)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    pub(crate) struct MadeUp {
        pub(crate) folder: tempfile::TempDir,
    }

    impl MadeUp {
        pub(crate) fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for part in ["sys/block", "proc/self", "dev/disk/by-id"] {
                fs::create_dir_all(folder.path().join(part)).unwrap();
            }
            let made = Self { folder };
            made.write("dev/ublk-control", b"");
            made
        }

        /// Takes ublk away.
        pub(crate) fn without_ublk(&self) {
            fs::remove_file(self.folder.path().join("dev/ublk-control")).unwrap();
        }

        pub(crate) fn machine(&self) -> Machine {
            Machine::under(self.folder.path())
        }

        pub(crate) fn write(&self, path: &str, text: &[u8]) {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Creates a disk of `mib` MiB with a device number.
        pub(crate) fn disk(&self, name: &str, number: &str, mib: u64, rotational: bool) {
            let sys = format!("sys/block/{name}");
            self.write(&format!("{sys}/queue/rotational"), if rotational { b"1\n" } else { b"0\n" });
            self.block(&sys, name, number, mib);
        }

        pub(crate) fn partition(&self, disk: &str, name: &str, number: &str, mib: u64) {
            let sys = format!("sys/block/{disk}/{name}");
            self.write(&format!("{sys}/partition"), b"1\n");
            self.block(&sys, name, number, mib);
        }

        fn block(&self, sys: &str, name: &str, number: &str, mib: u64) {
            self.write(&format!("{sys}/size"), format!("{}\n", mib * 2048).as_bytes());
            self.write(&format!("{sys}/dev"), format!("{number}\n").as_bytes());
            self.write(&format!("{sys}/ro"), b"0\n");
            fs::create_dir_all(self.folder.path().join(sys).join("holders")).unwrap();
            self.write(&format!("dev/{name}"), b"");
            let device =
                fs::File::options().write(true).open(self.folder.path().join("dev").join(name)).unwrap();
            device.set_len(mib << 20).unwrap();
        }

        pub(crate) fn put(&self, name: &str, at: u64, bytes: &[u8]) {
            use std::os::unix::fs::FileExt as _;
            let device =
                fs::File::options().write(true).open(self.folder.path().join("dev").join(name)).unwrap();
            device.write_all_at(bytes, at).unwrap();
        }

        pub(crate) fn id(&self, id: &str, name: &str) {
            symlink(format!("../../{name}"), self.folder.path().join("dev/disk/by-id").join(id)).unwrap();
        }
    }

    fn used(disks: &[Disk], name: &str) -> Option<String> {
        disks.iter().find(|disk| disk.name == name).unwrap().used.clone()
    }

    #[test]
    fn devices_are_found_with_their_names_and_what_they_are() {
        let made = MadeUp::new();
        made.disk("sda", "8:0", 4, true);
        made.partition("sda", "sda1", "8:1", 2);
        made.disk("nvme0n1", "259:0", 8, false);
        made.disk("zram0", "253:0", 1, false);
        made.disk("loop0", "7:0", 0, false);
        made.id("wwn-0x5000", "sda");
        made.id("ata-Spinner_1", "sda");
        made.id("ata-Spinner_1-part1", "sda1");
        made.put("sda", 512, b"EFI PART");
        made.put("sda1", 0, b"XFSB");
        let disks = made.machine().disks().unwrap();
        let shown: Vec<_> = disks
            .iter()
            .map(|disk| {
                (
                    disk.name.as_str(),
                    disk.size_bytes >> 20,
                    disk.kind(),
                    disk.content.describe(),
                    disk.has_id(),
                )
            })
            .collect();
        let expected = [
            ("sda", 4, "disk", "a partition table".to_owned(), true),
            ("sda1", 2, "disk", "xfs".to_owned(), true),
            ("nvme0n1", 8, "ssd", "empty".to_owned(), false),
        ];
        assert_eq!(shown, expected);
        assert!(disks[0].path.ends_with("dev/disk/by-id/ata-Spinner_1"), "{:?}", disks[0].path);
        assert_eq!(disks[1].parent.as_deref(), Some("sda"));
        assert_eq!(disks.iter().filter(|disk| disk.is_free()).count(), 1);
        assert_eq!(made.machine().name_of(&disks[0].path).unwrap(), "sda");
        made.machine().name_of(Path::new("/proc/self/stat")).unwrap_err();
    }

    #[test]
    fn every_use_is_found() {
        let made = MadeUp::new();
        for (name, number) in
            [("sda", "8:0"), ("sdb", "8:16"), ("sdc", "8:32"), ("sdd", "8:48"), ("sde", "8:64")]
        {
            made.disk(name, number, 1, true);
        }
        made.partition("sda", "sda1", "8:1", 1);
        made.partition("sda", "sda2", "8:2", 1);
        made.partition("sdd", "sdd1", "8:49", 1);
        let dev = made.folder.path().join("dev");
        let mounts = format!(
            "22 1 8:1 / /my\\040disk rw,relatime shared:1 - ext4 /dev/sda1 rw\n30 22 0:31 / /pool rw - btrfs {} rw\n",
            dev.join("sdb").display()
        );
        made.write("proc/self/mountinfo", mounts.as_bytes());
        let swaps =
            format!("Filename Type Size Used Priority\n{} partition 1 0 -2\n", dev.join("sdc").display());
        made.write("proc/swaps", swaps.as_bytes());
        made.write("sys/block/sdd/holders/dm-0/dm/name", b"vg-root\n");
        let disks = made.machine().disks().unwrap();
        let is = |name: &str| used(&disks, name).unwrap_or_default();
        assert_eq!(is("sda1"), "it is mounted at /my disk");
        assert_eq!(is("sda"), "sda1 on it: it is mounted at /my disk");
        assert_eq!(used(&disks, "sda2"), None, "a neighbour");
        assert_eq!(is("sdb"), "it is mounted at /pool");
        assert_eq!(is("sdc"), "it is swap space");
        assert_eq!(is("sdd"), "it is used by dm-0 (vg-root)");
        assert_eq!(is("sdd1"), "sdd, which it is on: it is used by dm-0 (vg-root)");
        assert_eq!(used(&disks, "sde"), None);
    }
}
