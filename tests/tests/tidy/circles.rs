//! The rule that modules of a crate do not use each other in a circle.
//!
//! The rule reads the text: paths that begin with `crate`, `self`, `super` or a child module. A name that a module
//! only re-exports is followed to its module.
//!
//! Two grades. Among siblings no circle is allowed in any crate: uses count for all folders around a module. In the
//! crates of [`STRICT`] a parent and its children form no circle, either.

use super::{File, assert_none, tree, without_strings};
use std::collections::{BTreeMap, BTreeSet};

/// Crates in which children do not use their parent's own items, if the parent uses them.
const STRICT: &[&str] = &["bin/zcctl", "bin/zcsim", "bin/zcached", "crates/lab/zc-replay", "crates/zc-cache"];

/// Circles that stand: the crate, and the module whose children form it.
const STANDING: &[(&str, &str)] = &[
    // The store has its methods beside their subjects: one owner, its work in several files.
    ("crates/zc-store", ""),
    // A buffer goes back to its pool when it is dropped.
    ("crates/zc-io", ""),
];

/// A module, by the names from the crate's root on; the root has none.
type Path = Vec<String>;

/// The modules that each module uses.
type Arrows = BTreeMap<Path, BTreeSet<Path>>;

/// Names in a module: its imports, and paths within its code.
#[derive(Debug, Default)]
struct Named {
    imports: Vec<Path>,
    others: Vec<Path>,
}

/// The crate and the module that a file is; `None` for tests and for further programs of a crate.
fn place(path: &str) -> Option<(&str, Path)> {
    let (home, inner) = path.split_once("/src/")?;
    let inner = inner.strip_suffix(".rs")?;
    let mut names: Path = inner.split('/').map(str::to_owned).collect();
    let is_test = |name: &String| name == "tests" || name.ends_with("_tests");
    if names.iter().any(is_test) || names.first().is_some_and(|name| name == "bin" && names.len() > 1) {
        return None;
    }
    names.pop_if(|name| ["mod", "lib", "main"].contains(&name.as_str()));
    Some((home, names))
}

/// Returns names and signs of the shipped code: without comments and strings, and without code compiled for tests.
fn tokens(file: &File) -> Vec<String> {
    let tests = ["\nmod tests {", "\npub(super) mod tests {", "\npub(crate) mod tests {"];
    let end = tests.iter().filter_map(|opening| file.text.find(opening)).min().unwrap_or(file.text.len());
    let text = &file.text[..end];
    let mut found: Vec<String> = Vec::new();
    let (mut is_test, mut in_string) = (false, false);
    for line in text.lines() {
        let line = without_strings(line, &mut in_string);
        if line.trim() == "#[cfg(test)]" {
            is_test = true;
            continue;
        }
        // An item for tests, such as an import, ends with its line.
        if std::mem::take(&mut is_test) {
            continue;
        }
        let mut rest = line.as_str();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let len = if word > 0 {
                word
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                found.push(rest[..len].to_owned());
            }
            rest = &rest[len..];
        }
    }
    found
}

/// The paths of a tree of `use`, from its first token on, up to the sign that ends it; and how many tokens that were.
fn used(tokens: &[String]) -> (Vec<Path>, usize) {
    let (mut paths, mut path, mut at) = (Vec::new(), Path::new(), 0);
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            ";" | "," | "}" => break,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}" && token != ";") {
                    let (inner, len) = used(&tokens[at..]);
                    paths.extend(inner.into_iter().map(|inner| [path.clone(), inner].concat()));
                    at += len + usize::from(tokens.get(at + len).is_some_and(|token| token == ","));
                }
                at += 1;
                return (paths, at);
            }
            "as" => at += 2,
            "self" if !path.is_empty() => at += 1,
            "::" => at += 1,
            name => {
                path.push(name.to_owned());
                at += 1;
            }
        }
    }
    paths.push(path);
    (paths, at)
}

/// Returns the names in a module with this code.
fn named(tokens: &[String]) -> Named {
    let (mut found, mut at) = (Named::default(), 0);
    while at < tokens.len() {
        if tokens[at] == "use" {
            let (paths, len) = used(&tokens[at + 1..]);
            found.imports.extend(paths);
            at += 1 + len;
        } else if tokens.get(at + 1).is_some_and(|next| next == "::") && (at == 0 || tokens[at - 1] != "::") {
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|next| next == "::") && at + 2 < tokens.len() {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            found.others.push(path);
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// The module that a path from `own` leads to, and the names behind it.
fn target<'p>(modules: &BTreeSet<Path>, own: &Path, path: &'p [String]) -> Option<(Path, &'p [String])> {
    let mut at = own.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        child if !modules.contains(&[own.clone(), vec![child.to_owned()]].concat()) => return None,
        _ => {}
    }
    while let Some((name, behind)) = rest.split_first() {
        let child = [at.clone(), vec![name.clone()]].concat();
        if !modules.contains(&child) {
            break;
        }
        (at, rest) = (child, behind);
    }
    Some((at, rest))
}

/// The arrows among the modules of each crate.
fn arrows(files: &[File]) -> BTreeMap<&str, Arrows> {
    let mut crates: BTreeMap<&str, BTreeMap<Path, Named>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some((home, module)) = place(&file.path) {
            crates.entry(home).or_default().insert(module, named(&tokens(file)));
        }
    }
    crates.into_iter().map(|(home, modules)| (home, arrows_of(&modules))).collect()
}

