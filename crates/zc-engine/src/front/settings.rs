//! From the configuration's words to those of the front end; `zc_config::manager` has those of the manager.

use std::hash::{BuildHasher, RandomState};

use zc_cache::config as cache;
use zc_config::{CacheConfig, Config, VolumeConfig};
use zc_core::{HashKey, Mode, VolumeId};
use zc_io::limits::RING_OPS_MAX;
use zc_nbd::server::{BlockSizes, ExportFlags, ExportInfo};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::front::access::{Export, Rules};
use crate::front::admission::Bounds;
use crate::limits::{CLOSING_MAX, CONNECTIONS_LIVE, HANDSHAKE_PLACES, RING_WORK_OPS};

/// Sockets in the ring besides those of attached clients.
const OTHER_SOCKETS: usize = CLOSING_MAX + HANDSHAKE_PLACES;

/// Most reduce threads by default.
const REDUCE_THREADS_AUTO_MAX: usize = 8;

/// Bounds of the front end.
#[derive(Debug, Clone, Copy)]
pub struct FrontLimits {
    pub(crate) connections: usize,
    /// Bounds of an address and of a user; 0 = none.
    pub(crate) connections_per_address: usize,
    pub(crate) connections_per_user: usize,
    /// Bits of an IPv6 address that distinguish clients.
    pub(crate) ipv6_prefix_bits: u8,
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
    pub(crate) bytes_per_connection: u64,
    pub(crate) handshake_ms: u64,
    pub(crate) stall_ms: u64,
    /// 0 = off, as the next.
    pub(crate) idle_ms: u64,
    pub(crate) keepalive_ms: u64,
}

impl FrontLimits {
    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            attached: self.connections,
            per_address: self.connections_per_address,
            per_user: self.connections_per_user,
        }
    }
}

/// Threads, processors and bounds of a shard.
#[derive(Debug)]
pub struct ShardSettings {
    pub(crate) reduce_threads: u32,
    /// Processors of the workers and of the I/O threads; any if empty.
    pub(crate) reduce_cpus: Vec<usize>,
    pub(crate) shard_cpus: Vec<usize>,
    /// Longest polling for completions before sleeping; 0 = none.
    pub(crate) poll_max_us: u32,
    /// Threads with a ring, one at least.
    pub(crate) io_threads: usize,
    /// Places of each ring.
    pub(crate) ring_ops: usize,
    pub(crate) limits: FrontLimits,
}

impl ShardSettings {
    /// Translates the configuration.
    ///
    /// # Errors
    /// When a ring cannot have as many places as it needs.
    pub fn new(config: &Config) -> Result<Self, EngineError> {
        let cache = &config.cache;
        let cpus = |cpus: &[u16]| cpus.iter().map(|&cpu| usize::from(cpu)).collect();
        Ok(Self {
            reduce_threads: reduce_threads(cache.reduce_threads),
            reduce_cpus: cpus(&cache.reduce_cpus),
            shard_cpus: cpus(&cache.shard_cpus),
            poll_max_us: poll_max_us(cache.poll_max_us),
            io_threads: usize::from(cache.io_threads),
            ring_ops: ring_ops(config)?,
            limits: front_limits(config),
        })
    }
}

/// Returns the bounds of the front end.
pub(crate) fn front_limits(config: &Config) -> FrontLimits {
    let nbd = &config.nbd;
    FrontLimits {
        connections: zc_core::usize_from_u32(nbd.connections_max),
        connections_per_address: zc_core::usize_from_u32(
            nbd.connections_per_client_max.unwrap_or_else(|| nbd.connections_max.div_ceil(2)),
        ),
        connections_per_user: zc_core::usize_from_u32(nbd.connections_per_client_max.unwrap_or(0)),
        ipv6_prefix_bits: nbd.ipv6_client_prefix,
        requests: nbd.requests_in_flight_max,
        bytes: nbd.bytes_in_flight_max,
        bytes_per_connection: nbd.bytes_in_flight_per_connection_max,
        handshake_ms: nbd.handshake_timeout_ms,
        stall_ms: nbd.stall_timeout_ms,
        idle_ms: nbd.idle_timeout_ms,
        keepalive_ms: nbd.keepalive_ms,
    }
}

