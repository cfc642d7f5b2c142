//! From a configuration to a shard that can serve.
//!
//! Job, in this order: check what can be checked without opening; open origins and the cache (locked); judge whether
//! they belong together; bind the sockets; only then begin a session on the cache. A refusal up to that point leaves
//! everything as it was, but for a cache file or origin that the configuration asked to be created.
//!
//! What it does not do: read WEU headers or compare a sample of cached extents with the origin (the manager does both
//! while clients are served).

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::startup as cache_startup;
use zc_config::Config;
use zc_core::{JournalSeq, usize_from_u64};
use zc_format::{Geometry, Record, Superblock, VOLUME_TABLE_BYTES, VolumeRecord, VolumeTable};
use zc_io::{BlockFile, EventFd};
use zc_origin::{Origin, OriginOptions};

use crate::cache_device::CacheDevice;
use crate::clock::Clock;
use crate::close::Closer;
use crate::commands::Mailbox;
use crate::error::EngineError;
use crate::intent::{self, IntentLog, IntentOwner};
use crate::listen::{Listener, SocketPath, bind_unix};
use crate::pairing::{self, Candidate, Known, Paired};
use crate::places::check_distinct;
use crate::registry::{Registry, VolumeInfo};
use crate::settings;
use crate::shard::{Device, ShardParts, Volume};
use crate::state_dir::{State, StateDir, VolumeState};
use crate::ublk_control::Plan;

/// How often, and after which pause, something that is in use is tried again: 5 s together.
const IN_USE_ATTEMPTS: u32 = 100;
const IN_USE_PAUSE: Duration = Duration::from_millis(50);

/// Everything that was opened.
pub(crate) struct Opened {
    pub(crate) parts: ShardParts,
    pub(crate) closer: Closer,
    pub(crate) control_socket: (UnixListener, SocketPath),
    /// Settings of the volumes by name, as the manager has them.
    pub(crate) volumes: Vec<(String, VolumeConfig)>,
    /// What each volume would be as a ublk device.
    pub(crate) ublk: Vec<Plan>,
}

struct Sockets {
    listeners: Vec<Listener>,
    control: (UnixListener, SocketPath),
}

/// What was opened and judged without beginning a session.
struct Prepared {
    origins: Vec<Option<Origin>>,
    sizes: Vec<u64>,
    device: CacheDevice,
    manager_config: ManagerConfig,
    state: Arc<StateDir>,
    paired: Vec<Paired>,
    sockets: Sockets,
}

