//! Simulator and daemon agree: one trace, with real bytes through `zcached` over NBD and with fingerprints through
//! `zcsim run`, under one configuration file, gives the same hits, duplicates, evictions and bytes of units written.
//! So does the daemon's own recording of the run.
//!
//! One client waits for each insertion to end before its next request, so that operations end in the simulator's
//! order. Journal, checkpoints and region maps are written by the clock; their bytes are not compared.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rand::RngExt as _;
use serde_json::Value;
use zc_core::Codec;
use zc_engine::NbdClient;
use zc_reduce::Reducer;
use zc_tests::{BlockKind, DataGen, MIB, World, program, rng, run_ok, same, seed_from_env};

const BLOCK: usize = 4096;
const BLOCKS: usize = 600;
const REQUESTS: u64 = 700;
/// Longer than a stream waits for its next request.
const PAUSE_NS: u64 = 200_000_000;

/// Counters that have to be equal.
const COUNTERS: [&str; 22] = [
    "reads",
    "read_hits",
    "read_misses",
    "read_partial",
    "extent_misses",
    "extent_hits_zero",
    "writes",
    "write_bytes",
    "flushes",
    "insert_offered",
    "insert_stored",
    "insert_duplicates",
    "insert_zero",
    "insert_skipped",
    "stored_raw_bytes",
    "stored_bytes",
    "compress_tried",
    "weu_writes",
    "weu_bytes_written",
    "weu_bytes_padding",
    "evictions",
    "file_index_len",
];

/// Contents of blocks, and a trace of them.
struct Script {
    data: DataGen,
    reducer: Reducer,
    trace: String,
    time_ns: u64,
}

impl Script {
    fn new(seed: u64) -> Self {
        let data = DataGen::new(seed, BLOCK);
        Self { data, reducer: Reducer::new(), trace: String::new(), time_ns: 0 }
    }

    /// One content in ten is zeros, three do not compress, the rest do, each to another size.
    fn block(&self, content: u64) -> Vec<u8> {
        let kind = match content % 10 {
            0 => BlockKind::Zero,
            1..=3 => BlockKind::Incompressible,
            _ => BlockKind::Compressible,
        };
        let mut block = self.data.block(kind, content);
        let zeros = usize::try_from(content * 97 % 3000).expect("small");
        if kind == BlockKind::Compressible {
            block[BLOCK - zeros..].fill(0);
        }
        block
    }

    /// A line of the trace, with the fingerprint that such traces have and the size that the daemon's codec makes.
    fn line(&mut self, op: char, block: usize, bytes: &[u8], content: u64) {
        let mut out = [0; BLOCK];
        let size = self.reducer.compress(Codec::Lz4, bytes, &mut out).unwrap_or(BLOCK);
        let print = if content.is_multiple_of(10) { 0x620f_0b67_a91f_7f74 } else { content };
        self.time_ns += PAUSE_NS;
        writeln!(self.trace, "{} {} 8 {op} {print:016x} {size} {size}", self.time_ns, block * 8)
            .expect("strings take text");
    }
}

fn at(block: usize) -> u64 {
    u64::try_from(block * BLOCK).expect("small")
}

/// The requests of one run. Contents of the pool come up again and again.
fn play(world: &World, client: &mut NbdClient, script: &mut Script, twin: &mut [u64], seed: u64) {
    let mut random = rng(seed);
    for number in 0..REQUESTS {
        // Low blocks are wanted more.
        let block = random.random_range(0..BLOCKS) * random.random_range(0..BLOCKS) / BLOCKS;
        if number % 50 == 49 {
            client.flush().expect("a flush");
            script.time_ns += PAUSE_NS;
            writeln!(script.trace, "{} 0 8 F 0000000000000000 0 0", script.time_ns)
                .expect("strings take text");
        } else if random.random_bool(0.55) {
            let content = twin[block];
            let bytes = script.block(content);
            let found = client.read(at(block), BLOCK).expect("a read");
            same(&found, &bytes, "a block");
            script.line('R', block, &bytes, content);
        } else {
            let pool = random.random_bool(0.4);
            let content = if pool { random.random_range(0..200) } else { 1_000_000 + number };
            let bytes = script.block(content);
            client.write(at(block), &bytes).expect("a write");
            script.line('W', block, &bytes, content);
            twin[block] = content;
        }
        world.inserted();
    }
}

/// Plays, and compares; returns the daemon's counters.
fn agree(settings: &str) -> Value {
    let seed = seed_from_env(7);
    let mut world = World::new(3, at(BLOCKS).div_ceil(MIB));
    // A unit is written when it is full, and at no other time.
    world.cache = format!(
        "size = \"1300 KiB\"\nextent_size = \"4 KiB\"\nweu_size = \"64 KiB\"\nweu_max_age = \"1 h\"\nprefetch_max = 0\n\
         {settings}"
    );
    let mut script = Script::new(seed);
    let mut twin: Vec<u64> =
        (0..BLOCKS).map(|block| 1000 + u64::try_from(block).expect("small") % 900).collect();
    let origin: Vec<u8> = twin.iter().flat_map(|content| script.block(*content)).collect();
    let whole = usize::try_from(at(BLOCKS).div_ceil(MIB) * MIB).expect("small");
    let mut image = origin;
    image.resize(whole, 0);
    std::fs::write(world.origin("disk"), image).expect("an origin");
    let daemon = world.start();
    world.loaded();
    let recorded = world.path("recorded");
    let record = ["record", "start", "disk", "--to", &recorded.display().to_string()];
    assert!(world.zcctl_output(&record).status.success());
    let mut client = world.connect("disk");
    play(&world, &mut client, &mut script, &mut twin, seed);
    let ours = world.stats()["manager"].clone();
    client.disconnect().expect("goodbye");
    assert!(world.zcctl_output(&["record", "stop", "disk"]).status.success());
    assert!(daemon.terminate().success());

    let trace = world.path("trace.fp");
    std::fs::write(&trace, &script.trace).expect("a trace");
    for trace in [trace, recorded] {
        same_counters(&world, &ours, &trace);
    }
    let at_least = |name: &str, least: u64| {
        assert!(ours[name].as_u64() >= Some(least), "{name}: the run is too tame");
    };
    at_least("evictions", 3);
    at_least("read_hits", 50);
    ours
}

