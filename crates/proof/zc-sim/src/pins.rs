//! Pinned ranges: which a seed draws, and that what is safe of them stays.
//!
//! Job: remember which pinned extents the manager calls safe, and look after each event whether they still are. An extent
//! may stop being safe when it is written, when settings change, and when something fails that may take it away.
//! All of that is known here from events and requests, not from the manager. The canary `pins-evicted` shows that a unit
//! which may be evicted with pinned extents in it is noticed.
//!
//! What it does not do: expect that anything becomes safe.

use core::ops::Range;
use std::collections::BTreeSet;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, Request, RequestKind};
use zc_core::{ExtentKey, ExtentNo, VolumeId};
use zc_format::Geometry;

/// What was seen after the event before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins {
    safe: BTreeSet<ExtentKey>,
    /// Extents that were written, and may be void at any time: while a write is under way, or dirty data.
    written: BTreeSet<ExtentKey>,
    /// What was lost for a reason, as the manager counts it.
    lost: u64,
    extent_bytes: u64,
    is_drawn: bool,
}

impl Pins {
    /// `is_drawn`: the seed pins ranges, and others later.
    pub(crate) fn new(is_drawn: bool, geometry: &Geometry) -> Self {
        Self { extent_bytes: geometry.extent_bytes.into(), is_drawn, ..Self::default() }
    }

    /// Whether the seed pins ranges.
    pub(crate) const fn are_drawn(&self) -> bool {
        self.is_drawn
    }

    /// Another manager begins.
    pub(crate) fn forget(&mut self) {
        self.safe.clear();
        self.written.clear();
    }

    /// An event comes.
    pub(crate) fn comes(&mut self, event: &Event) {
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

    /// An event was handled. What does not hold any more.
    pub(crate) fn handled(&mut self, manager: &CacheManager) -> Option<String> {
        let stats = manager.stats();
        let lost = stats.device_write_errors + stats.probes_differed + stats.failed_hits;
        if lost != self.lost || !manager.is_healthy() || !manager.is_loaded() {
            self.safe.clear();
        }
        self.lost = lost;
        let gone = self.safe.iter().find(|key| !manager.is_safe(**key))?;
        Some(format!("{gone:?} is pinned, was safe, and is not any more: {:?}", manager.pins()))
    }

    /// Time passed: looks at all that is pinned. `is_written`: whether anything is under way that may void extents of a
    /// volume. How many are safe.
    pub(crate) fn look(
        &mut self,
        manager: &CacheManager,
        volumes: &[VolumeConfig],
        is_written: impl Fn(VolumeId) -> bool,
    ) -> usize {
        if !manager.is_healthy() || !manager.is_loaded() || manager.is_removing() {
            return 0;
        }
        for volume in volumes.iter().filter(|volume| !volume.pins.is_empty()) {
            // Dirty data that a start found was written before anything was seen.
            if is_written(volume.id) {
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
        self.safe.len()
    }
}

/// Ranges of a volume of so many bytes.
pub(crate) fn draw(rng: &mut Pcg64Mcg, size_bytes: u64) -> Vec<Range<u64>> {
    let count = rng.random_range(0..=3);
    let range = |_| {
        let start = rng.random_range(0..size_bytes);
        let end = start + rng.random_range(1..=size_bytes / 3);
        start..if end > size_bytes { u64::MAX } else { end }
    };
    (0..count).map(range).collect()
}
