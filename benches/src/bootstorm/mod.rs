//! `cargo xtask bench bootstorm`: what the cache costs when many machines boot from clones of one image.
//!
//! Job: Figure 8 of the Nitro paper (Li et al., USENIX ATC 2014) on the daemon. Volumes are clones of a boot trace
//! ([`zc_trace::storm`]) with real bytes ([`zc_trace::contents`]); every machine has a connection and one request in
//! flight, with pauses between (a machine that boots does something with what it has read). The same boots go to a
//! daemon in pass-through over a copy of the same volumes on the same SSD. Ratios of read latencies: with a cache
//! that holds next to nothing (0 %) they tell what a miss costs more, with one that holds everything (100 %) what a hit
//! costs more than the same data uncompressed on the SSD.
//!
//! Invariants: the boots are cut into slices, and each slice goes to both daemons in turn, in alternating order, so that
//! what else the machine does hits both alike; a figure is the median over slices, a ratio the median of ratios within
//! slices. Cache file and origins are opened with direct I/O, read buffer and read-ahead are off: every hit comes from
//! the SSD, every miss from the origin. At 100 % boots are read until nothing is missed before anything is measured.
//!
//! What it does not do: judge, or compare contents with what was written (tests do). The paper's origin was a RAID of
//! hard disks, ours lies on the SSD: at 0 % an overhead of a few microseconds is a far larger share here.

pub mod chart;
pub mod daemon;
pub mod plan;
pub mod report;
pub mod run;
