//! Losses that a restart must not have.

/// A guarantee that a restart breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Missing blocks that a later one requires as durable: volumes would be fenced without a reason.
    Gap {
        /// The first of them.
        block: u8,
    },
    /// A commit is valid, and its data is missing.
    Unreadable {
        /// Volume.
        volume: u8,
        /// Version.
        version: u8,
    },
    /// G5: flushed data is gone.
    Flushed {
        /// Volume.
        volume: u8,
        /// Flushed version.
        version: u8,
        /// Recovered version.
        found: u8,
    },
}
