//! The daemon's configuration file during a change by `zcctl volume`.
//!
//! Job: replace the file as a whole: a new file beside it, with its mode and owner, is flushed and renamed.
//!
//! Invariants: a file that another program changed since it was opened is not replaced. Two commands never change it
//! at the same time, because each holds a lock on it; a second one waits, for 150 s at most. A reader finds the old
//! text or the new one, also after a power failure. A file that cannot be replaced is refused before any change: a
//! mount point of its own (a container's `--volume FILE:FILE`) stays the mounted file, regardless of a replacement on
//! the host.
//!
//! It does not judge the contents. The daemon checks the new file before it replaces the old one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use rustix::event::{Timespec, poll};
use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, StatxFlags, flock, statx};
use rustix::io::Errno;

/// Pause between two attempts to lock the file: 20 ms.
const LOCK_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const LOCK_PAUSES_PER_S: u32 = 50;
/// Attempts while other commands change the file, which may wait for devices as long: 150 s.
const LOCK_ATTEMPTS: u32 = 150 * LOCK_PAUSES_PER_S;
/// A wait of more attempts is reported: 2 s.
const LOCK_ATTEMPTS_SILENT: u32 = 2 * LOCK_PAUSES_PER_S;

/// The file, locked.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    file: File,
    text: String,
}

impl ConfigFile {
    /// Locks and reads the file, once no other command holds it.
    ///
    /// # Errors
    /// It cannot be read or replaced, or other commands hold it for 150 s.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::open_within(path, LOCK_ATTEMPTS)
    }

    fn open_within(path: &Path, attempts: u32) -> anyhow::Result<Self> {
        let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        if is_mount_point(&path).with_context(|| format!("cannot examine {}", path.display()))? {
            bail!(
                "{} is mounted as a single file, so it cannot be replaced: edit it where it comes from, in place, \
                 and `zcctl reload`; or mount its directory instead, and this command can change it",
                path.display()
            );
        }
        let fail = || format!("cannot read {}", path.display());
        let mut attempt = 0;
        loop {
            // Opened again each time: the command that held the lock may have replaced the file. Without the flag the
            // open waits for the writer of a pipe.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let mut file =
                OpenOptions::new().read(true).custom_flags(flags).open(&path).with_context(fail)?;
            ensure!(
                file.metadata().with_context(fail)?.is_file(),
                "{}: it is not a regular file",
                path.display()
            );
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    if attempt == attempts {
                        bail!(
                            "other zcctl commands have been changing {} for {} s; nothing is changed, try again",
                            path.display(),
                            attempts / LOCK_PAUSES_PER_S
                        );
                    }
                    if attempt == LOCK_ATTEMPTS_SILENT {
                        let place = path.display();
                        writeln!(io::stderr(), "zcctl: waiting for another zcctl, which changes {place}")?;
                    }
                    attempt += 1;
                    poll(&mut [], Some(&LOCK_PAUSE)).context("cannot wait")?;
                    continue;
                }
                result => result.with_context(|| format!("cannot lock {}", path.display()))?,
            }
            if !is_at(&file, &path).with_context(fail)? {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text).with_context(fail)?;
            return Ok(Self { path, file, text });
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the text, if `check` accepts the new file; returns its result.
    ///
    /// # Errors
    /// When `check` refuses, another program has changed the file, or it cannot be written. The file is then
    /// unchanged.
    pub(crate) fn replace<T>(
        &self,
        text: &str,
        check: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Replaced)> {
        let beside = Beside::write(&self.path, &self.file, text)?;
        let checked = self.checked(&beside.path, check)?;
        self.is_unchanged()?;
        // Held until the daemon has read it: other commands would find a file that it has not read.
        let file = beside.take_place(&self.path)?;
        let now = Self { path: self.path.clone(), file, text: text.to_owned() };
        Ok((checked, Replaced { now, before: self.text.clone() }))
    }

    /// Returns the result of `check` for a new file, which is then removed.
    ///
    /// # Errors
    /// When it refuses, or the new file cannot be written.
    pub(crate) fn try_out<T>(
        &self,
        text: &str,
        check: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let beside = Beside::write(&self.path, &self.file, text)?;
        self.checked(&beside.path, check)
    }

    /// Passes a new file to `check` and returns the result, with the path of the original in error messages.
    fn checked<T>(
        &self,
        candidate: &Path,
        check: impl FnOnce(&Path) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        check(candidate).map_err(|error| {
            let (text, candidate) = (format!("{error:#}"), candidate.display().to_string());
            if text.contains(&candidate) {
                let place = format!("{}, as it would be", self.path.display());
                anyhow::anyhow!("{}", text.replace(&candidate, &place))
            } else {
                error
            }
        })
    }

    fn is_unchanged(&self) -> anyhow::Result<()> {
        let now = std::fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        if now != self.text || !is_at(&self.file, &self.path)? {
            bail!("another program changed {} at the same time; nothing was written", self.path.display());
        }
        Ok(())
    }
}

/// A file that took the place of another.
#[derive(Debug)]
pub(crate) struct Replaced {
    now: ConfigFile,
    before: String,
}