fn arrows_of(modules: &BTreeMap<Path, Named>) -> Arrows {
    let known: BTreeSet<Path> = modules.keys().cloned().collect();
    let mut exported: BTreeMap<&Path, BTreeMap<&str, Path>> = BTreeMap::new();
    for (module, named) in modules {
        for path in &named.imports {
            let leads = target(&known, module, path).filter(|(to, _)| to != module);
            if let (Some((to, _)), Some(name)) = (leads, path.last()) {
                exported.entry(module).or_default().insert(name, to);
            }
        }
    }
    let mut found = Arrows::new();
    for (module, Named { imports, others }) in modules {
        let uses = found.entry(module.clone()).or_default();
        for (mut to, rest) in imports.iter().chain(others).filter_map(|path| target(&known, module, path)) {
            let mut passed = BTreeSet::new();
            let further =
                |from: &Path| rest.first().and_then(|name| exported.get(from)?.get(name.as_str())).cloned();
            while let Some(next) = further(&to).filter(|_| passed.insert(to.clone())) {
                to = next;
            }
            if to != *module {
                uses.insert(to);
            }
        }
    }
    found
}

/// The arrows among the children of `parent`, each standing for all that is in it.
fn among_children(arrows: &Arrows, parent: &Path) -> Arrows {
    let child = |module: &Path| {
        (module.len() > parent.len() && module.starts_with(parent)).then(|| module[..=parent.len()].to_vec())
    };
    let mut found = Arrows::new();
    for (module, uses) in arrows {
        let Some(from) = child(module) else { continue };
        let others = uses.iter().filter_map(&child).filter(|to| *to != from);
        found.entry(from.clone()).or_default().extend(others);
    }
    found
}

/// The groups of modules that reach each other.
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reached = |from: &Path| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Path> = arrows.get(from).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(arrows.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let all: BTreeMap<&Path, BTreeSet<&Path>> = arrows.keys().map(|from| (from, reached(from))).collect();
    let mut found = BTreeSet::new();
    for (module, reach) in all.iter().filter(|(module, reach)| reach.contains(*module)) {
        let back = |other: &&Path| all.get(*other).is_some_and(|reach| reach.contains(module));
        let group: Vec<String> = reach.iter().copied().filter(back).map(|path| path.join("::")).collect();
        found.insert(group);
    }
    found.into_iter().collect()
}

/// Circles as the two grades have them: crate, the module whose children form it (or `*`), and the modules.
fn all_circles(files: &[File]) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (home, arrows) in arrows(files) {
        let mut add = |parent: String, arrows: &Arrows| {
            let circles = circles(arrows).into_iter().map(|group| group.join(", "));
            found.extend(circles.map(|group| (home.to_owned(), parent.clone(), group)));
        };
        if STRICT.contains(&home) {
            add("*".to_owned(), &arrows);
            continue;
        }
        let parents: BTreeSet<Path> = arrows
            .keys()
            .filter_map(|module| module.split_last().map(|(_, parent)| parent.to_vec()))
            .collect();
        for parent in parents {
            add(parent.join("::"), &among_children(&arrows, &parent));
        }
    }
    found
}

#[test]
fn modules_do_not_use_each_other_in_a_circle() {
    let found = all_circles(&tree());
    let is_known = |home: &str, parent: &str| STANDING.contains(&(home, parent));
    let new = found.iter().filter(|(home, parent, _)| !is_known(home, parent));
    assert_none(&new.map(|(home, parent, group)| format!("{home} ({parent}): {group}")).collect::<Vec<_>>());
    for (home, parent) in STANDING {
        let stands = found.iter().any(|(other, place, _)| other == home && place == parent);
        assert!(stands, "{home} ({parent}) has no circle any more; take it out of STANDING");
    }
}

#[test]
fn the_rule_of_circles_sees_what_breaks_it() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let count = |files: &[(&str, &str)]| {
        all_circles(&files.iter().map(|(path, text)| file(path, text)).collect::<Vec<_>>()).len()
    };
    let root = ("crates/a/src/lib.rs", "pub use x::X;\npub mod x;\npub mod y;\n");
    let two = |x, y| count(&[root, ("crates/a/src/x.rs", x), ("crates/a/src/y/mod.rs", y)]);
    assert_eq!(two("use crate::y::Y;\n", "use super::x::{self, B};\n"), 1);
    assert_eq!(two("use crate::{b, y::{c, Y}};\n", "fn f() { crate::X::new() }\n"), 1, "by a re-export");
    let inner = ("crates/a/src/y/inner.rs", "use crate::x::X;\n");
    let outer = ("crates/a/src/y/mod.rs", "mod inner;\nstruct Y;\n");
    assert_eq!(count(&[root, ("crates/a/src/x.rs", "use crate::y::Y;\n"), outer, inner]), 1, "by a child");
    assert_eq!(two("use crate::y::Y;\n", "// use crate::x::X;\n#[cfg(test)]\nuse crate::x::X;\n"), 0);
    assert_eq!(two("use crate::y::Y;\n#[cfg(test)]\nmod tests { use crate::y::Z; }\n", "struct Y;\n"), 0);
    let nest = |home: &str| {
        let (parent, child) = (format!("{home}/src/y/mod.rs"), format!("{home}/src/y/inner.rs"));
        count(&[(&parent, "mod inner;\nuse inner::X;\nstruct Y;\n"), (&child, "use super::Y;\n")])
    };
    assert_eq!((nest("crates/a"), nest(STRICT[0])), (0, 1));
}
