//! Builds a shard from a configuration.
//!
//! Job, in this order: check everything possible without opening; open origins and the cache (locked); check their
//! pairing; bind the sockets; only then start a session on the cache. A refusal up to that point changes nothing,
//! except for a cache file or origin whose creation was configured. A missing cache is waited for; then the start
//! continues without it (`without_cache`), if allowed.
//!
//! It does not read unit headers or compare a sample of cached extents with the origin (the manager does both while
//! clients are served).

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::startup as cache_startup;
use zc_config::Config;
use zc_core::{JournalSeq, Map, VolumeId, usize_from_u64};
use zc_format::{Features, Geometry, Record, Superblock, VOLUME_TABLE_BYTES, VolumeRecord, VolumeTable};
use zc_io::{BlockFile, EventFd, Identity};

use crate::http::Web;
use crate::program::StartOptions;
use crate::session::absent::{self, Absent};
use crate::session::cache_device::{CacheDevice, DirtyElsewhere, DirtyRecord, check_dirty_elsewhere};
use crate::session::distinct::check_distinct;
use crate::session::origins;
use crate::session::pair::{self, Candidate, Known, Paired, RisksBefore};
use crate::session::patience;
use crate::session::serving;
use crate::session::without_cache;
use zc_engine::clock::Clock;
use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;
use zc_engine::front::listen::{Access, Listener, SocketPath, bind_unix, group_id};
use zc_engine::front::settings;
use zc_engine::front::ublk::Plan;
use zc_engine::origin::stores::Stores;
use zc_engine::origin::{Origin, OriginStat};
use zc_engine::registry::Registry;
use zc_engine::shard::close::Closer;
use zc_engine::shard::commands::Mailbox;
use zc_engine::shard::device::Device;
use zc_engine::shard::dispatch::ShardParts;
use zc_engine::state::boot::boot_id;
use zc_engine::state::intent::{self, IntentLog, IntentOwner};
use zc_engine::state::ledger::{Ledger, OnMedia};
use zc_engine::state::risk::{self, RiskFile};
use zc_engine::state::seen;
use zc_engine::state::state_dir::{self, OriginMark, State, StateDir, VolumeState};

/// Retries of a resource in use: 5 s in total.
const IN_USE_ATTEMPTS: u32 = 100;
/// Retries before it is logged: a killed process's resources are usually released sooner.
const IN_USE_SILENT: u32 = 10;

pub(crate) struct Opened {
    pub(crate) parts: ShardParts,
    pub(crate) closer: Closer,
    pub(crate) control_socket: (UnixListener, SocketPath),
    /// Listeners of metrics and live page, if configured.
    pub(crate) web: Web<TcpListener>,
    /// Settings of the volumes by name, as the manager has them.
    pub(crate) volumes: Vec<(String, VolumeConfig)>,
    pub(crate) ledger: Arc<Ledger>,
    /// Plan of each volume's ublk device.
    pub(crate) ublk: Vec<Plan>,
    /// The cache device is missing, and a placeholder replaces it.
    pub(crate) without_cache: bool,
}

struct Sockets {
    listeners: Vec<Listener>,
    control: (UnixListener, SocketPath),
    web: Web<TcpListener>,
}

/// Opened and judged resources, before the start of a session.
struct Prepared {
    origins: Vec<Option<Origin>>,
    sizes: Vec<u64>,
    device: CacheDevice,
    manager_config: ManagerConfig,
    state: Arc<StateDir>,
    paired: Vec<Paired>,
    sockets: Sockets,
}

/// Inputs of a start besides its configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// Clients may be on other machines.
    pub(crate) remote: bool,
    /// Volumes that the configuration does not name because their origins cannot be opened.
    pub(crate) absent: &'a [Absent],
    pub(crate) stores: &'a Stores,
    /// The cache is real, not a placeholder.
    pub(crate) has_cache: bool,
}

