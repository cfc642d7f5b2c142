//! `cargo xtask bench nbd`: the daemon beside other servers, the file itself and a bare socket, in one interleaved run.
//!
//! Job: in each round every target gets a short run of every case, in rotating order, so that what else the machine
//! does hits all alike; figures are medians over rounds, ratios are medians of ratios within rounds.
//!
//! Invariants: the same client with the same requests for every server. CPU is that of the server's process alone.
//! System calls are counted in runs of their own, because counting them costs time.
//!
//! What it does not do: judge. The report names goals and what was reached.

pub mod bench;
pub mod cases;
pub mod chart;
pub mod daemon;
pub mod floor;
pub mod report;
pub mod servers;
pub mod usage;
