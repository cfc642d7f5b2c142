//! State shared by threads: connections, served volumes.
//!
//! The data plane writes connections; volumes are written at the start, and by the control plane when a command
//! changes their mode, size or device. All parts may read.

use std::path::PathBuf;

use dashmap::DashMap;
use serde::Serialize;

/// A client connection.
#[derive(Debug, Clone, Serialize)]
pub struct Connection {
    /// Its listener.
    pub listener: String,
    /// Client: an IP address, or the user of a Unix socket.
    pub peer: String,
    /// The export it chose.
    pub export: Option<String>,
    /// When it was accepted, in milliseconds since the start of the daemon.
    pub accepted_ms: u64,
}

impl Connection {
    pub(crate) fn new(listener: String, peer: String, accepted_ms: u64) -> Self {
        Self { listener, peer, export: None, accepted_ms }
    }
}

/// A volume.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeInfo {
    /// Its number on media.
    pub id: u16,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its mode.
    pub mode: String,
    /// In write-back, when a write is acknowledged: `volatile`, in memory, or `durable`, on the cache device.
    pub ack: Option<&'static str>,
    /// In write-back, in which order the origin gets it: `epoch`, as flushes divide it, or `coalesce`.
    pub destage: Option<&'static str>,
    /// In write-back, how old the oldest epoch that is not on the origin may become, in milliseconds.
    pub max_dirty_age_ms: Option<u64>,
    /// Its origin.
    pub origin: PathBuf,
    /// Deduplication domain; empty: the default one.
    pub dedup_domain: String,
    /// Reason why its cache contents were distrusted at the start, if they were.
    pub cold_reason: Option<String>,
    /// The length in bytes to which its origin was truncated while it was served.
    pub origin_truncated_bytes: Option<u64>,
    /// NBD clients may choose it.
    pub exported: bool,
    /// The daemon attaches it as a ublk device when it starts.
    pub attaches: bool,
    /// Its ublk device, if any.
    pub device: Option<String>,
}

/// The tables.
#[derive(Debug, Default)]
pub struct Registry {
    /// Connections by number.
    pub connections: DashMap<u64, Connection>,
    /// Volumes by name.
    pub volumes: DashMap<String, VolumeInfo>,
}
