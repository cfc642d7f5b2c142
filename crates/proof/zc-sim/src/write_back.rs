//! Write-back: what the origins hold alone, what the cache device may be blamed for, and what operators do.
//!
//! Job: keep the judge of G6 beside the model disk; look at the origins at every crash and at random moments; bring
//! volumes to the origin and check that they are there (G5); say when a request of a volume that writes back may fail.

use rand::RngExt as _;
use zc_cache::seam::Event;
use zc_cache::{CacheManager, DirtyState};
use zc_core::{Mode, VolumeId};

use crate::content;
use crate::world::{PATIENCE, World};

/// How long an idle volume may stay dirty beyond its configured age, in simulated milliseconds.
const AGE_SLACK_MS: u64 = 15_000;

/// What the cache device did, as far as it excuses a volume that writes back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trouble {
    /// An operation failed in this session, or the manager was told that the device is gone.
    pub(crate) session: bool,
    /// Something on it is damaged.
    pub(crate) damaged: bool,
    /// What it acknowledged is not in the slots, or not as it was: commits of the last moment may not count.
    pub(crate) lied_slots: bool,
    /// Metadata that the device acknowledged is not there, or not as it was. A restart finds everything by it.
    pub(crate) lied_metadata: bool,
    /// A dirty extent has rotted, and is not written anew yet.
    pub(crate) rotten: bool,
    /// Another content lies under a fingerprint. A start that compares it with the origin takes the origin for changed.
    pub(crate) forged: bool,
    /// A loss was accepted, or a fence forgotten with the state directory. Dirty records may be of the past, and another
    /// unit may have taken their slot.
    pub(crate) old_records: bool,
    /// This session's start, or an operator, decided something about dirty data, which may not be durable.
    pub(crate) undecided: bool,
    /// When the cache got out of order in this session.
    pub(crate) failed_at: Option<u64>,
    /// What the cache device acknowledged before the run came to its end may not be there, or not as it was.
    pub(crate) lied_before: bool,
    /// A checkpoint had no room for all mappings.
    pub(crate) left_out: bool,
    /// Since when a distrust could not be recorded in this session.
    pub(crate) unrecorded_ms: Option<u64>,
}

impl Trouble {
    /// Damage that is noticed when it is read.
    pub(crate) fn damage(&mut self) {
        self.damaged = true;
    }

    /// Damage of what was acknowledged, that a restart may not be able to tell from what never was.
    pub(crate) fn lie(&mut self, in_slots: bool) {
        self.damaged = true;
        if in_slots {
            self.lied_slots = true;
        } else {
            self.lied_metadata = true;
        }
    }
}

impl World {
    pub(crate) fn dirty(&self, volume: usize) -> Option<DirtyState> {
        let manager = self.manager.as_ref()?;
        manager.dirty(VolumeId(volume as u16)).filter(|state| state.bytes > 0 || state.fenced)
    }

    /// Writes of the volume may be acknowledged before the origin has them.
    pub(crate) fn writes_back(&self, volume: usize) -> bool {
        self.volumes[volume].mode == Mode::WriteBack || self.dirty(volume).is_some()
    }

    /// Whether dirty data of the volume is out of reach while the cache is out of order, or may be for all that the
    /// device could be told.
    pub(crate) fn is_out_of_reach(&self, volume: usize) -> bool {
        let unknown = self.trouble.undecided || self.files.incomplete.contains(&volume);
        self.dirty(volume).is_some_and(|state| state.fenced && (state.bytes > 0 || unknown))
    }

    /// A request may fail: the cache device is in trouble, and may hold what only it has. Or a store rotted, and came
    /// back older than what the cache knows of it: dirty data is not for that one.
    pub(crate) fn is_excused(&self, volume: usize) -> bool {
        let troubled = self.trouble.session || self.trouble.damaged || self.trouble.rotten;
        let is_older = self.pooled.as_ref().is_some_and(|pooled| pooled.is_rotten && pooled.has(volume));
        (troubled || is_older) && (self.maybe_dirty[volume] || self.writes_back(volume))
    }

    /// For each sector of an origin, what it may hold after a power cut.
    fn possible(&mut self, volume: usize) -> Option<Vec<Vec<u64>>> {
        let mut possible = Vec::new();
        for (sector, pieces) in self.origins[volume].possible().into_iter().enumerate() {
            let values: Option<Vec<u64>> = pieces.into_iter().map(content::identify).collect();
            let Some(mut values) = values else {
                let text =
                    format!("volume {volume}: sector {sector} of the origin holds what no client wrote (G3)");
                self.violation.get_or_insert(text);
                return None;
            };
            values.dedup();
            possible.push(values);
        }
        Some(possible)
    }

    /// The power goes and the cache is lost: what would be left?
    pub(crate) fn judge_origins(&mut self) {
        let is_told = self.look_into_store();
        for volume in 0..self.origins.len() {
            if !is_told && self.pooled.as_ref().is_some_and(|pooled| pooled.has(volume)) {
                continue;
            }
            let Some(possible) = self.possible(volume) else { return };
            let text = match self.judges[volume].judge(&possible) {
                Err(text) => text,
                Ok(()) if self.manager.is_none() || self.dirty(volume).is_some() => continue,
                Ok(()) => match self.lacking(volume, &possible) {
                    Some(text) => text,
                    None => continue,
                },
            };
            self.violation.get_or_insert_with(|| format!("volume {volume}: {text}"));
        }
        self.coverage.note("origins judged alone");
    }

