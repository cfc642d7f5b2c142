//! The mappings of an index image that lead to one unit.

use crate::index::file_index::Mapping;

/// The index image's mappings that lead to a unit.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MappingCounts {
    live: u32,
    /// Number of them that are of kept extents.
    kept: u32,
    /// Set if the unit is the base of an extent that is not kept.
    has_other_base: bool,
}

impl MappingCounts {
    pub(crate) fn count(&mut self, mapping: Mapping, is_kept: bool) {
        self.live += 1;
        self.kept += u32::from(is_kept);
        self.has_other_base |= !is_kept && matches!(mapping, Mapping::Base(_));
    }

    pub(crate) const fn live(&self) -> u32 {
        self.live
    }

    /// Mappings of kept extents.
    pub(crate) const fn kept(&self) -> u32 {
        self.kept
    }

    /// Returns `true` if the unit is for kept extents. Others may share their content.
    pub(crate) const fn are_of_kept(&self) -> bool {
        self.kept > 0 && !self.has_other_base
    }
}
