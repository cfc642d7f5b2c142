//! The build that the base of the checks shares: programs and tests of the default members.
//!
//! Job: build them in one call of cargo, so that third-party crates are compiled with one set of features, and list
//! the test executables. A step that runs alone builds missing ones; in a full run it uses the list of the step
//! `build`, so that it does not wait for cargo's lock.

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zc_rig::host::run::{build_dir, cargo, show, workspace};

/// Environment variable of steps that start after the step `build` of the same run.
pub(crate) const BUILT: &str = "ZC_XTASK_BUILT";
/// Environment variable with the folder of the programs: end-to-end tests need not call cargo then.
pub(crate) const PROGRAMS: &str = "ZC_TEST_PROGRAMS";

/// A program of tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Executable {
    /// Name of its package.
    pub(crate) package: String,
    /// Its target: the crate for unit tests, the file for others.
    pub(crate) target: String,
    /// As cargo names the kind of target: `lib`, `bin`, `test`.
    pub(crate) kind: String,
    pub(crate) path: PathBuf,
    /// The folder of its package, where cargo would run it.
    pub(crate) folder: PathBuf,
}

impl Executable {
    /// Returns a command that runs the program as cargo does, and kills it after a time limit.
    pub(crate) fn command(&self, limit_seconds: u32) -> anyhow::Result<Command> {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=5").arg(limit_seconds.to_string()).arg(&self.path);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.folder).env(PROGRAMS, programs()?);
        command.env("RUST_BACKTRACE", "1");
        Ok(command)
    }

    /// Returns the command line that runs it alone.
    pub(crate) fn alone(&self) -> String {
        let target = match self.kind.as_str() {
            "test" => format!("--test {}", self.target),
            "bin" => format!("--bin {}", self.target),
            _ => "--lib".to_owned(),
        };
        format!("cargo test -p {} {target}", self.package)
    }
}

/// Names of the programs that tests run.
const NAMES: [&str; 3] = ["zcached", "zcctl", "zcsim"];

/// Returns cargo's folder of programs.
///
/// # Errors
/// When the system does not report this task's path.
pub(crate) fn built_folder() -> anyhow::Result<PathBuf> {
    Ok(build_dir()?.join("debug"))
}

/// Folder of the programs of the base. They are links of their own: steps that build programs with other features replace
/// cargo's while tests run.
fn programs() -> anyhow::Result<PathBuf> {
    Ok(build_dir()?.join("xtask").join("programs"))
}

/// Links the programs that cargo has built into a folder.
fn keep(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for name in NAMES {
        let place = to.join(name);
        if place.exists() {
            std::fs::remove_file(&place).with_context(|| format!("cannot remove {}", place.display()))?;
        }
        std::fs::hard_link(from.join(name), &place)
            .with_context(|| format!("cannot link {} from {}", place.display(), from.display()))?;
    }
    Ok(())
}

/// Members whose unit tests belong to the base, although no program uses them: a change of code shared with default
/// members fails here, and not when the group `lab` runs.
const UNIT_TESTED: [&str; 2] = ["zc-bench", "zc-figures"];

/// Builds the default members, and keeps the list of test executables for [`executables`].
///
/// # Errors
/// Something does not compile.
pub(crate) fn build() -> anyhow::Result<()> {
    let mut command = cargo();
    command.args(["build", "--locked", "--lib", "--bins", "--tests", "--quiet"]);
    let mut found = executables_of(&mut command)?;
    // With the default members, so that shared code is compiled once.
    let mut command = cargo();
    command.args(["test", "--no-run", "--locked", "--lib", "--quiet"]);
    for member in default_members()?.iter().map(String::as_str).chain(UNIT_TESTED) {
        command.args(["--package", member]);
    }
    let more = executables_of(&mut command)?;
    found.extend(more.into_iter().filter(|one| UNIT_TESTED.contains(&one.package.as_str())));
    keep_list(&found)?;
    keep(&built_folder()?, &programs()?)?;
    println!("    {} programs of tests", found.len());
    Ok(())
}

/// Runs a build and returns the test executables that it names.
fn executables_of(command: &mut Command) -> anyhow::Result<Vec<Executable>> {
    command.arg("--message-format=json-render-diagnostics");
    println!("    $ {}", show(command));
    let output = command.current_dir(workspace()).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`{}` failed: {}", show(command), output.status);
    }
    Ok(of_messages(&String::from_utf8_lossy(&output.stdout)))
}

/// Keeps the list of test executables for steps that run later.
fn keep_list(found: &[Executable]) -> anyhow::Result<()> {
    let list = list()?;
    let text = serde_json::to_vec(found).context("cannot list the tests")?;
    if let Some(folder) = list.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(&list, text).with_context(|| format!("cannot write {}", list.display()))
}