impl Replaced {
    /// Puts the text back that was there before, unless another program has changed it since.
    ///
    /// # Errors
    /// As of [`ConfigFile::replace`].
    pub(crate) fn undo(self) -> anyhow::Result<()> {
        self.now.replace(&self.before, |_| Ok(())).map(drop)
    }
}

/// A temporary file beside another; removed on drop unless it has replaced that.
struct Beside {
    path: PathBuf,
    file: Option<File>,
}

impl Beside {
    fn write(path: &Path, like: &File, text: &str) -> anyhow::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let new = path.with_file_name(format!(".{name}.new"));
        let fail = || format!("cannot write {}", new.display());
        // Leftover of a killed command: with the lock held, no other command writes it.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(fail),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let mut file = file.with_context(fail)?;
        let mut beside = Self { path: new.clone(), file: None };
        let metadata = like.metadata().with_context(fail)?;
        // The daemon may run as another user, and reads it.
        fchown(&file, Some(metadata.uid()), Some(metadata.gid())).with_context(fail)?;
        file.set_permissions(metadata.permissions()).with_context(fail)?;
        file.write_all(text.as_bytes()).with_context(fail)?;
        file.sync_all().with_context(fail)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(fail)?;
        beside.file = Some(file);
        Ok(beside)
    }

    fn take_place(mut self, path: &Path) -> anyhow::Result<File> {
        let fail = || format!("cannot replace {}", path.display());
        std::fs::rename(&self.path, path).with_context(fail)?;
        let file = self.file.take().context("the new file is open")?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(fail)?;
        Ok(file)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // A new file that has taken the place has another name now.
        if self.path.exists() {
            let _not_needed_any_more = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns `true` if another file is mounted at the path: a rename there fails with `EBUSY`.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    let mount_of = |path: &Path| Ok::<_, io::Error>(statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?);
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let (file, folder) = (mount_of(path)?, mount_of(folder)?);
    // A kernel before 5.8 does not report mounts; then the rename fails instead.
    let is_reported = |found: &rustix::fs::Statx| found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(is_reported(&file) && is_reported(&folder) && file.stx_mnt_id != folder.stx_mnt_id)
}

/// Returns `true` if this is the file at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, there) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn dir_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zcached.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn names(dir: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn mistakes_are_those_of_the_file_that_is_changed() {
        let (dir, path) = dir_with("old");
        let file = ConfigFile::open(&path).unwrap();
        let refuse = |new: &Path| -> anyhow::Result<()> { bail!("{}:27: volume.mode: no", new.display()) };
        let expected = format!("{}, as it would be:27: volume.mode: no", path.display());
        assert_eq!(file.replace("new", refuse).unwrap_err().to_string(), expected);
        assert_eq!(file.try_out("new", refuse).unwrap_err().to_string(), expected);
        assert_eq!(names(&dir), ["zcached.toml"]);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_with_its_mode_and_through_links() {
        let (dir, path) = dir_with("old");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link.toml");
        symlink(&path, &link).unwrap();
        let file = ConfigFile::open(&link).unwrap();
        let see = |new: &Path| Ok(std::fs::read_to_string(new)?);
        let (seen, replaced) = file.replace("new", see).unwrap();
        assert_eq!((seen.as_str(), std::fs::read_to_string(&path).unwrap().as_str()), ("new", "new"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
        replaced.undo().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(&dir), ["link.toml", "zcached.toml"]);
    }

    #[test]
    fn a_file_that_another_program_changed_meanwhile_stays() {
        for replaces in [false, true] {
            let (dir, path) = dir_with("old");
            let file = ConfigFile::open(&path).unwrap();
            let change = |_: &Path| {
                if replaces {
                    std::fs::write(dir.path().join("other"), "old")?;
                    std::fs::rename(dir.path().join("other"), &path)?;
                } else {
                    std::fs::write(&path, "edited")?;
                }
                Ok(())
            };
            let error = file.replace("new", change).unwrap_err();
            assert!(error.to_string().contains("another program changed"), "{error}");
            let expected = if replaces { "old" } else { "edited" };
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
            assert_eq!(names(&dir), ["zcached.toml"]);
        }
    }

    #[test]
    fn what_is_refused_leaves_no_trace_and_a_second_command_waits_its_turn() {
        let (dir, path) = dir_with("old");
        let file = ConfigFile::open(&path).unwrap();
        let is_held = || {
            let error = ConfigFile::open_within(&path, 0).unwrap_err().to_string();
            error.contains("other zcctl commands")
        };
        assert!(is_held());
        file.replace("new", |_| -> anyhow::Result<()> { bail!("no") }).unwrap_err();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names(&dir).len()), ("old", 1));
        let (_, replaced) = file.replace("new", |_| Ok(())).unwrap();
        assert!(is_held(), "until it is read");
        drop((file, replaced));
        assert_eq!(ConfigFile::open(&path).unwrap().text(), "new");
    }

    #[test]
    fn commands_at_once_change_the_file_one_after_the_other() {
        let (dir, path) = dir_with("");
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let file = ConfigFile::open(&path).unwrap();
                    let longer = format!("{}x", file.text());
                    drop(file.replace(&longer, |_| Ok(())).unwrap());
                });
            }
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x".repeat(12));
        assert_eq!(names(&dir), ["zcached.toml"]);
    }
}
