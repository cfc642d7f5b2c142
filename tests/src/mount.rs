//! File systems mounted for a test. Mounting needs the rights of root.

use crate::{bounded, run_ok};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; dropping it detaches it.
#[derive(Debug)]
pub struct Mount(PathBuf);

impl Mount {
    /// Makes the folder `at` and runs `mount ARGUMENTS at`.
    ///
    /// # Panics
    /// It cannot be mounted.
    #[must_use]
    pub fn new(arguments: &[&str], at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).expect("cannot make the mount point");
        run_ok(bounded("mount").args(arguments).arg(&at));
        Self(at)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Unmounts: when this returns everything was written.
    ///
    /// # Panics
    /// It is busy, or was unmounted by another program.
    pub fn unmount(mut self) {
        run_ok(bounded("umount").arg(&self.0));
        self.0 = PathBuf::new();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            Command::new("umount").arg("-l").arg(&self.0).status().ok();
        }
    }
}
