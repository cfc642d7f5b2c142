//! Checks the preconditions of a start without a start.
//!
//! Job: inspect everything that a start inspects before it begins (files, devices, sockets, state directory, and the
//! pairing of cache and origins), and report all obstacles at once.
//!
//! Invariants: nothing is created, written or taken over, and no lock is held at the end. A resource in use is a
//! problem, because it ends a start. It is a note if the daemon with this configuration holds it, which is queried at
//! its control socket: its resources cannot be inspected then.
//!
//! Stores are recovered in memory, and their devices stay as they are.
//!
//! It reads only the cache's metadata. It has the rights of its caller; the daemon may have others.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, ftruncate, open as open_path, statvfs};
use zc_config::{Config, VolumeConfig};
use zc_ublk::Driver;

use crate::program::StartOptions;
use crate::session::absent;
use crate::session::cache_device::{self, CacheDevice, DirtyElsewhere, check_dirty_elsewhere};
use crate::session::open;
use crate::session::origins;
use crate::session::pair::{Answers, Known, RisksBefore, When};
use crate::session::running::Running;
use zc_engine::error::EngineError;
use zc_engine::error::refusal::{Refusal, Room};
use zc_engine::front::listen::{bind_tcp, check_unix, group_id, raise_descriptor_limit};
use zc_engine::front::settings;
use zc_engine::origin::Origin;
use zc_engine::origin::remote::check_tls;
use zc_engine::origin::stores::Stores;
use zc_engine::state::state_dir;

/// Prospective result of a start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Reasons why it would be refused, or not serve all volumes from origin and cache.
    pub problems: Vec<String>,
    /// Items that could not be inspected.
    pub notes: Vec<String>,
}

impl Checked {
    fn take<T>(&mut self, result: Result<T, EngineError>) -> Option<T> {
        self.take_unless(result, || false)
    }

    /// As [`Self::take`]; a resource in use is a note if `is_held` reports that the running daemon holds it.
    fn take_unless<T>(
        &mut self,
        result: Result<T, EngineError>,
        is_held: impl FnOnce() -> bool,
    ) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(error) if error.is_in_use() && is_held() => {
                self.notes
                    .push(format!("{error}; it is in use by the running daemon, so it was not checked"));
            }
            Err(EngineError::Unservable(volumes)) => {
                self.problems.extend(volumes.into_iter().map(|(_, error)| error.to_string()));
            }
            Err(error) => self.problems.push(error.to_string()),
        }
        None
    }
}

/// Inspects everything that a start with this configuration inspects.
#[must_use]
pub fn check(config: &Config) -> Checked {
    let mut checked = Checked::default();
    let running = Running::at(&config.control.socket);
    checked.take(zc_io::probe().map_err(EngineError::from));
    checked.take(raise_descriptor_limit(zc_core::usize_from_u32(config.nbd.connections_max)));
    checked.take(settings::ring_ops(config));
    checked.take(zc_engine::front::tls::load(&config.nbd));
    check_origin_tls(config, &mut checked);
    check_sockets(config, &running, &mut checked);
    check_ublk(config, &mut checked);
    let stores = Arc::new(Stores::to_look_at(&config.stores));
    check_unused_stores(config, &stores, &running, &mut checked);
    let is_known = check_state_dir(&config.cache.state_dir, &mut checked);
    if let Some((served, origins)) = check_origins(config, &stores, &running, &mut checked)
        && is_known
    {
        let mut notes = Vec::new();
        let found = check_cache(&served, &origins, &mut notes);
        checked.notes.append(&mut notes);
        checked.take_unless(found, || {
            running.has_path(&config.cache.path)
                || config.cache.journal_path.as_ref().is_some_and(|path| running.has_path(path))
        });
    }
    checked
}

/// Certificates and keys for servers of remote origins. A start takes them up when it connects.
fn check_origin_tls(config: &Config, checked: &mut Checked) {
    for volume in &config.volumes {
        let Some(uri) = volume.remote.as_ref().filter(|uri| uri.tls) else { continue };
        let tls = &volume.origin_tls;
        let Err(error) = check_tls(uri, tls) else { continue };
        let what = error.to_string();
        let files = [
            ("origin_tls.ca", &tls.ca),
            ("origin_tls.certificate", &tls.certificate),
            ("origin_tls.key", &tls.key),
        ];
        let is_of = |file: &Option<PathBuf>| {
            file.as_ref().is_some_and(|path| what.starts_with(&format!("{}: ", path.display())))
        };
        let key = files.iter().find(|(_, file)| is_of(file)).map_or("origin", |(key, _)| *key);
        let place = config.key_lines.of_volume(&volume.name, key);
        checked.problems.push(format!("{place}: volume.{key}: {what}"));
    }
}

