//! Volumes being removed.
//!
//! Invariants: a volume is removed when no client can choose it, none of its requests is left, and the manager has
//! durably removed it. If the manager cannot, it is served as before.
//!
//! It does not decide on trust of a volume, or record it (`control/added`, `control/removed`).

use tokio::sync::oneshot;
use zc_core::{ErrorKind, Map, VolumeId};

use crate::shard::volumes::Volume;

/// The removed volume as the data plane had it; closing its origin may block.
pub type Removed = Result<Box<Volume>, String>;

#[derive(Debug)]
struct Going {
    reply: oneshot::Sender<Removed>,
    /// `true` after the manager was instructed.
    is_told: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Leaving(Map<VolumeId, Going>);

impl Leaving {
    /// Returns `true` if the volume is being removed.
    pub(crate) fn has(&self, id: VolumeId) -> bool {
        self.0.contains_key(&id)
    }

    /// Begins the removal of a volume, which clients can no longer choose.
    pub(crate) fn begin(&mut self, id: VolumeId, reply: oneshot::Sender<Removed>) {
        self.0.insert(id, Going { reply, is_told: false });
    }

    /// Returns the volumes that the manager must remove now, because none of their requests is left. Called once a
    /// turn.
    pub(crate) fn due(&mut self, is_asked: impl Fn(VolumeId) -> bool) -> Vec<VolumeId> {
        let mut due = Vec::new();
        for (id, going) in self.0.iter_mut().filter(|(_, going)| !going.is_told) {
            if !is_asked(*id) {
                going.is_told = true;
                due.push(*id);
            }
        }
        due
    }

    /// Restarts all removals with a new manager.
    pub(crate) fn begin_again(&mut self) {
        self.0.values_mut().for_each(|going| going.is_told = false);
    }

    /// Processes the manager's result for a volume. On success, `remove` returns the resources to release.
    pub(crate) fn ended(
        &mut self,
        id: VolumeId,
        result: Result<(), ErrorKind>,
        remove: impl FnOnce() -> Option<Volume>,
    ) {
        let Some(Going { reply, .. }) = self.0.remove(&id) else { return };
        let outcome = match result {
            Err(error) => Err(format!(
                "its origin was not flushed, or the cache device failed, or the daemon stops ({error}); it is served as before"
            )),
            Ok(()) => remove().map(Box::new).ok_or_else(|| "it is not served".to_owned()),
        };
        let _asker_left = reply.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told_once_of_a_volume_without_requests() {
        let mut leaving = Leaving::default();
        let (reply, mut answer) = oneshot::channel();
        leaving.begin(VolumeId(1), reply);
        assert!(leaving.has(VolumeId(1)) && !leaving.has(VolumeId(2)));
        assert_eq!(leaving.due(|_| true), []);
        assert_eq!(leaving.due(|_| false), [VolumeId(1)]);
        assert_eq!(leaving.due(|_| false), []);
        leaving.begin_again();
        assert_eq!(leaving.due(|_| false), [VolumeId(1)], "another manager is told, too");
        leaving.ended(VolumeId(1), Err(ErrorKind::Io), || unreachable!("it stays"));
        assert!(answer.try_recv().unwrap().unwrap_err().contains("served as before"));
        assert!(!leaving.has(VolumeId(1)), "it may go another time");
    }
}
