//! Deliberate bugs: a build of the simulator that has them, and proof that the shipped programs have none.
//!
//! The bugs are patches in [`PATCHES`]. `cargo xtask canaries` copies the tree below the target directory, applies
//! them there, builds `zcsim` with `--cfg zc_canary`, and runs it until it has found every bug. A build with such bugs
//! contains a marker string. The step `shipped` searches the programs that users install for that marker, and their
//! dependencies for crates of the lab. The step `package` does the same with the packaged programs, which are built
//! alone, as users build them.
//!
//! Invariants: the tree itself has no deliberate bug, and every patch applies to it. The search is tested on the
//! simulator, in which the marker must be found.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use zc_rig::host::run::{build_dir, cargo, run, workspace};

/// Folder of the patches. The first by name is the switch that the others need.
const PATCHES: &str = "crates/proof/zc-sim/canaries";
/// The bugs' names in the simulator.
const CFG: &str = "--cfg zc_canary";
/// As in the switch.
const MARK: &[u8] = b"this build contains deliberate bugs";
/// Programs that users install.
const SHIPPED: [&str; 2] = ["zcached", "zcctl"];

/// Folders whose crates do not ship, as `cargo tree` prints them.
const LAB_FOLDERS: [&str; 2] = ["/crates/lab/", "/crates/proof/"];
/// Crates of others that only the lab needs.
const LAB_DEPENDENCIES: [&str; 2] = ["tpchgen", "lzma-rust2"];

/// `cargo xtask canaries`.
///
/// # Errors
/// A patch does not apply, the simulator cannot be built, or it missed a bug.
pub(crate) fn canaries(args: &[String]) -> anyhow::Result<()> {
    let tree = canary_dir()?.join("tree");
    crate::tree::copy(&tree)?;
    apply_patches(&tree)?;
    run(with_bugs("build")?.args(["--package", "zcsim", "--manifest-path"]).arg(tree.join("Cargo.toml")))?;
    let simulator = canary_dir()?.join("debug/zcsim");
    if !has_mark(&simulator)? {
        bail!("{} has no deliberate bugs: the flag `{CFG}` did not reach the compiler", simulator.display());
    }
    let command = || Command::new(&simulator);
    if args.is_empty() {
        run(command().args(["fuzz", "--canaries"]))?;
        return run(command().args(["fuzz", "--store", "--canaries"]));
    }
    run(command().args(args))
}

/// Checks the programs that users install, in their build folder, and their dependencies.
///
/// # Errors
/// When they contain a deliberate bug, or depend on the lab.
pub(crate) fn check_shipped(built: &Path) -> anyhow::Result<()> {
    for name in SHIPPED {
        let program = built.join(name);
        if has_mark(&program)? {
            bail!("{} contains deliberate bugs; is `{CFG}` in RUSTFLAGS?", program.display());
        }
        let tree = tree_of(name)?;
        if let Some(line) = tree.lines().find(|line| line.contains("canary")) {
            bail!("{name} is built with a feature that is a deliberate bug: {line}");
        }
        if let Some(line) = lab_in(&tree) {
            bail!("{name} depends on the lab: {line}");
        }
    }
    Ok(())
}

/// The first line of a tree of dependencies that is a crate of the lab or of the proof, or that only they need.
fn lab_in(tree: &str) -> Option<&str> {
    let foreign =
        |line: &str| line.split_whitespace().next().is_some_and(|name| LAB_DEPENDENCIES.contains(&name));
    let own = |line: &str| LAB_FOLDERS.iter().any(|folder| line.contains(folder));
    tree.lines().find(|line| own(line) || foreign(line))
}

/// Returns all dependencies of a program with their features, one per line.
fn tree_of(package: &str) -> anyhow::Result<String> {
    let mut command = cargo();
    command.args([
        "tree",
        "--locked",
        "--edges",
        "features,normal",
        "--prefix",
        "none",
        "--package",
        package,
    ]);
    let output = command.current_dir(workspace()).output().context("cannot start `cargo tree`")?;
    if !output.status.success() {
        bail!("`cargo tree` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the patches in the order in which they are applied.
fn patches() -> anyhow::Result<Vec<PathBuf>> {
    let folder = workspace().join(PATCHES);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut patches = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    Ok(patches)
}

/// Changes a copy of the tree.
fn apply_patches(tree: &Path) -> anyhow::Result<()> {
    for patch in patches()? {
        let mut git = Command::new("git");
        git.args(["apply", "--whitespace=nowarn"]).arg(&patch).current_dir(tree);
        // The copy may be inside a repository, to whose root the paths of the patch do not refer.
        git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
        let output = git.output().context("cannot start git")?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            bail!(
                "{} does not apply to the tree; {PATCHES}/README.md says how to change it\n{reason}",
                patch.display()
            );
        }
    }
    Ok(())
}

fn canary_dir() -> anyhow::Result<PathBuf> {
    Ok(build_dir()?.join("canary"))
}

/// Cargo, with the bugs and with a target directory that no other build uses.
fn with_bugs(verb: &str) -> anyhow::Result<Command> {
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    if !flags.is_empty() {
        flags.push(' ');
    }
    flags.push_str(CFG);
    let mut command = cargo();
    command.arg(verb).args(["--locked", "--quiet", "--target-dir"]).arg(canary_dir()?);
    command.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(command)
}

fn has_mark(program: &Path) -> anyhow::Result<bool> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    Ok(bytes.windows(MARK.len()).any(|window| window == MARK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_crate_of_the_lab_is_found_in_a_tree() {
        let shipped =
            "zcached v0.1.0 (/src/bin/zcached)\nzc-engine v0.1.0 (/src/crates/zc-engine)\ntracing v0.1.44\n";
        assert_eq!(lab_in(shipped), None);
        for lab in [
            "tpchgen v4.0.0",
            "zc-trace v0.1.0 (/src/crates/lab/zc-trace)",
            "zc-sim v0.1.0 (/src/crates/proof/zc-sim)",
        ] {
            assert_eq!(lab_in(&format!("{shipped}{lab}\n")), Some(lab));
        }
    }

    #[test]
    fn the_mark_is_that_of_the_switch() {
        let switch = std::fs::read_to_string(&patches().unwrap()[0]).unwrap();
        assert!(switch.contains(std::str::from_utf8(MARK).unwrap()));
    }

    #[test]
    fn every_patch_applies_to_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        let mut touched = BTreeSet::new();
        for patch in patches().unwrap() {
            let text = std::fs::read_to_string(&patch).unwrap();
            assert!(!text.starts_with("---"), "{} begins with what it does", patch.display());
            touched.extend(text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(str::to_owned));
        }
        assert!(touched.len() > 20, "{touched:?}");
        for path in touched {
            let to = folder.path().join(&path);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(workspace().join(path), to).unwrap();
        }
        apply_patches(folder.path()).unwrap();
    }

    #[test]
    fn every_bug_of_the_simulator_has_a_patch_and_every_patch_a_bug() {
        let name = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        let patches: BTreeSet<String> = patches().unwrap().into_iter().map(name).collect();
        let mut known = BTreeSet::from(["00-switch".to_owned()]);
        for (source, marks) in [("canary.rs", "Canary::Manager("), ("store/world.rs", "StoreCanary::Store(")]
        {
            let text =
                std::fs::read_to_string(workspace().join("crates/proof/zc-sim/src").join(source)).unwrap();
            let lines = text.lines().filter(|line| line.contains(marks));
            known.extend(
                lines.filter_map(|line| Some(line.trim().strip_prefix("(\"")?.split_once('"')?.0.to_owned())),
            );
        }
        assert_eq!(patches, known);
    }
}
