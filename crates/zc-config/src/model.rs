//! The configuration as the daemon uses it: resolved, checked, in plain units.
//!
//! Job: one field per key, with what a volume inherits from the cache already filled in. What it does not do: remember
//! which values were written and which are defaults.

use std::net::SocketAddr;
use std::path::PathBuf;

use zc_core::units::{ByteSpan, SizeOrShare};
use zc_core::{Ack, Destage, Mode, Priority, words};
use zc_nbd::uri::NbdUri;

use crate::address::AddressRange;
use crate::key_lines::KeyLines;
use crate::limits;
use crate::window::DestageWindow;

words! {
    /// What a volume does when the cache device is lost with dirty data on it.
    OnCacheLoss {
        /// Every request fails.
        Error = "error",
        /// Reads of what is not dirty are served, everything else fails.
        ReadOnly = "read-only",
    }
}

words! {
    /// Which extents enter the cache.
    Admission {
        /// All.
        Always = "always",
        /// Read misses on their second time.
        SecondTouch = "second-touch",
        /// What brings more hits: all, or read misses on their second time.
        Auto = "auto",
        /// None.
        Never = "never",
    }
}

words! {
    /// The codec family.
    Compression {
        /// Stored as it is.
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
    /// The default level and the highest one; `None` for a codec without levels. The lowest is 1.
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
        /// Least recently used WEU.
        Lru = "lru",
        /// Oldest WEU, unless it is used much.
        FifoReinsert = "fifo-reinsert",
        /// S3-FIFO over WEUs.
        S3Fifo = "s3-fifo",
        /// Least recently used WEU, unless many addresses share its content.
        SharedLru = "shared-lru",
        /// Least recently used ones first, the emptier the sooner.
        CostBenefit = "cost-benefit",
    }
}

words! {
    /// Where extents go in a WEU.
    Packer {
        /// Behind the last one.
        Append = "append",
        /// In the fewest pages: the first gap that has room.
        FirstFit = "first-fit",
        /// In the fewest pages: the smallest gap that has room.
        BestFit = "best-fit",
    }
}

words! {
    /// Whether the NBD server offers TLS.
    Tls {
        /// No.
        Off = "off",
        /// At the client's choice.
        Allowed = "allowed",
        /// Nothing is served without.
        Required = "required",
    }
}

words! {
    /// How bytes come from the kernel's pages and go there.
    UblkCopy {
        /// As the kernel does it best.
        Auto = "auto",
        /// Along with the commands.
        Command = "command",
        /// By reads and writes of the character device.
        User = "user",
    }
}

words! {
    /// Whether the daemon gives something up before it serves.
    Confine {
        /// No.
        Off = "off",
        /// If the kernel lets it.
        Auto = "auto",
        /// Yes, or it does not start.
        Required = "required",
    }
}

/// Bound of the memory for indexes and slot tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxRam {
    /// By the size of the cache and the memory of the machine.
    Auto,
    /// So many bytes.
    Bytes(u64),
}

/// Size of the regions that are marked before they are written.
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
    /// Numbers for Prometheus.
    pub metrics: MetricsConfig,
    /// What the daemon gives up.
    pub sandbox: SandboxConfig,
    /// Logging.
    pub log: LogConfig,
    /// Where in the file the values stand, for messages about them.
    pub key_lines: KeyLines,
}