/// When a write of a write-back volume is acknowledged.
pub fn ack_name(config: &cache::VolumeConfig) -> Option<&'static str> {
    (config.mode == Mode::WriteBack).then(|| config.write_back.ack.word())
}

/// In which order the origin of a write-back volume gets its data.
pub fn destage_name(config: &cache::VolumeConfig) -> Option<&'static str> {
    (config.mode == Mode::WriteBack).then(|| config.write_back.destage.word())
}

/// Returns the bound of the age of a write-back volume's dirty data.
pub fn max_dirty_age_ms(config: &cache::VolumeConfig) -> Option<u64> {
    (config.mode == Mode::WriteBack).then_some(config.write_back.max_dirty_age_ms)
}

/// Returns `true` if the journal has a place of its own that is persistent memory: writing there costs next to
/// nothing.
pub fn has_durable_journal(config: &CacheConfig) -> bool {
    config.journal_path.as_deref().is_some_and(zc_io::is_persistent_memory)
}

/// Returns the volumes that may acknowledge writes from memory. One with dirty data of an earlier session uses
/// write-back until it is clean, in any mode.
pub fn early<'a>(volumes: impl IntoIterator<Item = (&'a String, &'a cache::VolumeConfig)>) -> Vec<String> {
    let is_early = |config: &cache::VolumeConfig| {
        let writes_back = config.mode == Mode::WriteBack || config.may_be_dirty;
        writes_back && config.write_back.ack == zc_core::Ack::Volatile
    };
    let early = volumes.into_iter().filter(|(_, config)| is_early(config));
    early.map(|(name, _)| name.clone()).collect()
}

/// Returns a volume's export with its access rules.
pub fn export(volume: &VolumeConfig, id: VolumeId, size_bytes: u64) -> Export {
    let read_only = volume.nbd.read_only || volume.mode == Mode::ReadOnly;
    let info = ExportInfo {
        name: volume.name.clone(),
        description: volume.nbd.description.clone(),
        size_bytes,
        flags: ExportFlags {
            read_only,
            rotational: false,
            // One shard orders all connections, and a flush covers every acknowledged write of any of them.
            multi_conn: true,
            flush: true,
            fua: true,
            trim: !read_only,
            write_zeroes: !read_only,
            // Fails at once if zeros would have to be written, as the flag requires.
            fast_zero: !read_only,
            cache: true,
        },
        blocks: BlockSizes::DEFAULT,
        contexts: vec![zc_nbd::proto::BASE_ALLOCATION.to_owned(), zc_nbd::proto::RESIDENCY.to_owned()],
        token: u64::from(id.0),
    };
    Export { info, rules: Rules::new(&volume.nbd) }
}

/// Returns the operations of the shard's ring: one for each connection and for each request of a block device, which
/// are occupied even while idle, and capacity for work.
///
/// # Errors
/// When the ring cannot hold those of all attached devices: work would wait for an entry forever.
pub fn ring_ops(config: &Config) -> Result<usize, EngineError> {
    let connections = zc_core::usize_from_u32(config.nbd.connections_max) + OTHER_SOCKETS;
    let at_once: usize = config.volumes.iter().filter(|volume| volume.ublk.attach).map(tags_of).sum();
    if connections + at_once + RING_WORK_OPS > RING_OPS_MAX {
        let most = RING_OPS_MAX - RING_WORK_OPS;
        return Err(EngineError::refused(Refusal::TooManyRequests { connections, at_once, most }));
    }
    let ever: usize = config.volumes.iter().map(tags_of).sum();
    let connections = connections.max(CONNECTIONS_LIVE + OTHER_SOCKETS);
    Ok((connections + ever + RING_WORK_OPS).min(RING_OPS_MAX))
}

/// Requests that a volume's block device may have.
fn tags_of(volume: &VolumeConfig) -> usize {
    usize::from(volume.ublk.queues) * usize::from(volume.ublk.queue_depth)
}

