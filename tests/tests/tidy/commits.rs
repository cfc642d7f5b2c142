//! Rule about commit subjects: `component: verb object`, with a verb of a list, in at most 72 characters.
//!
//! Commits up to [`FIRST`] are not judged. A clone without that commit, such as a shallow one, has nothing to judge.

use super::assert_none;
use std::process::Command;
use zc_tests::{run_ok, workspace};

/// Last commit that is not judged: the rule is younger than it.
const FIRST: &str = "e59f373aef4c6101a8e5a49c0358a121cf62db2f";

const SUBJECT_CHARS_MAX: usize = 72;

/// Verbs that name the kind of a change.
const VERBS: &[&str] = &[
    "accept",
    "add",
    "adopt",
    "align",
    "allow",
    "apply",
    "attach",
    "avoid",
    "batch",
    "bound",
    "build",
    "bump",
    "cache",
    "check",
    "clarify",
    "clean",
    "close",
    "combine",
    "compare",
    "compress",
    "compute",
    "convert",
    "correct",
    "count",
    "cover",
    "cut",
    "decode",
    "defer",
    "delay",
    "delete",
    "deny",
    "describe",
    "detach",
    "detect",
    "disable",
    "document",
    "drain",
    "drop",
    "enable",
    "encode",
    "enforce",
    "exclude",
    "expire",
    "explain",
    "export",
    "extend",
    "extract",
    "fail",
    "fall",
    "fence",
    "filter",
    "fix",
    "flush",
    "free",
    "generate",
    "group",
    "guard",
    "handle",
    "harden",
    "hide",
    "ignore",
    "implement",
    "import",
    "improve",
    "include",
    "index",
    "inline",
    "install",
    "invalidate",
    "isolate",
    "join",
    "keep",
    "limit",
    "link",
    "list",
    "load",
    "lock",
    "log",
    "lower",
    "mark",
    "match",
    "measure",
    "merge",
    "migrate",
    "model",
    "move",
    "narrow",
    "open",
    "order",
    "parse",
    "pin",
    "prefer",
    "prefetch",
    "prevent",
    "print",
    "protect",
    "publish",
    "raise",
    "read",
    "rebuild",
    "reclaim",
    "record",
    "recover",
    "reduce",
    "refactor",
    "refuse",
    "regenerate",
    "reject",
    "release",
    "remove",
    "rename",
    "reorder",
    "replace",
    "replay",
    "report",
    "require",
    "reserve",
    "reset",
    "resize",
    "resolve",
    "restart",
    "restore",
    "restrict",
    "resume",
    "retry",
    "return",
    "reuse",
    "revert",
    "rewrite",
    "route",
    "run",
    "sample",
    "schedule",
    "send",
    "separate",
    "serialise",
    "serve",
    "set",
    "share",
    "shorten",
    "show",
    "shrink",
    "simplify",
    "simulate",
    "skip",
    "sort",
    "speed",
    "split",
    "start",
    "stop",
    "store",
    "stress",
    "support",
    "switch",
    "sync",
    "test",
    "throttle",
    "time",
    "track",
    "trim",
    "tune",
    "unify",
    "update",
    "upgrade",
    "use",
    "validate",
    "verify",
    "wait",
    "warn",
    "widen",
    "wrap",
    "write",
];

/// Returns the rule that a subject breaks, if any.
fn fault(subject: &str) -> Option<&'static str> {
    if subject.chars().count() > SUBJECT_CHARS_MAX {
        return Some("more than 72 characters");
    }
    let Some((component, rest)) = subject.split_once(": ") else {
        return Some("not `component: verb object`");
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_,./*".contains(c);
    if component.is_empty() || !component.chars().all(plain) {
        return Some("the component is not a list of names, joined by commas without spaces");
    }
    let verb = rest.split_whitespace().next().unwrap_or_default();
    let object = rest.split_whitespace().nth(1);
    if !VERBS.contains(&verb) {
        return Some("does not begin with a verb of VERBS in tests/tests/tidy/commits.rs");
    }
    object.is_none().then_some("names no object")
}

fn faults(subjects: &str) -> Vec<String> {
    let judged = subjects.lines().filter(|subject| !subject.starts_with("Revert \""));
    judged.filter_map(|subject| fault(subject).map(|fault| format!("{subject}: {fault}"))).collect()
}

#[test]
fn subjects_of_commits_begin_with_the_verb_of_the_change() {
    let known = Command::new("git").args(["cat-file", "-e", FIRST]).current_dir(workspace()).status();
    if !known.expect("git runs").success() {
        return;
    }
    let mut git = Command::new("git");
    let range = format!("{FIRST}..HEAD");
    git.args(["log", "--no-merges", "--format=%s", &range]).current_dir(workspace());
    let subjects = String::from_utf8(run_ok(&mut git).stdout).expect("subjects are UTF-8");
    assert_none(&faults(&subjects));
}

#[test]
fn the_rule_of_subjects_sees_what_breaks_it() {
    for broken in [
        "zc-cache: tell the room that an outage leaves",
        "zc-cache: the room",
        "zc-cache: what a start finds",
        "zc-cache: add",
        "zc-cache, zc-sim: add a test",
        "add a test",
        "Zc-cache: add a test",
    ] {
        assert_eq!(faults(broken).len(), 1, "{broken}");
    }
    assert_eq!(faults(&format!("zc-cache: add {}", "a".repeat(SUBJECT_CHARS_MAX))).len(), 1);
    for good in ["zc-cache,zc-sim: split the base", "zc-io: speed up reads", "Revert \"zc-io: the ring\""] {
        assert_eq!(faults(good), Vec::<String>::new(), "{good}");
    }
}
