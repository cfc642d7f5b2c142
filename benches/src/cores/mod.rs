//! `cargo xtask bench cores`: what more I/O threads bring.
//!
//! Job: daemons with one thread and with two answer the same hits, in rotating order. A thread's time per hit is what its
//! process runs and what it waits for another's turn; of that, one part passes in turns, which threads have one after the
//! other. From both follows what two threads can serve beside one, whatever the load generator takes of the cores. From
//! the times of one thread a queueing model follows for more (`model`).
//!
//! Invariants: the same client with the same requests for every daemon. Daemons may use all cores; the client is bound to
//! one. Figures are medians over rounds with the least and the most; ratios are medians of ratios within rounds.
//!
//! What it does not do: measure more threads than this machine has cores for, or the bandwidth of memory and devices.

pub mod measured;
pub mod model;
pub mod report;
pub mod run;
