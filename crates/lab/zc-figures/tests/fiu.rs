//! Each figure of a paper with FIU traces accepts a folder with them. The traces of this test are generated, a few
//! thousand requests each, in their format: names of the machines, numbered files, fingerprints of home directories by
//! the sector.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::path::Path;

use zc_figures::{Context, named};
use zc_trace::workload::{Kind, Mix, Workload};
use zc_trace::{Op, Request};

/// Figures of the FIU traces.
const FIGURES: [&str; 12] = [
    "nitro-1",
    "nitro-4",
    "nitro-4-grain",
    "nitro-5",
    "nitro-6",
    "nitro-extents",
    "nitro-units",
    "nitro-gzip",
    "nitro-writes",
    "nitro-t2",
    "nitro-flaz",
    "where",
];

/// Figures that are made of generated workloads, too, to see that they differ.
const COMPARED: [&str; 2] = ["nitro-6", "where"];

/// Returns the lines of a trace: 8,000 requests of 8 KiB. Flash of 2 % of such a volume has some hundred blocks.
fn lines(seed: u64, by_sector: bool) -> Vec<String> {
    let mix = Mix { writes_per_read: 4.0, spread: 1, repeated: 0.25, theta: 0.2 };
    let workload = Workload {
        kind: Kind::Mix(mix),
        blocks: 1 << 15,
        requests: 8_000,
        reads: 0.0,
        shared: 0.45,
        ratio: (2.0, 0.5),
        seed,
    };
    let line = |request: Request| {
        let op = if request.op == Op::Write { 'W' } else { 'R' };
        let print = request.content.map_or(0, |content| content.fingerprint);
        let mut digits = String::new();
        for sector in 0..if by_sector { 8_u128 } else { 1 } {
            write!(digits, "{:032x}", print << 8 | sector).unwrap();
        }
        // Requests of two blocks are two lines, some microseconds apart; they are one again when they are read.
        let (time, lba) = (request.time_ns + request.offset_bytes % 8192, request.offset_bytes / 512);
        format!("{time} 4253 nfsd {lba} 8 {op} 6 0 {digits}\n")
    };
    workload.generate().map(line).collect()
}

fn keep(path: &Path, lines: &[String]) {
    std::fs::write(path, lines.concat()).unwrap();
}

#[test]
fn figures_of_the_fiu_traces_take_a_folder_with_them() {
    let folder = tempfile::tempdir().unwrap();
    keep(&folder.path().join("webmail+online.cs.fiu.edu-110108-113008.1.blkparse"), &lines(1, false));
    let homes = lines(2, true);
    let (first, second) = homes.split_at(homes.len() / 2);
    keep(&folder.path().join("homes-110108-112108.9.blkparse"), first);
    keep(&folder.path().join("homes-110108-112108.10.blkparse"), second);
    let mail = folder.path().join("mail");
    std::fs::create_dir(&mail).unwrap();
    keep(&mail.join("cheetah.cs.fiu.edu-110108-113008.1.blkparse"), &lines(3, false));

    let made = Context::default();
    let context = Context { fiu: Some(folder.path().to_owned()), ..Context::default() };
    for figure in named(&FIGURES.map(str::to_owned)).unwrap() {
        let outcome = (figure.run)(&context).unwrap_or_else(|error| panic!("{}: {error}", figure.id));
        let said = outcome.remarks.join("\n");
        assert!(!said.contains("cannot be had"), "{}: {said}", figure.id);
        let traces: &[&str] =
            if figure.id == "nitro-gzip" { &["homes"] } else { &["webvm", "homes", "mail"] };
        for name in traces {
            let taken = format!("{name}: the FIU trace, 8000 requests");
            assert!(said.contains(&taken) && said.contains("0 bad lines"), "{}: {said}", figure.id);
        }
        assert!(outcome.tables.iter().all(|table| !table.rows.is_empty()), "{} is empty", figure.id);
        if COMPARED.contains(&figure.id) {
            let generated = (figure.run)(&made).unwrap();
            assert!(generated.remarks.iter().any(|remark| remark.contains("--fiu")), "{}", figure.id);
            assert_ne!(generated.tables, outcome.tables, "{} shows generated workloads", figure.id);
        }
    }
}

#[test]
fn a_folder_without_a_trace_says_which_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    keep(&folder.path().join("webvm.1"), &lines(1, false));
    let context = Context { fiu: Some(folder.path().to_owned()), ..Context::default() };
    for id in ["nitro-6", "nitro-4"] {
        let figure = named(&[id.to_owned()]).unwrap()[0];
        let error = (figure.run)(&context).unwrap_err().to_string();
        assert!(error.contains("homes") || error.contains("mail"), "{id}: {error}");
    }
}
