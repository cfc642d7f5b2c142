//! A device that replaces the cache while the daemon serves.
//!
//! Job: open and lock it, refuse it if it has contents, is unusable or in use, and create a cache on it.
//!
//! Invariants: opening changes nothing. The new cache has the identity of the replaced one, so that the kernel's block
//! devices are taken over after a restart as usual. Its sessions begin above all of the old one's, which distinguishes
//! earlier contents of either device; a returning old device is an older image.
//!
//! It does not end the old cache's session, or start one (`control/replace` does).

use std::sync::Arc;

use zc_cache::startup as cache_startup;
use zc_config::Config;
use zc_format::{Features, Superblock};
use zc_io::{BlockFile, OpenOptions};

use crate::session::cache_device::{self, CacheDevice, NewFiles};
use crate::session::distinct::check_distinct;
use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;
use zc_engine::state::media::FileMedia;
use zc_engine::state::state_dir;

/// A device that may become the cache.
#[derive(Debug, Clone)]
pub(crate) struct NewDevice {
    file: Arc<BlockFile>,
}

impl NewDevice {
    /// Opens the device that a configuration names as its cache. With `force` it may have any contents except dirty
    /// data. `now`: the identity of the replaced cache.
    pub(crate) fn open(config: &Config, now: &[u8; 16], force: bool) -> Result<Self, EngineError> {
        check_distinct(config)?;
        let options = OpenOptions { direct: config.cache.direct, write: true, create_len: None };
        let file = BlockFile::open(&config.cache.path, options).map_err(EngineError::of_cache_device)?;
        let found = cache_startup::read_superblock(&mut FileMedia { cache: &file, journal: None });
        if force {
            check_owes_nothing(config, &file, found.ok().filter(|found| found.uuid != *now))?;
        } else {
            check_unused(&file, found)?;
        }
        Self::of(config, file)
    }

    /// The device that is the cache now, as long as it has become.
    pub(crate) fn again(config: &Config, cache: &BlockFile) -> Result<Self, EngineError> {
        let file = cache.measured_again().map_err(EngineError::of_cache_device)?;
        Self::of(config, file)
    }

