//! The fuzzers' bodies over the committed seeds and over arbitrary bytes.

#![expect(clippy::unwrap_used, reason = "a test; what it cannot read is a failure")]

use proptest::prelude::*;
use std::path::Path;

#[path = "../fuzz/bodies/decode.rs"]
mod decode;

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
    seeds("decode").iter().for_each(|seed| decode::run(seed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        decode::run(&data);
    }
}