/// Prepares with retries of resources in use: the kernel closes the files and sockets of a killed daemon only when the
/// last operations of its ring have completed, a moment after the process is gone. The same applies to a known cache
/// device that is not found yet.
fn prepare_patiently(
    config: &Config,
    options: &StartOptions,
    around: Surroundings<'_>,
) -> Result<Prepared, EngineError> {
    let mut attempts = IN_USE_ATTEMPTS;
    let mut waits = patience::pauses(config.cache.wait_max_ms);
    let mut is_told = false;
    loop {
        match prepare(config, options, around) {
            Err(error) if error.is_in_use() && attempts > 0 => {
                if attempts == IN_USE_ATTEMPTS - IN_USE_SILENT {
                    tracing::warn!("{error}; waiting for it");
                }
                attempts -= 1;
            }
            Err(EngineError::CacheMissing { why })
                if waits > 0 && last_cache(config, around.stores)?.is_some() =>
            {
                waits -= 1;
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!("{why}; waiting up to {} ms for it", config.cache.wait_max_ms);
                }
            }
            result => return result,
        }
        patience::pause();
    }
}

/// Returns the cache that served the origins last, according to the state directory.
fn last_cache(config: &Config, stores: &Stores) -> Result<Option<[u8; 16]>, EngineError> {
    let places = without_cache::paired_origins(config, &origins::open_existing(config, stores)?, false)?;
    state_dir::last_of(&config.cache.state_dir, &places)
}

fn prepare(
    config: &Config,
    options: &StartOptions,
    around: Surroundings<'_>,
) -> Result<Prepared, EngineError> {
    check_distinct(config)?;
    check_answers(config, options)?;
    settings::ring_ops(config)?;
    let origins = origins::open_existing(config, around.stores)?;
    let sizes = origins::sizes(config, &origins)?;
    let dirty_elsewhere = DirtyElsewhere {
        served: dirty_elsewhere(config, options, &origins)?,
        absent: absent::dirty_elsewhere(config, around.absent)?,
    };
    // Before sockets are bound: nothing listens while a start waits for its cache.
    CacheDevice::check_place(config, &dirty_elsewhere)?;
    // Before a cache is made: a socket that is in use is a refusal.
    let sockets = bind(config)?;
    let device = CacheDevice::open(config, sizes.iter().sum(), &dirty_elsewhere)?;
    check_volume_table(config, &device)?;
    let manager_config = device.manager_config(config)?;
    // A placeholder has the cache's identity, and must not change that cache's records.
    let run_dir = state_dir::run_dir(config).filter(|_| around.has_cache);
    let uuid = &device.superblock.uuid;
    let state = Arc::new(StateDir::open(&config.cache.state_dir, run_dir.as_deref(), uuid)?);
    let paired = pair_with(config, options, around.remote, &device, &state, (&origins, &sizes))?;
    Ok(Prepared { origins, sizes, device, manager_config, state, paired, sockets })
}

/// Pairs the origins with the cache. `remote`: clients may be on other machines.
fn pair_with(
    config: &Config,
    options: &StartOptions,
    remote: bool,
    device: &CacheDevice,
    state: &StateDir,
    (origins, sizes): (&[Option<Origin>], &[u64]),
) -> Result<Vec<Paired>, EngineError> {
    let superblock = &device.superblock;
    let snapshot = state.snapshot();
    let boot_id = boot_id();
    let risks = state.risk_place().find(|path| risk::read_of(path, superblock, boot_id));
    // Those of another boot are gone, unless they are on other machines.
    let clients_may_live = remote || superblock.boot_id == boot_id;
    let answers =
        pair::Answers { trust: &options.trust_dirty, drop: &options.drop_dirty, cold: &options.cold_volumes };
    let known = Known {
        cache_path: &config.cache.path,
        table: &read_volume_table(&device.file, &superblock.geometry),
        session: superblock.session,
        clean: superblock.clean,
        state: &snapshot,
        cold: options.cold,
        when: pair::When::Start,
        answers,
        risks: RisksBefore { said: risks.as_ref(), clients_may_live },
    };
    let found = found(config, origins, &snapshot, superblock.boot_id)?;
    let paired = judge(config, &known, &found, sizes)?;
    if pair::older_image(&known).is_some() {
        // Of volumes that are not served, too, before the new session hides it.
        state.doubt_dirty()?;
    }
    Ok(paired)
}

