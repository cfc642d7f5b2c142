//! Options of a run.

use zc_cache::config::{Packer, Replacement};

use crate::canary::Canary;
use crate::profile::Profile;

/// Options of a run of one seed.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Client requests.
    pub ops: u64,
    /// Deliberate bug to enable.
    pub canary: Option<Canary>,
    /// Replacement policy; `None`: the seed decides.
    pub replacement: Option<Replacement>,
    /// Placement of extents in a WEU; `None`: the seed decides.
    pub packer: Option<Packer>,
    /// Kind of machine; `None`: the seed decides.
    pub profile: Option<Profile>,
    /// Receives every event and action as text.
    pub trace: Option<fn(&str)>,
}
