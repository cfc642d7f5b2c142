//! Manual pages: of the program and its commands, and of the configuration file.
//!
//! Job: the first come from the definition of the command line, the second, `zcached.toml(5)`, from the configuration
//! that is shipped, which explains every key at its default.
//!
//! It does not install them.

use std::fs::File;
use std::io::{self, Write};

use anyhow::Context as _;
use clap::Command;
use clap_mangen::roff::{Roff, bold, roman};
use zc_cli::Documents;

/// The explained configuration.
const SHIPPED: &str = include_str!("../../../configs/zcached.toml");

/// Text of the manual beyond the command line; also the end of `zcached --help`.
pub(crate) const MORE: &str = "\
Signals:
  SIGTERM, SIGINT  stop cleanly: requests are answered and dirty data stays on the cache
  SIGHUP           read the configuration again and apply what a running daemon can, as `zcctl reload` does

Exit status:
  0  ended in order
  1  failed
  2  a mistake in command line or configuration, or cache and origins that do not match; nothing was changed

Files:
  /etc/zcached.toml          configuration, see zcached.toml(5)
  /var/lib/zcached           cache.state_dir: what pairs caches and origins
  /run/zcached/control.sock  control.socket: where zcctl finds the daemon";

/// Writes a document of the program; the configuration's page is written with all others only.
pub(crate) fn write(document: &Documents, command: Command) -> anyhow::Result<()> {
    document.write(command, &mut io::stdout())?;
    if let Documents::Man { dir: Some(dir) } = document {
        let path = dir.join("zcached.toml.5");
        let page = File::create(&path).and_then(|mut file| configuration(&mut file));
        page.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A piece of the explained configuration.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Table(String),
    Text(String),
    /// A key with its default or an example, as it is written.
    Key(String),
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let bare = line.trim_start_matches('#').trim();
        let is_key = bare.split_once(" = ").is_some_and(|(key, _)| {
            !key.is_empty()
                && key.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.'))
        });
        let piece = match line.as_bytes().first() {
            Some(b'[') => Some(Piece::Table(bare.to_owned())),
            Some(_) if is_key => Some(Piece::Key(bare.to_owned())),
            Some(_) => {
                comment.push(bare);
                continue;
            }
            None => None,
        };
        if let ([.., Piece::Key(_), Piece::Text(_)], Some(Piece::Key(_)), true) =
            (&pieces[..], &piece, comment.is_empty())
        {
            // It is explained with the key above it.
            pieces.insert(pieces.len() - 1, Piece::Key(bare.to_owned()));
            continue;
        }
        let text = (!comment.is_empty()).then(|| Piece::Text(comment.join(" ")));
        comment.clear();
        // The heading precedes its text.
        pieces.extend(piece.into_iter().chain(text));
    }
    pieces
}

/// Writes the page of the configuration file.
fn configuration(out: &mut dyn Write) -> io::Result<()> {
    let mut page = Roff::new();
    let version = concat!("zcached ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["zcached.toml", "5", "", version]);
    page.control("SH", ["NAME"]);
    page.text([roman("zcached.toml - configuration of zcached")]);
    page.control("SH", ["DESCRIPTION"]);
    let (mut after_key, mut after_text) = (false, false);
    for piece in pieces(SHIPPED) {
        let (is_key, is_text) = (matches!(piece, Piece::Key(_)), matches!(piece, Piece::Text(_)));
        if is_text && after_text {
            page.control("PP", []);
        }
        match piece {
            Piece::Table(name) => drop(page.control("SH", [name.as_str()])),
            // Keys with a common explanation follow each other.
            Piece::Key(key) => {
                page.control(if after_key { "TQ" } else { "TP" }, []);
                page.text([bold(key)]);
            }
            Piece::Text(text) => drop(page.text([roman(text)])),
        }
        (after_key, after_text) = (is_key, is_text);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("zcached"), roman("(1), "), bold("zcctl"), roman("(1)")]);
    page.to_writer(&mut &mut *out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_shipped_file_is_in_the_manual_with_what_is_said_of_it() {
        let mut page = Vec::new();
        configuration(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for part in [
            ".TH zcached.toml 5",
            ".SH [[volume]]",
            "\\fBack = \"volatile\"\\fR",
            "\\fBextent_size = \"8 KiB\"\\fR\nUnit of caching.",
            "\\fBnbd.allow = []\\fR\nTCP clients from these addresses",
            ".TQ\n\\fBprefetch_max = ",
            "\n.PP\nTuning: ",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
    }

    #[test]
    fn comments_belong_to_the_key_or_table_below_them() {
        let found =
            pieces("# All.\n# Of it.\n\n# Of the table.\n[a]\n# Of b = c, and more.\nx = 1\n# y = 2\n");
        let (text, key) = (|text: &str| Piece::Text(text.to_owned()), |key: &str| Piece::Key(key.to_owned()));
        let expected = vec![
            text("All. Of it."),
            Piece::Table("[a]".to_owned()),
            text("Of the table."),
            key("x = 1"),
            key("y = 2"),
            text("Of b = c, and more."),
        ];
        assert_eq!(found, expected);
    }
}
