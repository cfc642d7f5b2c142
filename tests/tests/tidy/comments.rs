//! Rules about the words of comments: the first words of a doc comment name its subject.
//!
//! The rules read the first line of each comment. Later lines may begin with any word.

use super::{File, assert_none, tree};

/// First words that do not name the subject.
const NAMELESS: &[&str] = &["It", "Those", "Who", "The same"];

/// The text in a line of a doc comment; `None` for any other line.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    // Four slashes begin an ordinary comment.
    (!text.starts_with('/')).then(|| text.trim_start())
}

fn is_nameless(text: &str) -> bool {
    NAMELESS.iter().any(|words| {
        text.strip_prefix(words).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    })
}

fn nameless_comments(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let mut inside = false;
        for line in file.text.lines() {
            let text = doc_text(line);
            let opening = text.filter(|_| !inside);
            inside = text.is_some();
            if opening.is_some_and(is_nameless) {
                found.push(format!("{}: name the thing first: {}", file.path, line.trim()));
            }
        }
    }
    found
}

#[test]
fn doc_comments_begin_with_what_they_are_about() {
    assert_none(&nameless_comments(&tree()));
}

#[test]
fn the_rule_of_comments_sees_what_breaks_it() {
    let file = |text: &str| [File { path: "crates/a/src/lib.rs".to_owned(), text: text.to_owned() }];
    for broken in [
        "/// It sleeps.\n",
        "//! Those that wait.\n",
        "struct A {\n    /// Who asked.\n    a: u8,\n}\n",
        "// A table.\n/// The same, in lines.\nfn f() {}\n",
        "/// A name.\na: u8,\n/// It.\n",
    ] {
        assert_eq!(nameless_comments(&file(broken)).len(), 1, "{broken}");
    }
    for good in [
        "/// The daemon sleeps.\n/// It wakes for requests.\n",
        "/// Items of a list.\n///\n/// Those of another list are apart.\n",
        "/// Its name.\n",
        "// It is why.\n",
        "//// It is a rule.\n",
        "let text = \"It\"; // Who knows\n",
    ] {
        assert_eq!(nameless_comments(&file(good)), Vec::<String>::new(), "{good}");
    }
}
