//! What a restart may not lose.

/// A guarantee that a restart breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Blocks are missing that a later one calls durable: volumes would be fenced for nothing.
    Gap {
        /// The first of them.
        block: u8,
    },
    /// A commit counts, and what it wrote is not there.
    Unreadable {
        /// Whose.
        volume: u8,
        /// Which version.
        version: u8,
    },
    /// G5: what a flush covered is gone.
    Flushed {
        /// Whose.
        volume: u8,
        /// What the flush covered.
        version: u8,
        /// What the volume holds.
        found: u8,
    },
}
