//! Rules about the tree itself, checked like any other behaviour: layers, sizes, headers, forbidden words.
//!
//! Each rule is a function over the files (or over cargo's metadata) that returns the violations. Each has a test over
//! the real tree and a test over a violating sample, so that an ineffective rule is noticed.
//!
//! The files are those that git tracks and those it would track: ignored ones are not judged.

#![expect(clippy::expect_used, reason = "a test; what it cannot read is a failure")]

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/comments.rs"]
mod comments;
#[path = "tidy/commits.rs"]
mod commits;
#[path = "tidy/core_layers.rs"]
mod core_layers;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/folders.rs"]
mod folders;
#[path = "tidy/mentions.rs"]
mod mentions;
#[path = "tidy/voice.rs"]
mod voice;
#[path = "tidy/words.rs"]
mod words;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use zc_tests::{run_ok, workspace};

/// Longest source file, tests included.
const FILE_LINES_MAX: usize = 1000;

/// Widest line of a comment; rustfmt leaves comments alone.
const COMMENT_COLUMNS_MAX: usize = 122;

/// Allowed folders at the top level, besides files and dot folders.
const TOP_FOLDERS: &[&str] = &["crates", "bin", "benches", "tests", "configs", "docs"];

/// The layers, lowest first. A crate may depend on crates of lower layers.
const LAYERS: &[&[&str]] = &[
    &["zc-core", "zc-cli", "zc-report"],
    &["zc-format", "zc-reduce", "zc-conformance", "zc-recording", "zc-policy", "zc-rig"],
    &["zc-cache", "zc-store", "zc-trace"],
    &["zc-io", "zc-origin", "zc-nbd", "zc-ublk", "zc-config", "zc-sandbox", "zc-pool", "zc-flash"],
    &["zc-drive", "zc-pool-io", "zc-remote"],
    &["zc-engine", "zc-sim", "zc-replay"],
    &["zc-daemon"],
    &["zc-figures"],
    &["zcached", "zcctl", "zcsim"],
    &["zc-bench", "zc-model", "zc-tests", "xtask"],
];

/// Dependencies within a layer that are wanted: origins and ublk devices do their I/O through the ring, and the
/// configuration names remote origins by their NBD URIs.
const SIDEWAYS: &[(&str, &str)] = &[("zc-origin", "zc-io"), ("zc-ublk", "zc-io"), ("zc-config", "zc-nbd")];

/// The crates that talk to the kernel, and may have unsafe code.
const UNSAFE: &[&str] = &["crates/zc-io/", "crates/zc-ublk/"];

/// Third-party crates that the cache manager may use: data structures and errors, nothing that does I/O.
const PURE: &[&str] = &["hashbrown", "rustc-hash", "smallvec", "thiserror"];

/// Crates without I/O, clock and threads.
const SANS_IO: &[&str] = &[
    "crates/zc-core/src/",
    "crates/zc-format/src/",
    "crates/zc-cache/src/",
    "crates/zc-store/src/",
    "crates/zc-pool/src/",
    "crates/zc-nbd/src/",
    "crates/zc-remote/src/",
];

/// Names that a sans-IO crate must not contain.
const IO_WORDS: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "tokio",
    "io_uring",
    "rustix",
];

/// One file of the tree.
#[derive(Debug)]
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_manifest(&self) -> bool {
        self.path.ends_with("/Cargo.toml")
    }

    /// Tests live in a `tests` folder, in a file named for them, or behind `cfg(test)`.
    fn test_code(&self) -> &str {
        let parts: Vec<&str> = self.path.split('/').collect();
        let file = parts.last().copied().unwrap_or_default();
        let is_test = parts.contains(&"tests") || file == "tests.rs" || file.ends_with("_tests.rs");
        let from = if is_test { Some(0) } else { self.text.find("#[cfg(test)]") };
        from.map_or("", |from| &self.text[from..])
    }
}

