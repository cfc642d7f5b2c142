//! Service without the cache device.
//!
//! Job: when a cache that served these origins before is missing at a start, or cannot be read or written, create a
//! placeholder: an empty cache in a small file in the state directory, which is reported to the data plane as failed
//! before the first request. Everything else is a start, and a session, like any other.
//!
//! # Soundness
//! - It is refused while any cache has dirty data of one of the origins: no client sees an origin without flushed
//!   data.
//! - Before anything is served, the state directory disowns any cache's contents of these origins: the origins are
//!   written without it, so its contents are invalid when it returns.
//! - The placeholder has the missing cache's identity, so that block devices are taken over as usual. Its own state
//!   lies in a separate folder, where no start searches for dirty data.
//!
//! It does not detect the return of the device. A restart does.

use std::path::PathBuf;

use zc_config::Config;
use zc_core::{Mode, hex};
use zc_io::{BlockFile, OpenOptions};

use crate::session::cache_device;
use zc_engine::error::EngineError;
use zc_engine::origin::Origin;
use zc_engine::state::state_dir::{self, OriginMark, Place};

/// Space for the metadata and a few of the largest units; almost none of it is ever written.
const PLACEHOLDER_BYTES: u64 = 64 << 20;

/// Returns the origins of a configuration with their identities in the state directory, including those to be created.
/// `writable`: only those that may be written.
pub(crate) fn paired_origins(
    config: &Config,
    origins: &[Option<Origin>],
    writable: bool,
) -> Result<Vec<Place>, EngineError> {
    let mut places = Vec::new();
    for (volume, origin) in config.volumes.iter().zip(origins) {
        if writable && volume.mode == Mode::ReadOnly {
            continue;
        }
        let identity = origin.as_ref().map(Origin::identity).transpose()?;
        places.push((state_dir::place_of(volume), identity.as_ref().map(OriginMark::of)));
    }
    Ok(places)
}

/// Makes the placeholder of the cache with this identity; returns the configuration with it.
pub(crate) fn make(config: &Config, uuid: &[u8; 16]) -> Result<Config, EngineError> {
    let dir = folder(config, uuid);
    let fail = |source| EngineError::io(format!("cannot make {} anew", dir.display()), source);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).map_err(fail)?;
    }
    zc_engine::state::private::create_dir(&dir).map_err(fail)?;
    let mut config = config.clone();
    let cache = &mut config.cache;
    cache.path = dir.join("cache");
    cache.state_dir.clone_from(&dir);
    (cache.size, cache.journal_path, cache.journal_bytes) = (None, None, None);
    (cache.direct, cache.discard) = (false, Some(false));
    let options = OpenOptions { direct: false, write: true, create_len: Some(PLACEHOLDER_BYTES) };
    let file = BlockFile::open(&cache.path, options)?;
    cache_device::format(&config, &file, None, *uuid)?;
    Ok(config)
}

/// Removes leftovers of an earlier start without the cache. Correctness does not depend on it.
pub(crate) fn clear(config: &Config, uuid: &[u8; 16]) {
    let dir = folder(config, uuid);
    if dir.exists()
        && let Err(error) = std::fs::remove_dir_all(&dir)
    {
        tracing::warn!("cannot remove {}: {error}", dir.display());
    }
}

fn folder(config: &Config, uuid: &[u8; 16]) -> PathBuf {
    config.cache.state_dir.join(format!("without-{}", hex(uuid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::cache_device::{CacheDevice, DirtyElsewhere};

    #[test]
    fn a_placeholder_can_be_made_for_every_layout_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        for (weu, extent) in [("4 MiB", "128 KiB"), ("2 MiB", "8 KiB"), ("32 KiB", "4 KiB")] {
            let text = format!(
                "[cache]\npath = \"/dev/none\"\nsize = \"1 GiB\"\nstate_dir = \"{}\"\nweu_size = \"{weu}\"\nextent_size = \
                 \"{extent}\"\nmax_ram = \"1 MiB\"\n[[volume]]\nname = \"v\"\norigin = \"/srv/v\"\n",
                dir.path().display()
            );
            let config = Config::parse(&text, "zcached.toml").unwrap();
            // The second time over the leftovers of a killed daemon.
            for _ in 0..2 {
                let made = make(&config, &[7; 16]).unwrap();
                assert!(made.cache.state_dir.starts_with(dir.path()) && made.cache.size.is_none());
                let device = CacheDevice::open(&made, 1 << 30, &DirtyElsewhere::default()).unwrap();
                assert_eq!(device.superblock.uuid, [7; 16]);
                device.manager_config(&made).unwrap();
            }
            clear(&config, &[7; 16]);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