fn check_sockets(config: &Config, running: &Running, checked: &mut Checked) {
    checked.take(config.nbd.unix_group.as_deref().map(group_id).transpose());
    let control = &config.control.socket;
    // A daemon's status does not include the socket of the query.
    let is_daemon = matches!(running, Running::Silent | Running::Daemon(_));
    for path in config.nbd.unix.iter().chain([control]) {
        let is_held = || if path == control { is_daemon } else { running.has_path(path) };
        checked.take_unless(check_unix(path), is_held);
        checked.take(makeable(path));
    }
    // Binds all addresses at once, as a start does, because one may conflict with another.
    let addresses = config.nbd.listen.iter().chain(config.metrics.addresses());
    let _bound: Vec<_> = addresses
        .filter_map(|address| {
            let listener = bind_tcp(*address)
                .map_err(|source| EngineError::io(format!("cannot listen on {address}"), source));
            checked.take_unless(listener, || running.has_port(*address))
        })
        .collect();
}

/// Volumes that are to be block devices. A start without ublk does not end, but then they are none.
fn check_ublk(config: &Config, checked: &mut Checked) {
    let names = |volume: &VolumeConfig| format!("\"{}\"", volume.name);
    let attached: Vec<String> =
        config.volumes.iter().filter(|volume| volume.ublk.attach).map(names).collect();
    if attached.is_empty() {
        return;
    }
    let Err(error) = zc_ublk::preflight() else { return };
    if zc_ublk::driver(Path::new("/")) == Driver::Loadable {
        checked.notes.push(
            "ublk.attach: the driver ublk_drv is not loaded; zcached.service loads it, else type `modprobe ublk_drv` \
             before the start"
                .to_owned(),
        );
        return;
    }
    checked.problems.push(format!(
        "volume {}: ublk.attach is set, and no block device can be made: {error}. To serve over NBD instead, leave \
         ublk.attach out and set `unix` or `listen` in [nbd]",
        attached.join(", ")
    ));
}

/// Checks stores without a volume. Others are checked with their volumes.
fn check_unused_stores(config: &Config, stores: &Stores, running: &Running, checked: &mut Checked) {
    let is_used = |name: &String| {
        config.volumes.iter().any(|volume| volume.in_store.as_ref().is_some_and(|at| at.store == *name))
    };
    for store in config.stores.iter().filter(|store| !is_used(&store.name)) {
        checked.take_unless(stores.open(&store.name), || running.has_path(&store.path));
    }
}

/// Returns `true` if everything in the state directory can be read and changed.
fn check_state_dir(dir: &Path, checked: &mut Checked) -> bool {
    let problems = checked.problems.len();
    if dir.exists() {
        checked.take(writable(dir));
    } else {
        checked.take(makeable(dir));
    }
    for (_, file) in checked.take(state_dir::files(dir)).unwrap_or_default() {
        checked.take(state_dir::read_state(&file));
        checked.take(writable(&file));
    }
    checked.problems.len() == problems
}

/// Returns the configuration without volumes whose origins are unavailable, and the origins of the others; `None` if
/// one of them is in use.
fn check_origins(
    config: &Config,
    stores: &Arc<Stores>,
    running: &Running,
    checked: &mut Checked,
) -> Option<(Config, Vec<Option<Origin>>)> {
    let mut at_once = config.clone();
    at_once.cache.wait_max_ms = 0;
    let (served, absent) = checked.take(absent::leave_out(&at_once, &StartOptions::default(), stores))?;
    checked.problems.extend(absent.into_iter().map(|absent| absent.why));
    let mut origins = Vec::new();
    for volume in &served.volumes {
        let path = place_of(config, volume);
        let opened = checked.take_unless(Origin::open_existing(volume, stores), || running.has_path(path));
        if let Some(None) = opened
            && volume.is_raw()
        {
            checked.take(creatable(volume));
        }
        origins.push(opened);
    }
    Some((served, origins.into_iter().collect::<Option<Vec<_>>>()?))
}

