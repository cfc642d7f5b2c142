//! What the program says of options that do not go together.

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
