//! The resolved configuration: checked, in plain units.
//!
//! Job: one field per key, with values inherited from the cache filled in. It does not distinguish configured values
//! from defaults.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use zc_core::units::{ByteSpan, SizeOrShare};
use zc_core::{Ack, Destage, Mode, Priority, words};
use zc_nbd::uri::NbdUri;

use crate::address::AddressRange;
use crate::key_lines::KeyLines;
use crate::limits;
use crate::window::DestageWindow;

words! {
    /// Reaction of a volume to the loss of the cache device with dirty data.
    OnCacheLoss {
        /// Every request fails.
        Error = "error",
        /// Reads of clean data are served, everything else fails.
        ReadOnly = "read-only",
    }
}

words! {
    /// Extents that enter the cache.
    Admission {
        /// All.
        Always = "always",
        /// Read misses on their second access.
        SecondTouch = "second-touch",
        /// The policy with more hits: all, or read misses on their second access.
        Auto = "auto",
        /// None.
        Never = "never",
    }
}

words! {
    /// The codec family.
    Compression {
        /// Stored uncompressed.
        None = "none",
        /// LZ4.
        Lz4 = "lz4",
        /// zlib, levels 1-9.
        Zlib = "zlib",
        /// Zstandard, levels 1-19.
        Zstd = "zstd",
    }
}

impl Compression {
    /// Returns the default level and the highest one; `None` for a codec without levels. The lowest is 1.
    #[must_use]
    pub const fn levels(self) -> Option<(u8, u8)> {
        match self {
            Self::None | Self::Lz4 => None,
            Self::Zlib => Some((6, 9)),
            Self::Zstd => Some((1, 19)),
        }
    }
}

words! {
    /// The fingerprint function.
    Fingerprint {
        /// BLAKE3, 256 bits.
        Blake3 = "blake3",
        /// SHA-1; bytes are compared before content is shared.
        Sha1 = "sha1",
    }
}

words! {
    /// The replacement policy.
    Policy {
        /// Least recently used unit.
        Lru = "lru",
        /// Oldest unit, unless it is frequently used.
        FifoReinsert = "fifo-reinsert",
        /// S3-FIFO over units.
        S3Fifo = "s3-fifo",
        /// Least recently used unit, unless many addresses share its content.
        SharedLru = "shared-lru",
        /// Least recently used units first, emptier ones sooner.
        CostBenefit = "cost-benefit",
    }
}

words! {
    /// Placement of extents in a unit.
    Packer {
        /// After the last one.
        Append = "append",
        /// In the fewest pages: the first sufficient gap.
        FirstFit = "first-fit",
        /// In the fewest pages: the smallest sufficient gap.
        BestFit = "best-fit",
    }
}

words! {
    /// TLS policy of the NBD server.
    Tls {
        /// Not offered.
        Off = "off",
        /// At the client's choice.
        Allowed = "allowed",
        /// Nothing is served without TLS.
        Required = "required",
    }
}

words! {
    /// Copy mode between the kernel's pages and the daemon.
    UblkCopy {
        /// The kernel's best mode.
        Auto = "auto",
        /// In commands.
        Command = "command",
        /// By reads and writes of the character device.
        User = "user",
    }
}

words! {
    /// Requirement level of a sandbox step.
    Confine {
        /// Not applied.
        Off = "off",
        /// Applied if the kernel allows it.
        Auto = "auto",
        /// Applied, or the daemon does not start.
        Required = "required",
    }
}

/// Bound of the memory for indexes and slot tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxRam {
    /// Derived from the size of the cache and the memory of the machine.
    Auto,
    /// Bytes.
    Bytes(u64),
}