    /// What the origin of a volume without dirty data must have and does not.
    fn lacking(&self, volume: usize, possible: &[Vec<u64>]) -> Option<String> {
        let oracle = &self.oracles[volume];
        possible.iter().enumerate().find_map(|(sector, values)| {
            let value = values.iter().find(|value| !oracle.may_be_left(sector, **value))?;
            let legal = oracle.describe(sector);
            Some(format!(
                "sector {sector} is called clean, the origin alone may hold {value}, legal: {legal} (G5)"
            ))
        })
    }

    /// What only the cache had is lost, or what a lying device shows instead of it.
    pub(crate) fn forgive(&mut self, volume: usize) {
        let all: Vec<usize> = (0..self.oracles[volume].sectors()).collect();
        self.forgive_sectors(volume, &all);
        self.coverage.note("dirty data beyond what can be told");
    }

    /// Allows these sectors anything that they ever held.
    pub(crate) fn forgive_sectors(&mut self, volume: usize, sectors: &[usize]) {
        self.now += 1;
        let all = self.oracles[volume].sectors();
        for sector in sectors.iter().copied().filter(|sector| *sector < all) {
            let values = self.oracles[volume].forgive(sector, self.now);
            self.judges[volume].forgive(sector, values, self.now);
        }
        self.now += 1;
    }

    /// The medium that the next session finds may not have all that was acknowledged. Damage in slots is judged sector by
    /// sector.
    pub(crate) fn forgive_lies(&mut self, crashed: bool) {
        if self.trouble.lied_metadata {
            self.forgive_all();
        } else if crashed && self.trouble.lied_slots {
            self.forgive_slots(self.files.has_intents());
        }
    }

    /// Any volume may have lost dirty data.
    pub(crate) fn forgive_all(&mut self) {
        for volume in 0..self.volumes.len() {
            if self.maybe_dirty[volume] {
                self.forgive(volume);
            }
        }
    }

    /// An operator wants a volume on its origin, or only waits for it.
    pub(crate) fn bring_home(&mut self, ask: bool) {
        let volume = self.rng.random_range(0..self.volumes.len());
        // Nothing is written to the origin of a volume that is read-only.
        let read_only = self.volumes[volume].mode == Mode::ReadOnly;
        if !self.served[volume] || !self.writes_back(volume) || read_only {
            return;
        }
        self.drain();
        if self.violation.is_some() {
            return;
        }
        if ask {
            self.coverage.note("volumes destaged on demand");
            self.event(Event::Destage { volume: VolumeId(volume as u16) });
        }
        let until = self.now_ms + self.volumes[volume].write_back.max_dirty_age_ms + AGE_SLACK_MS;
        for _ in 0..PATIENCE {
            if self.violation.is_some() {
                return;
            }
            if self.dirty(volume).is_none() {
                self.coverage.note(if ask { "volumes clean on demand" } else { "volumes clean by age" });
                return self.judge_origins();
            }
            if !ask && self.now_ms > until {
                break;
            }
            self.step_or_tick();
        }
        let is_full = self.faults.origin_full > 0.0 && volume == 0;
        // Destaging marks regions, and a map that is full of another origin's has no room for that.
        let may_fail = self.faults.origin_errors || is_full || self.excuses.has_flush_failed();
        if !self.is_excused(volume) && !may_fail && !self.is_pool_in_the_way(volume) {
            let state = self.dirty(volume);
            self.violation = Some(format!("volume {volume} does not become clean: {state:?} (G6)"));
        }
    }

    /// An operator gives dirty data up: it is out of reach, or a mistake.
    pub(crate) fn give_up(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        let Some(state) = self.dirty(volume) else { return };
        if !state.fenced && self.rng.random_bool(0.9) {
            return;
        }
        self.drain();
        if self.violation.is_some() {
            return;
        }
        let Some(state) = self.dirty(volume) else { return };
        let healthy = self.manager.as_ref().is_some_and(CacheManager::is_healthy);
        self.losses.given_up(volume);
        if state.fenced && healthy && self.rng.random_bool(0.5) {
            self.coverage.note("losses accepted");
            self.files.incomplete.remove(&volume);
            self.trouble.undecided = true;
            self.trouble.old_records = true;
            self.event(Event::AcceptLoss { volume: VolumeId(volume as u16) });
            return self.forgive(volume);
        }
        self.drop_dirty(volume);
    }

    /// The dirty data of a volume is given up, and the volume is clean.
    pub(crate) fn drop_dirty(&mut self, volume: usize) {
        let Some(state) = self.dirty(volume) else { return };
        let healthy = self.manager.as_ref().is_some_and(CacheManager::is_healthy);
        self.losses.given_up(volume);
        self.coverage.note("dirty data given up");
        self.trouble.undecided = true;
        self.files.incomplete.remove(&volume);
        if !healthy {
            self.coverage.note("epochs given up elsewhere");
            // Where the device cannot be told, the state directory is.
            let epoch = self.files.given_up.entry(volume).or_default();
            *epoch = state.newest_epoch.max(*epoch);
            self.maybe_dirty[volume] = false;
        }
        self.event(Event::DropDirty { volume: VolumeId(volume as u16), remembered: !healthy });
        for _ in 0..PATIENCE {
            let lost = healthy && !self.manager.as_ref().is_some_and(CacheManager::is_healthy);
            if self.dirty(volume).is_none() || lost || self.violation.is_some() {
                return self.forgive(volume);
            }
            self.step_or_tick();
        }
        self.violation = Some(format!("volume {volume}: dirty data that was given up stays"));
    }

    pub(crate) fn step_or_tick(&mut self) {
        if self.is_busy() {
            self.step();
        } else {
            self.tick();
        }
    }
}
