//! Adds volumes whose origins were missing at the start, once they return.
//!
//! Job: check the origin of each such volume again, with exponential back-off, and add the volume (`add_volume`) as
//! soon as the origin is present and nothing prevents it.
//!
//! Invariants: only its own check waits for a hung origin, and each volume has at most one. Nothing is judged, written
//! or served before a check has succeeded.
//!
//! It does not decide on trust for such a volume (`session/pair`, called by `add_volume`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::control::Shared;
use crate::limits::{ABSENT_PAUSE_MAX_MS, ABSENT_PAUSE_MIN_MS, ORIGIN_LOOK_MS};
use crate::session::absent::Absent;
use crate::session::looks::OriginCheck;
use crate::session::pair::When;
use zc_engine::error::EngineError;
use zc_engine::shard::commands::Command;

/// Checks absent volumes until the daemon ends.
pub(crate) async fn look_for_absent(shared: Arc<Shared>) {
    let mut hanging = BTreeMap::new();
    let mut pause_ms = ABSENT_PAUSE_MIN_MS;
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        pause_ms = (pause_ms * 2).min(ABSENT_PAUSE_MAX_MS);
        hanging.retain(|_, look: &mut OriginCheck| look.hangs());
        for absent in shared.absent() {
            if hanging.contains_key(&absent.name) {
                continue;
            }
            if let Err(why) = shared.look_for(&absent, &mut hanging).await {
                shared.stays_absent(&absent.name, &why);
            }
        }
    }
}

impl Shared {
    /// Serves an absent volume, if its origin is present. A hung check is added to `hanging`.
    async fn look_for(
        &self,
        absent: &Absent,
        hanging: &mut BTreeMap<String, OriginCheck>,
    ) -> Result<(), String> {
        let look = OriginCheck::begin(&absent.volume, &self.stores).map_err(|error| error.to_string())?;
        let wait = move || (look.wait(Duration::from_millis(ORIGIN_LOOK_MS)), look);
        let looked = tokio::task::spawn_blocking(wait).await;
        let (outcome, look) = looked.map_err(|_| "the check of its origin was interrupted".to_owned())?;
        if outcome.as_ref().is_err_and(EngineError::is_silence) {
            hanging.insert(absent.name.clone(), look);
        }
        outcome.map_err(|error| error.to_string())?;
        self.bring_back(absent).await
    }

    /// Serves an absent volume whose origin is available again.
    async fn bring_back(&self, absent: &Absent) -> Result<(), String> {
        let mut in_force = self.settings().await?;
        // A reload may have added it in the meantime, or changed its origin.
        if !self.absent().contains(absent) {
            return Ok(());
        }
        if let Some(hindrance) = self.hindrance().await? {
            return Err(format!("its origin is back, but {hindrance}"));
        }
        let added = self.take_up(&mut in_force, vec![absent.volume.clone()], When::Return).await?;
        let front = in_force.front();
        self.mailbox.send(Command::Front(Box::new(front)));
        drop(in_force);
        added.later.iter().for_each(|problem| tracing::warn!("{problem}"));
        Ok(())
    }
}
