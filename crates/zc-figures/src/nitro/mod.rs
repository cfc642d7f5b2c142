//! Figures of Nitro (Li et al., USENIX ATC 2014) that a cache simulator can speak to.

mod hits;
mod runs;
mod sharing;
mod workloads;

use crate::Figure;

/// All of them.
pub(crate) const FIGURES: [Figure; 2] = [sharing::FIGURE_1, hits::FIGURE_4];