/// Answers of the operator are for volumes that there are, and one for each.
fn check_answers(config: &Config, options: &StartOptions) -> Result<(), EngineError> {
    let is_known = |name: &String| config.volumes.iter().any(|volume| volume.name == *name);
    let StartOptions { trust_dirty, drop_dirty, cold_volumes, .. } = options;
    if let Some(name) = trust_dirty.iter().chain(drop_dirty).chain(cold_volumes).find(|name| !is_known(name))
    {
        let known = config.volumes.iter().map(|volume| volume.name.clone()).collect();
        return Err(EngineError::refused(Refusal::AnswerForNone { volume: name.clone(), known }));
    }
    match trust_dirty.iter().find(|name| drop_dirty.contains(name)) {
        Some(name) => Err(EngineError::refused(Refusal::TwoAnswers(name.clone()))),
        None => Ok(()),
    }
}

/// Returns the dirty data of the configured origins in caches of this state directory. An operator's decision to
/// discard it removes the record of another cache; `pair` does so for this one.
pub(crate) fn dirty_elsewhere(
    config: &Config,
    options: &StartOptions,
    origins: &[Option<Origin>],
) -> Result<Vec<DirtyRecord>, EngineError> {
    let mut dirty_elsewhere = Vec::new();
    for remembered in state_dir::remembered_dirty(&config.cache.state_dir)? {
        for (volume, origin) in config.volumes.iter().zip(origins) {
            let mark = origin.as_ref().map(Origin::identity).transpose()?.map(|found| OriginMark::of(&found));
            if !remembered.is_of(&state_dir::place_of(volume), mark.as_ref()) {
                continue;
            }
            if options.drop_dirty.contains(&volume.name) {
                tracing::warn!(
                    "volume \"{}\": the dirty data on the cache {} is dropped, as requested with --drop-dirty; \
                     these writes are lost",
                    volume.name,
                    remembered.cache
                );
                remembered.forget()?;
                continue;
            }
            let (volume, cache, known_as) =
                (volume.name.clone(), remembered.cache.clone(), remembered.volume.clone());
            dirty_elsewhere.push(DirtyRecord { volume, cache, known_as });
        }
    }
    Ok(dirty_elsewhere)
}

pub(crate) fn open(
    config: &Config,
    options: &StartOptions,
    around: Surroundings<'_>,
) -> Result<Opened, EngineError> {
    // io_uring is required: report its absence here instead of from the data plane's thread.
    zc_io::probe()?;
    match open_with(config, options, around, None) {
        Err(EngineError::CacheMissing { why }) => open_without_cache(config, options, around, why),
        Err(EngineError::CacheUnusable { why }) => {
            let why = format!("{why}; it is left unchanged");
            open_without_cache(config, options, around, why)
        }
        result => result,
    }
}

/// Opens everything except the cache device, if that is known and has no dirty data. An unusable one is treated alike:
/// the state directory records the volumes with dirty data on it.
fn open_without_cache(
    config: &Config,
    options: &StartOptions,
    around: Surroundings<'_>,
    why: String,
) -> Result<Opened, EngineError> {
    let Some(last) = last_cache(config, around.stores)? else {
        let cache = &config.cache;
        return Err(EngineError::refused(Refusal::UnknownCache {
            why,
            has_size: cache.size.is_some() || cache.path.exists(),
            state_dir: cache.state_dir.clone(),
        }));
    };
    let origins = origins::open_existing(config, around.stores)?;
    let dirty_elsewhere = dirty_elsewhere(config, options, &origins)?;
    check_dirty_elsewhere(config, &dirty_elsewhere, None).map_err(|refusal| {
        let (why, refusal) = (why.clone(), Box::new(refusal));
        EngineError::refused(Refusal::DirtyWithoutCache { why, refusal })
    })?;
    if config.cache.required {
        return Err(EngineError::CacheMissing { why });
    }
    let places = without_cache::paired_origins(config, &origins, true)?;
    state_dir::disown(&config.cache.state_dir, &places, None, "without a cache")?;
    drop(origins);
    let with_placeholder = without_cache::make(config, &last)?;
    tracing::error!("{why}; volumes are served from their origins alone until a restart finds the cache");
    open_with(&with_placeholder, options, Surroundings { has_cache: false, ..around }, Some(why))
}

/// A session that has begun, and is paired with its origins.
struct Begun {
    session: Session,
    ledger: Arc<Ledger>,
}

