//! Ablations: mechanisms that are removed from the models or distorted, so that shapes which depend on them fail.
//!
//! Job: show the shapes that could have come out otherwise. A shape that is [`crate::Standing::Asserted`] names the
//! ablations that break it ([`crate::unbroken`] runs them). `zc-figures --ablation NAME` shows the figures of a broken
//! model.
//!
//! The daemon's code is unaffected. Each figure gets the ablation from its [`crate::Context`].

/// Removed or distorted mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ablation {
    /// No content is stored twice.
    UniqueContents,
    /// No content compresses.
    Incompressible,
    /// No content is stored twice, and none compresses.
    Irreducible,
    /// The fingerprint index has all entries, whatever its ratio is.
    WholeIndex,
    /// Caches hold everything.
    EndlessRoom,
    /// Caches have an eighth of their capacity.
    LittleRoom,
    /// Processors take five hundred times as long.
    SlowCores,
    /// Processors take no time.
    FreeCores,
    /// Reads repeat earlier ones.
    Repeats,
    /// The SSD collects garbage and merges blocks at no cost.
    FreeCollection,
    /// Write-evict units lie across the borders of erase blocks.
    ShiftedUnits,
    /// The cache does not compress.
    RawCache,
    /// All frames have 32 KiB.
    SameFrames,
    /// Nothing cleans.
    NoCleaner,
    /// Pages that are written again leave the buffer of every layout.
    AlwaysAbsorbs,
    /// Units are written as small as extents.
    SameWrites,
    /// Nothing is written over before an aged log is read.
    FreshLog,
}

impl Ablation {
    /// All ablations, each with its name on the command line and its effect.
    pub const ALL: [(Self, &'static str, &'static str); 17] = [
        (Self::UniqueContents, "unique-contents", "no content is stored twice"),
        (Self::Incompressible, "incompressible", "no content compresses"),
        (Self::Irreducible, "irreducible", "no content is stored twice, and none compresses"),
        (Self::WholeIndex, "whole-index", "the fingerprint index has all entries, whatever its ratio is"),
        (Self::EndlessRoom, "endless-room", "caches hold everything"),
        (Self::LittleRoom, "little-room", "caches have an eighth of their room"),
        (Self::SlowCores, "slow-cores", "processors take five hundred times as long"),
        (Self::FreeCores, "free-cores", "processors take no time"),
        (Self::Repeats, "repeats", "what was read before is read again"),
        (Self::FreeCollection, "free-collection", "the SSD collects garbage at no cost"),
        (Self::ShiftedUnits, "shifted-units", "units lie across the borders of erase blocks"),
        (Self::RawCache, "raw-cache", "the cache does not compress"),
        (Self::SameFrames, "same-frames", "all frames have 32 KiB"),
        (Self::NoCleaner, "no-cleaner", "nothing cleans"),
        (Self::AlwaysAbsorbs, "always-absorbs", "pages written again leave the buffer of every layout"),
        (Self::SameWrites, "same-writes", "units are written as small as extents"),
        (Self::FreshLog, "fresh-log", "nothing is written over before an aged log is read"),
    ];

    const fn entry(self) -> &'static (Self, &'static str, &'static str) {
        &Self::ALL[self as usize]
    }

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().1
    }

    /// Returns the effect.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        self.entry().2
    }

    /// The ablation of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.1 == name).map(|entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ablation_is_found_by_its_name() {
        for (ablation, name, meaning) in Ablation::ALL {
            assert_eq!(Ablation::named(name), Some(ablation));
            assert_eq!((ablation.name(), ablation.meaning()), (name, meaning));
        }
        assert_eq!(Ablation::named("none"), None);
    }
}
