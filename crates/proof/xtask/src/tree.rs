//! A modifiable copy of the tree.
//!
//! Job: copy tracked files below the target directory, for `mutants` and `canaries`.
//!
//! Invariant: the tree itself is never changed.

use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use zc_rig::host::run::workspace;

/// Copies the files that git tracks or would track. An unchanged file keeps its modification time, so cargo rebuilds only
/// changed files, and those that an interrupted run left changed.
pub(crate) fn copy(tree: &Path) -> anyhow::Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace());
    let output = git.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    let mut wanted = BTreeSet::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        // A file that was deleted and not yet committed is listed.
        let Ok(bytes) = std::fs::read(workspace().join(path)) else { continue };
        let to = tree.join(path);
        wanted.insert(to.clone());
        if std::fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        let folder = to.parent().unwrap_or(tree);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        std::fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    // A source file that is no longer there could still be a test or a program to cargo.
    for folder in ["crates", "bin", "tests", "benches"] {
        remove_others(&tree.join(folder), &wanted)?;
    }
    Ok(())
}

/// Removes the files below `folder` that are not `wanted`.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.context("cannot read a folder")?.path();
        if path.is_dir() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_gone_are_removed_from_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let (keep, gone) = (folder.path().join("a/keep.rs"), folder.path().join("a/gone.rs"));
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(&keep, "").unwrap();
        std::fs::write(&gone, "").unwrap();
        remove_others(folder.path(), &BTreeSet::from([keep.clone()])).unwrap();
        assert!(keep.is_file() && !gone.exists());
    }
}
