//! Paths of the programs under test, freshly built.
//!
//! Cargo passes a test the paths of its own package's binaries only; these are other packages. So they are built here,
//! once per test process, by the same cargo, into the same target directory and profile as the test itself. When they
//! are up to date that costs a fraction of a second.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the tests package lies in the workspace").to_path_buf()
}

/// The path of one of our programs (`zcached`, `zcctl`, `zcsim`), built if need be.
///
/// # Panics
/// The build fails, or there is no such program.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let path = FOLDER.get_or_init(build).join(name);
    assert!(path.is_file(), "{} was not built", path.display());
    path
}

/// Returns `true` if cargo sets a variable for each package that it builds or runs.
fn is_of_a_package(name: &str) -> bool {
    name == "CARGO"
        || ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Names the folder of programs that are up to date; `cargo xtask test` sets it for tests that run a process each.
const BUILT: &str = "ZC_TEST_PROGRAMS";

/// Builds every program and returns the folder that holds them.
fn build() -> PathBuf {
    if let Some(folder) = std::env::var_os(BUILT) {
        return folder.into();
    }
    let own = std::env::current_exe().expect("cannot tell where this test was built");
    let deps = own.parent().expect("a test lies in a folder");
    let folder = deps.parent().expect("test executables lie in target/PROFILE/deps");
    let target = folder.parent().expect("profiles lie in the target directory");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(other) => other,
        None => panic!("{} is not a profile folder", folder.display()),
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--profile", profile]);
    // Without packages: with the features of the default members, whose dependencies a build of the tests has compiled.
    cargo.args(["--bin", "zcached", "--bin", "zcctl", "--bin", "zcsim"]);
    cargo.arg("--target-dir").arg(target).current_dir(workspace());
    // Cargo's variables about the test must not reach build scripts: some depend on these variables, and would be
    // rebuilt whenever cargo's caller changes.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_package(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cannot start cargo to build the programs");
    assert!(status.success(), "building the programs failed: {status}");
    folder.to_path_buf()
}
