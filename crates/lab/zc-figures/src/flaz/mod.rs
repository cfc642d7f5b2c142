//! Figures of FlaZ (Makatos et al., EuroSys 2010).

mod files;
mod frames;
mod hits;
mod speed;
mod workloads;

use crate::Figure;

/// All of them.
pub(crate) const FIGURES: [Figure; 10] = [
    files::TABLE_2,
    files::TABLE_3,
    hits::FIGURE_3,
    hits::FIGURE_6,
    hits::FIGURE_7,
    frames::FIGURE_8,
    frames::FIGURE_9,
    hits::FIGURE_10,
    frames::FIGURE_11,
    speed::FIGURES_IN_TIME,
];
