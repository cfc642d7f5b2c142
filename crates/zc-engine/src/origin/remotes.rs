//! The exports of servers that the daemon uses.
//!
//! Job: connect to each export once, when it is first needed, and keep the connection for those that use it later.
//!
//! Invariants: an export has one connection for reading and writing, and one for reading, at most. Opening one holds up
//! no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zc_config::{NbdUri, VolumeConfig};
use zc_core::Mode;

use crate::error::EngineError;
use crate::origin::remote::OpenRemote;

type Place = Arc<Mutex<Option<Arc<OpenRemote>>>>;

/// Connections by URI, and by right to write.
#[derive(Debug, Default)]
pub struct Remotes(Mutex<BTreeMap<(String, bool), Place>>);

impl Remotes {
    /// The connection to the origin of a volume; connects if there is none. Blocks.
    pub(crate) fn open(&self, uri: &NbdUri, volume: &VolumeConfig) -> Result<Arc<OpenRemote>, EngineError> {
        let writable = volume.mode != Mode::ReadOnly;
        let place = Arc::clone(lock(&self.0).entry((uri.to_string(), writable)).or_default());
        let mut open = lock(&place);
        if let Some(open) = open.as_ref() {
            open.set_outage_max(volume.reach.remote_bound_ms(volume.mode));
            return Ok(Arc::clone(open));
        }
        let opened = OpenRemote::open(uri, writable, volume)?;
        *open = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Closes the connections that no volume uses.
    pub fn close_unused(&self) {
        let is_used = |place: &Place| match place.try_lock() {
            // Its only other owner is this table.
            Ok(open) => open.as_ref().is_some_and(|open| Arc::strong_count(open) > 1),
            // It is being opened.
            Err(_) => true,
        };
        lock(&self.0).retain(|_, place| is_used(place));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
