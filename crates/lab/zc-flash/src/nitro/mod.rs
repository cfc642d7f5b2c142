//! Nitro's question about the SSD (Li et al., USENIX ATC 2014, sections 4, 5.4 and 6.1, Figure 6): the cost in
//! erasures of a cache of units and of one of extents, with and without TRIM, and with a modified SSD.
//!
//! - *WEU-LRU*: compressed extents packed into units, the least recently used unit overwritten, on a commodity SSD.
//! - *WEU-LRU-TRIM*: the WEU is trimmed before.
//! - *WEU-LRU-mod*: units are aligned with erase blocks and evicted inside the SSD, which reserves no flash.
//! - *extent-LRU*: an extent lies in a slot of its own, uncompressed, and is overwritten in place.
//! - *extent-LRU-TRIM*: slots are trimmed as extents are dropped.
//! - *extent-LRU-mod*: the SSD appends extents to a log, and drops the least recently used ones under pressure
//!   (FlashTier with LRU). Not from the paper: a block is copied forward once at most half of it is live.
//!
//! All have the same flash. The unmodified SSD reserves 7 %, and 10 % for log blocks, so its cache is smaller.
//!
//! It does not measure speed, prefetch, or keep dirty data.

mod extents;
pub mod figure6;
pub mod placement;
mod shared;
mod silent;
mod weu;

use crate::error::GeometryError;
use crate::geometry::{Geometry, Latencies};
use crate::stats::Stats;
use crate::{Ftl, Hybrid, Logs, PageMapped};

pub use shared::{Access, accesses};

/// Bytes of a page of the SSD.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// Compared variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// WEUs on an SSD as it is.
    WeuLru,
    /// WEUs, trimmed before they are overwritten.
    WeuLruTrim,
    /// WEUs evicted inside the SSD.
    WeuLruMod,
    /// Extents on an SSD as it is.
    ExtentLru,
    /// Extents, trimmed as they are dropped.
    ExtentLruTrim,
    /// Extents evicted inside the SSD.
    ExtentLruMod,
}

impl Variant {
    /// All, in the order of the paper's legend.
    pub const ALL: [Self; 6] = [
        Self::WeuLru,
        Self::WeuLruTrim,
        Self::WeuLruMod,
        Self::ExtentLru,
        Self::ExtentLruTrim,
        Self::ExtentLruMod,
    ];

    /// The paper's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WeuLru => "WEU-LRU",
            Self::WeuLruTrim => "WEU-LRU-TRIM",
            Self::WeuLruMod => "WEU-LRU-mod",
            Self::ExtentLru => "extent-LRU",
            Self::ExtentLruTrim => "extent-LRU-TRIM",
            Self::ExtentLruMod => "extent-LRU-mod",
        }
    }
}

/// Page mapping of an unmodified SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// With log blocks, as in the paper.
    Hybrid,
    /// By page, with the same share kept back.
    Page,
}

/// Cache and SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of flash.
    pub flash_bytes: u64,
    /// Bytes of an erase block.
    pub block_bytes: u32,
    /// Bytes of a WEU, a multiple of the erase block's.
    pub weu_bytes: u32,
    /// Bytes of an extent, a multiple of 4096.
    pub extent_bytes: u32,
    /// `true` if equal extents are kept once.
    pub dedup: bool,
    /// `true` if extents in WEUs are compressed.
    pub compress: bool,
    /// Page mapping of an unmodified SSD.
    pub mapping: Mapping,
    /// Reserved flash of an unmodified SSD.
    pub logs: Logs,
    /// Pages by which WEUs miss the borders of erase blocks on an unmodified SSD.
    pub shift_pages: u32,
}

impl Settings {
    /// A cache of this size with extents of 8 KiB and erase blocks of 128 KiB, two to a WEU: a hundredth of the paper's
    /// in every respect.
    #[must_use]
    pub const fn small(flash_bytes: u64) -> Self {
        Self {
            flash_bytes,
            block_bytes: 128 << 10,
            weu_bytes: 256 << 10,
            extent_bytes: 8192,
            dedup: true,
            compress: true,
            mapping: Mapping::Hybrid,
            logs: Logs::NITRO,
            shift_pages: 0,
        }
    }

    fn geometry(&self) -> Result<Geometry, GeometryError> {
        let blocks = self.flash_bytes / u64::from(self.block_bytes.max(1));
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Geometry::new(PAGE_BYTES, self.block_bytes / PAGE_BYTES, blocks, 1, 1)
    }

    /// An SSD as it is sold.
    fn unmodified(&self) -> Result<Box<dyn Ftl>, GeometryError> {
        let (geometry, latencies) = (self.geometry()?, Latencies::nitro(u64::from(self.block_bytes)));
        Ok(match self.mapping {
            Mapping::Hybrid => Box::new(Hybrid::new(geometry, latencies, self.logs)?),
            Mapping::Page => {
                let kept = self.logs.over_provisioning_permille + self.logs.log_permille;
                let kept = u64::from(geometry.blocks()) * u64::from(kept) / 1000;
                let exposed = geometry.blocks().saturating_sub(u32::try_from(kept).unwrap_or(u32::MAX));
                Box::new(PageMapped::exposing(geometry, latencies, exposed)?)
            }
        })
    }
}

/// Statistics of a cache and its SSD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Extents read.
    pub reads: u64,
    /// Extents found in the cache.
    pub hits: u64,
    /// Extents that were cached with other contents than the trace has: misses, and none if reads return the last
    /// write.
    pub stale: u64,
    /// Extents put into the cache, without duplicates.
    pub stored: u64,
    /// Statistics of the SSD.
    pub flash: Stats,
}

impl Outcome {
    /// Hits over reads.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.hits as f64 / self.reads as f64 }
    }
}

/// Runs accesses through a cache on its SSD.
///
/// # Errors
/// The SSD cannot be that small.
pub fn run(
    variant: Variant,
    settings: &Settings,
    accesses: impl Iterator<Item = Access>,
) -> Result<Outcome, GeometryError> {
    match variant {
        Variant::WeuLru | Variant::WeuLruTrim => {
            let ftl = settings.unmodified()?;
            let trim = variant == Variant::WeuLruTrim;
            Ok(weu::run(weu::Sold::new(ftl, settings, trim), settings, accesses).0)
        }
        Variant::WeuLruMod => {
            let flash = weu::Aligned::new(settings.geometry()?, settings);
            Ok(weu::run(flash, settings, accesses).0)
        }
        Variant::ExtentLru | Variant::ExtentLruTrim => {
            let ftl = settings.unmodified()?;
            let trim = variant == Variant::ExtentLruTrim;
            Ok(extents::run(extents::Sold::new(ftl, settings, trim), settings, accesses))
        }
        Variant::ExtentLruMod => {
            let flash = silent::Silent::new(settings.geometry()?, settings);
            Ok(extents::run(flash, settings, accesses))
        }
    }
}

#[cfg(test)]
mod tests;
