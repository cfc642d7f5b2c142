//! First seeds as a test, for tools that evaluate code by `cargo test`: `cargo xtask mutants` requests more of them.

use std::sync::atomic::{AtomicU64, Ordering};
use zc_sim::{Options, run_seed};

/// Requests of each run.
const OPS: u64 = 2_000;
/// Seeds to try unless [`WANTED`] is set: `cargo xtask test` tries many more with the program.
const SEEDS: u64 = 8;
/// Environment variable with a number of seeds.
const WANTED: &str = "ZC_SIM_SEEDS";

#[test]
fn the_first_seeds_are_clean() {
    let seeds = std::env::var(WANTED).map_or(SEEDS, |text| text.parse().expect("a number of seeds"));
    let next = AtomicU64::new(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let run = || {
            // The first violation ends the loop: each thread checks the shared result.
            while let seed = next.fetch_add(1, Ordering::Relaxed)
                && seed <= seeds
            {
                let options = Options {
                    ops: OPS,
                    canary: None,
                    replacement: None,
                    packer: None,
                    profile: None,
                    trace: None,
                };
                if let Err(violation) = run_seed(seed, &options) {
                    next.store(seeds + 1, Ordering::Relaxed);
                    return Some(format!("seed {seed}: after {} requests: {}", violation.op, violation.text));
                }
            }
            None
        };
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        started.into_iter().filter_map(|thread| thread.join().expect("the manager does not panic")).collect()
    });
    assert!(failed.is_empty(), "{failed:?}; `zcsim fuzz --seed N --trace` tells more");
}
