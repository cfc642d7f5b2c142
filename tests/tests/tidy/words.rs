//! Rules about words: sentences name their actor, and names are descriptive.
//!
//! The rules read the text. Names are read in code alone: comments and strings may use such a word in its English
//! meaning.

use super::{File, assert_none, has_word, tree, without_strings};

/// Words that hide the actor: the daemon, a client, the operator, another program.
const NO_ACTORS: &[&str] = &["nobody", "somebody", "someone", "anybody", "anyone", "everybody", "everyone"];

/// Names without a meaning to the reader.
const NO_NAMES: &[&str] = &["told", "custody", "stand_in", "haggle"];

/// Names of files, without their ending, that do not describe their contents.
const NO_FILES: &[&str] = &["added", "places", "told", "custody", "stand_in", "haggle"];

/// Files with text that people read.
const TEXTS: &[&str] = &["rs", "md", "toml", "sh", "py", "service", "socket", "yml"];

/// Files that name the words in order to forbid them.
const RULES: &[&str] = &["CONTRIBUTING.md", "crates/zc-cli/src/rules.rs", "tests/tests/tidy/words.rs"];

fn ending(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// Files with one of these endings, but for the rules themselves.
fn judged<'a>(files: &'a [File], endings: &'a [&str]) -> impl Iterator<Item = &'a File> {
    files.iter().filter(|file| endings.contains(&ending(&file.path)) && !RULES.contains(&file.path.as_str()))
}

fn without_actor(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in judged(files, TEXTS) {
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase().replace('_', " ");
            let words = NO_ACTORS.iter().filter(|word| has_word(&lower, word));
            found.extend(words.map(|word| {
                format!("{}:{}: \"{word}\" names no actor: {}", file.path, number + 1, line.trim())
            }));
        }
    }
    found
}

fn empty_names(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in judged(files, &["rs", "py"]) {
        let stem = file.path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
        if NO_FILES.contains(&stem) {
            found.push(format!("{}: the file's name does not say what is in it", file.path));
        }
        let mut inside = false;
        for (number, line) in file.text.lines().enumerate().filter(|_| file.is_rust()) {
            let code = without_strings(line, &mut inside);
            let names = NO_NAMES.iter().filter(|name| has_word(&code, name));
            found.extend(names.map(|name| {
                format!("{}:{}: `{name}` does not say what it is: {}", file.path, number + 1, line.trim())
            }));
        }
    }
    found
}

#[test]
fn sentences_name_their_actor() {
    assert_none(&without_actor(&tree()));
}

#[test]
fn names_say_what_they_are() {
    assert_none(&empty_names(&tree()));
}

#[test]
fn the_rules_of_words_see_what_breaks_them() {
    let file = |path: &str, text: &str| [File { path: path.to_owned(), text: text.to_owned() }];
    for broken in [
        file("docs/src/a.md", "Nobody writes then.\n"),
        file("crates/a/src/lib.rs", "/// A slot that somebody's read needs.\n"),
        file("crates/a/src/lib.rs", "fn nobody_waits() {}\n"),
        file("configs/a.toml", "# Whether anyone listens.\n"),
    ] {
        assert_eq!(without_actor(&broken).len(), 1);
    }
    for good in [
        file("docs/src/a.md", "No client writes then.\n"),
        file("Cargo.lock", "nobody\n"),
        file(RULES[0], "Never write \"nobody\".\n"),
    ] {
        assert_eq!(without_actor(&good), Vec::<String>::new());
    }
    for broken in [
        file("crates/a/src/added.rs", "//! Volumes.\n"),
        file("tests/clients/haggle.py", "\n"),
        file("crates/a/src/lib.rs", "let told = format!(\"{answer}\");\n"),
        file("crates/a/src/lib.rs", "let text = \"a \\\n    b\"; let told = 1;\n"),
    ] {
        assert_eq!(empty_names(&broken).len(), 1);
    }
    for good in [
        file(
            "crates/a/src/lib.rs",
            "// The client is told.\nlet text = \"it is told \\\n    or not told\";\n",
        ),
        file("crates/a/src/lib.rs", "let quote = '\"'; let untold = 1;\n"),
    ] {
        assert_eq!(empty_names(&good), Vec::<String>::new());
    }
}