/// Opens everything. `missing`: why the cache of the configuration stands in for another.
fn open_with(
    config: &Config,
    options: &StartOptions,
    around: Surroundings<'_>,
    missing: Option<String>,
) -> Result<Opened, EngineError> {
    let clock = Clock::new();
    let mut prepared = prepare_patiently(config, options, around)?;
    prepared.device.warn_of_settings(config);
    origins::create(config, &mut prepared.origins, around.stores)?;
    let begun = begin(config, options.cold, missing.is_none(), &mut prepared)?;
    serve(config, prepared, begun, (clock, missing))
}

/// Begins the session and records its pairing with the origins.
fn begin(
    config: &Config,
    cold: bool,
    has_cache: bool,
    prepared: &mut Prepared,
) -> Result<Begun, EngineError> {
    let Prepared { origins, device, state, paired, .. } = prepared;
    let uuid = &device.superblock.uuid;
    if has_cache {
        // Before the own record, which must be the newest: it identifies the cache that had the origins last.
        disown_others(config, uuid, &without_cache::paired_origins(config, origins, true)?)?;
    }
    let (mut session, given_up) = start_session(config, device, state, paired, cold)?;
    device.new_files.keep();
    let ledger = Arc::new(Ledger::new(Arc::clone(state), session.on_media(device)));
    record_pairing(
        config,
        &ledger,
        &session,
        &origin_stats(origins)?,
        paired,
        &given_up,
        &write_back(config),
    )?;
    warn_of_unserved(config, &ledger);
    if has_cache {
        without_cache::clear(config, uuid);
    }
    Ok(Begun { session, ledger })
}

/// Returns the names of the volumes in write-back.
fn write_back(config: &Config) -> Vec<String> {
    let write_back = config.volumes.iter().filter(|volume| volume.mode == zc_core::Mode::WriteBack);
    write_back.map(|volume| volume.name.clone()).collect()
}

/// Makes the volumes, the manager and the parts of the shard.
fn serve(
    config: &Config,
    prepared: Prepared,
    Begun { mut session, ledger }: Begun,
    (clock, missing): (Clock, Option<String>),
) -> Result<Opened, EngineError> {
    let Prepared { origins, sizes, device, manager_config, state, paired, sockets } = prepared;
    let registry = Arc::new(Registry::default());
    let origins = origins.into_iter().flatten().collect();
    let served = serving::served(config, &registry, origins, &paired, &sizes, &device.superblock);
    let settings = || served.volumes.iter().map(|(_, volume)| (&volume.name, &volume.config));
    ledger.acknowledges_early(&settings::early(settings()))?;
    let named = settings().map(|(name, volume)| (name.clone(), serving::lasting(volume))).collect();
    let manager = session.manager(manager_config, settings().map(|(_, volume)| volume.clone()).collect());
    let without_cache = missing.is_some();
    let (bytes_read, (intent, risk)) = (session.bytes_read, session.files(&state, &paired, !without_cache)?);
    let event = EventFd::new()?;
    let parts = ShardParts {
        manager,
        device: for_data_plane(device),
        volumes: served.volumes,
        exports: served.exports,
        listeners: sockets.listeners,
        intent,
        risk,
        state,
        settings: settings::ShardSettings::new(config)?,
        registry,
        mailbox: Arc::new(Mailbox::new(event.waker())),
        event,
        clock,
        restart_bytes_read: bytes_read,
        cache_missing: missing,
    };
    let closer = Closer { ledger: Arc::clone(&ledger) };
    let (control_socket, web) = (sockets.control, sockets.web);
    Ok(Opened {
        parts,
        closer,
        control_socket,
        web,
        volumes: named,
        ledger,
        ublk: served.ublk,
        without_cache,
    })
}

/// Records that other caches' contents of these origins are stale.
pub(crate) fn disown_others(
    config: &Config,
    uuid: &[u8; 16],
    places: &[state_dir::Place],
) -> Result<(), EngineError> {
    let by = format!("with the cache {}", config.cache.path.display());
    state_dir::disown(&config.cache.state_dir, places, Some(uuid), &by)
}

