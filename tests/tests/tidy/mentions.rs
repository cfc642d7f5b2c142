//! Rule about the names between backquotes in comments and documents: types, functions and files exist.
//!
//! Judged are doc comments and the Markdown of crates and of the root. The book also names external things, such as
//! systemd's settings and keys of TOML, and is not judged.

use super::{File, assert_none, code, tree};
use std::collections::BTreeSet;

/// Files of other projects that ours mention.
const FOREIGN: [&str; 1] = ["doc/proto.md"];

/// Identifiers and paths that exist.
struct Known {
    words: BTreeSet<String>,
    paths: BTreeSet<String>,
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

impl Known {
    fn new(files: &[File]) -> Self {
        let lines = files.iter().filter(|file| file.is_rust() || file.path.ends_with(".toml"));
        let lines = lines.flat_map(|file| file.text.lines()).map(code);
        let words = lines.flat_map(words).map(str::to_owned).collect();
        let mut paths = BTreeSet::new();
        for file in files {
            let mut rest = file.path.as_str();
            paths.insert(rest.to_owned());
            // A path may begin at any folder.
            while let Some((_, shorter)) = rest.split_once('/') {
                paths.insert(shorter.to_owned());
                rest = shorter;
            }
        }
        Self { words, paths }
    }

    /// Returns `true` if the text between backquotes exists, or is not a name of a type, a function or a file.
    fn has(&self, mention: &str) -> bool {
        let name = mention.strip_suffix("()").unwrap_or(mention);
        if is_file(name) {
            return self.paths.contains(name) || self.is_below_sources(name) || FOREIGN.contains(&name);
        }
        !is_item(name) || words(name).all(|word| self.words.contains(word))
    }

    /// `zc-sim/src/world.rs` may be written as `zc-sim/world.rs`.
    fn is_below_sources(&self, name: &str) -> bool {
        name.split_once('/').is_some_and(|(first, rest)| self.paths.contains(&format!("{first}/src/{rest}")))
    }
}

/// A type, or a path of Rust.
fn is_item(name: &str) -> bool {
    let is_path = name.split("::").all(|part| words(part).eq([part]));
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name[1..].starts_with(|c: char| c.is_ascii_lowercase());
    is_path && (is_type || name.contains("::"))
}

fn is_file(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    is_plain && !name.starts_with(['/', '.']) && (name.ends_with(".rs") || name.ends_with(".md"))
}

/// The lines that are judged.
fn judged(file: &File) -> Vec<(usize, &str)> {
    let is_document =
        file.path.ends_with(".md") && (file.path.starts_with("crates/") || !file.path.contains('/'));
    let lines = file.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let is_comment =
        |line: &str| line.trim_start().starts_with("//!") || line.trim_start().starts_with("///");
    lines.filter(|(_, line)| is_document || (file.is_rust() && is_comment(line))).collect()
}

fn mentions_of_nothing(files: &[File]) -> Vec<String> {
    let known = Known::new(files);
    let mut found = Vec::new();
    for file in files {
        for (number, line) in judged(file) {
            let mentioned = line.split('`').skip(1).step_by(2);
            let absent = mentioned.filter(|mention| !known.has(mention));
            found.extend(absent.map(|mention| format!("{}:{number}: `{mention}` does not exist", file.path)));
        }
    }
    found
}

#[test]
fn what_is_mentioned_exists() {
    assert_none(&mentions_of_nothing(&tree()));
}

#[test]
fn the_rule_of_mentions_sees_what_breaks_it() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let files = |document: &str| {
        vec![
            file("crates/zc-a/src/lib.rs", "struct Held;\nfn put_by() {}\n"),
            file("crates/zc-a/DESIGN.md", document),
        ]
    };
    for broken in
        ["`Kept` waits.", "`Held::taken`.", "`zc_b::put_by()`.", "See `gone.rs`.", "See `zc-a/src/gone.rs`."]
    {
        assert_eq!(mentions_of_nothing(&files(broken)).len(), 1, "{broken}");
    }
    for good in [
        "`Held` and `Held::put_by()`.",
        "`zc-a/lib.rs`, `lib.rs`.",
        "`FLUSH`, `a = 1`, `/etc/x.md`, `target`.",
    ] {
        assert_eq!(mentions_of_nothing(&files(good)), Vec::<String>::new(), "{good}");
    }
    let comment =
        [file("crates/zc-a/src/lib.rs", "/// As `Gone` does.\n// `Gone` is for authors.\nfn a() {}\n")];
    assert_eq!(mentions_of_nothing(&comment).len(), 1);
}