/// Returns every file that git tracks or would track; other than text, such as a picture, is read as empty.
fn tree() -> Vec<File> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace());
    let listed = String::from_utf8(run_ok(&mut git).stdout).expect("paths are UTF-8");
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        // A file that was deleted but not yet committed is listed.
        if let Ok(bytes) = std::fs::read(workspace().join(path)) {
            files.push(File { path: path.to_owned(), text: String::from_utf8(bytes).unwrap_or_default() });
        }
    }
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "git lists the workspace");
    files
}

/// The code of a line: without its comment. Good enough for words; not a parser.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Returns a line of code without its strings. `inside`: it begins within one; set for the next line.
fn without_strings(line: &str, inside: &mut bool) -> String {
    let line = line.replace("'\"'", "").replace("\\\\", "").replace("\\\"", "");
    let mut kept = String::new();
    for (index, part) in line.split('"').enumerate() {
        if index > 0 {
            *inside = !*inside;
        }
        if !*inside {
            kept.push_str(part);
            kept.push(' ');
        }
    }
    // A string continues after the end of a line only after a backslash; else a quote was of another kind.
    *inside &= line.ends_with('\\');
    code(&kept).to_owned()
}

/// Returns `true` if `word` stands in `text` as a word of its own.
fn has_word(text: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(part_of_word) && !text[at + word.len()..].starts_with(part_of_word)
    })
}

/// Returns `path:line: message` for each line of Rust code in `text` for which `broken` holds.
fn lines<'a>(
    path: &'a str,
    text: &'a str,
    what: &'a str,
    broken: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = String> + 'a {
    text.lines()
        .filter(move |line| broken(code(line)))
        .map(move |line| format!("{path}: {what}: {}", line.trim()))
}

fn long_files(files: &[File]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.is_rust());
    let counted = rust.map(|file| (&file.path, file.text.lines().count()));
    let long = counted.filter(|(_, count)| *count > FILE_LINES_MAX);
    long.map(|(path, count)| format!("{path}: {count} lines, at most {FILE_LINES_MAX} are allowed")).collect()
}

fn wide_comments(files: &[File]) -> Vec<String> {
    let mut wide = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let comments = file.text.lines().filter(|line| line.trim_start().starts_with("//"));
        // A row of a table cannot be wrapped.
        let prose = comments.filter(|line| !line.contains(" | "));
        let broken = prose.filter(|line| line.chars().count() > COMMENT_COLUMNS_MAX);
        wide.extend(broken.map(|line| format!("{}: wrap: {line}", file.path)));
    }
    wide
}

fn missing_headers(files: &[File]) -> Vec<String> {
    let without = files.iter().filter(|file| file.is_rust() && !file.text.starts_with("//!"));
    without.map(|file| format!("{}: does not open with `//!` and its job", file.path)).collect()
}

fn stray_folders(files: &[File]) -> Vec<String> {
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|file| file.path.split_once('/')).map(|(folder, _)| folder).collect();
    let stray =
        folders.into_iter().filter(|folder| !folder.starts_with('.') && !TOP_FOLDERS.contains(folder));
    stray.map(|folder| format!("{folder}/: not a folder of the layout")).collect()
}

fn unfinished(files: &[File]) -> Vec<String> {
    let needles = [concat!("to", "do!("), concat!("un", "implemented!("), concat!("#[", "ignore")];
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for line in file.text.lines() {
            let bad_word = words.iter().any(|word| has_word(line, word));
            if bad_word || needles.iter().any(|needle| line.contains(needle)) {
                found.push(format!("{}: unfinished: {}", file.path, line.trim()));
            }
        }
    }
    found
}

fn sleeping_tests(files: &[File]) -> Vec<String> {
    let sleeps = |line: &str| {
        [concat!("thread::", "sleep"), concat!("time::", "sleep")].iter().any(|word| line.contains(word))
    };
    let rust = files.iter().filter(|file| file.is_rust());
    rust.flat_map(|file| lines(&file.path, file.test_code(), "a test waits for time", sleeps)).collect()
}

