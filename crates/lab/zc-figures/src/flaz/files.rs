//! Tables 2 and 3: real files, compressed block by block.

use std::path::{Path, PathBuf};

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{Codec, u64_from_usize};
use zc_reduce::Reducer;
use zc_replay::time::profile::CpuProfile;

use crate::context::ZLIB;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const OTHER_FILES: &str = "Other files, lz4 in the place of lzo, and a core ten years younger";
/// Ablations that break shapes of real files.
const NOISE: &[Ablation] = &[Ablation::Incompressible];

/// FlaZ's Table 2, its savings.
pub(crate) const TABLE_2: Figure = Figure {
    id: "flaz-t2",
    title: "Space saved in a 4 KiB block",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 3, Table 2",
    ours: "Every block of the files of flaz-t3 under lz4, in the place of lzo, and zlib -6; with the times of the time model, \
           measured with criterion on one core of an AMD EPYC.",
    differences: "The paper's block is not described. lz4 saves about as much as lzo and takes an eighth of its time, on a \
                  core ten years younger.",
    standing: Standing::NotComparable(OTHER_FILES),
    numbers: &[
        ("flaz.t2.lzo", Standing::NotComparable(OTHER_FILES)),
        ("flaz.t2.zlib", Standing::NotComparable(OTHER_FILES)),
    ],
    quick: false,
    run: run_blocks,
};

/// FlaZ's Table 3.
pub(crate) const TABLE_3: Figure = Figure {
    id: "flaz-t3",
    title: "Size after compression, by kind of file and unit of compression",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.6, Table 3",
    ours: "Files under --files (default /usr), up to 8 MB of a kind, in order of their paths: 4 KiB blocks under lz4, in the \
           place of lzo, and zlib -6; 128 KiB at a time under zlib -6 in the place of gzip of whole files.",
    differences: "Other files: mailboxes, office documents and the kernel's sources are not on every machine. Figures differ \
                  from machine to machine.",
    standing: Standing::NotComparable(OTHER_FILES),
    numbers: &[
        ("flaz.t3.source", Standing::NotComparable(OTHER_FILES)),
        ("flaz.t3.compiled", Standing::NotComparable(OTHER_FILES)),
        ("flaz.incompressible", Standing::NotComparable(OTHER_FILES)),
    ],
    quick: false,
    run: run_kinds,
};

const BLOCK_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 128 << 10;
/// Bound for each kind.
const BYTES_MAX: usize = 8_000_000;
/// Bound for each file.
const FILE_BYTES_MAX: u64 = 1_000_000;
/// Bound on the number of files.
const FILES_MAX: usize = 200_000;
/// Kinds, with the ends of names; programs have none.
const KINDS: [(&str, &[&str]); 5] = [
    ("programs", &[""]),
    ("libraries", &["so", "a", "o", "rlib"]),
    ("source text", &["h", "c", "cc", "rs", "py", "pl", "pm", "sh", "js", "tcl"]),
    ("documents", &["txt", "html", "md", "xml", "svg", "json", "conf"]),
    ("compressed", &["gz", "xz", "zip", "png", "jpg", "pdf", "zst", "whl"]),
];

/// Bytes before and after.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    raw: u64,
    lz4: u64,
    zlib: u64,
    chunks: u64,
    blocks: u64,
    incompressible: u64,
}

fn kind_of(path: &Path) -> Option<usize> {
    // libfoo.so.6 is a library.
    let name = path.file_name()?.to_str()?;
    let end = if name.contains(".so.") {
        "so"
    } else {
        path.extension().map_or("", |end| end.to_str().unwrap_or(""))
    };
    if end.is_empty() && !path.parent()?.ends_with("bin") {
        return None;
    }
    KINDS.iter().position(|(_, ends)| ends.contains(&end))
}

/// Returns the files below a folder, in order of their paths, folder by folder; unreadable ones are skipped.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::path);
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
        if found.len() >= FILES_MAX {
            break;
        }
    }
    found.sort();
    found
}

fn stored(reducer: &mut Reducer, codec: Codec, bytes: &[u8], out: &mut [u8]) -> u64 {
    let size = reducer.compress(codec, bytes, &mut out[..bytes.len()]).unwrap_or(bytes.len());
    u64_from_usize(size)
}

