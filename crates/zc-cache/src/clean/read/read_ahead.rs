//! Reading ahead, for streams and on demand: fills that no request waits for yet.
//!
//! What was read ahead waits in memory for its first use, in bounded room, oldest first to go. It stays in the cache if
//! it was seen before or its content is there already (Nitro 3: prefetched data used once is not cached).

use core::ops::Range;
use std::collections::VecDeque;

use zc_core::{BufSlice, ExtentKey, ExtentNo, HashKey, KeyedMap, Mode, ReqId, VolumeId};

use crate::base::Base;
use crate::base::tracks::Guard;
use crate::clean::Clean;
use crate::clean::insert::{InsertOptions, is_cut_off};
use crate::clean::read::FILL_BYTES_MAX;
use crate::clean::streams::InStream;
use crate::config::Admission;
use crate::device::Core;
use crate::index::file_index::Mapping;
use crate::seam::{Action, Request};

/// Bytes read ahead that may be in flight or waiting for use.
const PREFETCHED_BYTES_MAX: u64 = 8 << 20;
/// Bytes in flight because clients asked for them to be brought into the cache. They have their answer: nothing else
/// keeps them from asking for more.
const HINTED_BYTES_MAX: u64 = 8 << 20;

/// Why extents are read that no client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// They come next in a stream.
    Stream,
    /// A client asked for them to be brought into the cache.
    Hint,
    /// An operator did, with this request,
    Warm(ReqId),
    /// or pinned them.
    Kept,
}

/// What was read ahead, and how much more may be.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Extents that wait for their first use.
    waiting: KeyedMap<ExtentKey, Prefetched>,
    /// Extents that wait for their first use, oldest first.
    order: VecDeque<ExtentKey>,
    /// In flight or waiting.
    bytes: u64,
    /// In flight because clients asked for them without reading.
    hinted_bytes: u64,
}

impl ReadAhead {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self { waiting: key.map(), order: VecDeque::new(), bytes: 0, hinted_bytes: 0 }
    }

    /// An extent that waits for its first use.
    pub(crate) fn get(&self, key: &ExtentKey) -> Option<&Prefetched> {
        self.waiting.get(key)
    }

    /// All that wait.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ExtentKey> {
        self.waiting.keys().copied()
    }

    /// So many bytes are to be read. False if there is no room for them.
    fn begin(&mut self, bytes: u64, reason: Reason) -> bool {
        let (room, most) = match reason {
            Reason::Stream => (&mut self.bytes, PREFETCHED_BYTES_MAX),
            Reason::Hint => (&mut self.hinted_bytes, HINTED_BYTES_MAX),
            Reason::Warm(_) | Reason::Kept => return true,
        };
        let fits = *room + bytes <= most;
        if fits {
            *room += bytes;
        }
        fits
    }

    /// So many bytes are read that a client asked for.
    pub(crate) const fn hint_ended(&mut self, bytes: u64) {
        self.hinted_bytes -= bytes;
    }

    /// No request waits for so many bytes read ahead, or none does any more.
    pub(crate) fn prefetch_ended(&mut self, bytes: u32) {
        self.bytes -= u64::from(bytes);
    }

    /// The oldest extent in line while there is no room for so many bytes.
    fn oldest_in_the_way(&mut self, bytes: u64) -> Option<ExtentKey> {
        if self.bytes + bytes > PREFETCHED_BYTES_MAX { self.order.pop_front() } else { None }
    }

    fn keep(&mut self, key: ExtentKey, ahead: Prefetched) {
        self.waiting.insert(key, ahead);
        self.order.push_back(key);
    }

    /// Takes an extent out, which has so many bytes.
    fn take(&mut self, key: &ExtentKey, bytes: u32) -> Option<Prefetched> {
        let ahead = self.waiting.remove(key)?;
        self.prefetch_ended(bytes);
        Some(ahead)
    }
}

/// An extent read ahead, waiting for its first use.
#[derive(Debug)]
pub(crate) struct Prefetched {
    pub(in crate::clean) src: BufSlice,
    pub(in crate::clean) guard: Guard,
}

/// Whether the volume takes in what is read for this reason.
pub(in crate::clean) fn admits(key: ExtentKey, reason: Reason, base: &Base) -> bool {
    let whatever_admission = matches!(reason, Reason::Warm(_) | Reason::Kept);
    base.is_good()
        && !base.is_stopping()
        && base.volume(key.volume).is_some_and(|volume| {
            volume.cfg().mode != Mode::PassThrough
                && (whatever_admission || volume.cfg().admission != Admission::Never)
                && !volume.origin().is_in_doubt()
        })
}