/// Starts a session, including the operator's discarded epochs of each volume.
pub(crate) fn start_session(
    config: &Config,
    device: &CacheDevice,
    state: &StateDir,
    paired: &mut [Paired],
    cold: bool,
) -> Result<(Session, Map<VolumeId, u64>), EngineError> {
    if device.journal_lost {
        // First: the session makes the new journal the cache's own.
        state.doubt_dirty()?;
    }
    let mut session = begin_session(device, state, cold)?;
    session.owe_doubtful_drops(paired);
    let paired: &[Paired] = paired;
    let known = state.snapshot();
    let fenced = paired.iter().filter(|paired| paired.incomplete).map(|paired| paired.id);
    // Other volumes may be served later in the session.
    let is_served = |record: &VolumeRecord| paired.iter().any(|paired| paired.id == record.id);
    let others: Vec<_> = session.volumes.records.iter().filter(|record| !is_served(record)).collect();
    let is_doubted =
        |record: &&&VolumeRecord| known.volumes.get(&record.name).is_some_and(|entry| entry.incomplete);
    session.start.fenced = fenced.chain(others.iter().filter(is_doubted).map(|record| record.id)).collect();
    let drops = |id: VolumeId| paired.iter().any(|paired| paired.id == id && paired.drop_dirty);
    let served = config.volumes.iter().zip(paired).map(|(volume, paired)| (volume.name.clone(), paired.id));
    let named: Vec<_> = served.chain(others.iter().map(|record| (record.name.clone(), record.id))).collect();
    let given_up = give_up_dirty(&mut session, &known, &named, drops);
    Ok((session, given_up))
}

pub(crate) fn for_data_plane(device: CacheDevice) -> Device {
    let CacheDevice { file, journal, superblock, .. } = device;
    let fingerprint = superblock.fingerprint_kind;
    Device { file, journal, geometry: superblock.geometry, fingerprint }
}

fn origin_stats(origins: &[Option<Origin>]) -> Result<Vec<OriginStat>, EngineError> {
    let of = |origin: &Option<Origin>| {
        let Some(origin) = origin else { unreachable!("missing origins were created") };
        OriginStat::of(origin)
    };
    origins.iter().map(of).collect()
}

/// Returns the newest volume table; an empty one if both copies are corrupt (opening the cache reports that).
pub(crate) fn read_volume_table(file: &BlockFile, geometry: &Geometry) -> VolumeTable {
    newest_volume_table(file, geometry).unwrap_or_default()
}

fn newest_volume_table(file: &BlockFile, geometry: &Geometry) -> Option<VolumeTable> {
    let read = |(copy, offset): (usize, &u64)| {
        let bytes = file.read_blocking(*offset, usize_from_u64(VOLUME_TABLE_BYTES)).ok()?;
        VolumeTable::decode(&bytes, copy, geometry.salt).ok()
    };
    let tables = geometry.volume_table.iter().enumerate().filter_map(read);
    tables.max_by_key(|table| table.sequence)
}

/// Refuses a cache without a volume table. If it may have dirty data beyond the state directory's record, the start is
/// refused; otherwise the origins can be served without it.
pub(crate) fn check_volume_table(config: &Config, device: &CacheDevice) -> Result<(), EngineError> {
    let Superblock { uuid, session, features, geometry, .. } = &device.superblock;
    if newest_volume_table(&device.file, geometry).is_some() {
        return Ok(());
    }
    let place = device.file.path().display();
    let why = format!(
        "{place}: both copies of the cache's volume table are damaged or unreadable, so its volumes are unknown; \
         `zcctl check` lists further damage"
    );
    let may_be_dirty = features.incompat & Features::WRITE_BACK != 0;
    if may_be_dirty && !state_dir::has_seen(&config.cache.state_dir, uuid, *session)? {
        let state_dir = config.cache.state_dir.clone();
        return Err(EngineError::refused(Refusal::PerhapsDirty { why, state_dir }));
    }
    Err(EngineError::CacheUnusable { why })
}

/// An origin as a start finds it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OriginFound {
    /// `None`: there is none.
    pub(crate) identity: Option<Identity>,
    /// Difference from the state recorded at the last clean stop, if any.
    pub(crate) changed: Option<String>,
}

