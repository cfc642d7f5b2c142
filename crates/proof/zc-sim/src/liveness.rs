//! Liveness: once nothing fails any more, everything comes to an end.
//!
//! Job: at the end of a seed operations hang and requests wait; then every fault is switched off, devices and origins
//! answer, and nothing is cut off any more. From then on every request ends. A cache that is out of order is taken up
//! again, and stays in order. Every volume becomes clean: by itself, or, where the device lost what it had acknowledged,
//! once an operator gives that up. Then no request fails for what the device once did, and the stop is a clean one.
//!
//! What it does not do: say how long that may take, but for a number of steps that no run should need.

use rand::RngExt as _;
use zc_cache::seam::Event;
use zc_cache::{CacheManager, DirtyState};
use zc_core::{SECTOR_BYTES, VolumeId};

use crate::setup::Faults;
use crate::world::{PATIENCE, World};
use crate::write_back::Trouble;
use crate::zone;

/// Turns in which clients ask while a zone hangs.
const HUNG_TURNS: u32 = 150;

impl World {
    /// Everything that hangs or fails is mended, and everything has to come to an end.
    pub(crate) fn judge_liveness(&mut self) {
        if self.is_pool_rotten() {
            return;
        }
        self.hang();
        self.mend();
        self.mend_pool();
        self.drain();
        if self.violation.is_none() && !self.is_in_order() {
            self.coverage.note("caches taken up again at the end");
            self.kill();
        }
        self.become_clean();
        // A start goes on from what it finds, and writes over damaged metadata: the one after it finds the rest whole.
        if self.trouble.damaged && self.violation.is_none() {
            self.stop_and_start();
            self.become_clean();
        }
        if self.violation.is_some() {
            return;
        }
        // What only the device had is on the origins: nothing else excuses a volume any more.
        self.trouble = Trouble { forged: self.trouble.forged, ..Trouble::default() };
        self.read_all();
        for volume in 0..self.volumes.len() {
            let len = self.volumes[volume].size_bytes.min(u64::from(SECTOR_BYTES)) as usize;
            self.write_anew(volume, 0, len);
        }
        self.judge_order();
    }

    /// Clients ask while a zone does not answer.
    fn hang(&mut self) {
        let zone = zone::SLOW[self.rng.random_range(0..zone::SLOW.len())];
        self.stalled = Some((zone, u64::MAX));
        for _ in 0..HUNG_TURNS {
            if self.violation.is_some() {
                return;
            }
            if self.rng.random_bool(0.3) && self.in_flight() < 12 {
                self.random_request();
            } else {
                self.step_or_tick();
            }
        }
    }

    fn mend(&mut self) {
        self.trace(|| "mended".to_owned());
        self.mended = true;
        self.trouble.lied_before = self.faults.may_lie();
        self.faults = Faults::default();
        self.stalled = None;
        self.habits.hangs = None;
        self.habits.crash_after_flush = 0.0;
        self.hasty = false;
        self.crash_in = None;
        self.cut_start_at = None;
        self.cache.mend();
    }

    fn is_in_order(&self) -> bool {
        self.manager.as_ref().is_some_and(CacheManager::is_healthy)
    }

    /// The cache stays in order once it has been taken up again.
    fn judge_order(&mut self) {
        if !self.is_in_order() {
            self.violation.get_or_insert_with(|| "the cache is out of order though nothing fails".to_owned());
        }
    }

    /// Every volume is served, and its dirty data goes to the origin or is given up.
    fn become_clean(&mut self) {
        for volume in 0..self.volumes.len() {
            if self.violation.is_some() {
                return;
            }
            self.make_writable(volume);
            if self.dirty(volume).is_some_and(|state| !state.fenced) {
                self.event(Event::Destage { volume: VolumeId(volume as u16) });
            }
        }
        for volume in 0..self.volumes.len() {
            self.wait_until_clean(volume);
            self.judge_order();
            if self.violation.is_some() {
                return;
            }
        }
        self.coverage.note("machines mended in the end");
        self.judge_origins();
    }

    /// Waits until the volume is clean. What the device has lost does not become so: an operator gives it up.
    fn wait_until_clean(&mut self, volume: usize) {
        for _ in 0..PATIENCE {
            if self.violation.is_some() || self.is_known_clean(volume) {
                return;
            }
            // Destaging that is stuck at what was not read is tried again; what is damaged is not read then either.
            let lost = |state: &DirtyState| state.fenced || (state.stuck_bytes > 0 && self.trouble.damaged);
            if self.dirty(volume).as_ref().is_some_and(lost) {
                break;
            }
            self.step_or_tick();
        }
        if !self.trouble.damaged || self.dirty(volume).is_none() {
            let state = self.dirty(volume);
            let text = format!("volume {volume} does not become clean though nothing fails: {state:?} (G6)");
            self.violation.get_or_insert(text);
            return;
        }
        self.coverage.note("dirty data lost in the end");
        self.drop_dirty(volume);
    }

    /// What a start finds is not all known until it has been looked at.
    fn is_known_clean(&self, volume: usize) -> bool {
        self.dirty(volume).is_none() && self.manager.as_ref().is_some_and(CacheManager::is_loaded)
    }
}