/// Crates and programs only: a test that counts allocations has to be an allocator.
fn unsafe_code(files: &[File]) -> Vec<String> {
    let shipped = |path: &str| ["crates/", "bin/"].iter().any(|folder| path.starts_with(folder));
    let wrong_place = |path: &str| shipped(path) && !UNSAFE.iter().any(|place| path.starts_with(place));
    let files = files.iter().filter(|file| file.is_rust() && wrong_place(&file.path));
    let is_unsafe = |line: &str| has_word(line, "unsafe");
    files
        .flat_map(|file| lines(&file.path, &file.text, "allowed in zc-io and zc-ublk only", is_unsafe))
        .collect()
}

fn io_in_the_core(files: &[File]) -> Vec<String> {
    let does_io = |line: &str| IO_WORDS.iter().any(|word| has_word(line, word));
    let core = files
        .iter()
        .filter(|file| file.is_rust() && SANS_IO.iter().any(|prefix| file.path.starts_with(prefix)));
    core.flat_map(|file| lines(&file.path, &file.text, "I/O, clock or thread in a sans-IO crate", does_io))
        .collect()
}

/// Sources and manifests are ASCII; documents may draw boxes and arrows.
fn strange_characters(files: &[File]) -> Vec<String> {
    let drawn = |c: char| matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2500}'..='\u{25ff}');
    let mut found = Vec::new();
    for file in files {
        let document = file.path.ends_with(".md");
        let strange = file.text.chars().find(|c| !(c.is_ascii() || document && drawn(*c)));
        found.extend(strange.map(|c| format!("{}: the character U+{:04X}", file.path, u32::from(c))));
    }
    found
}

/// Members only: a fuzz package is a workspace of its own, because it is built by another toolchain.
fn loose_lints(files: &[File]) -> Vec<String> {
    let member = |text: &str| !text.contains("[workspace]");
    let strict = |text: &str| text.contains("[lints]\nworkspace = true");
    let manifests = files.iter().filter(|file| file.is_manifest());
    let loose = manifests.filter(|file| member(&file.text) && !strict(&file.text));
    loose.map(|file| format!("{}: no `[lints] workspace = true`", file.path)).collect()
}

/// Paths of one machine and addresses of private or mirror hosts do not belong into a public tree.
fn private_places(files: &[File]) -> Vec<String> {
    let needles =
        [concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    let hosts = [
        concat!("crates", ".io"),
        concat!("deb.", "debian"),
        concat!("pypi", ".org"),
        concat!("local", "domain"),
    ];
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path != "Cargo.lock") {
        for needle in needles.iter().chain(&hosts).filter(|needle| file.text.contains(**needle)) {
            found.push(format!("{}: names {needle}", file.path));
        }
    }
    found
}

fn changelog_order(files: &[File]) -> Vec<String> {
    let Some(log) = files.iter().find(|file| file.path == "CHANGELOG.md") else {
        return vec!["CHANGELOG.md: missing".to_owned()];
    };
    let headings: Vec<&str> = log.text.lines().filter(|line| line.starts_with("##")).collect();
    let releases = headings.iter().enumerate().filter(|(_, heading)| heading.starts_with("## "));
    let careless: Vec<String> = releases
        .clone()
        .filter(|(at, _)| headings.get(at + 1) != Some(&"### Safety"))
        .map(|(_, release)| format!("CHANGELOG.md: {release} does not open with its Safety section"))
        .collect();
    if releases.count() == 0 { vec!["CHANGELOG.md: no release".to_owned()] } else { careless }
}

/// A workspace member, its folder in the tree, and its dependencies. The flag marks a dependency of its tests only.
#[derive(Debug)]
struct Member {
    name: String,
    folder: String,
    dependencies: Vec<(String, bool)>,
}

fn members() -> Vec<Member> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(workspace());
    let metadata: Value = serde_json::from_slice(&run_ok(&mut cargo).stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages is a list");
    let text = |value: &Value| value.as_str().expect("names are strings").to_owned();
    let dependency = |value: &Value| (text(&value["name"]), value["kind"] == "dev");
    let root = std::fs::canonicalize(workspace()).expect("the workspace is there");
    let folder = |value: &Value| {
        let manifest = PathBuf::from(text(value));
        let place = manifest.ancestors().nth(2).and_then(|place| place.strip_prefix(&root).ok());
        place.map(|place| place.display().to_string()).unwrap_or_default()
    };
    packages
        .iter()
        .map(|package| Member {
            name: text(&package["name"]),
            folder: folder(&package["manifest_path"]),
            dependencies: package["dependencies"].as_array().into_iter().flatten().map(dependency).collect(),
        })
        .collect()
}

