//! The fuzzer's body over the committed seeds and over arbitrary bytes.

use proptest::prelude::*;
use std::path::Path;

#[path = "../fuzz/bodies/trace.rs"]
mod body;

#[test]
fn the_seeds_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/trace");
    for seed in std::fs::read_dir(folder).unwrap() {
        body::run(&std::fs::read(seed.unwrap().path()).unwrap());
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_hurt_nobody(data in prop::collection::vec(any::<u8>(), 0..600)) {
        body::run(&data);
    }
}
