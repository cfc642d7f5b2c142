//! Figures about the SSD below the cache: erasures (Nitro), and compression inside the SSD (Zuck et al., CaFTL).

mod erasures;
mod packing;

use crate::Figure;

/// All of them.
pub(crate) const FIGURES: [Figure; 5] =
    [erasures::FIGURE_6, packing::FIGURE_4, packing::FIGURE_5, packing::FIGURE_6, packing::FIGURE_7];