/// Size of the regions that are marked before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionSize {
    /// The volume's size divided by 512, at least 1 MiB.
    Auto,
    /// Bytes, a power of two.
    Bytes(u64),
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The cache.
    pub cache: CacheConfig,
    /// The stores.
    pub stores: Vec<StoreConfig>,
    /// The volumes.
    pub volumes: Vec<VolumeConfig>,
    /// The NBD server.
    pub nbd: NbdConfig,
    /// The control socket.
    pub control: ControlConfig,
    /// Metrics for Prometheus.
    pub metrics: MetricsConfig,
    /// Sandbox.
    pub sandbox: SandboxConfig,
    /// Logging.
    pub log: LogConfig,
    /// Positions of the values in the file, for messages.
    pub key_lines: KeyLines,
}

/// `[cache]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// File or block device.
    pub path: PathBuf,
    /// Size; a share is relative to the sum of the volumes' sizes. `None`: the size of the file or device at `path`.
    pub size: Option<SizeOrShare>,
    /// File or block device of the journal; `None`: the journal is on the cache device.
    pub journal_path: Option<PathBuf>,
    /// Size of a journal file that does not exist yet; `None`: 1/256 of the cache.
    pub journal_bytes: Option<u64>,
    /// Folder of pairing stamps and the intent log.
    pub state_dir: PathBuf,
    /// Longest time that a start waits for a missing cache device, and for missing origins and stores in `/dev`.
    pub wait_max_ms: u64,
    /// Refuse to start without the cache device.
    pub required: bool,
    /// Size of a unit.
    pub weu_bytes: u32,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// Default codec of volumes.
    pub compression: Compression,
    /// Its level; 0 for a codec without levels.
    pub compression_level: u8,
    /// Fingerprint function.
    pub fingerprint: Fingerprint,
    /// Fingerprint index entries per file index entry, in per cent.
    pub fingerprint_index_percent: u8,
    /// Default of volumes: share content.
    pub dedup: bool,
    /// Discard slots before reuse. `None`: on block devices, not in files.
    pub discard: Option<bool>,
    /// Direct I/O to the cache device. `false` only for file systems without it.
    pub direct: bool,
    /// Bound of the RAM for indexes and slot tables.
    pub max_ram: MaxRam,
    /// Reduce workers; 0 = one per CPU, at most 8.
    pub reduce_threads: u16,
    /// CPUs of the reduce workers; empty = any.
    pub reduce_cpus: Vec<u16>,
    /// I/O threads, each with a ring of its own.
    pub io_threads: u16,
    /// CPUs of the I/O threads; empty = any.
    pub shard_cpus: Vec<u16>,
    /// Longest polling of completions before the data plane sleeps, in microseconds; 0 = off.
    pub poll_max_us: u32,
    /// Deadline of a cache device operation, after which the cache is taken offline; 0 = none.
    pub device_deadline_ms: u64,
    /// Time after which a read of stored extents falls back to the origin; 0 = never.
    pub slow_read_ms: u64,
    /// Age at which an open unit is written.
    pub weu_max_age_ms: u64,
    /// Sequential bytes after which prefetch starts.
    pub prefetch_threshold_bytes: u32,
    /// Largest prefetch; 0 = off.
    pub prefetch_max_bytes: u32,
    /// Read buffer; 0 = off.
    pub read_buffer_bytes: u32,
    /// Memory for fingerprints of evicted extents; 0 = off; `None` = a part of `max_ram`.
    pub learned_recipes_bytes: Option<u64>,
    /// Bytes of staged (partially written) extents.
    pub staging_bytes: u32,
    /// Bytes of insertions in flight.
    pub insert_bytes_max: u32,
    /// Regions that may be marked at the same time.
    pub regions_active_max: u32,
    /// Region size.
    pub region_size: RegionSize,
    /// Replacement policy.
    pub policy: Policy,
    /// Placement of extents in a unit.
    pub packer: Packer,
    /// Share of the slots that may hold dirty extents, in per cent.
    pub dirty_high_percent: u8,
    /// Share of dirty slots above which destaging runs continuously, in per cent; at most the value above.
    pub dirty_low_percent: u8,
    /// Bytes of acknowledged writes that may exist in memory alone.
    pub dirty_memory_bytes: u64,
    /// Idle time after which destaging starts.
    pub destage_idle_ms: u64,
    /// Default windows of idle destaging; empty: at any time.
    pub destage_window: Vec<DestageWindow>,
    /// Destage writes of one volume in flight.
    pub destage_writes: u32,
    /// Bytes per second of destaging over all origins; 0 = unlimited.
    pub destage_bytes_per_s: u64,
    /// Interval in which dirty data is read back to detect corruption; 0 = never.
    pub dirty_scrub_ms: u64,
    /// One in this number of extents read from the cache device is hashed; 0 = none.
    pub prove_hits: u32,
}

