//! Settings of a store of format 2 while it is open.

use zc_core::HashKey;

/// The settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of encoded nodes in memory.
    pub cache_bytes: usize,
    /// Changed entries of maps at which a checkpoint begins.
    pub changes_max: usize,
    /// Bytes of log after which a checkpoint begins: what recovery reads at most.
    pub checkpoint_log_bytes: u64,
    /// Largest batch, unless one change needs more.
    pub batch_bytes_max: u32,
    /// Fingerprints in memory.
    pub prints_max: usize,
    /// Recover although the device lost a part of the log.
    pub accept_loss: bool,
    /// Key of the hash maps whose keys clients choose.
    pub hash_key: HashKey,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            changes_max: 64 << 10,
            checkpoint_log_bytes: 256 << 20,
            batch_bytes_max: 512 << 10,
            prints_max: 1 << 20,
            accept_loss: false,
            hash_key: HashKey::fixed(),
        }
    }
}
