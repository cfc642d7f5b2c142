//! Models of the volumes: legal reads of clients (G1, G2), and legal contents of the origins alone (G6).

use zc_cache::config::VolumeConfig;
use zc_core::Destage;

use crate::content::SECTOR;
use crate::env::Env;
use crate::epochs::OriginJudge;
use crate::oracle::Oracle;

/// Both models of each volume.
#[derive(Debug, Clone)]
pub(crate) struct Models {
    oracles: Vec<Oracle>,
    origins: Vec<OriginJudge>,
    /// Sectors that an operator gives up, with the time of that.
    given_up: Vec<(usize, u64)>,
}

impl Models {
    pub(crate) fn new(volumes: &[VolumeConfig]) -> Self {
        let sectors = |volume: &VolumeConfig| volume.size_bytes as usize / SECTOR;
        let mut models = Self {
            oracles: volumes.iter().map(|volume| Oracle::new(sectors(volume))).collect(),
            origins: volumes.iter().map(|volume| OriginJudge::new(sectors(volume))).collect(),
            given_up: Vec::new(),
        };
        for (number, volume) in volumes.iter().enumerate() {
            models.configured(number, volume);
        }
        models
    }

    /// Excuses a volume that destages past flushes from the origin's model.
    pub(crate) fn configured(&mut self, volume: usize, config: &VolumeConfig) {
        if config.write_back.destage == Destage::Coalesce {
            self.origins[volume].excuse();
        }
    }

    pub(crate) fn oracle(&self, volume: usize) -> &Oracle {
        &self.oracles[volume]
    }

    pub(crate) fn oracle_mut(&mut self, volume: usize) -> &mut Oracle {
        &mut self.oracles[volume]
    }

    pub(crate) fn oracles(&self) -> &[Oracle] {
        &self.oracles
    }

    pub(crate) fn origin_mut(&mut self, volume: usize) -> &mut OriginJudge {
        &mut self.origins[volume]
    }

    /// Returns both models of a volume.
    pub(crate) fn both(&mut self, volume: usize) -> (&mut Oracle, &mut OriginJudge) {
        (&mut self.oracles[volume], &mut self.origins[volume])
    }

    /// Replaces the volume by one without sectors.
    pub(crate) fn replace(&mut self, volume: usize) {
        self.oracles[volume] = Oracle::new(0);
        self.origins[volume] = OriginJudge::new(0);
    }

    /// Adds a sector that holds this value from before any request.
    pub(crate) fn grow(&mut self, volume: usize, value: u64) {
        self.oracles[volume].grow(value);
        self.origins[volume].grow(value);
    }

    /// Records the start of a write of `value`.
    pub(crate) fn issue(&mut self, volume: usize, sector: usize, value: u64, now: u64) {
        self.oracles[volume].issue(sector, value, now);
        self.origins[volume].issue(sector, value, now);
    }

    /// Records the start of a discard.
    pub(crate) fn discard(&mut self, volume: usize, sector: usize, now: u64) {
        self.oracles[volume].issue(sector, 0, now);
        self.origins[volume].discard(sector, now);
    }

    /// Reissues a write that was issued at `issued` and has not begun.
    pub(crate) fn issue_again(&mut self, volume: usize, sector: usize, issued: u64, now: u64) {
        self.oracles[volume].issue_again(sector, issued, now);
        self.origins[volume].issue_again(sector, issued, now);
    }

    /// Sets the issue time of the oldest outstanding read.
    pub(crate) fn oldest_read(&mut self, issued: u64) {
        self.oracles.iter_mut().for_each(|oracle| oracle.oldest_read = issued);
    }

    /// Accepts any former content of these sectors.
    pub(crate) fn forgive(&mut self, volume: usize, sectors: &[usize], now: u64) {
        let all = self.oracles[volume].sectors();
        for sector in sectors.iter().copied().filter(|sector| *sector < all) {
            let values = self.oracles[volume].forgive(sector, now);
            self.origins[volume].forgive(sector, values, now);
        }
    }

    /// Lets the origin keep former contents of corrupt sectors that are not destaged.
    pub(crate) fn left_out(&mut self, volume: usize, sectors: impl Iterator<Item = usize>, now: u64) {
        let all = self.oracles[volume].sectors();
        for sector in sectors.filter(|sector| *sector < all) {
            self.origins[volume].forgive(sector, self.oracles[volume].ever(sector), now);
        }
    }

    /// Records that the manager zeroes sectors that an operator gave up as unreadable: readers may get zeros from now
    /// on.
    pub(crate) fn zeros_began(&mut self, env: &mut Env, volume: usize, sectors: impl Iterator<Item = usize>) {
        env.advance();
        let (now, all) = (env.now(), self.oracles[volume].sectors());
        for sector in sectors.filter(|sector| *sector < all) {
            self.issue(volume, sector, 0, now);
            self.given_up.push((sector, now));
        }
    }

    /// Records the end of these zeros; without `done` it is unknown if they are durable.
    pub(crate) fn zeros_ended(&mut self, volume: usize, done: bool, now: u64) {
        for (sector, began) in core::mem::take(&mut self.given_up) {
            if done {
                self.oracles[volume].end(sector, began, now, true, true);
            } else {
                self.oracles[volume].end_uncertain(sector, began, now, true);
            }
            self.origins[volume].end(sector, began, now, done, done);
        }
    }

    /// Records a failed flush of the origin, after which writes may be lost.
    pub(crate) fn lost(&mut self, volume: usize, now: u64) {
        self.oracles[volume].lost(now);
        self.origins[volume].lost();
    }

    pub(crate) fn power_cut(&mut self, now: u64) {
        self.oracles.iter_mut().for_each(|oracle| oracle.power_cut(now));
        self.origins.iter_mut().for_each(|judge| judge.crashed(now));
    }

    /// Records a kill. `is_safe`: the volume reported that all acknowledged data is stored elsewhere.
    pub(crate) fn killed(&mut self, is_safe: impl Fn(usize) -> bool, now: u64) {
        for (volume, oracle) in self.oracles.iter_mut().enumerate() {
            if is_safe(volume) {
                oracle.acknowledged_is_safe();
            }
            oracle.killed(now);
        }
        self.origins.iter_mut().for_each(|judge| judge.crashed(now));
    }

    /// Records that the manager left while requests are held back from it. `is_safe`: as for a kill.
    pub(crate) fn exchanged(&mut self, is_safe: impl Fn(usize) -> bool, now: u64) {
        for (volume, oracle) in self.oracles.iter_mut().enumerate() {
            if is_safe(volume) {
                oracle.acknowledged_is_safe();
            }
            oracle.exchanged(now);
        }
        self.origins.iter_mut().for_each(OriginJudge::lost);
    }

    /// Records that the process ended in order.
    pub(crate) fn nothing_in_memory(&mut self) {
        self.oracles.iter_mut().for_each(Oracle::nothing_in_memory);
    }
}
