//! Resolution of files and devices to the files or disks that hold their bytes.
//!
//! Job: follow partitions, loop devices, md arrays and device-mapper tables down to files and whole disks, so that two
//! names of the same bytes are detected.
//!
//! Invariants: no device is opened (one with an unreachable server would block), and the number of layers is bounded.
//! An opaque layer, such as a thin or encrypted one, counts as a device of its own: only proven overlaps are reported.
//!
//! It does not follow a file to the device of its file system.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{major, makedev, minor};

use crate::ioctl::{DmTarget, dm_table};

/// Most layers that are followed: partition, array, volume group and file are four.
const LAYERS_MAX: u32 = 16;
/// Unit of lengths and offsets in /sys and in tables.
const SECTOR_BYTES: u64 = 512;
/// Device-mapper targets that map bytes one to one.
const PLAIN_TARGETS: [&str; 4] = ["linear", "delay", "flakey", "dust"];

/// Lowest layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// A regular file: its file system and inode.
    File(u64, u64),
    Device(u64),
}

/// Range of a file or whole disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    ground: Ground,
    start: u64,
    end: u64,
}

impl Stretch {
    /// Returns `true` if two ranges overlap.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.ground == other.ground && self.start < other.end && other.start < self.end
    }
}

/// Returns the ranges below the file or device at a path; none if it does not exist.
#[must_use]
pub fn lies_on(path: &Path) -> Vec<Stretch> {
    Machine { sys: PathBuf::from("/sys"), table: dm_table }.lies_on(path)
}

/// Folder in which the kernel lists devices.
struct Machine<T> {
    sys: PathBuf,
    /// Returns the table of a device-mapper device.
    table: T,
}

impl<T: Fn(u64) -> Option<Vec<DmTarget>>> Machine<T> {
    fn lies_on(&self, path: &Path) -> Vec<Stretch> {
        let mut found = Vec::new();
        self.path(path, 0, u64::MAX, 0, &mut found);
        found
    }

    fn path(&self, path: &Path, start: u64, end: u64, layer: u32, found: &mut Vec<Stretch>) {
        let Ok(metadata) = fs::metadata(path) else { return };
        if metadata.file_type().is_block_device() {
            self.device(metadata.rdev(), start, end, layer, found);
        } else if metadata.is_file() {
            found.push(Stretch { ground: Ground::File(metadata.dev(), metadata.ino()), start, end });
        }
    }

    /// Resolves the bytes `start..end` of a device.
    fn device(&self, device: u64, start: u64, end: u64, layer: u32, found: &mut Vec<Stretch>) {
        let folder = self.sys.join(format!("dev/block/{}:{}", major(device), minor(device)));
        let before = found.len();
        if layer < LAYERS_MAX {
            let layer = layer + 1;
            if let Some(backing) = text(&folder.join("loop/backing_file")) {
                let first = number(&folder.join("loop/offset")).unwrap_or(0);
                let most = number(&folder.join("loop/sizelimit")).filter(|bytes| *bytes > 0);
                let (start, end) = within(first, most, start, end);
                self.path(Path::new(&backing), start, end, layer, found);
            } else if folder.join("partition").exists() {
                let disk = fs::canonicalize(&folder).ok().and_then(|folder| device_of(folder.parent()?));
                let first = number(&folder.join("start")).map(|sectors| sectors * SECTOR_BYTES);
                let most = number(&folder.join("size")).map(|sectors| sectors * SECTOR_BYTES);
                if let (Some(disk), Some(first)) = (disk, first) {
                    let (start, end) = within(first, most, start, end);
                    self.device(disk, start, end, layer, found);
                }
            } else if folder.join("dm").exists() {
                for target in (self.table)(device).unwrap_or_default() {
                    self.target(&target, start, end, layer, found);
                }
            } else if folder.join("md").exists() {
                let members = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
                for member in members.filter_map(|member| device_of(&member.path())) {
                    self.device(member, 0, u64::MAX, layer, found);
                }
            }
        }
        if found.len() == before {
            found.push(Stretch { ground: Ground::Device(device), start, end });
        }
    }

    /// Resolves the bytes `start..end` of a target's device.
    fn target(&self, target: &DmTarget, start: u64, end: u64, layer: u32, found: &mut Vec<Stretch>) {
        let first = target.start_sectors * SECTOR_BYTES;
        let last = first.saturating_add(target.len_sectors * SECTOR_BYTES);
        let (from, to) = (start.max(first), end.min(last));
        let mut words = target.params.split_whitespace();
        let device = words.next().and_then(device_number);
        let offset = words.next().and_then(|sectors| sectors.parse::<u64>().ok());
        let (true, Some(device), Some(offset)) =
            (PLAIN_TARGETS.contains(&target.kind.as_str()), device, offset)
        else {
            return;
        };
        if from < to {
            let shift = offset.saturating_mul(SECTOR_BYTES);
            self.device(
                device,
                shift.saturating_add(from - first),
                shift.saturating_add(to - first),
                layer,
                found,
            );
        }
    }
}

