//! Prefetching, for streams and on request: fills that no client request waits for.
//!
//! Prefetched data waits in memory for its first use, within a bound; the oldest is evicted first. It stays in the
//! cache if it was read before or its content is cached already (Nitro 3: prefetched data used once is not cached).

use std::collections::VecDeque;

use zc_core::{BufSlice, ExtentKey, HashKey, KeyedMap, Mode, ReqId};

use crate::base::Base;
use crate::base::tracks::Guard;
use crate::config::Admission;

/// Maximum prefetched bytes in flight or waiting for use.
const PREFETCHED_BYTES_MAX: u64 = 8 << 20;
/// Maximum bytes in flight on clients' prefetch requests. Such requests are answered at once, so only this bounds
/// them.
pub(super) const HINTED_BYTES_MAX: u64 = 8 << 20;

/// Reason for a read that no client request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Predicted by a stream.
    Stream,
    /// Prefetch request of a client.
    Hint,
    /// Warm-up request of an operator.
    Warm(ReqId),
    /// Pinned extents.
    Kept,
}

/// Prefetched data, and its bounds.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Extents that wait for their first use.
    waiting: KeyedMap<ExtentKey, Prefetched>,
    /// Extents in `waiting`, oldest first.
    order: VecDeque<ExtentKey>,
    /// Bytes in flight or waiting.
    bytes: u64,
    /// Bytes in flight on clients' prefetch requests.
    hinted_bytes: u64,
}

impl ReadAhead {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self { waiting: key.map(), order: VecDeque::new(), bytes: 0, hinted_bytes: 0 }
    }

    pub(crate) fn get(&self, key: &ExtentKey) -> Option<&Prefetched> {
        self.waiting.get(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = ExtentKey> {
        self.waiting.keys().copied()
    }

    /// Reserves `bytes` bytes for a read. Returns `false` if that exceeds the bound.
    pub(crate) fn begin(&mut self, bytes: u64, reason: Reason) -> bool {
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

    pub(crate) const fn hint_ended(&mut self, bytes: u64) {
        self.hinted_bytes -= bytes;
    }

    /// Releases prefetched bytes for which no request waits.
    pub(crate) fn prefetch_ended(&mut self, bytes: u32) {
        self.bytes -= u64::from(bytes);
    }

    /// Returns the oldest waiting extent while `bytes` more bytes would exceed the bound.
    pub(crate) fn oldest_in_the_way(&mut self, bytes: u64) -> Option<ExtentKey> {
        if self.bytes + bytes > PREFETCHED_BYTES_MAX { self.order.pop_front() } else { None }
    }

    pub(crate) fn keep(&mut self, key: ExtentKey, ahead: Prefetched) {
        self.waiting.insert(key, ahead);
        self.order.push_back(key);
    }

    pub(crate) fn take(&mut self, key: &ExtentKey, bytes: u32) -> Option<Prefetched> {
        let ahead = self.waiting.remove(key)?;
        self.prefetch_ended(bytes);
        Some(ahead)
    }
}

#[derive(Debug)]
pub(crate) struct Prefetched {
    pub(crate) src: BufSlice,
    pub(crate) guard: Guard,
}

/// Returns `true` if the volume admits reads for this reason.
pub(crate) fn admits(key: ExtentKey, reason: Reason, base: &Base) -> bool {
    let whatever_admission = matches!(reason, Reason::Warm(_) | Reason::Kept);
    base.is_good()
        && !base.is_stopping()
        && base.volume(key.volume).is_some_and(|volume| {
            volume.cfg().mode != Mode::PassThrough
                && (whatever_admission || volume.cfg().admission != Admission::Never)
                && !volume.origin().is_in_doubt()
        })
}

#[cfg(test)]
mod tests {
    use zc_core::{BufId, ExtentNo, VolumeId};

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