/// Returns the connections that the ring of a daemon started with this configuration can hold, besides all block
/// devices.
pub fn connections_most(config: &Config) -> u32 {
    let ever: usize = config.volumes.iter().map(tags_of).sum();
    let left = RING_OPS_MAX.saturating_sub(RING_WORK_OPS + OTHER_SOCKETS + ever);
    let left = u32::try_from(left.min(CONNECTIONS_LIVE)).unwrap_or(u32::MAX);
    left.max(config.nbd.connections_max)
}

/// Returns a key for hash maps over client-chosen keys.
pub fn hash_key() -> HashKey {
    HashKey::random(RandomState::new().hash_one(0))
}

/// List of online processors, such as "0-3,8".
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";

/// Returns the longest polling for completions: none on a machine with one processor, which polling would keep from
/// producing them. A process bound to one of several processors may poll: the others produce completions at the same
/// time.
fn poll_max_us(setting_us: u32) -> u32 {
    let online = std::fs::read_to_string(ONLINE_CPUS).ok().and_then(|list| cpus_in(&list));
    let cpus = online.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    if cpus.is_some_and(|cpus| cpus > 1) { setting_us } else { 0 }
}

/// Returns the number of processors in a list of the kernel; `None` if it is invalid.
fn cpus_in(list: &str) -> Option<usize> {
    let mut count: usize = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Reduce threads for a setting of which 0 means automatic.
fn reduce_threads(setting: u16) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let auto = u32::try_from(cpus.min(REDUCE_THREADS_AUTO_MAX)).unwrap_or(1);
    if setting == 0 { auto } else { u32::from(setting) }
}

#[cfg(test)]
pub(crate) const LIMITS_OF_TESTS: FrontLimits = FrontLimits {
    connections: 1,
    connections_per_address: 0,
    connections_per_user: 0,
    ipv6_prefix_bits: 64,
    requests: 16,
    bytes: 64 << 20,
    bytes_per_connection: 32 << 20,
    handshake_ms: 1000,
    stall_ms: 5000,
    idle_ms: 2000,
    keepalive_ms: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn config(connections: u32, volumes: u32, ublk: &str) -> Config {
        let mut text = format!(
            "[cache]\npath = \"/c\"\nsize = \"1 GiB\"\n[nbd]\nlisten = [\"127.0.0.1:1\"]\nconnections_max = {connections}\n"
        );
        for number in 0..volumes {
            text.push_str(&format!("[[volume]]\nname = \"v{number}\"\norigin = \"/o{number}\"\n{ublk}\n"));
        }
        Config::parse(&text, "test").unwrap()
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(["0\n", "0-1\n", "0-3,8", "2,4-5"].map(cpus_in), [Some(1), Some(2), Some(5), Some(3)]);
        assert_eq!(["", "3-1", "a"].map(cpus_in), [None; 3]);
    }

    #[test]
    fn the_ring_has_a_place_for_whatever_waits_and_room_for_work() {
        let with = |connections, volumes, ublk| ring_ops(&config(connections, volumes, ublk));
        assert_eq!(with(100, 1, "").unwrap(), CONNECTIONS_LIVE + OTHER_SOCKETS + 128 + RING_WORK_OPS);
        let deep = "ublk.attach = true\nublk.queues = 4\nublk.queue_depth = 1024";
        assert_eq!(with(5000, 4, deep).unwrap(), 5000 + OTHER_SOCKETS + 4 * 4096 + RING_WORK_OPS);
        assert!(with(100, 14, deep).unwrap_err().to_string().contains("57344 requests of block devices"));
        with(65_536, 1, "").unwrap_err();
        assert_eq!(with(100, 1000, "").unwrap(), RING_OPS_MAX, "those that are not attached need not fit");
        let most = |connections, volumes, ublk| connections_most(&config(connections, volumes, ublk));
        assert_eq!((most(100, 1, ""), most(5000, 1, "")), (4096, 5000));
        assert_eq!(most(100, 1000, ""), 100, "a raise would take the places of devices");
    }
}
