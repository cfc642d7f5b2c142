//! The fuzzers' bodies over the committed seeds and over arbitrary bytes.

use proptest::prelude::*;
use std::path::Path;

#[path = "../fuzz/bodies/recording.rs"]
mod recording;
#[path = "../fuzz/bodies/trace.rs"]
mod trace;

/// Runs a body over the seeds of its fuzzer.
fn each_seed(name: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let seeds = std::fs::read_dir(&folder).map(|seeds| seeds.flatten().collect::<Vec<_>>());
    let seeds = seeds.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    assert!(!seeds.is_empty(), "{name} has seeds");
    for seed in seeds {
        run(&std::fs::read(seed.path()).unwrap_or_else(|error| panic!("{seed:?}: {error}")));
    }
}

#[test]
fn the_seeds_pass() {
    each_seed("trace", trace::run);
    each_seed("recording", recording::run);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        trace::run(&data);
        recording::run(&data);
    }

    #[test]
    fn a_changed_recording_does_no_harm(at: prop::sample::Index, byte: u8) {
        let mut seed = include_bytes!("../fuzz/seeds/recording/golden").to_vec();
        let at = at.index(seed.len());
        seed[at] = byte;
        recording::run(&seed);
    }
}