impl Clean {
    /// Reads ahead what is not at hand, one run after the other.
    pub(crate) fn read_ahead(
        &mut self,
        volume: VolumeId,
        range: Range<u64>,
        stream: Option<InStream>,
        core: &mut Core,
    ) {
        let Some(entry) = core.base.volume(volume) else { return };
        let extent = u64::from(core.base.extent_bytes());
        let end = range.end.div_ceil(extent).min(entry.whole_extents());
        self.fetch_extents(volume, range.start / extent..end, Reason::Stream, stream, core);
    }

    /// The client asked for a range to be brought into the cache. What there is no room for is left out.
    pub(crate) fn submit_prefetch(&mut self, request: &Request, core: &mut Core) {
        let extent = u64::from(core.base.extent_bytes());
        if let Some(volume) = core.base.volume(request.volume) {
            let len_bytes = request.len_bytes.min(HINTED_BYTES_MAX);
            let end = (request.offset_bytes + len_bytes).div_ceil(extent).min(volume.whole_extents());
            self.fetch_extents(request.volume, request.offset_bytes / extent..end, Reason::Hint, None, core);
        }
        core.base.port.emit(Action::Reply { req: request.req, result: Ok(()) });
    }

    pub(crate) fn fetch_extents(
        &mut self,
        volume: VolumeId,
        extents: Range<u64>,
        reason: Reason,
        stream: Option<InStream>,
        core: &mut Core,
    ) {
        let mut start = extents.start;
        for extent in extents.start..=extents.end {
            let key = ExtentKey { volume, extent: ExtentNo(extent) };
            let wanted = extent < extents.end
                && self.is_absent(key, core)
                && admits(key, reason, &core.base)
                && (reason == Reason::Kept || !self.is_hit_by_recipe(key, core));
            let run = (extent - start) * u64::from(core.base.extent_bytes());
            if wanted && run < FILL_BYTES_MAX {
                continue;
            }
            self.issue_fetch(volume, start..extent, reason, stream, core);
            start = if wanted { extent } else { extent + 1 };
        }
    }

    fn issue_fetch(
        &mut self,
        volume: VolumeId,
        run: Range<u64>,
        reason: Reason,
        stream: Option<InStream>,
        core: &mut Core,
    ) {
        let count = usize::try_from(run.end.saturating_sub(run.start)).unwrap_or(0);
        let bytes = zc_core::u64_from_usize(count) * u64::from(core.base.extent_bytes());
        if reason == Reason::Stream {
            self.make_prefetch_room(bytes, core);
        }
        if count == 0 || !self.ahead.begin(bytes, reason) {
            return;
        }
        let extents = zc_core::u64_from_usize(count);
        match reason {
            Reason::Stream => core.base.stats.prefetched_extents += extents,
            Reason::Hint => {}
            Reason::Warm(req) => {
                core.base.stats.warmed_extents += extents;
                self.warms.add_part(req);
            }
            Reason::Kept => core.base.stats.pinned_extents_read += extents,
        }
        self.fill_ahead(volume, ExtentNo(run.start), count, reason, stream, core);
    }

    fn make_prefetch_room(&mut self, bytes: u64, core: &mut Core) {
        while let Some(key) = self.ahead.oldest_in_the_way(bytes) {
            self.drop_prefetched(key, core);
        }
    }

    fn is_absent(&self, key: ExtentKey, core: &Core) -> bool {
        let live = match core.device.catalog.mapping(key) {
            Some(Mapping::Zero) => true,
            Some(Mapping::Base(place) | Mapping::Duplicate(place)) => {
                core.device.catalog.table().is_live(&place)
            }
            None => false,
        };
        !live && self.is_quiet_extent(key, core)
    }

    /// Whether nothing is under way for the extent, and no copy of it waits in memory.
    pub(in crate::clean) fn is_quiet_extent(&self, key: ExtentKey, core: &Core) -> bool {
        self.ahead.get(&key).is_none()
            && !self.fill_of.contains_key(&key)
            && self.staging.get(&key).is_none()
            && self.inserting(key, core).is_none()
            && !core.base.tracks.is_written(&key)
    }

