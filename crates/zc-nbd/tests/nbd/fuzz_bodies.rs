//! The fuzzers' bodies on the stable toolchain: over the committed seeds, over changed seeds and over arbitrary bytes.

use proptest::prelude::*;
use std::path::PathBuf;

#[path = "../../fuzz/bodies/client.rs"]
mod client;
#[path = "../../fuzz/bodies/server.rs"]
mod server;
#[path = "../../fuzz/bodies/wire.rs"]
mod wire;

/// The seeds of one fuzzer, in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "the seeds of {target} are gone");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn the_seeds_still_pass() {
    for seed in seeds("server") {
        server::run(&seed);
    }
    for seed in seeds("client") {
        client::run(&seed);
    }
    for seed in seeds("wire") {
        wire::run(&seed);
    }
}

/// A seed with some bytes changed and the end cut off or arbitrary bytes appended.
fn changed(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let tail = prop::collection::vec(any::<u8>(), 0..64);
    (prop::sample::select(seeds(target)), changes, any::<prop::sample::Index>(), any::<bool>(), tail)
        .prop_map(|(mut seed, changes, end, cut, tail)| {
            for (at, byte) in changes {
                let at = at.index(seed.len());
                seed[at] = byte;
            }
            if cut {
                seed.truncate(end.index(seed.len() + 1));
            }
            seed.extend(tail);
            seed
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_seeds_hurt_no_server(data in changed("server")) {
        server::run(&data);
    }

    #[test]
    fn changed_seeds_hurt_no_client(data in changed("client")) {
        client::run(&data);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..600)) {
        server::run(&data);
        client::run(&data);
        wire::run(&data);
    }
}
