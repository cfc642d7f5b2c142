//! Ownership of devices by volumes.
//!
//! Job: a stamp of 64 bits that the kernel stores with each device (hash of cache and volume), and a small file per
//! device under [`RUN_DIR`] with the volume's name, for the udev rule of stable links and for people. The directory
//! lives as long as the devices do: until the machine is restarted.
//!
//! Invariants: the stamp alone proves ownership; a file never does. The file exists before the block device, and names
//! in it hold no characters that are special in a link or a rule. udev acts on the file as root, so it lies in a
//! folder that only root or this user may write, and symbolic links to it are not followed.

use std::fs::{self, DirBuilder, File};
use std::hash::Hasher;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};

use crate::error::UblkError;
use crate::limits::DEVICES_MAX;

/// Folder of the files of ublk devices. The udev rule uses it, too.
pub const RUN_DIR: &str = "/run/zcached-system/ublk";
/// Folder of the files of NBD devices.
pub const NBD_RUN_DIR: &str = "/run/zcached-system/nbd";

/// Most bytes of a file that are read.
const NAME_BYTES_MAX: u64 = 4096;
/// In a folder with this bit, only the owner of a file can replace it.
const STICKY: u32 = 0o1000;

/// Characters kept in links. The udev rule refuses all others except letters and digits.
const PLAIN: &str = "-_.+";
/// Upper bits of every stamp of ours: "zc", and a version.
const MARK: u64 = 0x7a63_0001;
const MARK_SHIFT: u32 = 32;

/// Returns the stamp of a volume of a cache.
#[must_use]
pub fn stamp(cache: &[u8; 16], volume: &str) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(cache);
    hasher.write(volume.as_bytes());
    (MARK << MARK_SHIFT) | (hasher.finish() & u64::from(u32::MAX))
}

/// Returns `true` if a device was made by zcached.
#[must_use]
pub const fn is_ours(stamp: u64) -> bool {
    stamp >> MARK_SHIFT == MARK
}

/// Returns the name of a volume in links: other characters become underscores.
#[must_use]
pub fn link_name(volume: &str) -> String {
    volume.chars().map(|c| if c.is_ascii_alphanumeric() || PLAIN.contains(c) { c } else { '_' }).collect()
}

/// Returns the link that the udev rule creates.
#[must_use]
pub fn link_path(volume: &str) -> PathBuf {
    Path::new("/dev/disk/by-id").join(format!("zcached-{}", link_name(volume)))
}

fn path(dir: &Path, id: u32) -> PathBuf {
    dir.join(id.to_string())
}

/// Writes the file of a device.
///
/// # Errors
/// When the directory cannot be written, or users other than root may write it.
pub fn register(dir: &Path, id: u32, volume: &str) -> Result<(), UblkError> {
    write(dir, id, volume).map_err(|source| UblkError::File {
        what: "write",
        place: path(dir, id).display().to_string(),
        source,
    })
}

fn write(dir: &Path, id: u32, volume: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    let folder = open_own(dir)?;
    let beside = format!("{id}.new");
    match unlinkat(&folder, &beside, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder, &beside, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(format!("{}\n", link_name(volume)).as_bytes())?;
    Ok(renameat(&folder, &beside, &folder, id.to_string())?)
}

/// Opens a folder of ours. It and its parent must belong to root or to this user, and no other user may write to them.
fn open_own(dir: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = File::from(openat(CWD, dir, flags, Mode::empty())?);
    let above = File::from(openat(&folder, "..", flags, Mode::empty())?);
    // In a parent with the sticky bit no other user can replace our folder.
    for (own, excuse) in [(&folder, 0), (&above, STICKY)] {
        let metadata = own.metadata()?;
        let is_owned = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
        let is_shared = metadata.mode() & 0o022 != 0 && metadata.mode() & excuse == 0;
        if !is_owned || is_shared {
            let text = "another user may write its folder, and udev would act on the file as root";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
    }
    Ok(folder)
}

/// Removes the file of a device; a missing file is no error.
pub fn unregister(dir: &Path, id: u32) {
    // Nothing depends on its absence: the stamp decides.
    let _removed = fs::remove_file(path(dir, id));
}

/// Returns the name in a device's file.
#[must_use]
pub fn registered(dir: &Path, id: u32) -> Option<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path(dir, id), flags, Mode::empty()).ok()?);
    let text = io::read_to_string(file.take(NAME_BYTES_MAX)).ok()?;
    text.strip_suffix('\n').map(str::to_owned)
}

/// Returns the numbers of all ublk devices, lowest first.
pub(crate) fn device_numbers() -> Result<Vec<u32>, UblkError> {
    let fail = |source| UblkError::File { what: "list", place: "/dev".to_owned(), source };
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/dev").map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let number: Option<u32> =
            name.to_str().and_then(|name| name.strip_prefix("ublkc")).and_then(|rest| rest.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    numbers.truncate(DEVICES_MAX);
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_tell_caches_and_volumes_apart() {
        let stamps = [stamp(&[1; 16], "a"), stamp(&[1; 16], "b"), stamp(&[2; 16], "a")];
        assert!(stamps.iter().all(|stamp| is_ours(*stamp)));
        assert!(stamps[0] != stamps[1] && stamps[0] != stamps[2]);
        assert_eq!(stamp(&[1; 16], "a"), stamps[0]);
        assert!(!is_ours(0) && !is_ours(u64::MAX));
    }

    #[test]
    fn names_are_plain_in_links() {
        assert_eq!(link_name("db-1.x"), "db-1.x");
        assert_eq!(link_name("my disk\u{e9}$"), "my_disk__");
        assert_eq!(link_path("db").to_str(), Some("/dev/disk/by-id/zcached-db"));
    }

    #[test]
    fn files_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("deep/ublk");
        register(&dir, 3, "a volume").unwrap();
        assert_eq!(registered(&dir, 3).as_deref(), Some("a_volume"));
        unregister(&dir, 3);
        unregister(&dir, 3);
        assert_eq!(registered(&dir, 3), None);
    }

    #[test]
    fn no_link_is_followed_and_no_folder_of_others_is_used() {
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

        let top = tempfile::tempdir().unwrap();
        let (dir, foreign) = (top.path().join("run/ublk"), top.path().join("foreign"));
        register(&dir, 1, "a").unwrap();
        fs::write(&foreign, "theirs").unwrap();
        for name in ["3", "3.new"] {
            symlink(&foreign, dir.join(name)).unwrap();
        }
        assert_eq!(registered(&dir, 3), None);
        register(&dir, 3, "b").unwrap();
        assert_eq!(registered(&dir, 3).as_deref(), Some("b"));
        assert_eq!(fs::read(&foreign).unwrap(), b"theirs");
        let refused = |what: &Path| {
            let error = register(&dir, 4, "c").unwrap_err().to_string();
            assert!(error.contains("another user may write"), "{}: {error}", what.display());
        };
        for folder in [dir.clone(), top.path().join("run")] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
            refused(&folder);
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
            // Only root can change the owner of a folder.
            if chown(&folder, Some(54321), None).is_ok() {
                refused(&folder);
                chown(&folder, Some(0), None).unwrap();
            }
        }
        let link = top.path().join("link");
        symlink(&dir, &link).unwrap();
        register(&link, 5, "d").unwrap_err();
        register(&dir, 5, "d").unwrap();
    }
}
