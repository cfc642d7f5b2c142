//! What a start would refuse, found out without a start.
//!
//! Job: look at everything that a start looks at before it begins (files, devices, sockets, state directory, and whether
//! cache and origins belong together), and name all that speaks against it at once.
//!
//! Invariants: nothing is made, written or taken over, and no lock is held at the end. What is in use is a note, because
//! the daemon that is asked about may be running; it could not be looked at then.
//!
//! Stores are recovered in memory, and their devices stay as they are.
//!
//! What it does not do: read more of the cache than its metadata. It has the rights of who asks; the daemon may have
//! others.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use zc_config::Config;

use crate::error::EngineError;
use crate::error::refusal::{Refusal, Room};
use crate::front::listen::{check_unix, group_id};
use crate::front::settings;
use crate::origin::Origin;
use crate::origin::stores::Stores;
use crate::program::EngineOptions;
use crate::session::absent;
use crate::session::cache_device::{self, CacheDevice, Debts, check_debts};
use crate::session::open;
use crate::session::origins;
use crate::session::pair::{Answers, Known, RisksBefore, When};
use crate::state::state_dir;

/// What a start would meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Why it would be refused, or serve less than all volumes from origin and cache.
    pub problems: Vec<String>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

impl Checked {
    fn take<T>(&mut self, result: Result<T, EngineError>) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(error) if error.is_in_use() => {
                self.notes.push(format!("{error}; what it holds was not looked at"));
            }
            Err(EngineError::Unservable(volumes)) => {
                self.problems.extend(volumes.into_iter().map(|(_, why)| why));
            }
            Err(error) => self.problems.push(error.to_string()),
        }
        None
    }
}

/// Looks at all that a start with this configuration would look at.
#[must_use]
pub fn check(config: &Config) -> Checked {
    let mut checked = Checked::default();
    checked.take(zc_io::probe().map_err(EngineError::from));
    checked.take(settings::ring_ops(config));
    checked.take(crate::front::tls::load(&config.nbd));
    check_sockets(config, &mut checked);
    let stores = Arc::new(Stores::to_look_at(&config.stores));
    check_unused_stores(config, &stores, &mut checked);
    let is_known = check_state_dir(&config.cache.state_dir, &mut checked);
    if let Some((served, origins)) = check_origins(config, &stores, &mut checked)
        && is_known
    {
        let found = check_cache(&served, &origins);
        checked.take(found);
    }
    checked
}

fn check_sockets(config: &Config, checked: &mut Checked) {
    checked.take(config.nbd.unix_group.as_deref().map(group_id).transpose());
    for path in config.nbd.unix.iter().chain([&config.control.socket]) {
        checked.take(check_unix(path));
        checked.take(makeable(path));
    }
    for address in config.nbd.listen.iter().chain(config.metrics.addresses()) {
        let bound = TcpListener::bind(address);
        checked.take(bound.map_err(|source| EngineError::io(format!("cannot listen on {address}"), source)));
    }
}

/// Stores with no volume. Those of volumes are looked at with them.
fn check_unused_stores(config: &Config, stores: &Stores, checked: &mut Checked) {
    let is_used = |name: &String| {
        config.volumes.iter().any(|volume| volume.in_store.as_ref().is_some_and(|at| at.store == *name))
    };
    for store in config.stores.iter().filter(|store| !is_used(&store.name)) {
        checked.take(stores.open(&store.name));
    }
}

/// Whether everything in the state directory can be read and changed.
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

/// The configuration without volumes whose origins cannot be had, and the origins of the others.
fn check_origins(
    config: &Config,
    stores: &Arc<Stores>,
    checked: &mut Checked,
) -> Option<(Config, Vec<Option<Origin>>)> {
    let mut at_once = config.clone();
    at_once.cache.wait_max_ms = 0;
    let (served, absent) = checked.take(absent::leave_out(&at_once, &EngineOptions::default(), stores))?;
    checked.problems.extend(absent.into_iter().map(|absent| absent.why));
    for volume in served.volumes.iter().filter(|volume| volume.in_store.is_none() && !volume.origin.exists())
    {
        checked.take(makeable(&volume.origin));
    }
    let origins = checked.take(origins::open_existing(&served, stores))?;
    Some((served, origins))
}

/// Whether the cache can be used, or made, and belongs to the origins.
fn check_cache(config: &Config, origins: &[Option<Origin>]) -> Result<(), EngineError> {
    let sizes = origins::sizes(config, origins)?;
    let options = EngineOptions::default();
    // Dirty data of absent volumes was told with why they are absent.
    let debts = Debts { served: open::debts(config, &options, origins)?, absent: Vec::new() };
    CacheDevice::check_place(config, &debts)?;
    if !config.cache.path.exists() {
        return check_new_cache(config, &debts, sizes.iter().sum());
    }
    let Some(device) = CacheDevice::examine(config, &debts)? else { return Ok(()) };
    open::check_volume_table(config, &device)?;
    device.manager_config(config)?;
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
    let found = open::found(config, origins, &state)?;
    open::judge(config, &known, &found, &sizes).map(drop)
}

/// Whether a cache can be made where none is.
fn check_new_cache(config: &Config, debts: &Debts, volumes_bytes: u64) -> Result<(), EngineError> {
    let cache = &config.cache;
    check_debts(config, &debts.served, None)?;
    makeable(&cache.path)?;
    let Some(size) = cache.size else { return Ok(()) };
    let bytes = size.of(volumes_bytes);
    cache_device::check_layout(config, bytes)?;
    let folder = existing(&cache.path);
    let room = statvfs(folder)
        .map_err(|errno| EngineError::io(format!("cannot look at {}", folder.display()), errno))?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    if free_bytes < bytes {
        let (path, room) = (cache.path.clone(), Room::Free(free_bytes));
        return Err(EngineError::refused(Refusal::NoRoom { path, bytes, room }));
    }
    Ok(())
}

/// The path itself, or the nearest folder above it that exists.
fn existing(path: &Path) -> &Path {
    let named = path.ancestors().find(|path| path.exists());
    named.unwrap_or_else(|| Path::new("."))
}

/// Whether something may be made at a path: what is there already is looked at by others.
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