/// `[cache]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// File or block device.
    pub path: PathBuf,
    /// Size; a share is of the volumes' sizes. `None`: the size of what is at `path`.
    pub size: Option<SizeOrShare>,
    /// File or block device for the journal alone; `None`: the journal is on the cache device.
    pub journal_path: Option<PathBuf>,
    /// Size of a journal file that does not exist yet; `None`: 1/256 of the cache.
    pub journal_bytes: Option<u64>,
    /// Where pairing stamps and the intent log are kept.
    pub state_dir: PathBuf,
    /// Longest time that a start waits for a missing cache device, and for missing origins and stores in `/dev`.
    pub wait_max_ms: u64,
    /// Do not start without the cache device.
    pub required: bool,
    /// Size of a WEU.
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
    /// Discard slots before reuse. `None`: on a block device yes, in a file no.
    pub discard: Option<bool>,
    /// Direct I/O to the cache device. `false` only for file systems that have none.
    pub direct: bool,
    /// Hard cap of the RAM for indexes and slot tables.
    pub max_ram: MaxRam,
    /// Reduce workers; 0 = one per CPU, at most 8.
    pub reduce_threads: u16,
    /// CPUs of the reduce workers; empty = any.
    pub reduce_cpus: Vec<u16>,
    /// Threads that serve requests, each with a ring of its own.
    pub io_threads: u16,
    /// CPUs of the threads that serve requests; empty = any.
    pub shard_cpus: Vec<u16>,
    /// Longest time that the data plane looks for completions before it sleeps, in microseconds; 0 = off.
    pub poll_max_us: u32,
    /// Longest time of an operation of the cache device, after which the cache is out of order; 0 = any.
    pub device_deadline_ms: u64,
    /// Time after which a read of stored extents goes to the origin instead; 0 = it waits.
    pub slow_read_ms: u64,
    /// Oldest age of an open WEU.
    pub weu_max_age_ms: u64,
    /// Consecutive bytes after which read-ahead starts.
    pub prefetch_threshold_bytes: u32,
    /// Largest read-ahead; 0 = off.
    pub prefetch_max_bytes: u32,
    /// Read buffer; 0 = off.
    pub read_buffer_bytes: u32,
    /// Memory for fingerprints of what was evicted; 0 = off; `None` = a part of `max_ram`.
    pub learned_recipes_bytes: Option<u64>,
    /// Partly written extents kept.
    pub staging_bytes: u32,
    /// Bytes that may be on their way into the cache.
    pub insert_bytes_max: u32,
    /// Regions that may be marked at once.
    pub regions_active_max: u32,
    /// Region size.
    pub region_size: RegionSize,
    /// Replacement policy.
    pub policy: Policy,
    /// Where extents go in a WEU.
    pub packer: Packer,
    /// Share of the slots that may hold dirty extents, in per cent.
    pub dirty_high_percent: u8,
    /// Share of the slots from which on destaging runs without a pause, in per cent; not more than the above.
    pub dirty_low_percent: u8,
    /// Bytes of acknowledged writes that may be in memory alone.
    pub dirty_memory_bytes: u64,
    /// Destaging begins after so long without a request.
    pub destage_idle_ms: u64,
    /// When destaging may begin for that reason, if a volume does not say; empty: at any time.
    pub destage_window: Vec<DestageWindow>,
    /// Origin writes of one volume's destaging that may be in flight.
    pub destage_writes: u32,
    /// Bytes a second that destaging writes to all origins together; 0 = no bound.
    pub destage_bytes_per_s: u64,
    /// Dirty data is read back once in so long, to find what rots; 0 = never.
    pub dirty_scrub_ms: u64,
    /// Of the stored extents that reads get from the cache device, one in so many is hashed; 0 = none.
    pub prove_hits: u32,
}

/// `[[volume]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeConfig {
    /// Name of the volume and of its export.
    pub name: String,
    /// File or block device; for a volume of a store or an export of a server the text that names it.
    pub origin: PathBuf,
    /// The volume of a store that it is.
    pub in_store: Option<StoreOrigin>,
    /// The export of a server that it is.
    pub remote: Option<NbdUri>,
    /// Requests wait this long for an export that is out of reach; 0: for ever; `None`: as the mode says.
    pub outage_max_ms: Option<u64>,
    /// Size of a file origin that does not exist yet; it is created.
    pub create_bytes: Option<u64>,
    /// Mode.
    pub mode: Mode,
    /// When a write in write-back is acknowledged; `None`: durable if the journal is on persistent memory.
    pub ack: Option<Ack>,
    /// No dirty extent is to be older.
    pub max_dirty_age_ms: u64,
    /// In which order the origin gets it.
    pub destage: Destage,
    /// Times of day in which it gets it because no client asks for anything; empty: at any time.
    pub destage_window: Vec<DestageWindow>,
    /// What happens when dirty data is out of reach.
    pub on_cache_loss: OnCacheLoss,
    /// Wait of a write without room for an origin without space, before the write fails.
    pub full_wait_ms: u64,
    /// Admission.
    pub admission: Admission,
    /// Consecutive bytes after which a stream's data is not inserted; 0: none.
    pub sequential_cutoff_bytes: u64,
    /// Its clean content takes at most so much of the cache; no bytes: as much as there is.
    pub quota: SizeOrShare,
    /// Content of other volumes leaves so much of its content alone; no bytes: nothing.
    pub reserve: SizeOrShare,
    /// Whether it loses content before other volumes, or after them.
    pub priority: Priority,
    /// Ranges of it that are brought into the cache and stay there.
    pub pins: Vec<ByteSpan>,
    /// Share content.
    pub dedup: bool,
    /// With the volumes of this domain; empty: with all that name none.
    pub dedup_domain: String,
    /// Codec.
    pub compression: Compression,
    /// Its level; 0 for a codec without levels.
    pub compression_level: u8,
    /// Share of the fingerprints that are indexed, in per cent.
    pub index_share_percent: u8,
    /// Direct I/O for the origin; `None` = devices yes, files no.
    pub direct: Option<bool>,
    /// Its export.
    pub nbd: VolumeNbd,
    /// Its block device.
    pub ublk: VolumeUblk,
    /// How much its clients may ask for.
    pub limits: VolumeLimits,
}

