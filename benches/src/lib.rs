//! Criterion benchmarks of the hot loops (`cargo bench -p zc-bench`), and programs under `src/bin` that show numbers
//! too large for a test.
//!
//! Job: measure; assert nothing. Machines differ and are noisy: compare runs of one machine, interleaved.

pub mod bootstorm;
pub mod clock;
pub mod cores;
pub mod cpu;
pub mod data;
pub mod driver;
pub mod fair;
pub mod harness;
pub mod load;
pub mod machine;
pub mod nbd;
pub mod store;
pub mod write;
