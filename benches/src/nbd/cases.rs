//! What is measured: cases, targets, and which goes with which.

use crate::load::{Content, Durability, Load, Op, Order};

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// fio on the file itself.
    Raw,
    /// A bare socket round trip with the same number of bytes.
    PingPong,
    /// Our null export.
    Null,
    /// nbdkit's null plugin.
    NbdkitNull,
    /// qemu-nbd with direct I/O and io_uring.
    Qemu,
    /// nbdkit's file plugin, from the page cache.
    NbdkitFile,
    /// The daemon, incompressible contents.
    ZcNoise,
    /// The daemon, contents that LZ4 halves.
    ZcHalving,
    /// The daemon, contents that LZ4 halves, every second extent a duplicate.
    ZcHalfDuplicate,
    /// The daemon in pass-through.
    PassThrough,
    /// Our null export that looks for requests before it sleeps (`poll_max`).
    NullPoll,
    /// As `ZcHalving`, of a daemon with `poll_max`.
    ZcPoll,
}

impl Target {
    /// All, in the order of tables.
    pub const ALL: [Self; 12] = [
        Self::Raw,
        Self::PingPong,
        Self::Null,
        Self::NbdkitNull,
        Self::Qemu,
        Self::NbdkitFile,
        Self::PassThrough,
        Self::ZcNoise,
        Self::ZcHalving,
        Self::ZcHalfDuplicate,
        Self::NullPoll,
        Self::ZcPoll,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "file itself (fio, io_uring, direct)",
            Self::PingPong => "bare socket round trip",
            Self::Null => "null export (zc-nbd)",
            Self::NbdkitNull => "nbdkit null",
            Self::Qemu => "qemu-nbd (direct, io_uring)",
            Self::NbdkitFile => "nbdkit file (page cache)",
            Self::ZcNoise => "zcached, incompressible",
            Self::ZcHalving => "zcached, 2:1",
            Self::ZcHalfDuplicate => "zcached, 2:1 and half duplicate",
            Self::PassThrough => "zcached, pass-through",
            Self::NullPoll => "null export (zc-nbd), poll_max = 100 us",
            Self::ZcPoll => "zcached, 2:1, poll_max = 100 us",
        }
    }

    /// The daemon's volume, for targets that are one.
    #[must_use]
    pub const fn volume(self) -> Option<&'static str> {
        match self {
            Self::ZcNoise => Some("noise"),
            Self::ZcHalving | Self::ZcPoll => Some("halving"),
            Self::ZcHalfDuplicate => Some("half-duplicate"),
            Self::PassThrough => Some("pass"),
            _ => None,
        }
    }

    /// What is written to the target.
    const fn content(self) -> Content {
        match self {
            Self::ZcHalving | Self::ZcPoll => Content::Halving,
            Self::ZcHalfDuplicate => Content::HalfDuplicate,
            _ => Content::Noise,
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Whether it reads or writes.
    pub writes: bool,
    /// Where.
    pub order: Order,
    /// Length of requests in bytes.
    pub block_bytes: u32,
    /// Requests in flight on each connection.
    pub depth: u32,
    /// Connections.
    pub connections: u32,
}

impl Case {
    /// `8k random read, QD32, 2 connections`.
    #[must_use]
    pub fn name(&self) -> String {
        let order = if self.order == Order::Random { "random" } else { "sequential" };
        let op = if self.writes { "write" } else { "read" };
        let plural = if self.connections == 1 { "" } else { "s" };
        let kib = self.block_bytes >> 10;
        format!("{kib}k {order} {op}, QD{}, {} connection{plural}", self.depth, self.connections)
    }

    /// The load for a target.
    #[must_use]
    pub const fn load(&self, target: Target, time_ns: u64, seed: u64) -> Load {
        Load {
            op: if self.writes { Op::Write(target.content()) } else { Op::Read },
            order: self.order,
            block_bytes: self.block_bytes,
            depth: self.depth,
            connections: self.connections,
            time_ns,
            durability: Durability::None,
            once: false,
            seed,
        }
    }

    /// Whether the daemon is looked into: a profile takes seconds, so for the cases that differ most.
    #[must_use]
    pub fn is_profiled(&self, target: Target) -> bool {
        target == Target::ZcNoise && self.block_bytes != 4 << 10 && self.connections == 1
    }

    /// Whether the target belongs into this case.
    #[must_use]
    pub fn has(&self, target: Target) -> bool {
        match target {
            Target::PingPong => !self.writes && self.depth == 1 && self.connections == 1,
            Target::Null | Target::NbdkitNull | Target::NullPoll | Target::ZcPoll => {
                !self.writes && self.order == Order::Random
            }
            Target::PassThrough => self.writes || self.order == Order::Sequential,
            _ => true,
        }
    }
}

const fn case(writes: bool, order: Order, block_kib: u32, depth: u32, connections: u32) -> Case {
    Case { writes, order, block_bytes: block_kib << 10, depth, connections }
}

/// Every case: reads first, because writes change what is there.
pub const CASES: [Case; 16] = [
    case(false, Order::Random, 8, 1, 1),
    case(false, Order::Random, 8, 32, 1),
    case(false, Order::Random, 8, 1, 2),
    case(false, Order::Random, 8, 32, 2),
    case(false, Order::Random, 4, 1, 1),
    case(false, Order::Random, 4, 32, 1),
    case(false, Order::Random, 4, 1, 2),
    case(false, Order::Random, 4, 32, 2),
    case(false, Order::Sequential, 128, 1, 1),
    case(false, Order::Sequential, 128, 8, 1),
    case(true, Order::Sequential, 128, 1, 1),
    case(true, Order::Sequential, 128, 8, 1),
    case(true, Order::Random, 8, 1, 1),
    case(true, Order::Random, 8, 32, 1),
    case(true, Order::Random, 4, 1, 1),
    case(true, Order::Random, 4, 32, 1),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_tell_cases_and_targets_apart() {
        let cases: BTreeSet<String> = CASES.iter().map(Case::name).collect();
        assert_eq!(cases.len(), CASES.len());
        let targets: BTreeSet<&str> = Target::ALL.iter().map(|target| target.name()).collect();
        assert_eq!(targets.len(), Target::ALL.len());
        assert!(cases.contains("8k random read, QD32, 2 connections"));
    }
}
