//! Constants of both indexes.

/// Number of the layout of both indexes: it changes with the arithmetic of `quotients`, the order of fields in `table`,
/// and the codes of `file_index` and `fingerprint_index`. Media have it, see `FORMAT.md`, section 10.
pub(crate) const INDEX_LAYOUT: u32 = 2;

/// Extents that are looked for in the indexes together: a few lines of memory each, as many as a core waits for at once.
pub(crate) const CALLED_UP: usize = 8;
