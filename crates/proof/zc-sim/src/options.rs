//! Options of a run.

use zc_cache::config::{Packer, Replacement};

use crate::canary::Canary;
use crate::profile::Profile;

/// Options of a run of one seed.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Client requests.
    pub ops: u64,
    /// A deliberate bug.
    pub canary: Option<Canary>,
    /// The replacement policy; `None`: the seed decides.
    pub replacement: Option<Replacement>,
    /// Where extents go in a WEU; `None`: the seed decides.
    pub packer: Option<Packer>,
    /// The kind of machine; `None`: the seed decides.
    pub profile: Option<Profile>,
    /// Where every event and action goes, for people.
    pub trace: Option<fn(&str)>,
}