/// Inspects the origins, in the order of the configuration. `last_boot` is the boot of the cache's last session.
///
/// A store that recovered without its newest commits is older than the cached data of its volumes. After a power
/// failure, regions with writes in flight are cold already; a kill leaves them trusted, so the volume counts as
/// changed.
pub(crate) fn found(
    config: &Config,
    origins: &[Option<Origin>],
    state: &State,
    last_boot: [u8; 16],
) -> Result<Vec<OriginFound>, EngineError> {
    let boot_id = boot_id();
    let look = |(volume, origin): (&zc_config::VolumeConfig, &Option<Origin>)| {
        let Some(origin) = origin else { return Ok(OriginFound::default()) };
        let entry = state.volumes.get(&volume.name).filter(|entry| entry.settled);
        let seen = entry.and_then(|entry| entry.seen.as_ref());
        let is_older = last_boot == boot_id && origin.dropped_commits() > 0;
        let older =
            || is_older.then(|| "was opened without its newest commits, which are damaged".to_owned());
        let changed = seen.and_then(|seen| seen::changed(seen, origin, &boot_id)).or_else(older);
        Ok(OriginFound { identity: Some(origin.identity()?), changed })
    };
    config.volumes.iter().zip(origins).map(look).collect()
}

/// Judges the volumes of a configuration, with their origins and sizes in the same order.
///
/// # Errors
/// [`EngineError::Unservable`] of those that do not match; others concern the cache.
pub(crate) fn judge(
    config: &Config,
    known: &Known<'_>,
    found: &[OriginFound],
    sizes: &[u64],
) -> Result<Vec<Paired>, EngineError> {
    let mut candidates = Vec::new();
    for ((volume, found), size) in config.volumes.iter().zip(found).zip(sizes) {
        candidates.push(Candidate {
            name: &volume.name,
            path: &volume.origin,
            identity: found.identity,
            changed: found.changed.clone(),
            dedup_domain: &volume.dedup_domain,
            region_bytes: zc_config::manager::region_bytes(config.cache.region_size, *size),
        });
    }
    let paired = pair::pair(known, &candidates)?;
    let is_stuck = |(volume, paired): &(&zc_config::VolumeConfig, &Paired)| {
        paired.may_be_dirty && volume.mode == zc_core::Mode::ReadOnly
    };
    let refusal = |volume: &zc_config::VolumeConfig| {
        let (volume, cache) = (volume.name.clone(), known.cache_path.to_owned());
        (volume.clone(), EngineError::refused(Refusal::DirtyReadOnly { volume, cache }))
    };
    let stuck: Vec<_> = config.volumes.iter().zip(&paired).filter(is_stuck).collect();
    if stuck.is_empty() {
        return Ok(paired);
    }
    Err(EngineError::Unservable(stuck.iter().map(|(volume, _)| refusal(volume)).collect()))
}

/// Marks epochs as clean that the operator discards or discarded before, as if their intent had not reached the
/// journal yet. Returns the last of them by volume, for the state directory: a start repeats it until a session has
/// ended cleanly. Uncommitted data is invalid anyway.
fn give_up_dirty(
    session: &mut Session,
    state: &State,
    volumes: &[(String, VolumeId)],
    drops: impl Fn(VolumeId) -> bool,
) -> Map<VolumeId, u64> {
    let mut given_up = Map::default();
    for (name, id) in volumes {
        let committed = |record: &Record| match record {
            Record::Committed { volume, epoch } if volume == id => Some(*epoch),
            _ => None,
        };
        let before = state.volumes.get(name).map_or(0, |entry| entry.given_up);
        let newest = session.records.iter().chain(&session.intents).filter_map(committed).max();
        let epoch = before.max(newest.filter(|_| drops(*id)).unwrap_or(0));
        if epoch > 0 {
            given_up.insert(*id, epoch);
            session.intents.push(Record::Clean { volume: *id, epoch });
        }
    }
    given_up
}

/// Data of volumes that this daemon does not serve stays where it is.
fn warn_of_unserved(config: &Config, ledger: &Ledger) {
    let served: Vec<&str> = config.volumes.iter().map(|volume| volume.name.as_str()).collect();
    for volume in ledger.unserved(&served) {
        tracing::warn!(
            "the cache has dirty data of volume \"{}\" (origin {}), which is not in the configuration; the data is \
             kept",
            volume.name,
            volume.origin.display()
        );
    }
}