/// Clips `start..end` of a layer that begins at `first` of the layer below and has `bytes` there.
fn within(first: u64, bytes: Option<u64>, start: u64, end: u64) -> (u64, u64) {
    let last = bytes.map_or(u64::MAX, |bytes| first.saturating_add(bytes));
    (first.saturating_add(start), first.saturating_add(end).min(last))
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

fn device_of(folder: &Path) -> Option<u64> {
    device_number(&text(&folder.join("dev"))?)
}

fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const GIB: u64 = 1 << 30;

    /// A machine with a disk 8:0 of two partitions, loop devices 7:0 to 7:2 over a file, and device-mapper devices.
    struct MadeUp {
        folder: tempfile::TempDir,
    }

    impl MadeUp {
        fn new() -> Self {
            let made = Self { folder: tempfile::tempdir().unwrap() };
            made.write("devices/sda/dev", "8:0\n");
            for (part, start) in [(1, 2048_u64), (2, 2048 + (GIB >> 9))] {
                let folder = format!("devices/sda/sda{part}");
                made.write(&format!("{folder}/dev"), &format!("8:{part}\n"));
                made.write(&format!("{folder}/partition"), "1\n");
                made.write(&format!("{folder}/start"), &format!("{start}\n"));
                made.write(&format!("{folder}/size"), &format!("{}\n", GIB >> 9));
                made.link(&format!("8:{part}"), &folder);
            }
            made.link("8:0", "devices/sda");
            made
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, number: &str, folder: &str) {
            let at = self.folder.path().join("dev/block");
            fs::create_dir_all(&at).unwrap();
            symlink(self.folder.path().join(folder), at.join(number)).unwrap();
        }

        fn over(&self, number: &str, backing: &Path, offset: u64, limit: u64) {
            let folder = format!("devices/{}", number.replace(':', "-"));
            self.write(&format!("{folder}/loop/backing_file"), &format!("{}\n", backing.display()));
            self.write(&format!("{folder}/loop/offset"), &format!("{offset}\n"));
            self.write(&format!("{folder}/loop/sizelimit"), &format!("{limit}\n"));
            self.link(number, &folder);
        }

        fn below(&self, number: &str) -> Vec<Stretch> {
            let machine = Machine {
                sys: self.folder.path().to_owned(),
                table: |device| {
                    let target = |start_sectors, kind: &str, params: &str| DmTarget {
                        start_sectors,
                        len_sectors: 2048,
                        kind: kind.to_owned(),
                        params: params.to_owned(),
                    };
                    match minor(device) {
                        0 => Some(vec![target(0, "linear", "8:0 2048"), target(2048, "linear", "8:16 0")]),
                        1 => Some(vec![target(0, "linear", "8:0 4096")]),
                        2 => Some(vec![target(0, "thin", "8:0 3")]),
                        _ => None,
                    }
                },
            };
            let mut found = Vec::new();
            machine.device(device_number(number).unwrap(), 0, u64::MAX, 0, &mut found);
            found
        }

        fn meet(&self, one: &str, other: &str) -> bool {
            let (one, other) = (self.below(one), self.below(other));
            one.iter().any(|stretch| other.iter().any(|other| stretch.meets(other)))
        }
    }

    #[test]
    fn loop_devices_over_one_file_meet_where_their_ranges_do() {
        let made = MadeUp::new();
        let file = made.folder.path().join("image");
        fs::write(&file, "x").unwrap();
        fs::hard_link(&file, made.folder.path().join("other")).unwrap();
        made.over("7:0", &file, 0, 0);
        made.over("7:1", &made.folder.path().join("other"), GIB, 0);
        made.over("7:2", &file, GIB, GIB);
        made.over("7:3", &file, 0, GIB);
        for (one, other, expected) in [
            ("7:0", "7:1", true),
            ("7:0", "7:2", true),
            ("7:1", "7:2", true),
            ("7:2", "7:3", false),
            ("7:0", "8:0", false),
        ] {
            assert_eq!(made.meet(one, other), expected, "{one} and {other}");
        }
        let whole = Machine { sys: made.folder.path().to_owned(), table: |_| None }.lies_on(&file);
        assert!(made.below("7:2")[0].meets(&whole[0]));
    }

    #[test]
    fn partitions_and_tables_meet_where_their_ranges_do() {
        let made = MadeUp::new();
        for number in 0..4 {
            made.write(&format!("devices/dm-{number}/dm/name"), "x\n");
            made.link(&format!("254:{number}"), &format!("devices/dm-{number}"));
        }
        for (one, other, expected) in [
            ("8:1", "8:0", true),
            ("8:1", "8:2", false),
            ("254:0", "8:0", true),
            ("254:0", "8:1", true),
            ("254:0", "8:16", true),
            ("254:0", "254:1", false),
            ("254:1", "8:2", false),
            ("254:2", "8:0", false),
            ("254:3", "254:3", true),
        ] {
            assert_eq!(made.meet(one, other), expected, "{one} and {other}");
        }
    }

    #[test]
    fn arrays_have_their_members_and_circles_end() {
        let made = MadeUp::new();
        made.write("devices/md0/md/level", "raid1\n");
        made.write("devices/md0/slaves/sda1/dev", "8:1\n");
        made.link("9:0", "devices/md0");
        assert!(made.meet("9:0", "8:1") && made.meet("9:0", "8:0") && !made.meet("9:0", "8:2"));
        made.write("devices/md1/md/level", "raid1\n");
        made.write("devices/md1/slaves/md1/dev", "9:1\n");
        made.link("9:1", "devices/md1");
        assert_eq!(made.below("9:1").len(), 1);
    }
}
