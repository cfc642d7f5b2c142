//! Counts of the mappings to one unit in an index image.

use crate::index::file_index::Mapping;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MappingCounts {
    live: u32,
    /// Mappings of kept extents.
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

    pub(crate) const fn kept(&self) -> u32 {
        self.kept
    }

    /// Returns `true` if the unit belongs to the class of kept extents; other extents may share its content.
    pub(crate) const fn are_of_kept(&self) -> bool {
        self.kept > 0 && !self.has_other_base
    }
}