fn layer_violations(members: &[Member]) -> Vec<String> {
    let mut layer_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (layer, crates) in LAYERS.iter().enumerate() {
        layer_of.extend(crates.iter().map(|name| (*name, layer)));
    }
    let mut found = Vec::new();
    for member in members {
        let Some(own) = layer_of.get(member.name.as_str()) else {
            found.push(format!("{}: in no layer; add it to LAYERS", member.name));
            continue;
        };
        for (name, dev) in &member.dependencies {
            let Some(theirs) = layer_of.get(name.as_str()) else { continue };
            let sideways = SIDEWAYS.contains(&(member.name.as_str(), name.as_str()));
            let rivals = own == theirs && LAYERS[*own].contains(&"zc-engine");
            // Tests may depend on siblings and higher layers, but the two drivers never on each other.
            if rivals || (!dev && own <= theirs && !sideways) {
                found.push(format!("{} depends on {name}, which is not below it", member.name));
            }
        }
    }
    found
}

/// Layer of a crate's folder, which determines its allowed dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Shipped code.
    Product,
    /// Simulator, conformance, models, tasks.
    Proof,
    /// Traces, workloads, policies, replay, figures.
    Lab,
    /// Programs and tests that combine them.
    Top,
}

/// The programs that ship. Their folder, `bin/`, also holds the lab's program.
const SHIPPED: &[&str] = &["zcached", "zcctl"];

fn place(member: &Member) -> Place {
    match member.folder.as_str() {
        "crates" => Place::Product,
        "crates/proof" => Place::Proof,
        "crates/lab" => Place::Lab,
        _ if SHIPPED.contains(&member.name.as_str()) => Place::Product,
        _ => Place::Top,
    }
}

/// The product depends on neither the proof nor the lab, and these two do not depend on each other. Tests may.
fn misplaced_dependencies(members: &[Member]) -> Vec<String> {
    let places: BTreeMap<&str, Place> =
        members.iter().map(|member| (member.name.as_str(), place(member))).collect();
    let mut found = Vec::new();
    for member in members.iter().filter(|member| place(member) != Place::Top) {
        for (name, _) in member.dependencies.iter().filter(|(_, dev)| !dev) {
            let theirs = places.get(name.as_str()).copied();
            if theirs.is_some_and(|theirs| ![Place::Product, place(member)].contains(&theirs)) {
                found.push(format!("{} ({:?}) depends on {name} ({theirs:?})", member.name, place(member)));
            }
        }
    }
    found
}

fn impure_manager(members: &[Member]) -> Vec<String> {
    let Some(manager) = members.iter().find(|member| member.name == "zc-cache") else {
        return vec!["zc-cache is not a member".to_owned()];
    };
    let allowed = |name: &str| PURE.contains(&name) || ["zc-core", "zc-format", "zc-reduce"].contains(&name);
    let impure = manager.dependencies.iter().filter(|(name, dev)| !dev && !allowed(name));
    impure.map(|(name, _)| format!("zc-cache depends on {name}, which is not known to be pure")).collect()
}

#[track_caller]
fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "{} place(s) break this rule:\n{}", found.len(), found.join("\n"));
}

/// A rule over the files, a path and a text that break it.
type Sample = (fn(&[File]) -> Vec<String>, &'static str, &'static str);

#[test]
fn files_are_at_most_a_thousand_lines() {
    assert_none(&long_files(&tree()));
}

#[test]
fn comments_are_wrapped() {
    assert_none(&wide_comments(&tree()));
}

#[test]
fn every_source_file_opens_with_its_job() {
    assert_none(&missing_headers(&tree()));
}

#[test]
fn the_top_level_holds_only_the_folders_of_the_layout() {
    assert_none(&stray_folders(&tree()));
}

#[test]
fn nothing_is_left_unfinished() {
    assert_none(&unfinished(&tree()));
}

