//! `zcached quickstart` from the outside: a first start, a second one, and refusals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn quickstart(dir: &Path, input: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zcached"));
    command.arg("quickstart").arg("--exit").arg("--dir").arg(dir);
    if let Some(input) = input {
        command.arg("--input").arg(input);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Files that differ from each other and compress well.
fn make_input(folder: &Path, files: u32) {
    std::fs::create_dir(folder).unwrap();
    for file in 0..files {
        let lines: String = (0..40_000).map(|line| format!("file {file}, line {line} of many\n")).collect();
        std::fs::write(folder.join(format!("{file:03}")), lines).unwrap();
    }
}

/// The value of a line of the report.
fn value<'a>(report: &'a str, name: &str) -> &'a str {
    let line = report.lines().find(|line| line.trim_start().starts_with(name));
    line.unwrap_or_else(|| panic!("no \"{name}\" in\n{report}"))
}

#[test]
fn a_first_start_stores_and_compares_and_a_second_one_is_warm() {
    let folder = tempfile::tempdir().unwrap();
    let (input, dir) = (folder.path().join("input"), folder.path().join("quick"));
    make_input(&input, 20);

    let first = quickstart(&dir, Some(&input));
    let report = text(&first.stdout);
    assert!(first.status.success(), "{report}{}", text(&first.stderr));
    assert!(value(&report, "verified").contains("every byte is right"));
    assert!(value(&report, "input").contains("20 files"));
    assert!(!value(&report, "second read").contains(" 0.0 %"), "{report}");
    assert!(value(&report, "pool").contains("a and its clone b take"), "{report}");
    assert!(!value(&report, "change clone").is_empty());
    assert!(value(&report, "cache holds").contains("of the cache device"), "{report}");
    assert!(value(&report, "store takes").contains("#"), "{report}");

    let again = quickstart(&dir, Some(&input));
    assert!(!again.status.success() && text(&again.stderr).contains("holds volumes already"));

    let second = quickstart(&dir, None);
    let report = text(&second.stdout);
    assert!(second.status.success(), "{report}{}", text(&second.stderr));
    assert!(!report.contains("  store ") && !report.contains("started cold"), "{report}");
    assert!(value(&report, "warm read").contains("100.0 %"), "{report}");

    let taken = |name: &str| {
        let metadata = std::fs::metadata(dir.join(name)).unwrap();
        std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
    };
    assert!(taken("pool") < taken("source.img"), "two volumes take less than the input");
}

/// Ends the process that it holds.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn what_is_served_has_a_page_whose_address_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (input, dir) = (folder.path().join("input"), folder.path().join("quick"));
    make_input(&input, 20);
    let mut command = Command::new(env!("CARGO_BIN_EXE_zcached"));
    command.arg("quickstart").arg("--dir").arg(dir).arg("--input").arg(input);
    let mut served = Served(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let lines = BufReader::new(served.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The last line that it prints while it serves.
    let mut printed = lines.take_while(|line| !line.contains("modprobe nbd"));
    let line = printed.find(|line| line.contains("live page")).unwrap();
    printed.for_each(drop);
    let address = line.split_once("http://").unwrap().1.trim_end_matches('/');
    let mut page = TcpStream::connect(address).unwrap();
    write!(page, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("<html"), "{text}");
}

#[test]
fn too_little_input_is_refused_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (input, dir) = (folder.path().join("input"), folder.path().join("quick"));
    make_input(&input, 1);
    let output = quickstart(&dir, Some(&input));
    assert!(
        !output.status.success() && text(&output.stderr).contains("16.0 MiB"),
        "{}",
        text(&output.stderr)
    );
    assert!(!dir.join("source.img").exists());
}
