//! Traces through the production cache manager without bytes: blocks of 4 KiB per second, with all operations of a
//! request (results of hashing and compression are looked up).
//!
//! With `ZC_TRACES` naming a folder that has `zc_deb12-desktop-job.fp.xz`, on that trace; else on a synthetic boot,
//! read three times. The trace is in memory; reading it is not measured.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use zc_config::Config;
use zc_replay::cache::{self, CacheSize, Replay};
use zc_replay::{Ratios, Trace};
use zc_trace::{Boot, Options, Reader, Request, boot};

const CONFIG: &str = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nweu_size = \"1 MiB\"\nextent_size = \"4 KiB\"\nprefetch_max = 0\n\
                      [[volume]]\nname = \"v\"\norigin = \"o\"\n";

fn real(folder: &Path) -> Trace {
    let path = folder.join("zc_deb12-desktop-job.fp.xz");
    let reader = Reader::open(&path, Options::default()).expect("ZC_TRACES has zc_deb12-desktop-job.fp.xz");
    Trace::load(reader, Ratios::default()).expect("a whole trace")
}

fn synthetic() -> Trace {
    let once: Vec<Request> = boot(Boot { bytes: 64 << 20, ..Boot::default() });
    let thrice = (0..3).flat_map(|_| once.iter().map(|request| Ok(*request)));
    Trace::load(thrice, Ratios::default()).expect("a small trace")
}

fn replay(c: &mut Criterion) {
    let folder = std::env::var_os("ZC_TRACES").map(PathBuf::from);
    let (name, trace) = folder.map_or_else(|| ("boot", synthetic()), |folder| ("desktop-job", real(&folder)));
    let mut group = c.benchmark_group(format!("replay/{name}"));
    group.sample_size(10);
    group.throughput(Throughput::Elements(trace.blocks()));
    for (label, reduction) in [("D,C", ""), ("ND,NC", "dedup = false\ncompression = \"none\"\n")] {
        let text = CONFIG.replace("[[volume]]", &format!("{reduction}[[volume]]"));
        let config = Config::parse(&text, "bench").expect("a configuration");
        for share in [10.0, 40.0] {
            let replay = Replay { size: CacheSize::OfFootprint(share), ..Replay::default() };
            group.bench_function(format!("{label} at {share} %"), |b| {
                b.iter(|| black_box(cache::run(&trace, &config, replay, |_| {}).expect("replays")));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);
