//! Inputs of the figures: the workloads of section 5.2, and the devices of Nitro and FlaZ.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_flash::{Ftl, Geometry, Hybrid, Latencies, Logs};
use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, HitReads, Timing};
use zc_replay::{Ratios, Trace};
use zc_trace::{Op, Request};

use super::workloads::{Loaded, load_all};
use crate::{Ablation, Context, Figure, FigureError, Outcome, Standing};

const GIVEN: &str = "The generator is given the paper's proportion";
const SIZES: &str =
    "The share that is accessed is given to the generator; volumes are smaller, and caches with them";

/// The workloads.
pub(crate) const WORKLOADS: Figure = Figure {
    id: "nitro-workloads",
    title: "The workloads: sizes, shares that are accessed, writes per read",
    source: "Li et al., Nitro, USENIX ATC 2014, section 5.2",
    ours: "What is measured of the generated workloads, or of the FIU traces.",
    differences: "Volumes are of 1 GiB at small scale and 8 GiB at full; the paper's of 70 to 500 GB. Only as many requests are \
                  made as a run of seconds or minutes takes, so that not all is accessed that would be.",
    standing: Standing::Fitted(GIVEN),
    numbers: &[
        ("nitro.ws.webvm", Standing::Fitted(SIZES)),
        ("nitro.ws.homes", Standing::Fitted(SIZES)),
        ("nitro.ws.mail", Standing::Fitted(SIZES)),
        ("nitro.wr.webvm", Standing::Fitted(GIVEN)),
        ("nitro.wr.homes", Standing::Fitted(GIVEN)),
        ("nitro.wr.mail", Standing::Fitted(GIVEN)),
    ],
    quick: true,
    run: run_workloads,
};

const NAMES: [(&str, &str); 3] = [
    ("nitro.ws.webvm", "nitro.wr.webvm"),
    ("nitro.ws.homes", "nitro.wr.homes"),
    ("nitro.ws.mail", "nitro.wr.mail"),
];

fn run_workloads(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let row = |(workload, (size, ratio)): (&Loaded, &(&'static str, &'static str))| {
        let gb = workload.volume_bytes as f64 / 1e9;
        let accessed = workload.trace.footprint_bytes() as f64 / workload.volume_bytes as f64 * 100.0;
        let writes_per_read = workload.trace.writes() as f64 / workload.trace.reads().max(1) as f64;
        outcome.beside(size, format!("{gb:.2}|{accessed:.1}|{:.3}", gb * 0.02));
        outcome.beside(ratio, format!("{writes_per_read:.2}"));
        outcome.fitted(
            GIVEN,
            (3.0..=5.0).contains(&writes_per_read),
            format!("{}: 3 to 5 writes for a read", workload.name),
            format!("{writes_per_read:.2}"),
        );
        let numbers = [gb, accessed, writes_per_read].map(|number| format!("{number:.2}"));
        [vec![workload.name.to_owned()], numbers.to_vec()].concat()
    };
    let rows = loaded.iter().zip(&NAMES).map(row).collect();
    outcome.table("Workloads", &["trace", "volume GB", "accessed %", "writes per read"], rows);
    Ok(outcome)
}

const RATES: &str = "Times of dies, seeks and turns, to the paper's rates";
const ERASURES: &str = "Times to erase are the paper's, and on a line between them";
const STREAMS: &str = "Units of 2 MiB are written twelve times as fast as extents of 8 KiB in the model, in the paper 1.6 times: with \
                       log blocks nearly every small write merges blocks of 2 MiB. A drive that maps pages does not";
const STROKE: &str =
    "A random read takes 10.2 ms, in the paper 12.6: in the model data take half of the disk's stroke";

/// The devices.
pub(crate) const DEVICES: Figure = Figure {
    id: "devices",
    title: "The devices of the models: rates, response and times to erase",
    source: "Li et al., Nitro, USENIX ATC 2014, sections 5.4 and 6.2; Makatos et al., FlaZ, EuroSys 2010, section 3, Table 1",
    ours: "Random reads of 8 KiB by 32 clients, random reads of 4 KiB by one, reads front to back of 1 MiB by one (disk) and \
           eight (SSD), in the model of time; overwrites of a full SSD, 2 MiB and 8 KiB at a time, in the model of flash with log blocks.",
    differences: "Write rates of the time model are those of its dies.",
    standing: Standing::Fitted(RATES),
    numbers: &[
        ("nitro.hw", Standing::Fitted(RATES)),
        ("nitro.erase", Standing::Fitted(ERASURES)),
        ("nitro.62.writes", Standing::Contradicted(STREAMS)),
        ("flaz.t1.hdd", Standing::Contradicted(STROKE)),
        ("flaz.t1.ssd", Standing::Fitted(RATES)),
    ],
    quick: true,
    run: run_devices,
};

fn reads(at: impl Iterator<Item = u64>, bytes: u32) -> Result<Trace, FigureError> {
    let lines = at.map(|offset| Ok(Request::new(0, Op::Read, offset, bytes)));
    // A request of a mebibyte is as long as the trace has it; lines of one moment would be joined.
    let apart = lines.enumerate().map(|(number, line): (usize, Result<Request, _>)| {
        line.map(|line| Request { time_ns: zc_core::u64_from_usize(number) * 1_000_000, ..line })
    });
    Ok(Trace::load(apart, Ratios::default())?)
}

/// Random places on a gigabyte.
fn random(bytes: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    (0..count).map(move |_| rng.random_range(0..(1 << 30) / bytes) * bytes)
}