/// The file or device that has a volume's bytes: its origin, or its store.
fn place_of<'a>(config: &'a Config, volume: &'a VolumeConfig) -> &'a Path {
    let store = volume.in_store.as_ref();
    let store = store.and_then(|at| config.stores.iter().find(|store| store.name == at.store));
    store.map_or(&volume.origin, |store| &store.path)
}

/// Returns `true` if the file of an origin can be made with its length. Tried on a file without a name, where there are
/// such.
fn creatable(volume: &VolumeConfig) -> Result<(), EngineError> {
    makeable(&volume.origin)?;
    let (Some(bytes), folder) = (volume.create_bytes, existing(&volume.origin)) else { return Ok(()) };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(nameless) = open_path(folder, flags, Mode::RUSR | Mode::WUSR) else { return Ok(()) };
    ftruncate(&nameless, bytes).map_err(|errno| {
        let what = format!("cannot create {} with {bytes} bytes", volume.origin.display());
        EngineError::io(what, errno)
    })
}

/// Checks that the cache is usable or can be created, and matches the origins.
fn check_cache(
    config: &Config,
    origins: &[Option<Origin>],
    notes: &mut Vec<String>,
) -> Result<(), EngineError> {
    let sizes = origins::sizes(config, origins)?;
    let options = StartOptions::default();
    // Dirty data of absent volumes was reported with the reason of their absence.
    let dirty_elsewhere =
        DirtyElsewhere { served: open::dirty_elsewhere(config, &options, origins)?, absent: Vec::new() };
    CacheDevice::check_place(config, &dirty_elsewhere)?;
    if !config.cache.path.exists() {
        return check_new_cache(config, &dirty_elsewhere, sizes.iter().sum(), notes);
    }
    let Some(device) = CacheDevice::examine(config, &dirty_elsewhere)? else { return Ok(()) };
    open::check_volume_table(config, &device)?;
    device.manager_config(config)?;
    let short = cache_device::shortfall(config, &device.superblock.geometry);
    notes.extend(short.map(|short| short.advice()));
    let superblock = &device.superblock;
    let table = open::read_volume_table(&device.file, &superblock.geometry);
    let state = state_dir::peek(&config.cache.state_dir, &superblock.uuid)?;
    let known = Known {
        cache_path: &config.cache.path,
        table: &table,
        session: superblock.session,
        clean: superblock.clean,
        state: &state,
        cold: false,
        when: When::Start,
        answers: Answers::default(),
        risks: RisksBefore::default(),
    };
    let found = open::found(config, origins, &state, superblock.boot_id)?;
    open::judge(config, &known, &found, &sizes).map(drop)
}

fn check_new_cache(
    config: &Config,
    dirty_elsewhere: &DirtyElsewhere,
    volumes_bytes: u64,
    notes: &mut Vec<String>,
) -> Result<(), EngineError> {
    let cache = &config.cache;
    check_dirty_elsewhere(config, &dirty_elsewhere.served, None)?;
    makeable(&cache.path)?;
    let Some(size) = cache.size else { return Ok(()) };
    let bytes = size.of(volumes_bytes);
    let short = cache_device::check_layout(config, bytes)?;
    notes.extend(short.map(|short| short.advice()));
    let folder = existing(&cache.path);
    let room = statvfs(folder)
        .map_err(|errno| EngineError::io(format!("cannot inspect {}", folder.display()), errno))?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    if free_bytes < bytes {
        let (path, room) = (cache.path.clone(), Room::Free(free_bytes));
        return Err(EngineError::refused(Refusal::NoRoom { path, bytes, room }));
    }
    Ok(())
}

/// Returns the path itself, or its nearest existing ancestor.
fn existing(path: &Path) -> &Path {
    let named = path.ancestors().find(|path| path.exists());
    named.unwrap_or_else(|| Path::new("."))
}

/// Checks that a file may be created at a path; existing files are checked elsewhere.
pub(crate) fn makeable(path: &Path) -> Result<(), EngineError> {
    let folder = path.parent().map_or_else(|| Path::new("."), existing);
    if folder.is_dir() {
        return writable(folder);
    }
    let (path, folder) = (path.to_owned(), folder.to_owned());
    Err(EngineError::refused(Refusal::NoFolder { path, folder }))
}

fn writable(path: &Path) -> Result<(), EngineError> {
    accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|errno| EngineError::io(format!("cannot write {}", path.display()), errno))
}