/// The test executables, built if the step `build` of this run has not.
///
/// # Errors
/// As [`build`].
pub(crate) fn executables() -> anyhow::Result<Vec<Executable>> {
    if std::env::var_os(BUILT).is_none() {
        build()?;
    }
    let list = list()?;
    let text = std::fs::read(&list).with_context(|| format!("cannot read {}", list.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no list of tests", list.display()))
}

/// The folder of the programs, built if the step `build` of this run has not built them.
///
/// # Errors
/// As [`build`].
pub(crate) fn programs_built() -> anyhow::Result<PathBuf> {
    if std::env::var_os(BUILT).is_none() {
        build()?;
    }
    programs()
}

/// One of our programs, as the base builds it.
///
/// # Errors
/// As [`build`].
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    Ok(programs_built()?.join(name))
}

/// Returns the names of the default members, for a build that adds to them and shares their artefacts.
///
/// # Errors
/// When cargo does not report them.
pub(crate) fn default_members() -> anyhow::Result<Vec<String>> {
    let metadata = metadata(&["--no-deps"])?;
    let ids = metadata["workspace_default_members"].as_array().context("cargo lists no default members")?;
    let packages = metadata["packages"].as_array().context("cargo lists no packages")?;
    let default = packages.iter().filter(|package| ids.contains(&package["id"]));
    Ok(default.filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect())
}

/// Output of `cargo metadata`.
///
/// # Errors
/// It fails.
pub(crate) fn metadata(args: &[&str]) -> anyhow::Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version", "1"]).args(args);
    let output = command.current_dir(workspace()).output().context("cannot start `cargo metadata`")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("`cargo metadata` writes no JSON")
}

fn list() -> anyhow::Result<PathBuf> {
    Ok(build_dir()?.join("xtask").join("tests.json"))
}

/// The test executables that cargo's messages name.
fn of_messages(text: &str) -> Vec<Executable> {
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let target = &message["target"];
        Some(Executable {
            package: package_of(message["package_id"].as_str()?).to_owned(),
            target: target["name"].as_str()?.to_owned(),
            kind: target["kind"][0].as_str()?.to_owned(),
            path: message["executable"].as_str()?.into(),
            folder: manifest.parent()?.to_owned(),
        })
    };
    text.lines().filter_map(executable).collect()
}

/// The name in an id such as `path+file:///src/crates/zc-core#0.1.0` or `...#zc-core@0.1.0`.
fn package_of(id: &str) -> &str {
    let (place, version) = id.split_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_the_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///src/crates/zc-core#0.1.0\",\
                 \"manifest_path\":\"/src/crates/zc-core/Cargo.toml\",\"target\":{{\"kind\":[\"lib\"],\
                 \"name\":\"zc_core\"}},\"profile\":{{\"test\":{test}}},\"executable\":{executable}}}\n"
            )
        };
        let text =
            [message(false, "null"), message(true, "\"/t/zc_core-1\""), "no JSON\n".to_owned()].concat();
        let [found] = of_messages(&text).try_into().unwrap();
        let expected = Executable {
            package: "zc-core".to_owned(),
            target: "zc_core".to_owned(),
            kind: "lib".to_owned(),
            path: "/t/zc_core-1".into(),
            folder: "/src/crates/zc-core".into(),
        };
        assert_eq!(found, expected);
        assert_eq!(found.alone(), "cargo test -p zc-core --lib");
    }

    #[test]
    fn kept_programs_outlive_a_build_that_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("debug"), folder.path().join("programs"));
        std::fs::create_dir(&from).unwrap();
        for round in ["first", "second"] {
            for name in NAMES {
                // As cargo does.
                std::fs::remove_file(from.join(name)).ok();
                std::fs::write(from.join(name), round).unwrap();
            }
            if round == "first" {
                keep(&from, &to).unwrap();
            }
            assert_eq!(std::fs::read(to.join("zcctl")).unwrap(), b"first");
        }
        keep(&from, &to).unwrap();
        assert_eq!(std::fs::read(to.join("zcctl")).unwrap(), b"second");
    }

    #[test]
    fn a_package_is_named_by_its_folder_or_by_itself() {
        assert_eq!(package_of("path+file:///src/benches#zc-bench@0.1.0"), "zc-bench");
        assert_eq!(package_of("path+file:///src/crates/zc-core#0.1.0"), "zc-core");
    }

    #[test]
    fn benches_and_figures_are_no_default_members() {
        let members = default_members().unwrap();
        for wanted in ["zcached", "zcctl", "zcsim", "xtask", "zc-tests"] {
            assert!(members.iter().any(|name| name == wanted), "{wanted}");
        }
        for other in ["zc-bench", "zc-figures", "zc-flash", "zc-model", "zc-conformance"] {
            assert!(!members.iter().any(|name| name == other), "{other}");
        }
    }
}