impl VolumeConfig {
    /// Returns `true` if the origin is a file or block device.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.in_store.is_none() && self.remote.is_none()
    }

    /// Bound of the time that requests wait for a remote origin that is out of reach; `None`: they wait for ever.
    #[must_use]
    pub fn outage_bound_ms(&self) -> Option<u64> {
        outage_bound_ms(self.outage_max_ms, self.mode)
    }
}

/// As [`VolumeConfig::outage_bound_ms`], of a volume with this key and mode.
#[must_use]
pub fn outage_bound_ms(outage_max_ms: Option<u64>, mode: Mode) -> Option<u64> {
    let of_mode = if mode == Mode::WriteBack { 0 } else { limits::OUTAGE_DEFAULT_MS };
    Some(outage_max_ms.unwrap_or(of_mode)).filter(|ms| *ms > 0)
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
    /// Past the page cache; `None` = devices yes, files no.
    pub direct: Option<bool>,
    /// Memory for pages of its tables and maps.
    pub page_cache_bytes: u64,
    /// Memory for its fingerprints.
    pub fingerprint_index_bytes: u64,
    /// Threads that hash, compress and decode; 0 = automatic.
    pub workers: u32,
    /// Free space below which the cleaner works ahead while no client writes, in per cent.
    pub clean_below_percent: u8,
    /// Free space at which that ends, in per cent.
    pub clean_until_percent: u8,
    /// Bytes a second that it reads and writes while space is not short.
    pub clean_bytes_per_s: u64,
    /// `true` if it brings together on the device what lies side by side in a volume.
    pub gather: bool,
    /// Discard free segments while no client writes.
    pub discard: bool,
}

/// `[volume.limits]`. A rate of 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Requests a second, all together.
    pub iops: u32,
    /// Reads a second.
    pub read_iops: u32,
    /// Writes, trims and zeroings a second.
    pub write_iops: u32,
    /// Requests that each of these three lets through at once after a pause; `None` = those of a tenth of a second.
    pub iops_burst: Option<u32>,
    /// Bytes a second that are read and written, all together.
    pub bytes_per_s: u64,
    /// Bytes a second that are read.
    pub read_bytes_per_s: u64,
    /// Bytes a second that are written.
    pub write_bytes_per_s: u64,
    /// Bytes that each of these three lets through at once after a pause; `None` = those of a tenth of a second.
    pub bytes_burst: Option<u64>,
    /// Requests a second that the origin is asked, all together.
    pub origin_iops: u32,
    /// Bytes a second that the origin is asked to read and to write, all together.
    pub origin_bytes_per_s: u64,
}

impl VolumeLimits {
    /// What bounds clients.
    #[must_use]
    pub const fn of_clients(self) -> Self {
        Self { origin_iops: 0, origin_bytes_per_s: 0, ..self }
    }

    /// What bounds the use of the origin, as limits of all requests and bytes.
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
    /// How bytes are copied.
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
    /// Where Prometheus reads them over HTTP; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// Where a browser finds the live page; `None`: nowhere.
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
