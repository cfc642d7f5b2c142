//! The fuzzers' bodies over the committed seeds, over changed seeds and over arbitrary bytes.

#![expect(clippy::unwrap_used, reason = "a test; what it cannot read is a failure")]

use proptest::prelude::*;
use std::path::Path;

#[path = "../fuzz/bodies/store_index.rs"]
mod store_index;
#[path = "../fuzz/bodies/store_log.rs"]
mod store_log;

/// The committed seeds of one fuzzer.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let seeds = std::fs::read_dir(folder).unwrap();
    let seeds: Vec<_> = seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap()).collect();
    assert!(!seeds.is_empty(), "{target} has seeds");
    seeds
}

#[test]
fn the_seeds_pass() {
    seeds("store-log").iter().for_each(|seed| store_log::run(seed));
    seeds("store-index").iter().for_each(|seed| store_index::run(seed));
}

proptest! {
    #[test]
    fn changed_seeds_do_no_harm(at: prop::sample::Index, to: u8) {
        for (target, body) in [("store-log", store_log::run as fn(&[u8])), ("store-index", store_index::run)] {
            for mut seed in seeds(target) {
                let at = at.index(seed.len());
                seed[at] = to;
                body(&seed);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        store_log::run(&data);
        store_index::run(&data);
    }
}
