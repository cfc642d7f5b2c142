//! Commands that messages name: each exists, and a test runs it.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use zc_tests::{program, run_ok, workspace};

/// Words behind `zcctl` in sentences about the program itself.
const SENTENCES: [&str; 2] = ["commands", "finds"];

/// The commands that a help lists.
fn listed(words: &[&str]) -> BTreeSet<String> {
    let output = run_ok(Command::new(program("zcctl")).args(words).arg("--help"));
    let help = String::from_utf8(output.stdout).expect("help is text");
    let (_, commands) = help.split_once("Commands:\n").unwrap_or_default();
    let lines = commands.lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn read_all(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for folder in folders {
        sources(&workspace().join(folder), &mut paths);
    }
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("a source"))).collect()
}

/// Scripts that the virtual machine's tests run.
fn guest_scripts() -> Vec<String> {
    let folder = workspace().join("crates/proof/zc-rig/src/guest");
    let scripts =
        std::fs::read_dir(folder).expect("the scripts").map(|entry| entry.expect("an entry").path());
    let scripts = scripts.filter(|path| path.extension().is_some_and(|extension| extension == "sh"));
    scripts.map(|path| std::fs::read_to_string(path).expect("a script")).collect()
}

/// Words that follow `zcctl` in the messages of a source, one or two.
fn named(text: &str) -> Vec<(String, Option<String>)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in lines {
        for (_, rest) in line.match_indices("zcctl ").map(|(at, name)| line.split_at(at + name.len())) {
            let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
            let word = |text: &str| text.chars().take_while(|c| is_word(*c)).collect::<String>();
            let first = word(rest);
            let second = rest[first.len()..].strip_prefix(' ').map(word).filter(|word| !word.is_empty());
            if first.len() > 1 && !first.starts_with('-') {
                found.push((first, second));
            }
        }
    }
    found
}

/// Commands that messages name, with a source of each, and words that are no command.
fn commands() -> (BTreeMap<String, PathBuf>, Vec<String>) {
    let all = listed(&[]);
    let of_group: BTreeMap<&str, BTreeSet<String>> =
        ["store", "volume", "cache", "record", "ublk", "dump"].map(|group| (group, listed(&[group]))).into();
    let (mut commands, mut unknown) = (BTreeMap::new(), Vec::new());
    for (path, text) in read_all(&["crates", "bin"]) {
        let is_product =
            !path.components().any(|part| ["tests", "lab", "proof"].iter().any(|of| part.as_os_str() == *of));
        for (first, second) in named(&text).into_iter().filter(|_| is_product) {
            if SENTENCES.contains(&first.as_str()) {
                continue;
            }
            let group = of_group.get(first.as_str());
            let is_in_group = |word: &String| group.is_some_and(|group| group.contains(word));
            let command = second.filter(is_in_group).map(|second| format!("{first} {second}"));
            if all.contains(&first) {
                commands.insert(command.unwrap_or(first), path.clone());
            } else {
                unknown.push(format!("{}: zcctl {first}", path.display()));
            }
        }
    }
    (commands, unknown)
}

#[test]
fn each_command_that_a_message_names_exists_and_is_run_by_a_test() {
    let (commands, unknown) = commands();
    assert!(unknown.is_empty(), "no such commands: {unknown:#?}");
    assert!(commands.len() > 30, "{commands:?}");
    let here = Path::new(file!()).file_name();
    let tests = read_all(&["tests"]).into_iter().filter(|(path, _)| path.file_name() != here);
    let tests: Vec<String> = tests.map(|(_, text)| text).chain(guest_scripts()).collect();
    let book = crate::e2e_book::commands_run();
    let is_run = |command: &str| {
        let quoted = command.split(' ').map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let last = command.split(' ').next_back().unwrap_or_default();
        let written = format!("zcctl {command}");
        let forms = [quoted, format!(", \"{written}"), format!("&[\"{last}\"]"), format!("\n    {written} ")];
        book.iter().any(|line| line.starts_with(&written))
            || tests.iter().any(|text| forms.iter().any(|form| text.contains(form)))
    };
    let lacks: Vec<_> = commands.iter().filter(|(command, _)| !is_run(command)).collect();
    assert!(lacks.is_empty(), "messages name commands that no test runs: {lacks:#?}");
}

#[test]
fn the_search_finds_what_messages_name() {
    let text = "// zcctl never\nf(\"run `zcctl store scrub tank` or zcctl flush {name}; zcctl --help\");\n#[cfg(test)]\nzcctl no";
    let pair = |a: &str, b: Option<&str>| (a.to_owned(), b.map(str::to_owned));
    assert_eq!(named(text), [pair("store", Some("scrub")), pair("flush", None)]);
}
