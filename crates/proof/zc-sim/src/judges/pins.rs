//! Pinned ranges: the ranges that a seed draws, and a check that safe extents in them stay safe.
//!
//! Job: record the pinned extents that the manager reports as safe, and check after each event that they still are.
//! An extent may lose its safety when it is written, when settings change, or when a failure may remove it. All of
//! that is derived from events and requests, not from the manager. The canary `pins-evicted` shows that eviction of a
//! unit with pinned extents is detected.
//!
//! It does not require that any extent becomes safe.

use core::ops::Range;
use std::collections::BTreeSet;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_cache::CacheManager;
use zc_cache::seam::{Event, Request, RequestKind};
use zc_core::{ExtentKey, ExtentNo};
use zc_format::Geometry;

use super::{Judge, Sight};

/// Judge of pins: the state after the previous event.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    safe: BTreeSet<ExtentKey>,
    /// Extents that may be invalid at any time, while a write is in progress or dirty data remains.
    written: BTreeSet<ExtentKey>,
    /// Number of extents lost for a reason, as the manager counts it.
    lost: u64,
    extent_bytes: u64,
}

impl Pins {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self { extent_bytes: geometry.extent_bytes.into(), ..Self::default() }
    }

    fn is_asked(&mut self, request: &Request) {
        let writes = matches!(
            request.kind,
            RequestKind::Write { .. } | RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. }
        );
        if writes {
            let end = (request.offset_bytes + request.len_bytes).div_ceil(self.extent_bytes);
            for extent in request.offset_bytes / self.extent_bytes..end {
                let key = ExtentKey { volume: request.volume, extent: ExtentNo(extent) };
                self.safe.remove(&key);
                self.written.insert(key);
            }
        }
    }
}

impl Judge for Pins {
    fn fork(&self) -> Box<dyn Judge> {
        Box::new(Self { extent_bytes: self.extent_bytes, ..Self::default() })
    }

    fn begins(&mut self) {
        self.safe.clear();
        self.written.clear();
    }

    fn comes(&mut self, event: &Event) {
        let may_take = match event {
            Event::Submit(request) => {
                self.is_asked(request);
                false
            }
            Event::OriginDone { result, .. } | Event::DeviceDone { result, .. } => result.is_err(),
            Event::HeaderRead { result, .. } => result.is_err(),
            Event::ExtentsRead { result, .. } => {
                result.as_ref().map_or(true, |parts| parts.iter().any(Result::is_err))
            }
            Event::Configure(_)
            | Event::Remove { .. }
            | Event::Erase { .. }
            | Event::DropDirty { .. }
            | Event::GiveUpUnreadable { .. }
            | Event::AcceptLoss { .. }
            | Event::DeviceLost
            | Event::Stop => true,
            _ => false,
        };
        if may_take {
            self.safe.clear();
        }
    }

    fn handled(&mut self, manager: &CacheManager) -> Option<String> {
        let stats = manager.stats();
        let lost = stats.device_write_errors + stats.probes_differed + stats.failed_hits;
        if lost != self.lost || !manager.is_healthy() || !manager.is_loaded() {
            self.safe.clear();
        }
        self.lost = lost;
        let gone = self.safe.iter().find(|key| !manager.is_safe(**key))?;
        Some(format!("{gone:?} is pinned, was safe, and is not any more: {:?}", manager.pins()))
    }

    /// Checks all pinned extents that may not be invalid at any time.
    fn ticked(&mut self, sight: &Sight<'_>) -> Option<&'static str> {
        let manager = sight.manager;
        if !manager.is_healthy() || !manager.is_loaded() || manager.is_removing() {
            return None;
        }
        for volume in sight.volumes.configs().filter(|volume| !volume.pins.is_empty()) {
            // Dirty data found by a start was written before anything was recorded here.
            if sight.is_written(volume.id) {
                continue;
            }
            self.written.retain(|key| key.volume != volume.id);
            for extent in 0..volume.size_bytes / self.extent_bytes {
                let key = ExtentKey { volume: volume.id, extent: ExtentNo(extent) };
                if manager.is_safe(key) {
                    self.safe.insert(key);
                }
            }
        }
        (!self.safe.is_empty()).then_some("pinned extents that are safe")
    }
}

/// Draws ranges of a volume of `size_bytes`.
pub(crate) fn draw(rng: &mut Pcg64Mcg, size_bytes: u64) -> Vec<Range<u64>> {
    let count = rng.random_range(0..=3);
    let range = |_| {
        let start = rng.random_range(0..size_bytes);
        let end = start + rng.random_range(1..=size_bytes / 3);
        start..if end > size_bytes { u64::MAX } else { end }
    };
    (0..count).map(range).collect()
}
