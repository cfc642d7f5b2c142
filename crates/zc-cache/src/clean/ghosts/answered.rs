//! Reads and hits of the cache itself, the reference for the ghosts.

/// Extents read since the start, and the hits among them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answered {
    pub(crate) read: u64,
    pub(crate) hits: u64,
}

impl Answered {
    /// Counts since an earlier moment.
    pub(crate) const fn since(&self, earlier: &Self) -> Self {
        Self { read: self.read.saturating_sub(earlier.read), hits: self.hits.saturating_sub(earlier.hits) }
    }
}
