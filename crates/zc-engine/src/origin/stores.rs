//! The stores of the daemon, and its connections to exports of servers (`remotes`).
//!
//! Job: open each store once, when a volume or an operator first needs it, and keep it open for all others. Invariants:
//! a store is open at most once; it stays open until the daemon ends, or until no volume uses it and an operator
//! closes it. Out of scope: reading and writing volumes (`origin`), and changing them (`control/store`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use zc_config::StoreConfig;
use zc_pool::Counters;
use zc_pool_io::{OpenError, OpenPool, PoolState, Settings};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::{FINGERPRINT_RAM_BYTES, STORE_WORKERS_AUTO_MAX};
use crate::origin::remotes::Remotes;
use crate::origin::store_looks::StoreLook;

/// Stores by name.
#[derive(Debug, Default)]
pub struct Stores {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Opens read-only: nothing on the devices is changed.
    look_only: bool,
    remotes: Remotes,
}

#[derive(Debug)]
struct Entry {
    config: StoreConfig,
    pool: Option<Arc<OpenPool>>,
}

impl Stores {
    /// The stores of a configuration, none of them open.
    pub fn new(configs: &[StoreConfig]) -> Self {
        let stores = Self::default();
        stores.add(configs);
        stores
    }

    /// Stores that are only inspected: writes to them stay in memory.
    pub fn to_look_at(configs: &[StoreConfig]) -> Self {
        Self { look_only: true, ..Self::new(configs) }
    }

    /// The exports of servers.
    pub const fn remotes(&self) -> &Remotes {
        &self.remotes
    }

    /// Adds the stores of a configuration that are new. The others stay as they were opened.
    pub(crate) fn add(&self, configs: &[StoreConfig]) {
        let mut entries = self.lock();
        for config in configs {
            entries
                .entry(config.name.clone())
                .or_insert_with(|| Entry { config: config.clone(), pool: None });
        }
    }

    /// Returns the states of the open stores, `None` while one is being opened. Blocks.
    pub fn looks(&self) -> Option<Vec<StoreLook>> {
        let open: Vec<(String, Arc<OpenPool>)> = {
            let entries = match self.entries.try_lock() {
                Ok(entries) => entries,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            let pools = entries.iter();
            pools.filter_map(|(name, entry)| Some((name.clone(), Arc::clone(entry.pool.as_ref()?)))).collect()
        };
        Some(open.into_iter().map(|(name, pool)| look(name, &pool)).collect())
    }

    /// The store of this name; opens it if it is not open. Blocks.
    pub fn open(&self, name: &str) -> Result<Arc<OpenPool>, EngineError> {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(name) else {
            let known = entries.keys().cloned().collect();
            return Err(EngineError::refused(Refusal::NoStore { store: name.to_owned(), known }));
        };
        // A store whose thread has ended is opened again when its last user has released it.
        if let Some(pool) = entry.pool.as_ref().filter(|pool| pool.client().uuid().is_some()) {
            return Ok(Arc::clone(pool));
        }
        entry.pool = None;
        let pool = OpenPool::open(&entry.config.path, self.settings(&entry.config)).map(Arc::new);
        let pool = pool.map_err(|error| refused(name, error))?;
        if !self.look_only {
            tracing::info!("store \"{name}\" ({}) is open", entry.config.path.display());
        }
        entry.pool = Some(Arc::clone(&pool));
        Ok(pool)
    }

    fn settings(&self, config: &StoreConfig) -> Settings {
        Settings { look_only: self.look_only, ..settings(config) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(name: String, pool: &OpenPool) -> StoreLook {
    let seen = pool.client().look_at_pool(|pool| {
        let store = pool.store();
        let all = zc_core::u64_from_usize(store.roots().count());
        let volumes = store.roots().filter(|(_, root)| root.kind == zc_store::RootKind::Volume).count();
        let volumes = zc_core::u64_from_usize(volumes);
        let space = store.space();
        let state = PoolState::of(&space, store.failure().is_some(), store.dropped_commits());
        (state, space, store.stats(), pool.counters(), volumes, all - volumes)
    });
    let nothing = || {
        let (space, stats) = (zc_store::Space::default(), zc_store::Stats::default());
        (PoolState::Failed, space, stats, Counters::default(), 0, 0)
    };
    // Without a reply the store's thread has ended.
    let (state, space, stats, counters, volumes, snapshots) = seen.unwrap_or_else(nothing);
    StoreLook {
        name,
        path: pool.path().to_owned(),
        state,
        torn: stats.torn,
        total_bytes: space.total_bytes,
        left_bytes: PoolState::left_bytes(&space),
        volumes,
        snapshots,
        pages_lost: stats.pages_lost,
        prints_known: counters.prints_known,
        prints_computed: counters.prints_computed,
        encodings_known: counters.encodings_known,
        encodings_computed: counters.encodings_computed,
        no_space: stats.no_space,
        no_space_before: 0,
    }
}

fn refused(name: &str, error: OpenError) -> EngineError {
    match error {
        OpenError::Io(error) => EngineError::File(error),
        error => EngineError::refused(Refusal::Store { store: name.to_owned(), error }),
    }
}

fn settings(config: &StoreConfig) -> Settings {
    let page_bytes = zc_core::u64_from_usize(zc_store::limits::PAGE_RAM_BYTES);
    let cache_pages = zc_core::usize_from_u64(config.page_cache_bytes / page_bytes);
    let store = zc_store::Config {
        cache_pages,
        dirty_pages_max: zc_store::Config::default().dirty_pages_max.min(cache_pages / 4),
        fingerprints_max: zc_core::usize_from_u64(config.fingerprint_index_bytes / FINGERPRINT_RAM_BYTES),
        clean_below_percent: config.clean_below_percent,
        clean_until_percent: config.clean_until_percent,
        discard: config.discard,
        clean_bytes_per_s: config.clean_bytes_per_s,
        gather: config.gather,
        ..zc_store::Config::default()
    };
    Settings { store, workers: workers(config.workers), direct: config.direct, look_only: false }
}

/// 0: half of the processors, at least one.
fn workers(wanted: u32) -> u32 {
    if wanted > 0 {
        return wanted;
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(processors / 2).unwrap_or(1).clamp(1, STORE_WORKERS_AUTO_MAX)
}
