//! A minimal root with this machine's Debian release, for testing packages.
//!
//! Invariants: nothing of this machine changes except the target directory. The root is removed afterwards. It does
//! not boot.

use anyhow::{Context as _, ensure};
use std::path::Path;

use zc_rig::host::packages::{Set, as_root, ensure, find};
use zc_rig::host::run::{build_dir, run};

/// In the root $1, which mmdebstrap made, runs the script; its arguments follow.
const IN_ROOT: &str = "mount --bind /proc \"$1/proc\"; chroot \"$1\" sh /tmp/check.sh";

/// Runs a script with files as its arguments in a clean root, which has some packages of Debian besides.
///
/// # Errors
/// The root cannot be made, or the script fails.
pub(crate) fn with(files: &[&Path], script: &str, packages: &[&str], install: bool) -> anyhow::Result<()> {
    ensure(&[Set::Vm], install)?;
    let place = build_dir()?.join("check.sh");
    std::fs::write(&place, script).with_context(|| format!("cannot write {}", place.display()))?;
    let mut copied = vec![shell_word(&place)?];
    let mut names = Vec::new();
    for file in files {
        copied.push(shell_word(file)?);
        let name = file.file_name().context("a package has no name")?;
        names.push(format!("/tmp/{}", name.display()));
    }
    let hooks = [
        format!("copy-in {} /tmp", copied.join(" ")),
        // Its mounts vanish with it, for any kind of end.
        format!("unshare --mount sh -ec '{IN_ROOT} {}' sh \"$1\"", names.join(" ")),
    ];
    let debootstrap = find("mmdebstrap").context("there is no mmdebstrap")?;
    let mut root = as_root(&debootstrap)?;
    // Its own unpacking runs as root, too: a build machine need not have a user for it.
    root.args(["--quiet", "--aptopt=APT::Sandbox::User \"root\"", "--variant=minbase", "--format=null"]);
    root.args(packages.iter().map(|package| format!("--include={package}")));
    root.args(hooks.iter().map(|hook| format!("--customize-hook={hook}")));
    run(root.args([&release()?, "-"]))
}

/// The release that this machine runs.
fn release() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("cannot tell this machine's release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(|name| name.trim_matches('"').to_owned()).context("this machine's release has no code name")
}

/// Returns a path that needs no quoting in a hook.
fn shell_word(path: &Path) -> anyhow::Result<String> {
    let text = path.display().to_string();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte));
    ensure!(is_plain, "the path {text} needs quotes: build elsewhere (CARGO_TARGET_DIR)");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_for_hooks_are_words() {
        assert_eq!(shell_word(Path::new("/a/b-c_d.deb")).unwrap(), "/a/b-c_d.deb");
        for wrong in ["/a b", "/a;b", "/$a", "/a'b"] {
            shell_word(Path::new(wrong)).unwrap_err();
        }
    }
}