/// `[[volume]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Name of the volume and of its export.
    pub name: String,
    /// File or block device; for a volume of a store or an NBD export, its text.
    pub origin: PathBuf,
    /// The store volume, if it is one.
    pub in_store: Option<StoreOrigin>,
    /// The NBD export, if it is one.
    pub remote: Option<NbdUri>,
    /// TLS of its connection, for an origin with the scheme `nbds`.
    pub origin_tls: OriginTls,
    /// Connections to it, if the server says that a flush of one covers all.
    pub connections: u32,
    /// Time limits of the origin.
    pub reach: OriginReach,
    /// Size of a file origin that is created if it does not exist.
    pub create_bytes: Option<u64>,
    /// Mode.
    pub mode: Mode,
    /// Time of acknowledgement in write-back; `None`: durable if the journal is on persistent memory.
    pub ack: Option<Ack>,
    /// Age at which dirty extents are destaged.
    pub max_dirty_age_ms: u64,
    /// Order of destaging.
    pub destage: Destage,
    /// Times of day of idle destaging; empty: at any time.
    pub destage_window: Vec<DestageWindow>,
    /// Reaction to unreachable dirty data.
    pub on_cache_loss: OnCacheLoss,
    /// Wait of a write when neither cache nor origin has free space, before the write fails.
    pub full_wait_ms: u64,
    /// Admission.
    pub admission: Admission,
    /// Sequential bytes after which a stream is not inserted; 0: unlimited.
    pub sequential_cutoff_bytes: u64,
    /// Most of the cache that its clean content takes; no bytes: unlimited.
    pub quota: SizeOrShare,
    /// Capacity that content of other volumes leaves to it; no bytes: none.
    pub reserve: SizeOrShare,
    /// Order of eviction relative to other volumes.
    pub priority: Priority,
    /// Ranges that are brought into the cache and stay there.
    pub pins: Vec<ByteSpan>,
    /// Share content.
    pub dedup: bool,
    /// Name of its dedup domain; empty: the common domain.
    pub dedup_domain: String,
    /// Codec.
    pub compression: Compression,
    /// Its level; 0 for a codec without levels.
    pub compression_level: u8,
    /// Share of the fingerprints that are indexed, in per cent.
    pub index_share_percent: u8,
    /// Direct I/O for the origin; `None`: for devices, not for files.
    pub direct: Option<bool>,
    /// Its export.
    pub nbd: VolumeNbd,
    /// Its block device.
    pub ublk: VolumeUblk,
    /// Limits of its clients.
    pub limits: VolumeLimits,
}

impl VolumeConfig {
    /// Returns `true` if the origin is a file or block device.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.in_store.is_none() && self.remote.is_none()
    }
}

/// Time limits of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginReach {
    /// Age of a request at which a file, a device or a volume of a store counts as unreachable; 0: never.
    pub deadline_ms: u64,
    /// Time that requests wait for an unreachable origin; 0: forever; `None`: depends on origin and mode.
    pub outage_max_ms: Option<u64>,
}

impl OriginReach {
    /// Returns the longest wait of requests for an unreachable export; `None`: unbounded.
    #[must_use]
    pub fn remote_bound_ms(&self, mode: Mode) -> Option<u64> {
        self.bound_ms(mode, limits::OUTAGE_DEFAULT_MS)
    }

