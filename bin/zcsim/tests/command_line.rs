//! Messages of the program for conflicting options and for traces with unreadable parts.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn zcsim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zcsim")).args(arguments).output().unwrap()
}

#[test]
fn ratios_are_refused_where_nothing_is_compressed() {
    for option in ["--ratio-mean", "--ratio-deviation"] {
        let arguments = ["run", "--trace", "none", "--policy", "lru", "--cache-extents", "9", option, "2"];
        let ended = zcsim(&arguments);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("change nothing with --policy"), "{said}");
    }
}

#[test]
fn bad_lines_are_told_and_end_a_strict_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let line = |n: u64| format!("{n} {} 8 W {:016x} 2000 1000\n", n * 8, n + 1);
    std::fs::write(&path, (0..30).map(line).collect::<String>() + "rubbish\nmore of it\n").unwrap();
    let trace = path.to_str().unwrap();
    for arguments in [
        &["run", "--flaz", "--cache-share", "50%", "--trace", trace][..],
        &["generate", "compose", trace],
        &["generate", "storm", "--machines", "2", trace],
    ] {
        let ended = zcsim(arguments);
        let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        assert!(
            ended.status.success() && said.contains("2 bad lines were passed over"),
            "{arguments:?}: {said}"
        );
        let ended = zcsim(&[arguments, &["--strict"]].concat());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains("line 31"), "{arguments:?}: {said}");
    }
}
