//! Output of the command line, written and read back.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser as _;

use super::*;

#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn make(words: &[&str]) -> anyhow::Result<()> {
    let cli = Cli::try_parse_from([&["generate"], words].concat())?;
    generate(&cli.args.kind)
}

/// Returns the error in one line.
fn refusal(words: &[&str]) -> String {
    format!("{:#}", make(words).unwrap_err())
}

fn read(path: &Path) -> Vec<Request> {
    let options = Options { strict: true, ..Options::default() };
    Reader::open(path, options).unwrap().map(Result::unwrap).collect()
}

/// Checks that reads of a trace return the last write, or the bytes of the image.
fn is_of_image(requests: &[Request], image: &[u8]) {
    let mut written = BTreeMap::new();
    let mut block = vec![0; 4096];
    for request in requests {
        let content = request.content.unwrap();
        if request.op == Op::Write {
            written.insert(request.offset_bytes, content);
        } else if let Some(held) = written.get(&request.offset_bytes) {
            assert_eq!(*held, content);
        } else {
            zc_trace::contents::fill(&content, &mut block);
            let at = usize::try_from(request.offset_bytes).unwrap();
            assert!(image[at..at + 4096] == block, "at {at}");
        }
    }
}

#[test]
fn an_image_holds_what_is_read_first() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, image) = (folder.path().join("t"), folder.path().join("i"));
    let (out, bytes) = (trace.to_str().unwrap(), image.to_str().unwrap());
    let zipf = ["zipf", "--size", "8M", "--requests", "500", "--out", out, "--image", bytes];
    make(&zipf).unwrap();
    let held = std::fs::read(&image).unwrap();
    assert_eq!(held.len(), 8 << 20);
    is_of_image(&read(&trace), &held);
    make(&["storm", "--machines", "2", "--out", out, "--image", bytes]).unwrap();
    let (requests, held) = (read(&trace), std::fs::read(&image).unwrap());
    assert!(requests.iter().any(|request| request.end_bytes() > held.len() as u64 / 2), "both machines read");
    is_of_image(&requests, &held);
}

#[test]
fn traces_are_composed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (scan, zipf, both) = (path("scan"), path("zipf"), path("both"));
    make(&["scan", "--size", "4M", "--requests", "40", "--out", &scan]).unwrap();
    make(&["zipf", "--size", "4M", "--requests", "300", "--out", &zipf]).unwrap();
    let (one, two) = (read(scan.as_ref()), read(zipf.as_ref()));
    let end = |requests: &[Request]| requests.iter().map(Request::end_bytes).max().unwrap();
    make(&["compose", &scan, &zipf, "--out", &both]).unwrap();
    let all = read(both.as_ref());
    assert_eq!((all.len(), end(&all)), (one.len() + two.len(), end(&one) + end(&two)));
    make(&["compose", &scan, &zipf, "--same-volume", "--in-turn", "--out", &both]).unwrap();
    let all = read(both.as_ref());
    assert_eq!((all.len(), end(&all)), (one.len() + two.len(), end(&one).max(end(&two))));
    assert!(all[one.len()].time_ns > all[one.len() - 1].time_ns, "one after the other");
}

#[test]
fn sizes_that_a_trace_does_not_tell_stay_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let (fiu, out) = (folder.path().join("fiu"), folder.path().join("out"));
    let line = |n: u64| format!("{} 1 p {} 8 R 8 1 0123456789abcdef0123456789abcdef\n", n + 1, n * 8);
    std::fs::write(&fiu, (0..20).map(line).collect::<String>()).unwrap();
    let (fiu, name) = (fiu.to_str().unwrap(), out.to_str().unwrap());
    let sizes = || {
        let contents = read(&out).into_iter().map(|request| request.content.unwrap());
        let sized = contents.map(|content| (content.lz4_bytes.is_some(), content.zstd1_bytes.is_some()));
        sized.collect::<std::collections::BTreeSet<_>>()
    };
    for words in [["compose", fiu, "--out", name], ["storm", fiu, "--out", name]] {
        make(&words).unwrap();
        assert_eq!(sizes(), [(false, false)].into(), "{words:?}");
    }
    // The synthetic boot has sizes under LZ4 only.
    make(&["storm", "--machines", "2", "--out", name]).unwrap();
    assert_eq!(sizes(), [(true, false)].into());
}

#[test]
fn a_key_stream_does_not_say_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "7\n8\n".repeat(20)).unwrap();
    let words = ["compose", keys.to_str().unwrap()];
    assert!(refusal(&words).contains("reads or writes"), "{}", refusal(&words));
}

#[test]
fn options_that_a_kind_has_not_are_refused() {
    for words in [
        ["scan", "--theta", "1"],
        ["sensitivity", "--shared", "0.5"],
        ["tpcc", "--ratio-mean", "2"],
        ["storm", "--boots", "0"],
        ["tpch", "--passes", "0"],
        ["zipf", "--reads", "1.5"],
    ] {
        assert!(make(&words).is_err(), "{words:?}");
    }
    assert!(refusal(&["scan", "--size", "1M"]).contains("MiB"));
    assert!(refusal(&["tpch", "--size", "1M"]).contains("16 to 8192 MiB"));
}
