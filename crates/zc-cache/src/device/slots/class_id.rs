//! Numbers of classes.

use zc_core::limits::CACHE_SHARES_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u8);

impl ClassId {
    /// Class of all volumes without a share of their own.
    pub(crate) const DEFAULT: Self = Self(0);
    /// Class of kept extents (see `kept`), whose bounds are not those of a volume.
    pub(crate) const KEPT: Self = Self(CACHE_SHARES_MAX + 1);
    pub(crate) const COUNT: u32 = CACHE_SHARES_MAX as u32 + 2;

    pub(super) const fn new(number: u8) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}
