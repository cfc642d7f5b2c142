//! Rules about the folders within a crate: imports go one way, and a folder's state has its methods there.
//!
//! The rules read the text: `crate::NAME` in code names a folder or a file of the crate's root, and so on below.

use super::{File, assert_none, code, tree};

/// The sources below a path of modules, and the modules there from the top: each uses those behind it.
struct Layout {
    sources: &'static str,
    /// Its path in code.
    path: &'static str,
    order: &'static [&'static str],
}

const LAYOUTS: &[Layout] = &[
    Layout {
        sources: "crates/zc-daemon/src/",
        path: "crate::",
        order: &["lib", "daemon", "control", "observe", "session", "program", "http", "limits"],
    },
    Layout {
        sources: "crates/zc-engine/src/",
        path: "crate::",
        order: &[
            "lib", "shard", "record", "front", "state", "origin", "pem", "audit", "registry", "client",
            "error", "deadline", "clock", "limits",
        ],
    },
    Layout {
        sources: "crates/zc-engine/src/shard/",
        path: "crate::shard::",
        order: &[
            "mod",
            "dispatch",
            "commands",
            "stats",
            "clients",
            "warm",
            "close",
            "give_back",
            "pause",
            "dirty_asks",
            "leaving",
            "health",
            "settled",
            "lengths",
            "origins",
            "origin_limits",
            "volumes",
            "device",
            "workers",
            "reads",
            "base",
            "io",
            "pending",
            "buffers",
            "stop",
            "metrics",
            "reduce_pool",
            "extents",
            "reduce",
            "cpus",
        ],
    },
    Layout {
        sources: "crates/zc-engine/src/shard/clients/",
        path: "crate::shard::clients::",
        order: &["mod", "requests", "ublk", "nbd", "status", "conn", "asked"],
    },
];

/// Types of zc-engine with their methods in one folder or file only.
const AT_HOME: &[(&str, &str)] = &[
    ("impl Shard {", "crates/zc-engine/src/shard/dispatch/"),
    ("impl Base {", "crates/zc-engine/src/shard/base.rs"),
    ("impl Volumes {", "crates/zc-engine/src/shard/volumes.rs"),
    ("impl Clients {", "crates/zc-engine/src/shard/clients/mod.rs"),
    ("impl NbdFront {", "crates/zc-engine/src/shard/clients/nbd/"),
    ("impl Requests {", "crates/zc-engine/src/shard/clients/requests.rs"),
];

/// The names behind a path in a line of code.
fn named<'a>(line: &'a str, path: &'static str) -> impl Iterator<Item = &'a str> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let first = move |rest: &'a str| rest.split(|c| !part_of_word(c)).next().unwrap_or_default();
    code(line).split(path).skip(1).flat_map(move |rest| {
        let list = rest.strip_prefix('{').map(|list| list.split('}').next().unwrap_or_default());
        let names = list.map_or_else(|| vec![rest], |list| list.split(',').map(str::trim).collect());
        names.into_iter().map(first)
    })
}

fn imports_from_above(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for Layout { sources, path, order } in LAYOUTS {
        for file in files.iter().filter(|file| file.is_rust()) {
            let Some(inner) = file.path.strip_prefix(sources) else { continue };
            let own = inner.split('/').next().unwrap_or_default().trim_end_matches(".rs");
            let Some(place) = order.iter().position(|name| *name == own) else {
                found.push(format!("{}: {own} has no place; add it to LAYOUTS", file.path));
                continue;
            };
            let above = |name: &&str| order[..place].contains(name);
            let names = file.text.lines().flat_map(|line| named(line, path));
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
        let others = files.iter().filter(|file| file.is_rust() && file.path.starts_with("crates/zc-engine/"));
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
        engine("front/tls.rs", "use crate::shard::dispatch::Shard;\n"),
        engine("front/tls.rs", "    let x = f(crate::record::Shared::new());\n"),
        engine("shard/io.rs", "use crate::shard::dispatch::Shard;\n"),
        engine("shard/io.rs", "use crate::shard::{cpus, base::Base};\n"),
        engine("shard/clients/conn.rs", "use crate::shard::clients::nbd::NbdFront;\n"),
        engine("limits.rs", "use crate::error::EngineError;\n"),
        engine("new/mod.rs", "//! New.\n"),
        engine("shard/new.rs", "//! New.\n"),
    ] {
        assert_eq!(imports_from_above(&broken).len(), 1);
    }
    for good in [
        engine("shard/clients/conn.rs", "use crate::shard::base::Base;\nuse crate::front::peer::Peer;\n"),
        engine("front/tls.rs", "// As in crate::shard.\nuse crate::limits::X;\n"),
        engine("lib.rs", "pub use error::EngineError;\n"),
        file("crates/zc-cache/src/front.rs", "use crate::shard::dispatch::Shard;\n"),
    ] {
        assert_eq!(imports_from_above(&good), Vec::<String>::new());
    }
    assert_eq!(strangers(&engine("front/a.rs", "impl Shard {\n")).len(), 1);
    assert_eq!(strangers(&engine("shard/device.rs", "impl Shard {\n")).len(), 1);
    assert_eq!(strangers(&engine("shard/dispatch/a.rs", "impl Shard {\n")), Vec::<String>::new());
}
