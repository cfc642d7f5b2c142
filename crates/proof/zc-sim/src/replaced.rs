//! Volumes that go while others are served, and others that come under their numbers, with other origins.
//!
//! Job: be the driver of a removal. Nothing of the volume is asked any more, what is dirty goes to its origin, other
//! volumes go on, and at any step the machine may be cut off. When the manager has forgotten the volume, another origin
//! takes its place, with contents that were never anywhere, and the driver believes whatever the cache holds under the
//! number. The oracles know only the new contents: one old sector is a violation (G1, G2).
//!
//! The other one comes at once, or later, or with a start, or never. What the cache holds of the first may be erased
//! meanwhile.
//!
//! What it does not do: remove volumes of a store.

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::seam::Event;
use zc_core::{ErrorKind, Mode, VolumeId};

use crate::content;
use crate::disk::Disk;
use crate::epochs::OriginJudge;
use crate::oracle::Oracle;
use crate::world::{PATIENCE, SECTOR, World};

/// Steps between two ticks while a volume goes.
const TURNS_PER_TICK: u32 = 16;

impl World {
    /// A volume goes, and another one takes its number.
    pub(crate) fn replace_volume(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        let in_store = self.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
        let is_known = self.files.given_up.contains_key(&volume) || self.files.incomplete.contains(&volume);
        // Nothing is written to the origin of a volume that is read-only.
        let is_stuck = self.volumes[volume].mode == Mode::ReadOnly && self.dirty(volume).is_some();
        if !self.served[volume] || in_store || is_known || is_stuck || !self.is_well() {
            return;
        }
        self.drain();
        if self.violation.is_some() || !self.served[volume] || !self.is_clean_in_time(volume) {
            return;
        }
        self.coverage.note("removals begun");
        self.removed = None;
        self.leaving = Some(volume);
        self.event(Event::Remove { volume: VolumeId(volume as u16) });
        let outcome = self.wait_for_removal(volume);
        self.leaving = None;
        match outcome {
            Some(Ok(())) => {
                if self.rng.random_bool(0.3) {
                    self.erase_removed(volume);
                }
                self.other_origin(volume);
            }
            Some(Err(_)) => self.coverage.note("removals that failed"),
            None => {}
        }
    }

    /// Erases data of a removed volume, while others are served and another one comes.
    fn erase_removed(&mut self, volume: usize) {
        self.coverage.note("erasures");
        let others = (0..self.volumes.len()).filter(|other| *other != volume);
        let keep = others.map(|other| VolumeId(other as u16)).collect();
        self.event(Event::Erase { keep });
    }

    fn is_well(&self) -> bool {
        self.manager.as_ref().is_some_and(CacheManager::is_healthy)
    }

    /// The volume becomes clean, as no client asks anything of it.
    fn is_clean_in_time(&mut self, volume: usize) -> bool {
        self.event(Event::Destage { volume: VolumeId(volume as u16) });
        for _ in 0..PATIENCE / 10 {
            if self.violation.is_some() || !self.is_well() {
                return false;
            }
            if self.dirty(volume).is_none() {
                return true;
            }
            self.step_or_tick();
        }
        false
    }

    /// How the removal ended; none if something else did.
    fn wait_for_removal(&mut self, volume: usize) -> Option<Result<(), ErrorKind>> {
        let cut_at = self.rng.random_bool(0.4).then(|| self.rng.random_range(0..80));
        for turn in 0..PATIENCE {
            if self.violation.is_some() {
                return None;
            }
            if let Some((_, result)) = self.removed.take() {
                let explained = !self.is_well() || self.faults.origin_errors || self.are_origins_gone();
                if result.is_err() && !explained {
                    self.violation = Some(format!("volume {volume} is not removed though nothing failed"));
                }
                return Some(result);
            }
            if cut_at == Some(turn) {
                self.coverage.note("crashes while a volume goes");
                if self.rng.random_bool(0.5) {
                    self.power_cut();
                } else {
                    self.kill();
                }
                return None;
            }
            // Time goes on however much there is to do: what is under way is looked at once a tick.
            if turn % TURNS_PER_TICK == TURNS_PER_TICK - 1 {
                self.tick();
            } else if self.rng.random_bool(0.2) && self.in_flight() < 6 {
                self.request_of_another(volume);
            } else {
                self.step_or_tick();
            }
        }
        self.violation = Some(format!("the removal of volume {volume} does not end"));
        None
    }

    /// Another origin takes the place of the volume's, and is served under the number, now or later.
    fn other_origin(&mut self, volume: usize) {
        self.coverage.note("volumes replaced");
        self.trace(|| format!("volume {volume} has another origin"));
        let sectors = self.volumes[volume].size_bytes as usize / SECTOR;
        self.oracles[volume] = Oracle::new(0);
        self.judges[volume] = OriginJudge::new(0);
        self.origins[volume] = Disk::new(0);
        let is_empty = self.rng.random_bool(0.3);
        let mut bytes = vec![0; sectors * SECTOR];
        for sector in bytes.chunks_mut(SECTOR) {
            self.next_content += u64::from(!is_empty);
            let value = if is_empty { 0 } else { self.next_content };
            content::fill(value, sector);
            self.oracles[volume].grow(value);
            self.judges[volume].grow(value);
        }
        self.origins[volume].grow(&bytes);
        self.losses.replaced(volume);
        self.draw_settings(volume);
        let config = &mut self.volumes[volume];
        // Nothing is known of the number: the cache is believed.
        (config.trusted, config.may_be_dirty, config.lost_writes) = (true, false, false);
        self.distrusted[volume] = false;
        self.maybe_dirty[volume] = false;
        self.served[volume] = false;
        self.free[volume] = true;
        if self.rng.random_bool(0.6) {
            self.serve_volume(volume);
        }
    }
}
