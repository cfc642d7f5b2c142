//! Latencies and costs of devices and processors.
//!
//! Sources: FlaZ (Makatos et al., EuroSys 2010) Table 1 for its disk and SSD; Nitro (Li et al., USENIX ATC 2014) 5.4
//! for the arrays and the measured rates of its SSD. Costs of hashing and compression are of one core of an AMD EPYC
//! with SHA and AVX-512 instructions, by criterion (BLAKE3, `lz4_flex`, Zstandard 1, zlib 6 at 8 KiB); older
//! processors are given as a multiple. From neither: seeks from one track to the next (1 ms), and the probability that
//! the rest of a stripe is in memory.

use zc_core::Codec;

/// A disk, or an array of equal ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskProfile {
    /// Disks that hold data.
    pub spindles: u32,
    /// Disks that a small write has to change besides the one with the data: 1 in RAID-5, 2 in RAID-6.
    pub parities: u32,
    /// Average seek in nanoseconds.
    pub seek_ns: u64,
    /// A turn in nanoseconds.
    pub turn_ns: u64,
    /// Bytes per second to and from one disk.
    pub bytes_per_s: u64,
    /// Bytes of a stripe on one disk.
    pub chunk_bytes: u64,
    /// Writes are answered from memory that keeps them, and go to disk when no client waits.
    pub write_memory_bytes: u64,
    /// Memory of zcached's store for its pages, if the data lie in one; 0 for data in place.
    pub store_memory_bytes: u64,
}

/// An SSD.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SsdProfile {
    /// Dies that work side by side.
    pub dies: u32,
    /// Bytes that a die reads or programs at once.
    pub page_bytes: u32,
    /// Nanoseconds for that.
    pub read_ns: u64,
    /// Nanoseconds for that.
    pub program_ns: u64,
    /// Bytes per second over the host's interface.
    pub bytes_per_s: u64,
    /// Overhead of interface and host per operation.
    pub operation_ns: u64,
}

/// Processors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuProfile {
    /// Cores.
    pub cores: u32,
    /// Multiple of the measured core's durations.
    pub slowness: f64,
}

/// All of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Name of the profile.
    pub name: &'static str,
    /// The origin.
    pub disk: DiskProfile,
    /// The cache device.
    pub ssd: SsdProfile,
    /// The host.
    pub cpu: CpuProfile,
}

const US: u64 = 1000;
const MB: u64 = 1_000_000;

const DISK_7200: DiskProfile = DiskProfile {
    spindles: 1,
    parities: 0,
    seek_ns: 8_430 * US,
    turn_ns: 8_333 * US,
    bytes_per_s: 100 * MB,
    chunk_bytes: 64 << 10,
    write_memory_bytes: 0,
    store_memory_bytes: 0,
};

/// Intel X25-E: 277 and 202 MB/s, 0.17 ms.
const SSD_X25E: SsdProfile = SsdProfile {
    dies: 10,
    page_bytes: 4096,
    read_ns: 90 * US,
    program_ns: 190 * US,
    bytes_per_s: 277 * MB,
    operation_ns: 65 * US,
};

/// Samsung at SATA-2: 18.7 thousand reads and 4.2 thousand writes of 8 KiB a second.
const SSD_SATA: SsdProfile = SsdProfile {
    dies: 4,
    page_bytes: 8192,
    read_ns: 205 * US,
    program_ns: 950 * US,
    bytes_per_s: 280 * MB,
    operation_ns: 25 * US,
};

/// Any NVMe drive of 2020 or later.
const SSD_NVME: SsdProfile = SsdProfile {
    dies: 64,
    page_bytes: 16_384,
    read_ns: 60 * US,
    program_ns: 600 * US,
    bytes_per_s: 3000 * MB,
    operation_ns: 10 * US,
};

/// All profiles.
pub const PROFILES: [Profile; 5] = [
    Profile { name: "hdd", disk: DISK_7200, ssd: SSD_NVME, cpu: CpuProfile::measured(2) },
    Profile {
        name: "flaz-1d1s",
        disk: DISK_7200,
        ssd: SSD_X25E,
        cpu: CpuProfile { cores: 8, slowness: 2.5 },
    },
    Profile {
        name: "flaz-8d2s",
        disk: DiskProfile { spindles: 8, ..DISK_7200 },
        ssd: SsdProfile { dies: 20, bytes_per_s: 554 * MB, ..SSD_X25E },
        cpu: CpuProfile { cores: 8, slowness: 2.5 },
    },
    // RAID-5 of 11 disks, memory on battery.
    Profile {
        name: "nitro-tps",
        disk: DiskProfile { spindles: 11, parities: 1, write_memory_bytes: 960 * MB, ..DISK_7200 },
        ssd: SSD_SATA,
        cpu: CpuProfile { cores: 4, slowness: 3.0 },
    },
    // RAID-6 of 12 disks, two of them spare, under a store of deduplicated data. Its server has 36 GB of memory, of which
    // less than half is for pages: a guess.
    Profile {
        name: "nitro-cos",
        disk: DiskProfile {
            spindles: 10,
            parities: 2,
            write_memory_bytes: 960 * MB,
            store_memory_bytes: 16_000 * MB,
            ..DISK_7200
        },
        ssd: SSD_SATA,
        cpu: CpuProfile { cores: 8, slowness: 2.5 },
    },
];

impl DiskProfile {
    /// Returns `true` if data lie in a store of ours.
    #[must_use]
    pub const fn is_store(&self) -> bool {
        self.store_memory_bytes > 0
    }
}

impl Profile {
    /// The profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }
}

/// Nanoseconds for 1024 bytes on the core that was measured.
const fn per_kib(codec: Codec) -> (u64, u64) {
    match codec {
        Codec::Raw => (0, 0),
        Codec::Lz4 => (1200, 350),
        Codec::Zlib(_) => (9750, 1530),
        Codec::Zstd(_) => (2375, 343),
    }
}
/// Cost of BLAKE3, in nanoseconds per KiB.
const HASH_PER_KIB: u64 = 219;
/// Cost of a request without data.
const REQUEST_NS: u64 = 4000;

impl CpuProfile {
    /// Cores of the measured kind.
    #[must_use]
    pub const fn measured(cores: u32) -> Self {
        Self { cores, slowness: 1.0 }
    }

    fn scaled(&self, ns: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small multiple of a time"
        )]
        let ns = (ns as f64 * self.slowness) as u64;
        ns
    }

    /// To take a request in and answer it.
    #[must_use]
    pub fn request_ns(&self) -> u64 {
        self.scaled(REQUEST_NS)
    }

    /// Returns the time to hash `bytes` bytes.
    #[must_use]
    pub fn hash_ns(&self, bytes: u64) -> u64 {
        self.scaled(bytes * HASH_PER_KIB / 1024)
    }

    /// To compress them.
    #[must_use]
    pub fn compress_ns(&self, codec: Codec, bytes: u64) -> u64 {
        self.scaled(bytes * per_kib(codec).0 / 1024)
    }

    /// To get them back.
    #[must_use]
    pub fn decompress_ns(&self, codec: Codec, bytes: u64) -> u64 {
        self.scaled(bytes * per_kib(codec).1 / 1024)
    }
}
