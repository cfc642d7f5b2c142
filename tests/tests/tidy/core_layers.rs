//! Rules about the inside of the cache manager: dependencies between its layers go down, and only `manager` uses all
//! of it.

use crate::{File, code, has_word, tree};
use std::collections::BTreeSet;

/// The modules of zc-cache, lowest first. A module may import those before it.
const CORE: &[&str] = &[
    "expect_held",
    "config",
    "seam",
    "loss",
    "residency",
    "shares",
    "ops",
    "startup",
    "index",
    "stats",
    "base",
    "device",
    "reduce",
    "clean",
    "dirty",
    "failure",
    "stop",
    "deadlines",
    "removal",
    "manager",
];

const SOURCES: &str = "crates/zc-cache/src/";

/// The module of the core that a file belongs to; none for its root.
fn module(path: &str) -> Option<&str> {
    let name = path.strip_prefix(SOURCES)?.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (name != "lib").then_some(name)
}

/// The code of a file before its tests, without comments.
fn shipped(file: &File) -> String {
    let text = &file.text[..file.text.len() - file.test_code().len()];
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// The modules that a piece of code names by `crate::`.
fn imports(text: &str) -> BTreeSet<String> {
    let word =
        |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut found = BTreeSet::new();
    for (at, start) in text.match_indices("crate::") {
        let rest = &text[at + start.len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let list = list.split('}').next().unwrap_or_default();
            found.extend(list.split(',').map(|item| word(item.trim())));
        } else {
            found.insert(word(rest));
        }
    }
    found
}

fn arrows_up(files: &[File]) -> Vec<String> {
    let rank = |name: &str| CORE.iter().position(|module| *module == name);
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(from) = module(&file.path) else { continue };
        let Some(own) = rank(from) else {
            broken.push(format!("{}: {from} has no place among the layers", file.path));
            continue;
        };
        let up = imports(&shipped(file)).into_iter().filter(|to| rank(to).is_some_and(|to| to > own));
        broken.extend(up.map(|to| format!("{}: {from} imports {to}, which is above", file.path)));
    }
    broken
}

fn managers_elsewhere(files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let is_below = module(&file.path).is_some_and(|name| name != "manager");
        if is_below && has_word(&shipped(file), "CacheManager") {
            broken.push(format!("{}: names the manager", file.path));
        }
    }
    broken
}

#[test]
fn a_module_of_the_core_imports_what_is_below_it() {
    assert_eq!(arrows_up(&tree()), Vec::<String>::new());
    let file = |path: &str, text: &str| File { path: format!("{SOURCES}{path}"), text: text.to_owned() };
    assert_eq!(arrows_up(&[file("base/port.rs", "use crate::clean::Clean;\n")]).len(), 1);
    assert_eq!(arrows_up(&[file("stop.rs", "use crate::{base,\n    manager::X};\n")]).len(), 1);
    assert_eq!(arrows_up(&[file("new.rs", "")]).len(), 1);
    let allowed = [
        file("dirty/mod.rs", "use crate::base::Base;\n#[cfg(test)]\nuse crate::manager::X;\n"),
        file("lib.rs", "pub use crate::manager::X;\n"),
    ];
    assert_eq!(arrows_up(&allowed), Vec::<String>::new());
}

#[test]
fn only_the_manager_knows_the_manager() {
    assert_eq!(managers_elsewhere(&tree()), Vec::<String>::new());
    let file = |path: &str, text: &str| File { path: format!("{SOURCES}{path}"), text: text.to_owned() };
    assert_eq!(managers_elsewhere(&[file("dirty/commit.rs", "impl CacheManager {}\n")]).len(), 1);
    let allowed =
        [file("manager/queries.rs", "impl CacheManager {}\n"), file("seam.rs", "//! [`CacheManager`]\n")];
    assert_eq!(managers_elsewhere(&allowed), Vec::<String>::new());
}