#[test]
fn tests_wait_for_events_and_not_for_time() {
    assert_none(&sleeping_tests(&tree()));
}

#[test]
fn unsafe_code_stays_in_zc_io_and_zc_ublk() {
    assert_none(&unsafe_code(&tree()));
}

#[test]
fn the_core_does_no_io() {
    assert_none(&io_in_the_core(&tree()));
}

#[test]
fn sources_are_ascii() {
    assert_none(&strange_characters(&tree()));
}

#[test]
fn every_member_takes_the_lints_of_the_workspace() {
    assert_none(&loose_lints(&tree()));
}

#[test]
fn no_private_path_or_host_is_named() {
    assert_none(&private_places(&tree()));
}

#[test]
fn every_release_of_the_changelog_opens_with_safety() {
    assert_none(&changelog_order(&tree()));
}

#[test]
fn dependencies_point_down() {
    assert_none(&layer_violations(&members()));
}

#[test]
fn the_product_depends_on_neither_proof_nor_lab() {
    let members = members();
    assert!(members.iter().any(|member| place(member) == Place::Proof), "crates/proof has crates");
    assert!(members.iter().any(|member| place(member) == Place::Lab), "crates/lab has crates");
    assert_none(&misplaced_dependencies(&members));
}

#[test]
fn the_manager_depends_on_pure_crates_only() {
    assert_none(&impure_manager(&members()));
}

#[test]
fn the_ci_script_can_be_run() {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(workspace().join(".ci/run")).expect(".ci/run exists").permissions().mode();
    assert_eq!(mode & 0o111, 0o111, ".ci/run has its run bits");
    assert!(workspace().join("Cargo.lock").is_file(), "Cargo.lock is part of the tree");
}

#[test]
fn every_rule_sees_what_breaks_it() {
    let samples: &[Sample] = &[
        (missing_headers, "bin/a/src/main.rs", "fn main() {}\n"),
        (stray_folders, "notes/a.md", ""),
        (unfinished, "crates/a/src/lib.rs", concat!("fn f() { to", "do!() }\n")),
        (unfinished, "crates/a/src/lib.rs", concat!("// TO", "DO later\n")),
        (unfinished, "tests/tests/e2e_a.rs", concat!("#[", "ignore = \"slow\"]\n")),
        (sleeping_tests, "tests/tests/e2e_a.rs", concat!("std::thread::", "sleep(second);\n")),
        (
            sleeping_tests,
            "crates/a/src/lib.rs",
            concat!("#[cfg(test)]\nmod tests { fn f() { thread::", "sleep(x) } }\n"),
        ),
        (unsafe_code, "crates/zc-nbd/src/lib.rs", "let x = unsafe { *pointer };\n"),
        (io_in_the_core, "crates/zc-cache/src/lib.rs", "use std::fs::File;\n"),
        (io_in_the_core, "crates/zc-format/src/lib.rs", "let t = std::time::Instant::now();\n"),
        (strange_characters, "crates/a/src/lib.rs", "// caf\u{e9}\n"),
        (strange_characters, "README.md", "caf\u{e9}\n"),
        (loose_lints, "crates/a/Cargo.toml", "[package]\n"),
        (private_places, "configs/a.toml", concat!("path = \"/ho", "me/me/x\"\n")),
        (changelog_order, "CHANGELOG.md", "## [Unreleased]\n### Added\n### Safety\n"),
        (changelog_order, "CHANGELOG.md", "## [0.2.0]\n### Safety\n## [0.1.0]\n"),
        (changelog_order, "CHANGELOG.md", "# Changelog\n"),
    ];
    for (index, (rule, path, text)) in samples.iter().enumerate() {
        let file = File { path: (*path).to_owned(), text: (*text).to_owned() };
        assert_eq!(rule(&[file]).len(), 1, "sample {index}: {text}");
    }
    let long = File { path: "bin/a/src/main.rs".to_owned(), text: "\n".repeat(FILE_LINES_MAX + 1) };
    assert_eq!(long_files(&[long]).len(), 1);
    let wide =
        |text: &str| File { path: "bin/a/src/main.rs".to_owned(), text: text.repeat(COMMENT_COLUMNS_MAX) };
    assert_eq!(wide_comments(&[wide("//"), wide("| "), wide("x")]).len(), 1);
}