    fn of(config: &Config, file: BlockFile) -> Result<Self, EngineError> {
        cache_device::check_new_device(config, &file)?;
        Ok(Self { file: Arc::new(file) })
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    /// Creates an unregistered empty cache on it. Its contents are lost.
    pub(crate) fn make_empty(&self, config: &Config) -> Result<(), EngineError> {
        make_empty(config, &self.file)
    }

    /// Makes it the cache with this identity, whose sessions are above `session`.
    pub(crate) fn become_cache(
        &self,
        config: &Config,
        uuid: [u8; 16],
        session: u64,
    ) -> Result<CacheDevice, EngineError> {
        let superblock = cache_device::format_above(config, &self.file, None, uuid, session)?;
        Ok(CacheDevice {
            file: Arc::clone(&self.file),
            journal: None,
            superblock,
            journal_lost: false,
            new_files: NewFiles::default(),
        })
    }
}

/// Creates an unregistered empty cache on a device.
pub(crate) fn make_empty(config: &Config, file: &BlockFile) -> Result<(), EngineError> {
    cache_device::format(config, file, None, uuid::Uuid::new_v4().into_bytes()).map(drop)
}

/// Refuses a device with contents. A cache without any session counts as empty.
fn check_unused(
    file: &BlockFile,
    found: Result<Superblock, cache_startup::StartError>,
) -> Result<(), EngineError> {
    let used =
        |what: String| EngineError::refused(Refusal::DeviceUsed { place: file.path().to_owned(), what });
    match found {
        Ok(superblock) if is_fresh(&superblock) => return Ok(()),
        Ok(_) => return Err(used("is a cache that was used".to_owned())),
        Err(cache_startup::StartError::NotACache) => {}
        Err(error) => return Err(used(format!("holds a cache: {error}"))),
    }
    match file.first_filled().map_err(EngineError::of_cache_device)? {
        None => Ok(()),
        Some(at) => Err(used(format!("contains data (byte {at} is not zero)"))),
    }
}

/// Refuses another cache that may have dirty data, despite `force`: `zcctl format` names it.
fn check_owes_nothing(
    config: &Config,
    file: &BlockFile,
    found: Option<Superblock>,
) -> Result<(), EngineError> {
    let Some(found) = found else { return Ok(()) };
    let may_be_dirty = found.features.incompat & Features::WRITE_BACK != 0;
    let dir = &config.cache.state_dir;
    let is_known = state_dir::has_seen(dir, &found.uuid, found.session)?;
    let owes = state_dir::peek(dir, &found.uuid)?.volumes.values().any(|entry| entry.dirty);
    if may_be_dirty && (owes || !is_known) {
        return Err(EngineError::refused(Refusal::DeviceOwes(file.path().to_owned())));
    }
    Ok(())
}

/// Returns `true` if no session has begun since the cache was formatted.
const fn is_fresh(superblock: &Superblock) -> bool {
    superblock.clean && superblock.session == superblock.created_unix_s
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn config(dir: &std::path::Path) -> Config {
        let text = format!(
            "[cache]\npath = \"{0}/new\"\nstate_dir = \"{0}/state\"\nweu_size = \"256 KiB\"\ndirect = \
             false\n[[volume]]\nname = \
             \"v\"\norigin = \"{0}/v\"\n",
            dir.display()
        );
        Config::parse(&text, "zcached.toml").unwrap()
    }

    #[test]
    fn what_holds_anything_is_refused_and_an_unused_cache_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        std::fs::write(&config.cache.path, b"something").unwrap();
        let file = std::fs::File::options().write(true).open(&config.cache.path).unwrap();
        file.set_len(32 * MIB).unwrap();
        let error = NewDevice::open(&config, &[7; 16], false).unwrap_err().to_string();
        assert!(error.contains("byte 0") && error.contains("--force"), "{error}");
        let new = NewDevice::open(&config, &[7; 16], true).unwrap();
        let error = NewDevice::open(&config, &[7; 16], true).unwrap_err();
        assert!(error.is_in_use(), "{error}");
        new.make_empty(&config).unwrap();
        drop(new);
        let new = NewDevice::open(&config, &[7; 16], false).unwrap();
        // Above the old cache's sessions, for any clock.
        let device = new.become_cache(&config, [7; 16], u64::MAX / 2).unwrap();
        assert_eq!((device.superblock.uuid, device.superblock.session), ([7; 16], u64::MAX / 2 + 1));
        drop((new, device));
        assert!(NewDevice::open(&config, &[7; 16], false).is_ok(), "no session has begun on it");
    }

    #[test]
    fn another_cache_that_may_have_what_an_origin_lacks_is_refused_even_then() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        std::fs::write(&config.cache.path, b"").unwrap();
        std::fs::File::options().write(true).open(&config.cache.path).unwrap().set_len(32 * MIB).unwrap();
        let new = NewDevice::open(&config, &[7; 16], false).unwrap();
        let mut superblock = new.become_cache(&config, [9; 16], 0).unwrap().superblock;
        superblock.features.incompat |= Features::WRITE_BACK;
        superblock.sequence += 1;
        let mut media = FileMedia { cache: &new.file, journal: None };
        cache_startup::write_superblock(&mut media, &superblock).unwrap();
        drop(new);
        let error = NewDevice::open(&config, &[7; 16], true).unwrap_err().to_string();
        assert!(error.contains("--discard-dirty"), "{error}");
        // An older image of the cache itself has no unreported loss.
        NewDevice::open(&config, &[9; 16], true).unwrap();
    }

    #[test]
    fn a_device_on_which_no_cache_fits_and_an_origin_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        std::fs::write(&config.cache.path, [0; 4096]).unwrap();
        NewDevice::open(&config, &[7; 16], false).unwrap_err();
        config.cache.path.clone_from(&config.volumes[0].origin);
        std::fs::write(&config.cache.path, b"").unwrap();
        let error = NewDevice::open(&config, &[7; 16], true).unwrap_err();
        assert!(error.is_refusal(), "{error}");
    }
}