/// Prepares, with patience for what is in use: the kernel closes the files and sockets of a killed daemon only when the
/// last operations of its ring have ended, a moment after the process is gone.
fn prepare_patiently(config: &Config, cold: bool) -> Result<Prepared, EngineError> {
    let mut attempts = IN_USE_ATTEMPTS;
    loop {
        match prepare(config, cold) {
            Err(error) if error.is_in_use() && attempts > 0 => {
                attempts -= 1;
                pause();
            }
            result => return result,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kernel tells nobody when it has closed the files of a killed process"
)]
fn pause() {
    std::thread::sleep(IN_USE_PAUSE);
}

fn prepare(config: &Config, cold: bool) -> Result<Prepared, EngineError> {
    check_distinct(config)?;
    let origins = open_existing_origins(config)?;
    let sizes = volume_sizes(config, &origins)?;
    let device = CacheDevice::open(config, sizes.iter().sum())?;
    let superblock = &device.superblock;
    let manager_config =
        settings::manager_config(&config.cache, &superblock.geometry, superblock.fingerprint_kind)?;
    let table = read_volume_table(&device.file, &superblock.geometry);
    let state = Arc::new(StateDir::open(&config.cache.state_dir, &superblock.uuid)?);
    let paired = judge(config, superblock, &table, &state.snapshot(), &origins, &sizes, cold)?;
    let sockets = bind(config)?;
    Ok(Prepared { origins, sizes, device, manager_config, state, paired, sockets })
}

/// Opens everything.
pub(crate) fn open(config: &Config, cold: bool) -> Result<Opened, EngineError> {
    let clock = Clock::new();
    // Without io_uring nothing works: better said now than by the data plane's thread.
    zc_io::probe()?;
    let Prepared { mut origins, sizes, device, manager_config, state, paired, sockets } =
        prepare_patiently(config, cold)?;
    create_origins(config, &mut origins)?;
    let session = begin_session(&device, &state, cold)?;
    let stamps = record_pairing(config, &device, &session, &state, &origins, &paired)?;
    let registry = Arc::new(Registry::default());
    let mut volumes = Vec::new();
    // The first volume of the configuration is the default export.
    let mut exports = Vec::new();
    let mut ublk = Vec::new();
    for (((volume, origin), paired), size) in config.volumes.iter().zip(origins).zip(&paired).zip(&sizes) {
        let Some(origin) = origin else { unreachable!("missing origins were created") };
        let trusted = paired.cold_reason.is_none();
        let for_manager = settings::volume_config(volume, paired.id, *size, paired.region_bytes, trusted);
        describe(&registry, volume, &for_manager, paired);
        ublk.push(Plan::new(volume, &for_manager, origin.block_bytes(), &device.superblock.uuid));
        if volume.nbd.export {
            exports.push(settings::export(volume, paired.id, *size));
        }
        let name = volume.name.clone();
        volumes.push((
            paired.id,
            Volume { name, origin, locks: Default::default(), zeroes_fast: false, config: for_manager },
        ));
    }
    let for_manager: Vec<VolumeConfig> = volumes.iter().map(|(_, volume)| volume.config.clone()).collect();
    let named = volumes.iter().map(|(_, volume)| (volume.name.clone(), volume.config.clone())).collect();
    let mut manager = CacheManager::new(manager_config, for_manager, session.start);
    session.records.iter().for_each(|record| manager.replay(record));
    session.intents.iter().for_each(|record| manager.replay_intent(record));
    drop((session.records, session.intents));
    let event = EventFd::new()?;
    let CacheDevice { file, journal, superblock } = device;
    let fingerprint = superblock.fingerprint_kind;
    let device = Device { file, journal, geometry: superblock.geometry, fingerprint };
    let parts = ShardParts {
        manager,
        device,
        volumes,
        exports,
        listeners: sockets.listeners,
        intent: session.intent,
        state: Arc::clone(&state),
        reduce_threads: settings::reduce_threads(config.cache.reduce_threads),
        reduce_cpus: config.cache.reduce_cpus.iter().map(|&cpu| usize::from(cpu)).collect(),
        limits: settings::front_limits(config),
        registry,
        mailbox: Arc::new(Mailbox::new(event.waker())),
        event,
        clock,
        restart_bytes_read: session.bytes_read,
    };
    let closer = Closer { superblock: session.superblock, stamps, state };
    Ok(Opened { parts, closer, control_socket: sockets.control, volumes: named, ublk })
}

fn describe(registry: &Registry, volume: &zc_config::VolumeConfig, config: &VolumeConfig, paired: &Paired) {
    if let Some(reason) = &paired.cold_reason {
        tracing::warn!("volume \"{}\" starts cold: {reason}", volume.name);
    }
    let info = VolumeInfo {
        id: config.id.0,
        size_bytes: config.size_bytes,
        mode: settings::mode_name(config.mode).to_owned(),
        origin: volume.origin.clone(),
        cold_reason: paired.cold_reason.clone(),
        device: None,
    };
    registry.volumes.insert(volume.name.clone(), info);
}

fn origin_options(volume: &zc_config::VolumeConfig, create_len: Option<u64>) -> OriginOptions {
    OriginOptions { write: volume.mode != zc_config::Mode::ReadOnly, direct: volume.direct, create_len }
}

/// `None` for an origin that is to be created.
fn open_existing_origins(config: &Config) -> Result<Vec<Option<Origin>>, EngineError> {
    let open = |volume: &zc_config::VolumeConfig| {
        if volume.create_bytes.is_some() && !volume.origin.exists() {
            return Ok(None);
        }
        Ok(Some(Origin::open(&volume.origin, origin_options(volume, None))?))
    };
    config.volumes.iter().map(open).collect()
}

fn create_origins(config: &Config, origins: &mut [Option<Origin>]) -> Result<(), EngineError> {
    for (volume, origin) in config.volumes.iter().zip(origins) {
        if origin.is_none() {
            let options = OriginOptions { write: true, ..origin_options(volume, volume.create_bytes) };
            *origin = Some(Origin::open(&volume.origin, options)?);
        }
    }
    Ok(())
}

fn volume_sizes(config: &Config, origins: &[Option<Origin>]) -> Result<Vec<u64>, EngineError> {
    let sector = u64::from(zc_core::SECTOR_BYTES);
    let size = |(volume, origin): (&zc_config::VolumeConfig, &Option<Origin>)| {
        let bytes = origin.as_ref().map_or_else(|| volume.create_bytes.unwrap_or(0), Origin::len_bytes)
            / sector
            * sector;
        if bytes > 0 {
            return Ok(bytes);
        }
        let text = format!("the origin of volume \"{}\" ({}) is empty", volume.name, volume.origin.display());
        Err(EngineError::Refused(text))
    };
    config.volumes.iter().zip(origins).map(size).collect()
}

/// The newest volume table; an empty one if both copies are damaged (opening the cache will say so).
fn read_volume_table(file: &BlockFile, geometry: &Geometry) -> VolumeTable {
    let read = |(copy, offset): (usize, &u64)| {
        let bytes = file.read_blocking(*offset, usize_from_u64(VOLUME_TABLE_BYTES)).ok()?;
        VolumeTable::decode(&bytes, copy).ok()
    };
    let tables = geometry.volume_table.iter().enumerate().filter_map(read);
    tables.max_by_key(|table| table.sequence).unwrap_or_default()
}

fn judge(
    config: &Config,
    superblock: &Superblock,
    table: &VolumeTable,
    state: &State,
    origins: &[Option<Origin>],
    sizes: &[u64],
    cold: bool,
) -> Result<Vec<Paired>, EngineError> {
    let (session, clean) = (superblock.session, superblock.clean);
    let known = Known { cache_path: &config.cache.path, table, session, clean, state, cold };
    let mut candidates = Vec::new();
    for ((volume, origin), size) in config.volumes.iter().zip(origins).zip(sizes) {
        candidates.push(Candidate {
            name: &volume.name,
            path: &volume.origin,
            identity: origin.as_ref().map(Origin::identity).transpose()?,
            region_bytes: settings::region_bytes(config.cache.region_size, *size),
        });
    }
    pairing::pair(&known, &candidates)
}

fn bind(config: &Config) -> Result<Sockets, EngineError> {
    let control = bind_unix(&config.control.socket)?;
    let mut listeners = Vec::new();
    for path in &config.nbd.unix {
        listeners.push(Listener::unix(path)?);
    }
    for address in &config.nbd.listen {
        listeners.push(Listener::tcp(*address)?);
    }
    Ok(Sockets { listeners, control })
}

/// A session that has begun on the cache device.
struct Session {
    superblock: Superblock,
    volumes: VolumeTable,
    volume_table_copy: usize,
    start: cache_startup::StartState,
    records: Vec<Record>,
    /// Records of the intent log that the journal lacks.
    intents: Vec<Record>,
    intent: IntentLog,
    bytes_read: u64,
}

fn begin_session(device: &CacheDevice, state: &StateDir, cold: bool) -> Result<Session, EngineError> {
    let (file, before) = (&device.file, &device.superblock);
    let boot_id = boot_id();
    let owner = |session| IntentOwner { uuid: before.uuid, boot_id, session };
    let intent_path = state.intent_path();
    let intents = intent::read(&intent_path, &owner(before.session)).filter(|_| !before.clean);
    let options = cache_startup::OpenOptions {
        boot_id,
        cold,
        session_floor: state.snapshot().session,
        intent_session: intents.as_ref().map(|_| before.session),
        intent_journal: intents.as_ref().map_or(JournalSeq(0), |(journal, _)| *journal),
    };
    let mut records = Vec::new();
    let opened = cache_startup::open(&mut device.media(), &options, &mut |record| records.push(*record))
        .map_err(|error| EngineError::Refused(format!("{}: {error}", file.path().display())))?;
    if let Some(reason) = &opened.distrust {
        tracing::warn!(
            "the cache's mappings are not believed: {reason}; stored contents still serve to share"
        );
    } else if !opened.start.intact {
        let regions = opened.start.active_regions.len();
        tracing::warn!("the last session was cut off: {regions} regions that were being written start cold");
    }
    let intents = intents.filter(|_| opened.start.intact).map_or_else(Vec::new, |(_, intents)| intents);
    let intent = IntentLog::create(&intent_path, owner(opened.superblock.session));
    Ok(Session {
        superblock: opened.superblock,
        volumes: opened.volumes,
        volume_table_copy: opened.volume_table_copy,
        start: opened.start,
        records,
        intents,
        intent,
        bytes_read: opened.bytes_read,
    })
}

/// Writes who belongs together: the volume table, then the state directory. Returns each volume's stamp on media.
fn record_pairing(
    config: &Config,
    device: &CacheDevice,
    session: &Session,
    state: &StateDir,
    origins: &[Option<Origin>],
    paired: &[Paired],
) -> Result<Vec<(String, u64)>, EngineError> {
    let mut table =
        VolumeTable { sequence: session.volumes.sequence + 1, records: session.volumes.records.clone() };
    let mut entries = Vec::new();
    for ((volume, origin), paired) in config.volumes.iter().zip(origins).zip(paired) {
        let Some(origin) = origin else { unreachable!("missing origins were created") };
        let identity = origin.identity()?;
        let record = VolumeRecord {
            id: paired.id,
            name: volume.name.clone(),
            size_bytes: origin.len_bytes(),
            region_bytes: paired.region_bytes,
            origin: pairing::for_media(&identity),
            stamp: paired.stamp,
        };
        match table.records.iter_mut().find(|known| known.id == paired.id) {
            Some(known) => *known = record,
            None => table.records.push(record),
        }
        // Unequal until the next clean stop if the volume starts cold: see `pairing`.
        let stamp = if paired.cold_reason.is_some() { paired.stamp.wrapping_add(1) } else { paired.stamp };
        let path = absolute(&volume.origin);
        entries.push((volume.name.clone(), VolumeState { stamp, path, origin: pairing::mark(&identity) }));
    }
    if table.records != session.volumes.records {
        let copy = 1 - (session.volume_table_copy & 1);
        cache_startup::write_volume_table(&mut device.media(), &session.superblock.geometry, &table, copy)
            .map_err(|error| EngineError::Refused(format!("{}: {error}", device.file.path().display())))?;
    }
    state.update(|state| {
        state.session = session.superblock.session;
        state.clean = false;
        // A volume that is not served may be written elsewhere: it is forgotten, and cold when it returns.
        state.volumes = entries.into_iter().collect();
    })?;
    Ok(paired
        .iter()
        .zip(&config.volumes)
        .map(|(paired, volume)| (volume.name.clone(), paired.stamp))
        .collect())
}

fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The kernel's boot identity; zero where there is none, which matches nothing valid.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    uuid::Uuid::parse_str(text.trim()).map(uuid::Uuid::into_bytes).unwrap_or_default()
}