    /// Returns the longest wait of requests for an unreachable origin on this machine; `None`: unbounded.
    #[must_use]
    pub fn local_bound_ms(&self, mode: Mode) -> Option<u64> {
        self.bound_ms(mode, limits::LOCAL_OUTAGE_DEFAULT_MS)
    }

    fn bound_ms(&self, mode: Mode, default_ms: u64) -> Option<u64> {
        let of_mode = if mode == Mode::WriteBack { 0 } else { default_ms };
        Some(self.outage_max_ms.unwrap_or(of_mode)).filter(|ms| *ms > 0)
    }
}

/// `[volume.origin_tls]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OriginTls {
    /// Authorities that may sign the server's certificate; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate that is shown to the server, with those between it and the authority.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// Name in the server's certificate; `None`: the host, for a Unix socket `localhost`.
    pub server_name: Option<String>,
}

impl OriginTls {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.ca, &self.certificate, &self.key].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// An origin that is a volume or snapshot of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOrigin {
    /// The name of the store.
    pub store: String,
    /// The name of the volume there, or `VOLUME@SNAPSHOT`.
    pub volume: String,
}

/// `[[store]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Name of the store.
    pub name: String,
    /// File or block device.
    pub path: PathBuf,
    /// Direct I/O; `None`: for devices, not for files.
    pub direct: Option<bool>,
    /// Memory for pages of its tables and maps.
    pub page_cache_bytes: u64,
    /// Memory for its fingerprints.
    pub fingerprint_index_bytes: u64,
    /// Threads that hash, compress and decode; 0 = automatic.
    pub workers: u32,
    /// Free space, in per cent, below which the cleaner runs while clients are idle.
    pub clean_below_percent: u8,
    /// Free space at which the cleaner stops, in per cent.
    pub clean_until_percent: u8,
    /// Bytes per second of the cleaner while free space is sufficient.
    pub clean_bytes_per_s: u64,
    /// `true` if the cleaner places neighbours of a volume contiguously on the device.
    pub gather: bool,
    /// Discard free segments while no client writes.
    pub discard: bool,
}

/// `[volume.limits]`. A rate of 0 is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Requests per second, all together.
    pub iops: u32,
    /// Reads per second.
    pub read_iops: u32,
    /// Writes, trims and zeroings per second.
    pub write_iops: u32,
    /// Burst of each of these three after a pause, in requests; `None`: a tenth of a second's.
    pub iops_burst: Option<u32>,
    /// Bytes per second read and written, all together.
    pub bytes_per_s: u64,
    /// Bytes per second read.
    pub read_bytes_per_s: u64,
    /// Bytes per second written.
    pub write_bytes_per_s: u64,
    /// Burst of each of these three after a pause, in bytes; `None`: a tenth of a second's.
    pub bytes_burst: Option<u64>,
    /// Requests per second to the origin, all together.
    pub origin_iops: u32,
    /// Bytes per second read from and written to the origin, all together.
    pub origin_bytes_per_s: u64,
}

impl VolumeLimits {
    /// Returns the limits of clients.
    #[must_use]
    pub const fn of_clients(self) -> Self {
        Self { origin_iops: 0, origin_bytes_per_s: 0, ..self }
    }

    /// Returns the limits of the origin, as limits of all requests and bytes.
    #[must_use]
    pub fn of_origin(self) -> Self {
        Self { iops: self.origin_iops, bytes_per_s: self.origin_bytes_per_s, ..Self::default() }
    }
}

/// `[volume.ublk]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeUblk {
    /// Attached when the daemon starts.
    pub attach: bool,
    /// Queues.
    pub queues: u16,
    /// Requests per queue.
    pub queue_depth: u16,
    /// Largest request.
    pub request_bytes_max: u32,
    /// Copy mode.
    pub copy: UblkCopy,
}

