//! `cargo xtask bench nbd`: the daemon beside other servers, the file itself and a bare socket, in one interleaved run.
//!
//! Job: in each round every target gets a short run of every case, in rotating order, so that what else the machine
//! does hits all alike; figures are medians over rounds, ratios are medians of ratios within rounds.
//!
//! Invariants: the same client with the same requests for every server. CPU is that of the server's process alone.
//! System calls are counted in runs of their own, because counting them costs time.
//!
//! What a run said (8 KiB random reads that all hit, incompressible unless said, one SSD read per hit; two cores that
//! ten other processes used too, so medians of latencies and CPU per request count and rates do not):
//!
//! | | reached | goal |
//! |---|---|---|
//! | QD1, median latency to (file + bare round trip): 60.1 us to 49.4 + 5.2 us; 2:1: 63.3 us | 1.10; 1.16 | 1.05 |
//! | QD32, server CPU per request: file 3.3 us, null export 0.6 us, zcached 9.1 us (2:1: 15 us), qemu-nbd 20 us | | |
//! | QD32, rate to the file's (not told apart from the load) | 0.25 to 0.44 | 0.95 |
//! | QD32, median latency of qemu-nbd to zcached's: 894 us to 644 us | 1.39 | 1.25 |
//! | null export to the bare round trip, QD1, medians: 5.2 us to 7.6 us | 0.68 | 0.9 |
//! | null export to nbdkit's null, QD32, 2 connections: 628,000/s to 173,000/s | 3.6 | 2 |
//!
//! A hit at QD1 is two system calls, at QD32 a sixth of one. At QD1 86 % of the shard's time is in the kernel (waking
//! up, kicking the virtual disk); at QD32 CRC-32C takes 9 %, the stream table 4 %, the file index 3 %, allocation
//! 4 %; of 2:1 contents LZ4 takes a quarter. Writes were measured on a disk that others wrote to and say nothing yet.
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