fn measure(context: &Context, outcome: &mut Outcome) -> [Sums; KINDS.len()] {
    let mut sums = [Sums::default(); KINDS.len()];
    let folder = context.files.clone().unwrap_or_else(|| PathBuf::from("/usr"));
    let (mut reducer, mut out) = (Reducer::new(), vec![0; CHUNK_BYTES]);
    let mut noise = Pcg64Mcg::seed_from_u64(1);
    for path in files(&folder) {
        let Some(kind) = kind_of(&path) else { continue };
        let sum = &mut sums[kind];
        if sum.raw >= u64_from_usize(BYTES_MAX) {
            continue;
        }
        let Ok(file) = std::fs::File::open(&path) else { continue };
        let mut bytes = Vec::new();
        if std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_BYTES_MAX), &mut bytes).is_err() {
            continue;
        }
        if context.are_incompressible() {
            noise.fill_bytes(&mut bytes);
        }
        sum.raw += u64_from_usize(bytes.len());
        for block in bytes.chunks(BLOCK_BYTES) {
            let lz4 = stored(&mut reducer, Codec::Lz4, block, &mut out);
            sum.lz4 += lz4;
            sum.zlib += stored(&mut reducer, ZLIB, block, &mut out);
            sum.blocks += 1;
            sum.incompressible += u64::from(lz4 >= u64_from_usize(block.len()));
        }
        for chunk in bytes.chunks(CHUNK_BYTES) {
            sum.chunks += stored(&mut reducer, ZLIB, chunk, &mut out);
        }
    }
    for (sum, (name, _)) in sums.iter().zip(&KINDS).filter(|(sum, _)| sum.raw == 0) {
        debug_assert_eq!(sum.blocks, 0);
        outcome.remark(format!("{} has no {name}", folder.display()));
    }
    sums
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 * 100.0 }
}

fn run_kinds(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let sums = measure(context, &mut outcome);
    let found: Vec<(&str, Sums)> =
        KINDS.iter().map(|(name, _)| *name).zip(sums).filter(|(_, sum)| sum.raw > 0).collect();
    let groups = found.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut chart = Chart::bars("Size after compression", groups, Axis::linear("% of the size before"));
    let column = |part: fn(&Sums) -> u64| -> Vec<f64> {
        found.iter().map(|(_, sum)| percent(part(sum), sum.raw)).collect()
    };
    let [lz4, zlib, chunks] = [column(|sum| sum.lz4), column(|sum| sum.zlib), column(|sum| sum.chunks)];
    chart.add_bars("lz4, 4 KiB", &lz4);
    chart.add_bars("zlib, 4 KiB", &zlib);
    chart.add_bars("zlib, 128 KiB", &chunks);
    outcome.charts.push(chart);
    let rows = found.iter().enumerate().map(|(number, (name, sum))| {
        let mut row = vec![(*name).to_owned(), format!("{:.1}", sum.raw as f64 / 1e6)];
        row.extend([lz4[number], zlib[number], chunks[number]].map(|value| format!("{value:.1}")));
        row.push(format!("{:.1}", percent(sum.incompressible, sum.blocks)));
        row
    });
    let columns = ["kind", "MB", "lz4 4 KiB %", "zlib 4 KiB %", "zlib 128 KiB %", "blocks lz4 cannot %"];
    outcome.table("Size after compression", &columns, rows.collect());
    for (number, (name, sum)) in found.iter().enumerate() {
        // Compressed files have nothing to save.
        if *name == "compressed" {
            continue;
        }
        let share = percent(sum.incompressible, sum.blocks);
        outcome.beside("flaz.incompressible", format!("{name} {share:.1}"));
        outcome.asserted(
            NOISE,
            chunks[number] <= zlib[number] - 1.0 && zlib[number] <= lz4[number] - 1.0,
            format!("{name}: zlib saves more than lz4, and more in larger units"),
            format!("{:.1}, {:.1}, {:.1} %", lz4[number], zlib[number], chunks[number]),
        );
        let number_of = match *name {
            "source text" => "flaz.t3.source",
            "programs" => "flaz.t3.compiled",
            _ => continue,
        };
        let cells = format!("{name} {:.0}|-|-|{:.0}|{:.0}", chunks[number], zlib[number], lz4[number]);
        outcome.beside(number_of, cells);
    }
    Ok(outcome)
}

fn run_blocks(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let sums = measure(context, &mut outcome);
    // The compressible kinds: FlaZ finds less than 2 % incompressible blocks.
    let all = sums[..4].iter().fold((0, 0, 0), |sum, s| (sum.0 + s.raw, sum.1 + s.lz4, sum.2 + s.zlib));
    let [lz4, zlib] = [all.1, all.2].map(|size| 100.0 - percent(size, all.0));
    let times = |codec| {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1000.0);
        let (cpu, bytes) = (CpuProfile::measured(1), u64_from_usize(BLOCK_BYTES));
        [us(cpu.compress_ns(codec, bytes)), us(cpu.decompress_ns(codec, bytes))]
    };
    let (of_lz4, of_zlib) = (times(Codec::Lz4), times(Codec::Zlib(6)));
    let row = |name: &str, [compress, decompress]: &[String; 2], saved: f64| {
        vec![name.to_owned(), compress.clone(), decompress.clone(), format!("{saved:.1}")]
    };
    let rows = vec![row("lz4", &of_lz4, lz4), row("zlib -6", &of_zlib, zlib)];
    outcome.table("A block of 4 KiB", &["codec", "compress us", "decompress us", "saved %"], rows);
    outcome.asserted(NOISE, zlib > lz4 + 1.0, "zlib saves more than lz4", format!("{zlib:.1} > {lz4:.1} %"));
    outcome.beside("flaz.t2.lzo", format!("lz4 {}|{lz4:.0}", of_lz4.join("|")));
    outcome.beside("flaz.t2.zlib", format!("{}|{zlib:.0}", of_zlib.join("|")));
    Ok(outcome)
}
