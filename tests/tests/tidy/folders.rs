//! Rules about the folders within a crate: imports go one way, and a folder's state has its methods there.
//!
//! What is read is the text: `crate::NAME` in code names a folder or a file of the crate's root.

use super::{File, assert_none, code, tree};

/// A crate's sources, and its folders and files from the top: each uses those behind it.
struct Layout {
    sources: &'static str,
    order: &'static [&'static str],
}

const LAYOUTS: &[Layout] = &[Layout {
    sources: "crates/zc-engine/src/",
    order: &[
        "lib", "engine", "control", "observe", "session", "program", "shard", "record", "front", "state",
        "origin", "audit", "registry", "client", "error", "clock", "limits",
    ],
}];

/// Types with their methods in one folder only.
const AT_HOME: &[(&str, &str)] = &[("impl Shard {", "crates/zc-engine/src/shard/")];

/// The names behind `crate::` in a line of code.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    code(line)
        .split("crate::")
        .skip(1)
        .map(move |rest| rest.split(|c| !part_of_word(c)).next().unwrap_or_default())
}

fn imports_from_above(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for Layout { sources, order } in LAYOUTS {
        for file in files.iter().filter(|file| file.is_rust()) {
            let Some(inner) = file.path.strip_prefix(sources) else { continue };
            let own = inner.split('/').next().unwrap_or_default().trim_end_matches(".rs");
            let Some(place) = order.iter().position(|name| *name == own) else {
                found.push(format!("{}: {own} has no place; add it to LAYOUTS", file.path));
                continue;
            };
            let above = |name: &&str| order[..place].contains(name);
            let names = file.text.lines().flat_map(named);
            found.extend(
                names
                    .filter(above)
                    .map(|name| format!("{}: {own} uses {name}, which is above it", file.path)),
            );
        }
    }
    found
}

fn strangers(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for (methods, home) in AT_HOME {
        let others = files.iter().filter(|file| file.is_rust() && !file.path.starts_with("tests/"));
        let strange = others
            .filter(|file| !file.path.starts_with(home) && file.text.lines().any(|line| line == *methods));
        found.extend(strange.map(|file| format!("{}: `{methods}` belongs into {home}", file.path)));
    }
    found
}

#[test]
fn folders_import_one_way() {
    let files = tree();
    for Layout { sources, .. } in LAYOUTS {
        assert!(files.iter().any(|file| file.path.starts_with(sources)), "{sources} is there");
    }
    assert_none(&imports_from_above(&files));
}

#[test]
fn methods_are_in_their_home() {
    let files = tree();
    for (methods, home) in AT_HOME {
        let there =
            |file: &File| file.path.starts_with(home) && file.text.lines().any(|line| line == *methods);
        assert!(files.iter().any(there), "{methods} is in {home}");
    }
    assert_none(&strangers(&files));
}

#[test]
fn the_rules_of_folders_see_what_breaks_them() {
    let file = |path: &str, text: &str| [File { path: path.to_owned(), text: text.to_owned() }];
    let engine = |inner: &str, text: &str| file(&format!("crates/zc-engine/src/{inner}"), text);
    for broken in [
        engine("front/tls.rs", "use crate::shard::Shard;\n"),
        engine("shard/clients/net.rs", "    let x = f(crate::control::Shared::new());\n"),
        engine("limits.rs", "use crate::error::EngineError;\n"),
        engine("new/mod.rs", "//! New.\n"),
    ] {
        assert_eq!(imports_from_above(&broken).len(), 1);
    }
    for good in [
        engine("shard/clients/net.rs", "use crate::shard::Shard;\nuse crate::front::peer::Peer;\n"),
        engine("front/tls.rs", "// As in crate::shard.\nuse crate::limits::X;\n"),
        engine("lib.rs", "pub use engine::Engine;\n"),
        file("crates/zc-cache/src/front.rs", "use crate::shard::Shard;\n"),
    ] {
        assert_eq!(imports_from_above(&good), Vec::<String>::new());
    }
    assert_eq!(strangers(&engine("control/a.rs", "impl Shard {\n")).len(), 1);
    assert_eq!(strangers(&engine("shard/a.rs", "impl Shard {\n")), Vec::<String>::new());
}
