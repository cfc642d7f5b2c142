//! The fuzzer's body over the committed seeds and over arbitrary text.

use proptest::prelude::*;
use std::path::Path;

#[path = "../fuzz/bodies/config.rs"]
mod body;

#[test]
fn the_seeds_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/config");
    let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| body::run(&std::fs::read(seed).unwrap()));
}

proptest! {
    #[test]
    fn arbitrary_text_does_no_harm(text in ".{0,300}") {
        body::run(text.as_bytes());
    }
}
