//! Judges that watch the manager: each sees every event and every action, and reports violations.
//!
//! A new judge is one file here: a type that implements [`Judge`], and a line in [`Judges::new`]. It takes its
//! information from these calls. It draws nothing and changes nothing, so a run with it is identical to the run
//! without it.

mod borders;
pub(crate) mod pins;
pub(crate) mod shares;

use zc_cache::CacheManager;
use zc_cache::seam::{Action, Event};
use zc_core::VolumeId;
use zc_format::Geometry;

use crate::clients::Clients;
use crate::env::Env;
use crate::volumes::Volumes;

/// State that a judge may read when time passes.
pub(crate) struct Sight<'a> {
    pub(crate) manager: &'a CacheManager,
    pub(crate) volumes: &'a Volumes,
    pub(crate) clients: &'a Clients,
}

impl Sight<'_> {
    /// Returns `true` if dirty data of the volume, or an outstanding request, may change its stored contents.
    fn is_written(&self, volume: VolumeId) -> bool {
        let dirty = self.manager.dirty(volume).unwrap_or_default();
        dirty.bytes > 0 || dirty.waiting > 0 || dirty.fenced || self.clients.may_write(usize::from(volume.0))
    }
}

/// Judge of the manager. Each method is called at its point in every run; unused ones keep their defaults.
pub(crate) trait Judge: core::fmt::Debug {
    /// Returns the judge for a copy of the machine after a power cut.
    fn fork(&self) -> Box<dyn Judge>;

    /// Handles the start of a manager.
    fn begins(&mut self) {}

    /// Handles a change of the cache device's contents behind the manager: an older image, or an empty device.
    fn medium_changed(&mut self) {}

    /// Handles an event before the manager does.
    fn comes(&mut self, _event: &Event) {}

    /// Handles an action of the manager.
    fn wants(&mut self, _action: &Action, _volumes: &Volumes) {}

    /// Returns a violation, after all actions of an event were taken up.
    fn took(&mut self) -> Option<String> {
        None
    }

    /// Returns a violation, after an event was handled.
    fn handled(&mut self, _manager: &CacheManager) -> Option<String> {
        None
    }

    /// Handles a tick. Returns the name of an observation to count.
    fn ticked(&mut self, _sight: &Sight<'_>) -> Option<&'static str> {
        None
    }
}

#[derive(Debug)]
pub(crate) struct Judges(Vec<Box<dyn Judge>>);

impl Judges {
    /// Creates the judges: each has its line here.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self(vec![
            Box::new(borders::Borders::default()),
            Box::new(shares::Shares::default()),
            Box::new(pins::Pins::new(geometry)),
        ])
    }

    /// Returns the judges for a copy of the machine after a power cut.
    pub(crate) fn fork(&self) -> Self {
        Self(self.0.iter().map(|judge| judge.fork()).collect())
    }

    pub(crate) fn begins(&mut self) {
        self.0.iter_mut().for_each(|judge| judge.begins());
    }

    pub(crate) fn medium_changed(&mut self) {
        self.0.iter_mut().for_each(|judge| judge.medium_changed());
    }

    pub(crate) fn comes(&mut self, event: &Event) {
        self.0.iter_mut().for_each(|judge| judge.comes(event));
    }

    pub(crate) fn wants(&mut self, action: &Action, volumes: &Volumes) {
        self.0.iter_mut().for_each(|judge| judge.wants(action, volumes));
    }

    pub(crate) fn took(&mut self, env: &mut Env) {
        self.0.iter_mut().filter_map(|judge| judge.took()).for_each(|text| env.violate(text));
    }

    pub(crate) fn handled(&mut self, env: &mut Env, manager: &CacheManager) {
        self.0.iter_mut().filter_map(|judge| judge.handled(manager)).for_each(|text| env.violate(text));
    }

    pub(crate) fn ticked(&mut self, env: &mut Env, sight: &Sight<'_>) {
        self.0.iter_mut().filter_map(|judge| judge.ticked(sight)).for_each(|name| env.note(name));
    }
}
