//! Counters of the English of comments: few words of a dialect, and the field's terms.
//!
//! Each crate is held to the goals, but for those of [`UNCONVERTED`], which may not get worse. A rate is a number of
//! words in 10,000 words of comments, rounded down; that of openings counts item docs instead.

use super::{File, assert_none, tree};
use std::collections::BTreeMap;

/// First words of a doc comment that do not name its item.
const OPENINGS: &[&str] =
    &["What", "Whether", "How", "Where", "Which", "Why", "Who", "Whose", "Of", "Those", "That"];
const TELLING: &[&str] = &["tell", "tells", "told", "telling"];
const QUESTIONS: &[&str] = &["what", "whether", "who", "whom"];

/// Words by which a crate may exceed the goals; a few words of a small crate make a high rate.
const SPARE: u64 = 2;

/// Least rate of `checksum`, `corrupt` and `boundary` in the whole tree, which its comments are about.
const TERMS_MIN: u64 = 2;

/// Most of each counter, per 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rates {
    openings: u64,
    telling: u64,
    questions: u64,
    going_on: u64,
}

const GOALS: Rates = Rates { openings: 200, telling: 2, questions: 30, going_on: 1 };

/// Crates whose comments are not yet rewritten, with bars of their present rates: openings, telling, questions, going on.
/// Lower a bar, or remove its line, when comments of its crate improve; never raise one.
const UNCONVERTED: &[(&str, [u64; 4])] =
    &[("crates/zc-pool", [1448, 14, 178, 3]), ("crates/zc-store", [1375, 8, 213, 16])];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    docs: u64,
    words: u64,
    openings: u64,
    telling: u64,
    questions: u64,
    going_on: u64,
    terms: u64,
}

impl Counts {
    fn line(&mut self, text: &str) {
        let lower = text.to_lowercase();
        let words: Vec<&str> =
            lower.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
        let count = |list: &[&str]| words.iter().filter(|word| list.contains(word)).count() as u64;
        self.words += words.len() as u64;
        self.telling += count(TELLING);
        self.questions += count(QUESTIONS);
        let goes = |pair: &&[&str]| ["go", "goes", "going"].contains(&pair[0]) && pair[1] == "on";
        self.going_on += words.windows(2).filter(goes).count() as u64;
        let is_term =
            |word: &&&str| ["checksum", "corrupt", "boundar"].iter().any(|term| word.starts_with(term));
        self.terms += words.iter().filter(is_term).count() as u64;
    }

    fn rates(&self) -> Rates {
        let rate = |count: u64, of: u64| count.saturating_sub(SPARE) * 10_000 / of.max(1);
        Rates {
            openings: rate(self.openings, self.docs),
            telling: rate(self.telling, self.words),
            questions: rate(self.questions, self.words),
            going_on: rate(self.going_on, self.words),
        }
    }
}

/// Kind and text of a line of comment.
fn comment(line: &str) -> Option<(bool, &str)> {
    let text = line.trim_start().strip_prefix("//")?;
    let doc = text.strip_prefix('/').filter(|rest| !rest.starts_with('/'));
    let text = doc.or_else(|| text.strip_prefix('!')).unwrap_or(text);
    Some((doc.is_some(), text.trim_start()))
}

/// Folder of the crate that a path belongs to.
fn crate_folder(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let depth = match parts[..] {
        ["crates", "proof" | "lab", _, ..] => 3,
        ["crates" | "bin", _, ..] => 2,
        ["benches" | "tests", ..] => 1,
        _ => return None,
    };
    Some(parts[..depth].join("/"))
}

fn counts(files: &[File]) -> BTreeMap<String, Counts> {
    let mut found: BTreeMap<String, Counts> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(folder) = crate_folder(&file.path) else { continue };
        let counts = found.entry(folder).or_default();
        let mut inside = false;
        for line in file.text.lines() {
            let (doc, text) = comment(line).unwrap_or((false, ""));
            if doc && !inside {
                let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
                counts.docs += 1;
                counts.openings += u64::from(OPENINGS.contains(&first));
            }
            inside = doc;
            counts.line(text);
        }
    }
    found
}

fn dialect(files: &[File], unconverted: &[(&str, [u64; 4])]) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, counts) in counts(files) {
        let bar = unconverted.iter().find(|(name, _)| *name == folder).map(|(_, bar)| *bar);
        let most = bar.map_or(GOALS, |[openings, telling, questions, going_on]| Rates {
            openings,
            telling,
            questions,
            going_on,
        });
        let rates = counts.rates();
        for (name, rate, most) in [
            (
                "of 10,000 item docs open with What, Whether, How, Of or their like",
                rates.openings,
                most.openings,
            ),
            ("tell or told in 10,000 words of comments", rates.telling, most.telling),
            ("what, whether, who or whom in 10,000 words of comments", rates.questions, most.questions),
            ("go on in 10,000 words of comments", rates.going_on, most.going_on),
        ] {
            if rate > most {
                found.push(format!("{folder}: {rate} {name}, at most {most} are allowed"));
            }
        }
    }
    found
}

#[test]
fn comments_are_written_in_the_terms_of_the_field() {
    let files = tree();
    assert_none(&dialect(&files, UNCONVERTED));
    let all = counts(&files).into_values().fold((0, 0), |sum, one| (sum.0 + one.terms, sum.1 + one.words));
    let rate = all.0 * 10_000 / all.1.max(1);
    assert!(rate >= TERMS_MIN, "checksum, corrupt and boundary stand {rate} times in 10,000 words");
}

#[test]
fn the_bars_name_crates_that_exist() {
    let counts = counts(&tree());
    let gone = UNCONVERTED.iter().filter(|(name, _)| !counts.contains_key(*name));
    assert_none(&gone.map(|(name, _)| format!("{name}: has no sources; remove its bar")).collect::<Vec<_>>());
}

#[test]
fn the_counters_see_what_breaks_them() {
    let file = |text: &str| [File { path: "crates/zc-a/src/lib.rs".to_owned(), text: text.to_owned() }];
    for broken in [
        "/// Whether it is open.\nfn a() {}\n",
        "/// Of a read.\nfn a() {}\n",
        "// The client is told.\nfn a() {}\n",
        "//! A thread asks who waits.\nfn a() {}\n",
        "/// The daemon goes on.\nfn a() {}\n",
    ] {
        let text = broken.repeat(usize::try_from(SPARE).expect("small") + 1);
        assert!(!dialect(&file(&text), &[]).is_empty(), "{broken}");
        assert_eq!(dialect(&file(&text), &[("crates/zc-a", [10_000; 4])]), Vec::<String>::new());
        assert_eq!(dialect(&file(broken), &[]), Vec::<String>::new(), "a word is spared: {broken}");
    }
    let good = "/// Wholly open.\n/// What follows is text.\nfn a() {}\nlet who = \"told\";\n".repeat(3);
    assert!(dialect(&file(&good), &[]).iter().all(|found| !found.contains("item docs")));
    let paths = ["crates/proof/zc-b/src/a.rs", "bin/c/src/main.rs", "tests/src/lib.rs", "build.rs"];
    let folders = paths.map(|path| crate_folder(path).unwrap_or_default());
    assert_eq!(folders, ["crates/proof/zc-b", "bin/c", "tests", ""]);
}
