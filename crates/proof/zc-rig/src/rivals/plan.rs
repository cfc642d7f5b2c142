//! The caches that are compared, and under which loads.

use clap::ValueEnum;

use super::data::Kind;

/// A cache, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// The slow disk itself.
    Raw,
    BcacheWt,
    BcacheWb,
    DmCacheWt,
    DmCacheWb,
    /// dm-cache on an SSD that dm-vdo deduplicates and compresses.
    DmCacheVdo,
    DmWritecache,
    NbdkitCache,
    /// zcached with deduplication and compression, write-through.
    #[value(name = "zcached-d-c")]
    ZcachedDC,
    /// With deduplication alone.
    ZcachedDNc,
    /// With compression alone.
    ZcachedNdC,
    /// With neither.
    ZcachedNdNc,
    /// With both, write-back.
    ZcachedWb,
    /// With both, write-back; the origin gets writes in any order.
    ZcachedCoalesce,
    /// With both, and with the other copy mode between the kernel and the daemon.
    ZcachedUserCopy,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Reads of 8 KiB, zipf 0.9, over eight times the cache.
    Zipf,
    /// As zipf, over eight machines that have half of their data in common.
    Clones,
    /// As zipf, with 30 % writes.
    Mix,
    /// Writes of 4 KiB, one at a time, each made durable.
    Fsync,
    /// A hot set of half the cache, and a scan of four times the cache in the middle.
    Scan,
    /// As zipf, over data that cannot be reduced.
    Unique,
    /// Random reads in a set of this share of the cache, in per cent.
    #[value(name = "fit-25")]
    Fit25,
    #[value(name = "fit-50")]
    Fit50,
    #[value(name = "fit-100")]
    Fit100,
    #[value(name = "fit-200")]
    Fit200,
}

impl Contender {
    pub(crate) fn name(self) -> String {
        name(&self)
    }

    /// Returns the name for people, with Nitro's letters for enabled features.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Raw => "no cache",
            Self::BcacheWt => "bcache, write-through",
            Self::BcacheWb => "bcache, write-back",
            Self::DmCacheWt => "dm-cache smq, write-through",
            Self::DmCacheWb => "dm-cache smq, write-back",
            Self::DmCacheVdo => "dm-cache smq over dm-vdo",
            Self::DmWritecache => "dm-writecache",
            Self::NbdkitCache => "nbdkit's cache filter",
            Self::ZcachedDC => "zcached D,C",
            Self::ZcachedDNc => "zcached D,NC",
            Self::ZcachedNdC => "zcached ND,C",
            Self::ZcachedNdNc => "zcached ND,NC",
            Self::ZcachedWb => "zcached D,C, write-back",
            Self::ZcachedCoalesce => "zcached D,C, write-back, coalesced",
            Self::ZcachedUserCopy => "zcached D,C, user copy",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        use Contender::{
            ZcachedCoalesce, ZcachedDC, ZcachedDNc, ZcachedNdC, ZcachedNdNc, ZcachedUserCopy, ZcachedWb,
        };
        let reduces_all = matches!(self, ZcachedDC | ZcachedWb | ZcachedCoalesce | ZcachedUserCopy);
        reduces_all || matches!(self, ZcachedDNc | ZcachedNdC | ZcachedNdNc)
    }
}

impl Workload {
    pub(crate) fn name(self) -> String {
        name(&self)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Zipf => "8 KiB random reads, zipf 0.9, over 8 times the cache",
            Self::Clones => {
                "8 KiB random reads, zipf 0.9, over 8 times the cache; half of it are 8 copies of one image"
            }
            Self::Mix => "70 % reads, 30 % writes, 8 KiB, zipf 0.9, over 8 times the cache",
            Self::Fsync => "4 KiB random writes, zipf 0.9, one at a time, each made durable",
            Self::Scan => "a hot set of half the cache, after a scan of 4 times the cache",
            Self::Unique => {
                "8 KiB random reads, zipf 0.9, over 8 times the cache; incompressible, no duplicates"
            }
            Self::Fit25 => "8 KiB random reads, anywhere in 25 % of the cache's size",
            Self::Fit50 => "8 KiB random reads, anywhere in 50 % of the cache's size",
            Self::Fit100 => "8 KiB random reads, anywhere in 100 % of the cache's size",
            Self::Fit200 => "8 KiB random reads, anywhere in 200 % of the cache's size",
        }
    }

    pub(crate) fn data(self) -> Kind {
        match self {
            Self::Unique => Kind::Unique,
            Self::Clones => Kind::Clones,
            _ => Kind::Reducible,
        }
    }

    /// Returns `true` if the workload distinguishes this contender from another: modes are equivalent for pure reads,
    /// and copy modes when the disk is the bottleneck.
    pub(crate) fn tells_of(self, contender: Contender) -> bool {
        use Contender::{BcacheWb, DmCacheWb, DmWritecache, ZcachedCoalesce, ZcachedUserCopy, ZcachedWb};
        if contender == ZcachedUserCopy {
            return matches!(self, Self::Mix | Self::Fit25);
        }
        let writes = matches!(self, Self::Mix | Self::Fsync);
        writes || !matches!(contender, BcacheWb | DmCacheWb | DmWritecache | ZcachedWb | ZcachedCoalesce)
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_is_known_to_the_machine() {
        let script = include_str!("../guest/contenders.sh");
        for contender in Contender::value_variants() {
            assert!(script.contains(&format!("\n        {}) ", contender.name())), "{contender:?}");
        }
    }

    #[test]
    fn every_workload_is_known_to_the_machine() {
        let script = include_str!("../guest/rivals.sh");
        let cases: Vec<&str> =
            script.lines().filter_map(|line| line.trim().split_once(") ")).map(|(it, _)| it).collect();
        for workload in Workload::value_variants() {
            let name = workload.name();
            let word = if name.starts_with("fit-") { "fit-*" } else { &name };
            assert!(cases.iter().any(|case| case.split(" | ").any(|one| one == word)), "{name}");
        }
    }

    #[test]
    fn who_writes_late_is_not_compared_by_reads() {
        assert!(!Workload::Zipf.tells_of(Contender::BcacheWb));
        assert!(Workload::Zipf.tells_of(Contender::ZcachedDC));
        assert!(Workload::Fsync.tells_of(Contender::BcacheWb));
        assert!(Workload::Fit25.tells_of(Contender::ZcachedUserCopy));
        assert!(!Workload::Zipf.tells_of(Contender::ZcachedUserCopy));
    }
}