    /// An extent that was read ahead is used: it leaves the waiting room, and stays in the cache if it was seen
    /// before or its content is there already (Nitro 3: prefetched data used once is not cached). False if the extent
    /// was not read ahead. `stream`: which used it.
    pub(crate) fn used_prefetched(
        &mut self,
        key: ExtentKey,
        stream: Option<InStream>,
        core: &mut Core,
    ) -> bool {
        let Some(ahead) = self.ahead.take(&key, core.base.extent_bytes()) else { return false };
        core.base.stats.prefetched_used += 1;
        core.base.stats.prefetched_hits += 1;
        let is_cached = core.device.catalog.mapping(key).is_some();
        let is_cut_off = !is_cached && is_cut_off(key.volume, stream, &core.base);
        core.base.stats.insert_sequential += u64::from(is_cut_off);
        if is_cached || is_cut_off || !self.admits_read(key, core) {
            core.base.tracks.release(&ahead.guard);
            core.base.port.release(ahead.src.buf);
            return true;
        }
        let only_if_duplicate = self.enters_as_duplicate(key, core);
        let batch = self.begin_batch(None, core);
        self.insert(batch, ahead.guard, ahead.src, InsertOptions { only_if_duplicate }, core);
        self.inserts.batches.end_requests(batch);
        true
    }

    /// An extent was read ahead, and no request wanted it yet.
    pub(crate) fn keep_prefetched(&mut self, key: ExtentKey, ahead: Prefetched) {
        self.ahead.keep(key, ahead);
    }

    /// An extent that was read ahead goes into the cache without being used, if there is one.
    pub(in crate::clean) fn insert_prefetched(&mut self, key: ExtentKey, core: &mut Core) {
        let Some(ahead) = self.ahead.take(&key, core.base.extent_bytes()) else { return };
        let batch = self.begin_batch(None, core);
        self.insert(batch, ahead.guard, ahead.src, InsertOptions { only_if_duplicate: false }, core);
        self.inserts.batches.end_requests(batch);
    }

    /// Lets go of an extent read ahead.
    pub(crate) fn drop_prefetched(&mut self, key: ExtentKey, core: &mut Core) {
        if let Some(ahead) = self.ahead.take(&key, core.base.extent_bytes()) {
            core.base.tracks.release(&ahead.guard);
            core.base.port.release(ahead.src.buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use zc_core::BufId;

    use super::*;
    use crate::base::tracks::Tracks;

    const EXTENT: u32 = 1 << 20;

    fn key(extent: u64) -> ExtentKey {
        ExtentKey { volume: VolumeId(1), extent: ExtentNo(extent) }
    }

    #[test]
    fn the_oldest_make_room_and_what_was_used_is_not_in_the_way() {
        let (hash, src) = (HashKey::fixed(), BufSlice { buf: BufId(1), start_bytes: 0, len_bytes: EXTENT });
        let (mut ahead, mut tracks) = (ReadAhead::new(&hash), Tracks::new(&hash));
        for extent in 0..8 {
            assert!(ahead.begin(EXTENT.into(), Reason::Stream));
            let guard = tracks.guard(key(extent)).unwrap();
            ahead.keep(key(extent), Prefetched { src, guard });
        }
        assert!(!ahead.begin(EXTENT.into(), Reason::Stream), "8 MiB and no more");
        assert_eq!(ahead.oldest_in_the_way(EXTENT.into()), Some(key(0)));
        assert!(ahead.take(&key(0), EXTENT).is_some() && ahead.take(&key(0), EXTENT).is_none());
        assert_eq!(ahead.oldest_in_the_way(EXTENT.into()), None);
        assert!(ahead.begin(EXTENT.into(), Reason::Stream));
        assert_eq!(ahead.keys().count(), 7);
    }

    #[test]
    fn what_clients_ask_for_has_room_of_its_own() {
        let mut ahead = ReadAhead::new(&HashKey::fixed());
        assert!(
            ahead.begin(PREFETCHED_BYTES_MAX, Reason::Stream) && ahead.begin(HINTED_BYTES_MAX, Reason::Hint)
        );
        assert!(!ahead.begin(1, Reason::Stream) && !ahead.begin(1, Reason::Hint));
        ahead.hint_ended(1);
        assert!(!ahead.begin(1, Reason::Stream) && ahead.begin(1, Reason::Hint));
    }
}
