//! Clients of a newer Debian than this machine's: unpacked into a folder, run with their own loader and libraries.
//!
//! Invariants: nothing of the folder is installed, and nothing in it is run but by its own loader, so that it neither
//! needs nor touches this machine's libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::bounded;

/// Names the folder; `cargo xtask test --only newer-clients` sets it.
const FOLDER: &str = "ZC_NEWER_CLIENTS";

/// The unpacked clients.
#[derive(Debug)]
pub struct NewerClients {
    root: PathBuf,
    libraries: PathBuf,
    loader: PathBuf,
}

impl NewerClients {
    /// Finds the clients in the folder that the environment names.
    ///
    /// # Panics
    /// There is none, or no loader in it.
    #[must_use]
    pub fn find() -> Self {
        let root = std::env::var_os(FOLDER).map(PathBuf::from);
        let root = root.expect("run by `cargo xtask test --only newer-clients`, which unpacks the clients");
        let libraries = entry(&root.join("usr/lib"), |name| name.ends_with("-linux-gnu"));
        let loader = entry(&libraries, |name| name.starts_with("ld-linux"));
        Self { root, libraries, loader }
    }

    /// A program of theirs, ended if it takes longer than any test should.
    #[must_use]
    pub fn tool(&self, name: &str) -> Command {
        let mut command = bounded("env");
        command.arg("--").arg(&self.loader).arg("--library-path").arg(&self.libraries);
        command.arg(self.root.join("usr/bin").join(name));
        command
    }

    /// Their Python, which has the `nbd` module, to be given `-c` and a program.
    #[must_use]
    pub fn python(&self) -> Command {
        let mut command = self.tool("python3");
        command.env("PYTHONHOME", self.root.join("usr")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// The entry of a folder whose name is wanted.
fn entry(folder: &Path, wanted: impl Fn(&str) -> bool) -> PathBuf {
    let listed =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let found = listed.flatten().find(|entry| entry.file_name().to_str().is_some_and(&wanted));
    found.unwrap_or_else(|| panic!("{} lacks a part of the clients", folder.display())).path()
}