fn bind(config: &Config) -> Result<Sockets, EngineError> {
    let control = bind_unix(&config.control.socket, Access::OWNER)?;
    let group = config.nbd.unix_group.as_deref().map(group_id).transpose()?;
    let access = Access { mode: config.nbd.unix_mode, group };
    let mut listeners = Vec::new();
    for path in &config.nbd.unix {
        listeners.push(Listener::unix(path, access)?);
    }
    for address in &config.nbd.listen {
        listeners.push(Listener::tcp(*address)?);
    }
    Ok(Sockets { listeners, control, web: Web::listen(&config.metrics)? })
}

/// A session that has begun on the cache device.
pub(crate) struct Session {
    superblock: Superblock,
    volumes: VolumeTable,
    volume_table_copy: usize,
    volume_table_whole: bool,
    start: cache_startup::StartState,
    records: Vec<Record>,
    /// The previous session ended cleanly.
    was_clean: bool,
    /// Records of the intent log that the journal lacks.
    intents: Vec<Record>,
    pub(crate) intent: IntentLog,
    pub(crate) bytes_read: u64,
}

impl Session {
    /// Returns the record of the pairing.
    pub(crate) fn on_media(&mut self, device: &CacheDevice) -> OnMedia {
        OnMedia {
            cache: Arc::clone(&device.file),
            journal: device.journal.clone(),
            superblock: self.superblock.clone(),
            table: std::mem::take(&mut self.volumes),
            table_copy: self.volume_table_copy,
            table_whole: self.volume_table_whole,
            stamps: Vec::new(),
        }
    }

    /// Commits that the start did not count may have been answered: clients that may live get an error once.
    fn owe_doubtful_drops(&self, paired: &mut [Paired]) {
        let dropped = self.start.doubtful_drops();
        for volume in paired.iter_mut().filter(|volume| volume.clients_may_live) {
            volume.lost_writes |= dropped.contains(&volume.id);
        }
    }

    /// Returns the session's risk file. Started after the state directory has durably recorded pending write errors.
    pub(crate) fn risk_file(&self, state: &StateDir, paired: &[Paired]) -> Result<RiskFile, EngineError> {
        let Superblock { uuid, session, .. } = self.superblock;
        let owed = paired.iter().filter(|paired| paired.lost_writes).map(|paired| paired.id);
        let owner = IntentOwner { uuid, boot_id: boot_id(), session };
        let place = state.risk_place();
        RiskFile::create(&place.path, place.may_hang(), &owner, &owed.collect::<Vec<_>>())
    }

    /// Returns the files of the session that need not outlive the machine; none if a placeholder stands in for the cache:
    /// the next start makes another one.
    fn files(
        self,
        state: &StateDir,
        paired: &[Paired],
        has_cache: bool,
    ) -> Result<(IntentLog, RiskFile), EngineError> {
        if !has_cache {
            let none =
                (IntentLog::none(&state.intent_place().path), RiskFile::none(&state.risk_place().path));
            return Ok(none);
        }
        let risk = self.risk_file(state, paired)?;
        Ok((self.intent, risk))
    }

    /// The manager of the session, which has replayed its records and not begun. They are gone here.
    pub(crate) fn manager(&mut self, config: ManagerConfig, volumes: Vec<VolumeConfig>) -> CacheManager {
        let mut manager = CacheManager::new(config, volumes, self.start.clone());
        std::mem::take(&mut self.records).iter().for_each(|record| manager.replay(record));
        std::mem::take(&mut self.intents).iter().for_each(|record| manager.replay_intent(record));
        manager
    }
}

/// Replays the cache device, and begins a session on it.
fn begin_session(device: &CacheDevice, state: &StateDir, cold: bool) -> Result<Session, EngineError> {
    let before = &device.superblock;
    let boot_id = boot_id();
    let intent_place = state.intent_place();
    let intents = intent_place.find(|path| intent::read_of(path, before, boot_id));
    let options = cache_startup::OpenOptions {
        boot_id,
        cold,
        session_floor: state.snapshot().session,
        intent_session: intents.as_ref().map(|_| before.session),
        intents: intents.as_ref().map_or(&[], |(_, records)| records),
        intent_journal: intents.as_ref().map_or(JournalSeq(0), |(journal, _)| *journal),
    };
    let (mut opened, records) = replay(device, state, &options)?;
    let intents = intents.filter(|_| opened.start.intact).map_or_else(Vec::new, |(_, intents)| intents);
    let intents = cache_startup::drop_incomplete_intents(&mut device.media(), &mut opened, intents);
    let owner = IntentOwner { uuid: before.uuid, boot_id, session: opened.superblock.session };
    let intent = IntentLog::create(&intent_place.path, intent_place.may_hang(), owner)?;
    Ok(Session {
        was_clean: before.clean,
        superblock: opened.superblock,
        volumes: opened.volumes,
        volume_table_copy: opened.volume_table_copy,
        volume_table_whole: opened.volume_table_whole,
        start: opened.start,
        records,
        intents,
        intent,
        bytes_read: opened.bytes_read,
    })
}