/// Replays a trace under the daemon's configuration and compares its counters with the daemon's.
fn same_counters(world: &World, ours: &Value, trace: &Path) {
    let mut zcsim = Command::new(program("zcsim"));
    zcsim.args(["run", "--json", "--check", "--trace"]).arg(trace);
    zcsim.arg("--config").arg(world.path("zcached.toml"));
    let simulated: Value = serde_json::from_slice(&run_ok(&mut zcsim).stdout).expect("JSON");
    let theirs = &simulated["counters"];
    let shown = |counters: &Value| {
        let value = |name: &&str| format!("{name} {}", counters[*name]);
        COUNTERS.iter().map(value).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(shown(ours), shown(theirs), "daemon and simulator on {}", trace.display());
    // Hits in a unit's buffer and on the device depend on timing, their sum does not.
    let hits = |counters: &Value| {
        let of = |name: &str| counters[name].as_u64().expect("a counter");
        of("extent_hits_device") + of("extent_hits_memory")
    };
    assert_eq!(hits(ours), hits(theirs));
}

#[test]
fn with_deduplication_and_compression() {
    agree("");
}

#[test]
fn with_neither() {
    agree("dedup = false\ncompression = \"none\"\n");
}

#[test]
fn with_extents_packed_by_best_fit() {
    let ours = agree("packer = \"best-fit\"\n");
    assert!(ours["weu_bytes_padding"].as_u64() > Some(0), "nothing was packed");
}

/// The hit ratio of an answer with these two members, in points of a hundred.
fn points(hits: &Value, all: &Value) -> f64 {
    100.0 * hits.as_f64().expect("a number") / all.as_f64().expect("a number")
}

/// Sequential reads of half an extent, which are read ahead, and then every extent at random, three times over.
fn read_like_a_guest(world: &World) {
    const EXTENT: usize = 2 * BLOCK;
    let mut client = world.connect("disk");
    for half in 0..BLOCKS {
        client.read(at(half), BLOCK).expect("a read");
    }
    let mut random = rng(3);
    for _ in 0..3 * BLOCKS / 2 {
        let extent = random.random_range(0..BLOCKS / 2);
        client.read(at(2 * extent), EXTENT).expect("a read");
        world.inserted();
    }
    client.disconnect().expect("goodbye");
}

#[test]
fn the_hit_ratio_is_one_number() {
    let mut world = World::new(16, at(BLOCKS).div_ceil(MIB));
    world.cache.push_str("weu_size = \"64 KiB\"\n");
    let bytes = DataGen::new(5, BLOCK).mixed(BLOCKS);
    let whole = usize::try_from(at(BLOCKS).div_ceil(MIB) * MIB).expect("small");
    let mut image = bytes;
    image.resize(whole, 0);
    std::fs::write(world.origin("disk"), image).expect("an origin");
    let daemon = world.start();
    world.loaded();
    let recorded = world.path("recorded");
    let record = ["record", "start", "disk", "--to", &recorded.display().to_string()];
    assert!(world.zcctl_output(&record).status.success());
    read_like_a_guest(&world);
    let stats = world.stats();
    let status = world.status();
    assert_eq!(stats["extents"], status["extents"]);
    assert!(world.zcctl_output(&["record", "stop", "disk"]).status.success());
    let shown = String::from_utf8(world.zcctl_output(&["stats"]).stdout).expect("text");
    assert!(daemon.terminate().success());
    let daemons = points(&stats["extents"]["hits"], &stats["extents"]["read"]);
    assert!(shown.contains(&format!("{:.1} % of", (daemons * 10.0).floor() / 10.0)), "{daemons} in {shown}");
    assert!(stats["extents"]["read_ahead"].as_u64() > Some(50), "nothing was read ahead: {stats}");
    let simulated = |arguments: &[&str]| -> Value {
        let mut zcsim = Command::new(program("zcsim"));
        zcsim.args(arguments).arg("--config").arg(world.path("zcached.toml"));
        serde_json::from_slice(&run_ok(&mut zcsim).stdout).expect("JSON")
    };
    let trace = recorded.display().to_string();
    let run = simulated(&["run", "--json", "--trace", &trace]);
    let size = simulated(&["size", "--json", "--shares", "200%", &trace]);
    let ratios = [&run["read_hit_ratio"], &size["curve"][0]["reduced"]["read_hit_ratio"]];
    for ratio in ratios {
        let ratio = points(ratio, &Value::from(1));
        assert!((ratio - daemons).abs() < 3.0, "{daemons} and {ratio}: {stats}\n{run}\n{size}");
    }
}
