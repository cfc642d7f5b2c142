//! Volumes: their settings, and which of them a manager serves.

use core::ops::{Index, IndexMut};

use zc_cache::config::VolumeConfig;
use zc_core::ErrorKind;

/// A volume.
#[derive(Debug, Clone)]
struct Volume {
    config: VolumeConfig,
    /// The manager knows it.
    is_served: bool,
    /// The number was taken over and has not been served since: nothing is known of it.
    is_free: bool,
    /// Number of changes of its settings.
    changes: u64,
}

/// All volumes, by number.
#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    all: Vec<Volume>,
    /// One that is being removed.
    leaving: Option<usize>,
    /// A removal that ended.
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

    /// The settings of what is served.
    pub(crate) fn served(&self) -> Vec<VolumeConfig> {
        self.all.iter().filter(|volume| volume.is_served).map(|volume| volume.config.clone()).collect()
    }

    pub(crate) fn is_served(&self, volume: usize) -> bool {
        self.all[volume].is_served
    }

    /// A session serves the volume from its start on, or not.
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

    /// Another volume has the number, and is not served yet.
    pub(crate) fn replace(&mut self, volume: usize) {
        self.all[volume].is_served = false;
        self.all[volume].is_free = true;
    }

    /// Number of changes of the settings of a volume.
    pub(crate) fn changes(&self, volume: usize) -> u64 {
        self.all[volume].changes
    }

    /// The settings of a volume are others now.
    pub(crate) fn changed(&mut self, volume: usize) {
        self.all[volume].changes += 1;
    }

    pub(crate) fn is_leaving(&self, volume: usize) -> bool {
        self.leaving == Some(volume)
    }

    /// A removal begins, or is over: then there is no volume that leaves.
    pub(crate) const fn leave(&mut self, volume: Option<usize>) {
        self.leaving = volume;
        if volume.is_some() {
            self.removed = None;
        }
    }

    /// A removal has ended.
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
