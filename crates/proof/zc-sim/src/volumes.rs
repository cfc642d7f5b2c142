//! Volumes: their settings, and which of them a manager serves.

use core::ops::{Index, IndexMut};

use zc_cache::config::VolumeConfig;
use zc_core::ErrorKind;

#[derive(Debug, Clone)]
struct Volume {
    config: VolumeConfig,
    /// The manager has the volume.
    is_served: bool,
    /// The number was reused and has not been served since: nothing is recorded for it.
    is_free: bool,
    /// Number of changes of its settings.
    changes: u64,
}

/// All volumes, by number.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    all: Vec<Volume>,
    /// Volume that is being removed.
    leaving: Option<usize>,
    /// Result of a completed removal.
    removed: Option<Result<(), ErrorKind>>,
}

impl Volumes {
    pub(crate) fn new(configs: Vec<VolumeConfig>) -> Self {
        let volume = |config| Volume { config, is_served: true, is_free: false, changes: 0 };
        Self { all: configs.into_iter().map(volume).collect(), leaving: None, removed: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn configs(&self) -> impl Iterator<Item = &VolumeConfig> {
        self.all.iter().map(|volume| &volume.config)
    }

    /// Returns the settings of the served volumes.
    pub(crate) fn served(&self) -> Vec<VolumeConfig> {
        self.all.iter().filter(|volume| volume.is_served).map(|volume| volume.config.clone()).collect()
    }

    pub(crate) fn is_served(&self, volume: usize) -> bool {
        self.all[volume].is_served
    }

    /// Records if a session serves the volume from its start on.
    pub(crate) fn serve(&mut self, volume: usize, is_served: bool) {
        self.all[volume].is_served = is_served;
        self.all[volume].is_free &= !is_served;
    }

    pub(crate) fn is_free(&self, volume: usize) -> bool {
        self.all[volume].is_free
    }

    pub(crate) fn any_free(&self) -> bool {
        self.all.iter().any(|volume| volume.is_free)
    }

    /// Gives the number to another volume, which is not served yet.
    pub(crate) fn replace(&mut self, volume: usize) {
        self.all[volume].is_served = false;
        self.all[volume].is_free = true;
    }

    /// Returns the number of changes of a volume's settings.
    pub(crate) fn changes(&self, volume: usize) -> u64 {
        self.all[volume].changes
    }

    /// Counts a change of a volume's settings.
    pub(crate) fn changed(&mut self, volume: usize) {
        self.all[volume].changes += 1;
    }

    pub(crate) fn is_leaving(&self, volume: usize) -> bool {
        self.leaving == Some(volume)
    }

    /// Begins a removal; `None`: no volume is being removed any more.
    pub(crate) const fn leave(&mut self, volume: Option<usize>) {
        self.leaving = volume;
        if volume.is_some() {
            self.removed = None;
        }
    }

    /// Records the result of a removal.
    pub(crate) const fn removed(&mut self, result: Result<(), ErrorKind>) {
        self.removed = Some(result);
    }

    pub(crate) const fn take_removed(&mut self) -> Option<Result<(), ErrorKind>> {
        self.removed.take()
    }
}

impl Index<usize> for Volumes {
    type Output = VolumeConfig;

    fn index(&self, volume: usize) -> &VolumeConfig {
        &self.all[volume].config
    }
}

impl IndexMut<usize> for Volumes {
    fn index_mut(&mut self, volume: usize) -> &mut VolumeConfig {
        &mut self.all[volume].config
    }
}
