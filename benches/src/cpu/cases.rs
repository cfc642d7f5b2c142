//! What is measured: cases, targets, and which goes with which.

use crate::load::{Content, Durability, Load, Op, Order};

/// A server, or one way to use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The floor: receive, raw I/O, send.
    Floor,
    /// The floor with one CRC-32C and one copy.
    FloorPlus,
    /// The floor without the file.
    FloorNull,
    /// A null export of the daemon's session machine and ring.
    Null,
    /// The daemon, write-through, contents that do not compress.
    Noise,
    /// The daemon, write-through, contents that LZ4 halves.
    Halving,
    /// The daemon, write-back, contents that do not compress.
    BackNoise,
    /// The daemon, write-back, contents that LZ4 halves.
    BackHalving,
    /// The daemon in pass-through.
    PassThrough,
    /// qemu-nbd with direct I/O and io_uring.
    Qemu,
    /// nbdkit's file plugin, from the page cache.
    NbdkitFile,
}

impl Target {
    /// All, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Floor,
        Self::FloorPlus,
        Self::Noise,
        Self::Halving,
        Self::BackNoise,
        Self::BackHalving,
        Self::PassThrough,
        Self::Qemu,
        Self::NbdkitFile,
        Self::FloorNull,
        Self::Null,
    ];

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::FloorPlus => "floor +",
            Self::FloorNull => "floor, null",
            Self::Null => "null export (zc-nbd)",
            Self::Noise => "zcached, noise",
            Self::Halving => "zcached, LZ4",
            Self::BackNoise => "zcached, write-back, noise",
            Self::BackHalving => "zcached, write-back, LZ4",
            Self::PassThrough => "zcached, pass-through",
            Self::Qemu => "qemu-nbd",
            Self::NbdkitFile => "nbdkit file (page cache)",
        }
    }

    /// The export; for targets that are the daemon, its volume.
    #[must_use]
    pub const fn export(self) -> &'static str {
        match self {
            Self::Floor => "raw",
            Self::FloorPlus => "plus",
            Self::FloorNull => "null",
            Self::Noise => "noise",
            Self::Halving => "halving",
            Self::BackNoise => "back-noise",
            Self::BackHalving => "back-halving",
            Self::PassThrough => "pass",
            Self::Null | Self::Qemu | Self::NbdkitFile => "",
        }
    }

    /// Whether it is a volume of the daemon.
    #[must_use]
    pub const fn is_daemon(self) -> bool {
        matches!(self, Self::Noise | Self::Halving | Self::BackNoise | Self::BackHalving | Self::PassThrough)
    }

    /// Whether it is a volume in write-back.
    #[must_use]
    pub const fn is_write_back(self) -> bool {
        matches!(self, Self::BackNoise | Self::BackHalving)
    }

    /// What is written to it.
    #[must_use]
    pub const fn content(self) -> Content {
        match self {
            Self::Halving | Self::BackHalving => Content::Halving,
            _ => Content::Noise,
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Whether it writes; else it reads what is cached.
    pub writes: bool,
    /// Length of requests in bytes.
    pub block_bytes: u32,
    /// Requests in flight, over all connections.
    pub depth: u32,
    /// Connections.
    pub connections: u32,
    /// Over TCP; else over a Unix socket.
    pub tcp: bool,
    /// With TLS over TCP.
    pub tls: bool,
    /// Server and load generator share a core.
    pub one_core: bool,
}

impl Case {
    /// `8k hit, QD32, 4 connections, TCP, one core`.
    #[must_use]
    pub fn name(&self) -> String {
        let op = if self.writes { "write" } else { "hit" };
        let mut name = format!("{}k {op}, QD{}", self.block_bytes >> 10, self.depth);
        if self.connections > 1 {
            name.push_str(&format!(", {} connections", self.connections));
        }
        if self.tls {
            name.push_str(", TLS");
        } else if self.tcp {
            name.push_str(", TCP");
        }
        if self.one_core {
            name.push_str(", one core");
        }
        name
    }

    /// The load for a target.
    #[must_use]
    pub fn load(&self, target: Target, time_ns: u64, seed: u64) -> Load {
        let op = if self.writes { Op::Write(target.content()) } else { Op::Read };
        let order = if self.block_bytes > 8 << 10 { Order::Sequential } else { Order::Random };
        Load {
            op,
            order,
            block_bytes: self.block_bytes,
            depth: (self.depth / self.connections).max(1),
            connections: self.connections,
            time_ns,
            durability: Durability::None,
            once: false,
            seed,
        }
    }

    /// Whether the target belongs into this case.
    #[must_use]
    pub const fn has(&self, target: Target) -> bool {
        if self.tls && !target.is_daemon() {
            return false;
        }
        match target {
            Target::BackNoise | Target::BackHalving => self.writes,
            Target::FloorNull => !self.writes,
            Target::Null => !self.writes && !self.tcp,
            Target::Qemu | Target::NbdkitFile => !self.tcp,
            Target::Floor | Target::FloorPlus | Target::Noise | Target::Halving | Target::PassThrough => true,
        }
    }
}

const fn case(writes: bool, kib: u32, depth: u32) -> Case {
    Case { writes, block_bytes: kib << 10, depth, connections: 1, tcp: false, tls: false, one_core: false }
}

/// 8 KiB hits one at a time, server and load generator on one core.
pub const HIT_QD1_ONE_CORE: Case = Case { one_core: true, ..case(false, 8, 1) };
/// 8 KiB hits, 32 in flight.
pub const HIT_QD32: Case = case(false, 8, 32);
/// 4 KiB hits, 32 in flight.
pub const HIT_4K_QD32: Case = case(false, 4, 32);
/// 128 KiB hits, 8 in flight.
pub const HIT_128K_QD8: Case = case(false, 128, 8);
/// Writes.
pub const WRITES: [Case; 3] = [case(true, 8, 32), case(true, 4, 32), case(true, 128, 8)];

/// Every case: hits first, because writes change what is there.
pub const CASES: [Case; 12] = [
    case(false, 8, 1),
    HIT_QD1_ONE_CORE,
    HIT_QD32,
    Case { connections: 4, ..HIT_QD32 },
    Case { tcp: true, ..HIT_QD32 },
    Case { tcp: true, tls: true, ..HIT_QD32 },
    HIT_4K_QD32,
    HIT_128K_QD8,
    Case { tcp: true, tls: true, ..HIT_128K_QD8 },
    WRITES[0],
    WRITES[1],
    WRITES[2],
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_tell_cases_and_targets_apart() {
        let cases: BTreeSet<String> = CASES.iter().map(Case::name).collect();
        assert_eq!(cases.len(), CASES.len());
        assert!(cases.contains("8k hit, QD32, 4 connections"));
        assert!(cases.contains("8k hit, QD1, one core"));
        let targets: BTreeSet<&str> = Target::ALL.iter().map(|target| target.name()).collect();
        assert_eq!(targets.len(), Target::ALL.len());
    }

    #[test]
    fn connections_share_the_requests_in_flight() {
        let load = CASES[3].load(Target::Floor, 1, 1);
        assert_eq!((load.connections, load.depth), (4, 8));
        assert_eq!(Case { connections: 4, ..CASES[0] }.load(Target::Floor, 1, 1).depth, 1);
    }
}