/// Reads the cache device, and durably begins the session. Returns the records of checkpoint and journal, in order.
fn replay(
    device: &CacheDevice,
    state: &StateDir,
    options: &cache_startup::OpenOptions<'_>,
) -> Result<(cache_startup::Opened, Vec<Record>), EngineError> {
    let mut records = Vec::new();
    let fail = |error| EngineError::of_cache(device.file.path(), error);
    let opened = cache_startup::look(&mut device.media(), options, &mut |record| records.push(*record))
        .map_err(fail)?;
    if !opened.start.dirty_complete {
        // First, because the session continues the journal as if nothing were missing.
        state.doubt_dirty()?;
    }
    cache_startup::begin(&mut device.media(), &opened).map_err(fail)?;
    if let Some(reason) = &opened.distrust {
        tracing::warn!("starting cold ({reason}); stored data is still used for deduplication");
    } else if !opened.start.intact {
        let regions = opened.start.active_regions.len();
        tracing::warn!("the last session was cut off: {regions} regions that were being written start cold");
    }
    Ok((opened, records))
}

/// Writes the pairing: the volume table, then the state directory; then, the volumes that may become dirty.
pub(crate) fn record_pairing(
    config: &Config,
    ledger: &Ledger,
    session: &Session,
    origin_stats: &[OriginStat],
    paired: &[Paired],
    given_up: &Map<VolumeId, u64>,
    write_back: &[String],
) -> Result<(), EngineError> {
    let mut records = Vec::new();
    let mut entries = Vec::new();
    for ((volume, OriginStat { identity, len_bytes }), paired) in
        config.volumes.iter().zip(origin_stats).zip(paired)
    {
        records.push(serving::record(volume, identity, *len_bytes, paired));
        let given_up = given_up.get(&paired.id).copied().unwrap_or(0);
        let entry = VolumeState { given_up, ..serving::state(volume, identity, paired) };
        entries.push((volume.name.clone(), entry));
    }
    ledger.set_table(|table| {
        for record in records {
            match table.records.iter_mut().find(|known| known.id == record.id) {
                Some(known) => *known = record,
                None => table.records.push(record),
            }
        }
    })?;
    record_volumes(ledger, session, entries)?;
    ledger.may_become_dirty(write_back)?;
    let stamps = paired.iter().zip(&config.volumes);
    ledger.set_stamps(stamps.map(|(paired, volume)| (volume.name.clone(), paired.stamp)).collect());
    Ok(())
}

/// Records the volumes of the session in the state directory.
fn record_volumes(
    ledger: &Ledger,
    session: &Session,
    entries: Vec<(String, VolumeState)>,
) -> Result<(), EngineError> {
    let known: BTreeSet<String> = ledger.table().records.into_iter().map(|record| record.name).collect();
    ledger.state().update(|state| {
        state.session = session.superblock.session;
        state.clean = false;
        // A volume that is not served may be written elsewhere: it is cold when it returns. Its entry is removed with
        // the cache's own record of it, unless that cache had dirty data.
        state.volumes.retain(|name, entry| entry.dirty || known.contains(name));
        for entry in state.volumes.values_mut() {
            entry.stamp = entry.stamp.wrapping_add(1);
            // The previous session's losses stay pending until the volume is served again.
            entry.owes_loss |= entry.volatile && !session.was_clean;
            entry.volatile = false;
        }
        state.volumes.extend(entries);
        if !session.start.dirty_complete {
            for entry in state.volumes.values_mut() {
                entry.incomplete |= entry.dirty;
            }
        }
    })
}