fn timing(name: &str, clients: u32) -> Result<Timing, FigureError> {
    let unknown = || FigureError::Simulator { what: format!("no profile {name}") };
    let profile = Profile::named(name).ok_or_else(unknown)?;
    let arrival = Arrival::Closed { clients };
    Ok(Timing { profile, arrival, memory_scale: 1.0, hits: HitReads::Pieces })
}

/// Adds a measured value and its expected one.
fn held(outcome: &mut Outcome, what: &str, found: f64, paper: f64) -> String {
    outcome.fitted(
        RATES,
        (0.85..=1.15).contains(&(found / paper)),
        format!("{what}: within 15 % of the paper's {paper}"),
        format!("{found:.2}"),
    );
    format!("{found:.2}")
}

fn run_devices(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let (random_8k, random_4k) = (reads(random(8192, 20_000), 8192)?, reads(random(4096, 4000), 4096)?);
    let mib = 1_u64 << 20;
    let streaming = reads((0..1000).map(|number| number * mib), 1 << 20)?;
    let nitro = timing("nitro-tps", 32)?;
    let iops = time::on_ssd(&random_8k, &nitro, 0)?.iops() / 1000.0;
    let ssd = nitro.profile.ssd;
    let writes = f64::from(ssd.dies) * 1e6 / ssd.program_ns as f64;
    let flaz = timing("flaz-1d1s", 1)?;
    let rate = |report: &time::TimeReport| 1000.0 * mib as f64 / report.seconds / 1e6;
    let (disk, disk_one) = (time::bare(&streaming, &flaz, 0)?, time::bare(&random_4k, &flaz, 0)?);
    let flash = time::on_ssd(&streaming, &timing("flaz-1d1s", 8)?, 0)?;
    let flash_one = time::on_ssd(&random_4k, &flaz, 0)?;
    let x25e = flaz.profile.ssd;
    let program = f64::from(x25e.dies * x25e.page_bytes) * 1e3 / x25e.program_ns as f64;
    let mut rows = Vec::new();
    let mut show = |what: &str, found: f64, paper: f64| {
        let cell = held(&mut outcome, what, found, paper);
        rows.push(vec![what.to_owned(), cell.clone(), paper.to_string()]);
        cell
    };
    let hw = [
        show("Nitro's SSD, thousand reads of 8 KiB a second", iops, 18.7),
        show("Nitro's SSD, thousand writes of 8 KiB a second", writes, 4.2),
    ];
    let hdd = show("FlaZ's disk, MB/s read", rate(&disk), 100.0);
    let ssd = [
        show("FlaZ's SSD, MB/s read", rate(&flash), 277.0),
        show("FlaZ's SSD, MB/s written", program, 202.0),
        show("FlaZ's SSD, ms for a random read", flash_one.reads.mean_us / 1000.0, 0.17),
    ];
    outcome.table("Devices", &["what", "model", "paper"], rows);
    outcome.beside("nitro.hw", hw.join("|"));
    let ms = disk_one.reads.mean_us / 1000.0;
    outcome.contradicted(
        STROKE,
        (9.0..=11.5).contains(&ms),
        "FlaZ's disk: a random read takes 9 to 11.5 ms, in the paper 12.6",
        format!("{ms:.2} ms"),
    );
    outcome.beside("flaz.t1.hdd", format!("{hdd}|-|{ms:.1}"));
    outcome.beside("flaz.t1.ssd", ssd.join("|"));
    let erase = [128 << 10, 2 << 20].map(|bytes| Latencies::nitro(bytes).erase_us as f64 / 1000.0);
    outcome.beside("nitro.erase", erase.map(|ms| ms.to_string()).join("|"));
    streams(context, &mut outcome)?;
    Ok(outcome)
}

/// Returns the rate of overwrites of a full SSD in MB/s, `pages_at_once` pages each.
fn overwritten(pages_at_once: u32) -> Result<f64, FigureError> {
    let failed = |error: zc_flash::GeometryError| FigureError::Simulator { what: error.to_string() };
    let geometry = Geometry::new(4096, 512, 512, 1, 1).map_err(failed)?;
    let mut ssd = Hybrid::new(geometry, Latencies::nitro(2 << 20), Logs::NITRO).map_err(failed)?;
    let places = ssd.pages() / pages_at_once;
    let mut write = |place: u32| {
        (place * pages_at_once..(place + 1) * pages_at_once).for_each(|page| ssd.write(page, page));
        ssd.stats().busiest_us
    };
    let mut before = 0;
    for place in 0..places {
        before = write(place);
    }
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let (mut after, count) = (before, (1 << 17) / pages_at_once);
    for _ in 0..count {
        after = write(rng.random_range(0..places));
    }
    Ok(f64::from(count * pages_at_once) * 4096.0 / (after - before).max(1) as f64)
}

fn streams(context: &Context, outcome: &mut Outcome) -> Result<(), FigureError> {
    let unit = if context.ablates(Ablation::SameWrites) { 2 } else { 512 };
    let (large, small) = (overwritten(unit)?, overwritten(2)?);
    let gain = (large / small - 1.0) * 100.0;
    outcome.asserted(
        &[Ablation::SameWrites],
        gain > 30.0,
        "units of 2 MiB are written at least 1.3 times as fast as extents of 8 KiB, in the paper 1.6 times",
        format!("{large:.1} and {small:.1} MB/s"),
    );
    outcome.beside("nitro.62.writes", format!("{gain:.0}"));
    Ok(())
}