/// `[volume.nbd]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeNbd {
    /// `true` if it is exported.
    pub export: bool,
    /// Description for clients that list.
    pub description: String,
    /// Writes are refused on this export.
    pub read_only: bool,
    /// TCP clients from these addresses only; empty = from anywhere.
    pub allow: Vec<AddressRange>,
    /// Clients over TLS only.
    pub tls: bool,
    /// Clients with a certificate that has one of these DNS names only; empty = any.
    pub allow_certificates: Vec<String>,
}

/// `[nbd]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdConfig {
    /// TCP addresses.
    pub listen: Vec<SocketAddr>,
    /// Unix sockets.
    pub unix: Vec<PathBuf>,
    /// Their mode.
    pub unix_mode: u32,
    /// Their group; `None` = that of the daemon.
    pub unix_group: Option<String>,
    /// TCP clients from these addresses only; empty = from anywhere.
    pub allow: Vec<AddressRange>,
    /// TLS. With it, certificate and key are there.
    pub tls: Tls,
    /// The server's certificate and those that lead to its authority, in PEM form.
    pub tls_certificate: Option<PathBuf>,
    /// Its private key, in PEM form.
    pub tls_key: Option<PathBuf>,
    /// Authorities of which every client must show a certificate, in PEM form.
    pub tls_client_ca: Option<PathBuf>,
    /// Lists of the certificates that these authorities have revoked, in PEM form. `None` = no list is asked.
    pub tls_client_crl: Option<PathBuf>,
    /// Most connections.
    pub connections_max: u32,
    /// Most connections of one client (an IPv4 address, an IPv6 prefix, a user on Unix sockets); 0 = no bound of its own,
    /// `None` = half of all for an address, no bound for a user.
    pub connections_per_client_max: Option<u32>,
    /// Bits of an IPv6 address that tell one client from another.
    pub ipv6_client_prefix: u8,
    /// Most requests in flight per connection.
    pub requests_in_flight_max: u32,
    /// Most bytes of requests in flight over all connections.
    pub bytes_in_flight_max: u64,
    /// Most bytes of requests in flight, and of replies not taken, per connection.
    pub bytes_in_flight_per_connection_max: u64,
    /// A client that has not chosen an export by then is dropped.
    pub handshake_timeout_ms: u64,
    /// A client that stops within a request, or does not take replies whose memory is wanted, is dropped after that.
    pub stall_timeout_ms: u64,
    /// A client that asks for nothing, or does not take its replies, is dropped after that; 0 = never.
    pub idle_timeout_ms: u64,
    /// Silence after which the kernel asks a TCP client whether it is alive; 0 = it does not ask.
    pub keepalive_ms: u64,
}

impl NbdConfig {
    /// Takes over from `running` what only a restart can change: the listening sockets.
    pub fn keep_sockets(&mut self, running: Self) {
        self.listen = running.listen;
        self.unix = running.unix;
        self.unix_mode = running.unix_mode;
        self.unix_group = running.unix_group;
    }
}

/// `[control]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlConfig {
    /// The control socket.
    pub socket: PathBuf,
}

/// `[metrics]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Address of the metrics endpoint for Prometheus; `None`: off.
    pub listen: Option<SocketAddr>,
    /// Address of the live page; `None`: off.
    pub page: Option<SocketAddr>,
}

impl MetricsConfig {
    /// Every address that is listened on.
    pub fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(&self.page)
    }
}

/// `[sandbox]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// The user that the daemon becomes, by name or as `UID:GID`; `None`: it stays what it is.
    pub user: Option<String>,
    /// Give up capabilities that are of no use.
    pub capabilities: Confine,
    /// Bound files and TCP ports.
    pub landlock: Confine,
    /// Folders that stay in reach besides those of the configuration.
    pub paths: Vec<PathBuf>,
    /// Bound system calls.
    pub seccomp: Confine,
    /// A crash may write the memory of the daemon to a file, and its user may debug it.
    pub core_dumps: bool,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Level or filter in the form of `RUST_LOG`.
    pub level: String,
}
