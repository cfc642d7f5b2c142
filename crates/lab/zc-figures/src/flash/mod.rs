//! Figures about the SSD below the cache: erasures (Nitro), and compression inside the SSD (Zuck et al., CaFTL).

mod caftl;
mod erasures;
mod managed;
mod packing;
mod place;

use crate::Figure;

/// All of them.
pub(crate) const FIGURES: [Figure; 11] = [
    erasures::FIGURE_6,
    packing::FIGURE_4,
    packing::FIGURE_5,
    packing::FIGURE_6,
    packing::FIGURE_7,
    caftl::FIGURE_5,
    caftl::FIGURE_6,
    caftl::FIGURE_7,
    caftl::FIGURE_9,
    caftl::FIGURE_10,
    place::WHERE,
];
