//! Files and folders that only the daemon's user may use, for any umask.
//!
//! Job: create folders with mode 0700 and files with mode 0600. Invariant: the mode applies from the moment the name
//! exists.
//!
//! It does not change the mode of existing files.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder and those above it that are missing, for the daemon's user alone.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes a file for the daemon's user alone, or empties the one that exists; for reading and writing.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// As [`create_file`], but always a new inode: writers of a file with this name do not affect it.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_file(path),
    }
}

/// Returns `true` if users other than the owner and the group may change the contents of the folder.
pub(crate) fn is_open_to_others(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|metadata| metadata.mode() & 0o002 != 0)
}
