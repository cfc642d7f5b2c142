//! Judges that watch the manager: each sees every event and every action, and says what does not hold.
//!
//! A new judge is one file here: a type that implements [`Judge`], and a line in [`Judges::new`]. What it needs to know
//! it takes from what it sees; it draws nothing and changes nothing, so that a run with it is the run without it.

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

/// What a judge may look at when time passes.
pub(crate) struct Sight<'a> {
    pub(crate) manager: &'a CacheManager,
    pub(crate) volumes: &'a Volumes,
    pub(crate) clients: &'a Clients,
}

impl Sight<'_> {
    /// Returns `true` if dirty data of the volume, or a request that waits, may change what is stored of it.
    fn is_written(&self, volume: VolumeId) -> bool {
        let dirty = self.manager.dirty(volume).unwrap_or_default();
        dirty.bytes > 0 || dirty.waiting > 0 || dirty.fenced || self.clients.may_write(usize::from(volume.0))
    }
}

/// A judge. Each method is called at its moment in every run; one that is not needed is left out.
pub(crate) trait Judge: core::fmt::Debug {
    /// Returns the judge for a copy of the machine after a power cut.
    fn fork(&self) -> Box<dyn Judge>;

    /// A manager begins.
    fn begins(&mut self) {}

    /// The cache device holds something else than the manager left: an older image, or nothing.
    fn medium_changed(&mut self) {}

    /// An event is about to reach the manager.
    fn comes(&mut self, _event: &Event) {}

    /// The manager wants something.
    fn wants(&mut self, _action: &Action, _volumes: &Volumes) {}

    /// All actions of an event have been taken up. What does not hold now.
    fn took(&mut self) -> Option<String> {
        None
    }

    /// An event was handled. What does not hold now.
    fn handled(&mut self, _manager: &CacheManager) -> Option<String> {
        None
    }

    /// Time has passed. A name for what was seen, if it is to be counted.
    fn ticked(&mut self, _sight: &Sight<'_>) -> Option<&'static str> {
        None
    }
}

/// All judges.
#[derive(Debug)]
pub(crate) struct Judges(Vec<Box<dyn Judge>>);

impl Judges {
    /// The list: each judge has its line here.
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