#[test]
fn the_rules_let_pass_what_is_allowed() {
    let samples: &[Sample] = &[
        (
            sleeping_tests,
            "crates/zc-engine/src/control.rs",
            concat!("tokio::time::", "sleep(delay).await;\n"),
        ),
        (unsafe_code, "crates/zc-io/src/ring.rs", "unsafe { submit() }\n"),
        (unsafe_code, "crates/zc-nbd/src/lib.rs", "#![forbid(unsafe_code)] // unsafe { } is elsewhere\n"),
        (io_in_the_core, "crates/zc-engine/src/lib.rs", "use std::fs::File;\n"),
        (io_in_the_core, "crates/zc-cache/src/lib.rs", "//! No tokio, no std::fs.\nlet my_tokio_like = 1;\n"),
        (strange_characters, "ARCHITECTURE.md", "\u{250c}\u{2500}\u{2510} \u{2192}\n"),
        (stray_folders, ".ci/run", ""),
    ];
    for (index, (rule, path, text)) in samples.iter().enumerate() {
        let file = File { path: (*path).to_owned(), text: (*text).to_owned() };
        assert_eq!(rule(&[file]), Vec::<String>::new(), "sample {index}");
    }
}

#[test]
fn the_layer_rule_sees_what_breaks_it() {
    let member = |name: &str, dependency: &str, dev: bool| Member {
        name: name.to_owned(),
        folder: "crates".to_owned(),
        dependencies: vec![(dependency.to_owned(), dev)],
    };
    for broken in [
        member("zc-core", "zc-format", false),
        member("zc-sim", "zc-engine", false),
        member("zc-engine", "zc-sim", true),
        member("zc-engine", "zc-daemon", false),
        member("zc-io", "zc-origin", false),
        member("zc-new", "zc-core", false),
    ] {
        assert_eq!(layer_violations(&[broken]).len(), 1);
    }
    for good in [
        member("zc-origin", "zc-io", false),
        member("zc-cache", "zc-sim", true),
        member("zcached", "zc-engine", false),
        member("zc-daemon", "zc-engine", false),
        member("zc-cache", "smallvec", false),
    ] {
        assert_eq!(layer_violations(&[good]), Vec::<String>::new());
    }
    assert_eq!(impure_manager(&[member("zc-cache", "tokio", false)]).len(), 1);
    assert_eq!(impure_manager(&[member("zc-cache", "proptest", true)]), Vec::<String>::new());
}

#[test]
fn the_rule_of_folders_sees_what_breaks_it() {
    let member = |folder: &str, name: &str, dependency: &str, dev: bool| Member {
        name: name.to_owned(),
        folder: folder.to_owned(),
        dependencies: vec![(dependency.to_owned(), dev)],
    };
    let tree = |new: Member| {
        let places = [("crates", "zc-a"), ("crates/proof", "zc-p"), ("crates/lab", "zc-l"), ("bin", "zcsim")];
        let mut members: Vec<Member> =
            places.iter().map(|(folder, name)| member(folder, name, "serde", false)).collect();
        members.push(new);
        misplaced_dependencies(&members)
    };
    for broken in [
        member("crates", "zc-b", "zc-l", false),
        member("crates", "zc-b", "zc-p", false),
        member("bin", "zcached", "zc-l", false),
        member("crates/proof", "zc-b", "zc-l", false),
        member("crates/lab", "zc-b", "zc-p", false),
        member("crates/lab", "zc-b", "zcsim", false),
    ] {
        assert_eq!(tree(broken).len(), 1);
    }
    for good in [
        member("crates", "zc-b", "zc-l", true),
        member("crates", "zc-b", "zc-a", false),
        member("crates/proof", "zc-b", "zc-a", false),
        member("crates/lab", "zc-b", "zc-l", false),
        member("bin", "zcsim", "zc-p", false),
    ] {
        assert_eq!(tree(good), Vec::<String>::new());
    }
}
