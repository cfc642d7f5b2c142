//! Figures of Nitro (Li et al., USENIX ATC 2014) that a cache simulator can speak to.

mod against_flaz;
mod aged;
mod generations;
mod grain;
mod hits;
mod index;
mod inputs;
mod overhead;
mod recipes;
mod restore;
mod runs;
mod sensitivity;
mod sharing;
mod sizes;
mod speed;
mod sweep;
mod workloads;
mod writes;

use crate::Figure;
pub(crate) use runs::{Variant, percent_of};
pub(crate) use workloads::{SHAPES, Shape, Source, sources};

/// All of them.
pub(crate) const FIGURES: [Figure; 18] = [
    inputs::WORKLOADS,
    inputs::DEVICES,
    sharing::FIGURE_1,
    hits::FIGURE_4,
    grain::FIGURE_4_GRAIN,
    sweep::SWEEP,
    recipes::RECIPES,
    index::FIGURE_5,
    sizes::EXTENTS,
    sizes::UNITS,
    sizes::GZIP,
    writes::WRITES,
    sensitivity::FIGURE_7,
    speed::TABLE_2,
    overhead::FIGURE_8,
    aged::FIGURE_9,
    restore::FIGURE_10,
    against_flaz::AGAINST_FLAZ,
];
