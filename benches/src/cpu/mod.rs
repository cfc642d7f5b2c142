//! `cargo xtask bench cpu`: CPU microseconds of a server's process for each request, beside a floor.
//!
//! Job: on a machine that others use too, rates of two runs differ by half; what a server's process runs for each
//! request differs by a few per cent. So each server is bound to one core and the load generator to another, or to the
//! same one. In each round every target gets a short run of every case, in rotating order. Figures are medians over
//! rounds with the least and the most beside them; ratios are medians of ratios within rounds.
//!
//! The floor is `floor-server`: one thread that receives, does the raw I/O past the page cache, and sends; "+" with one
//! CRC-32C and one copy of the bytes; "null" without the file. The aims say what the daemon may take beside it.
//!
//! Invariants: the same client with the same requests for every server. Runs of writes end when the daemon has taken in
//! what it was given; origins get dirty data outside the runs. What a run of writes may take over pass-through is
//! measured in the same round: one fingerprint, one attempt to compress, one CRC-32C and one copy of the bytes.
//!
//! `cpu.md` and `cpu.json` beside this crate are a run with `--out benches`.
//!
//! What it does not do: compare rates or latencies (`nbd` does), count allocations, or see the work that the kernel does
//! in other processes' time.

pub mod aims;
pub mod cases;
pub mod field;
pub mod measured;
pub mod report;
pub mod work;
