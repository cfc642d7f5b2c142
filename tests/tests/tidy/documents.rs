//! Rules about documents: links resolve, the book is complete, README is short.
//!
//! The rules read the Markdown of this tree: ATX headings, fenced blocks, inline links. Links to other hosts are not
//! followed.

use super::{File, assert_none, tree};
use std::collections::{BTreeMap, BTreeSet};

/// Most words in README; the rest belongs in the book.
const README_WORDS_MAX: usize = 900;

/// Most words in a sentence of README, CONTRIBUTING and the book.
const SENTENCE_WORDS_MAX: usize = 25;

const SUMMARY: &str = "docs/src/SUMMARY.md";

fn is_document(file: &File) -> bool {
    file.path.ends_with(".md")
}

/// The lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns a line without its text between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of the inline links of a document.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text).map(without_code) {
        let ends = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(ends.map(|(target, _)| target.to_owned()));
    }
    found
}

/// The anchors of a document, made of its headings as GitHub and mdBook do.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String =
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = seen.entry(slug.clone()).or_default();
        found.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    found
}

/// `target` as seen from the folder of `path`; `None` if it leaves the tree.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn broken_links(files: &[File]) -> Vec<String> {
    let texts: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_document(file)) {
        for target in targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (place, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let place = if place.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, place) };
            let is_folder = |place: &String| texts.keys().any(|path| path.starts_with(&format!("{place}/")));
            let leads = place.is_some_and(|place| match texts.get(place.as_str()) {
                Some(text) => anchor.is_empty() || anchors(text).contains(anchor),
                None => anchor.is_empty() && is_folder(&place),
            });
            if !leads {
                found.push(format!("{}: the link to {target} leads nowhere", file.path));
            }
        }
    }
    found
}

fn unlisted_pages(files: &[File]) -> Vec<String> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else {
        return vec![format!("{SUMMARY}: missing")];
    };
    let listed: BTreeSet<String> =
        targets(&summary.text).iter().filter_map(|target| resolve(SUMMARY, target)).collect();
    let pages = files.iter().filter(|file| is_document(file) && file.path.starts_with("docs/"));
    let unlisted = pages.filter(|file| file.path != SUMMARY && !listed.contains(&file.path));
    unlisted.map(|file| format!("{}: not listed in {SUMMARY}", file.path)).collect()
}

fn long_readme(files: &[File]) -> Vec<String> {
    let readme = files.iter().filter(|file| file.path == "README.md");
    let counted = readme.map(|file| file.text.split_whitespace().count());
    let long = counted.filter(|count| *count > README_WORDS_MAX);
    long.map(|count| format!("README.md: {count} words, at most {README_WORDS_MAX} are allowed")).collect()
}

/// The pieces of a document that hold sentences: paragraphs, items of lists, cells of tables.
fn passages(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in prose(text) {
        let line = line.trim_start();
        if line.is_empty() || ["#", "|", "- ", "1. ", "2. ", "3. "].iter().any(|mark| line.starts_with(mark))
        {
            found.push(String::new());
        }
        for (index, cell) in line.split('|').enumerate() {
            if index > 0 {
                found.push(String::new());
            }
            if let Some(passage) = found.last_mut() {
                passage.push_str(cell);
                passage.push(' ');
            }
        }
    }
    found
}

fn long_sentences(files: &[File]) -> Vec<String> {
    let plain = |path: &str| ["README.md", "CONTRIBUTING.md"].contains(&path) || path.starts_with("docs/");
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_document(file) && plain(&file.path)) {
        for passage in passages(&file.text) {
            let mut words = 0;
            for word in passage.split_whitespace() {
                words += 1;
                if words > SENTENCE_WORDS_MAX {
                    found.push(format!("{}: split this sentence: {}", file.path, passage.trim()));
                    break;
                }
                if word.ends_with(['.', ':', ';', '!', '?']) {
                    words = 0;
                }
            }
        }
    }
    found
}

#[test]
fn links_of_documents_lead_somewhere() {
    let files = tree();
    let links: usize = files.iter().filter(|file| is_document(file)).map(|f| targets(&f.text).len()).sum();
    assert!(links > 50, "documents have {links} links");
    assert_none(&broken_links(&files));
}

#[test]
fn the_summary_lists_every_page_of_the_book() {
    assert_none(&unlisted_pages(&tree()));
}

#[test]
fn sentences_are_short() {
    assert_none(&long_sentences(&tree()));
}

#[test]
fn readme_is_short() {
    assert_none(&long_readme(&tree()));
}

#[test]
fn every_rule_about_documents_sees_what_breaks_it() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let other = || file("crates/a/A.md", "# Of `A`: b_c, d\n## Twice\n## Twice\n```\n# not one\n```\n");
    let broken = |text: &str| broken_links(&[file("docs/src/x.md", text), other()]).len();
    for bad in ["A.md", "../../../up.md", "../../crates/a/A.md#not-one", "#nowhere", "../../crates/a#twice"] {
        assert_eq!(broken(&format!("See [`it`]({bad}).\n")), 1, "{bad}");
    }
    let good = [
        "../../crates/a/A.md",
        "../../crates/a",
        "../../crates/a/A.md#of-a-b_c-d",
        "../../crates/a/A.md#twice-1",
        "https://example.org/x#y",
        "#here",
    ];
    for good in good {
        assert_eq!(broken(&format!("# Here\nSee [it]({good}).\n")), 0, "{good}");
    }
    assert_eq!(broken("```\n[a](b)\n```\n`[a](b)`\n"), 0, "code has no links");
    let summary = || file(SUMMARY, "- [A](a.md)\n");
    assert_eq!(unlisted_pages(&[summary(), file("docs/src/a.md", ""), file("docs/src/b.md", "")]).len(), 1);
    assert_eq!(unlisted_pages(&[]).len(), 1);
    let long = |text: String| long_sentences(&[file("docs/src/a.md", &text)]).len();
    assert_eq!(long("a ".repeat(SENTENCE_WORDS_MAX + 1)), 1);
    assert_eq!(long(format!("{}b.\n{}\n- {0}\n", "a ".repeat(SENTENCE_WORDS_MAX - 1), "c ".repeat(20))), 0);
    let words = |count: usize| long_readme(&[file("README.md", &"word ".repeat(count))]).len();
    assert_eq!((words(README_WORDS_MAX), words(README_WORDS_MAX + 1)), (0, 1));
}
