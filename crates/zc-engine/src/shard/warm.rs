//! Volumes being warmed: ranges that an operator wants in the cache.
//!
//! Job: hold the ranges, choose the next piece for the manager, count the results.
//!
//! Invariants: the work in flight is bounded, and while clients have requests in flight it is one piece, followed by a
//! pause. So is the number of waiting ranges. A warm-up ends with its last range, on an operator's command, when the
//! operator's program stops polling, at a stop, and when its volume no longer uses the cache. A reload does not affect
//! it.
//!
//! It does not read (the manager does), select ranges (`zcctl` does), or depend on volumes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde::Serialize;
use zc_cache::CacheManager;
use zc_core::{ErrorKind, Map, ReqId, VolumeId, u64_from_usize};

use crate::front::bucket::{Bucket, Rate};
use crate::limits::{
    WARM_BUSY_PAUSE_MS, WARM_BYTES_MAX, WARM_PATIENCE_MS, WARM_PIECE_BYTES, WARM_RANGES_MAX,
};

/// Operator's request about a warm-up.
#[derive(Debug)]
pub enum WarmCommand {
    /// Begin one.
    Start {
        /// The first ranges.
        more: WarmRanges,
        /// Bytes a second that it may read from the origin; 0: any number.
        limit_bytes_per_s: u64,
    },
    /// Further ranges.
    Add(WarmRanges),
    /// Return the progress.
    Look,
    /// End it.
    Stop,
}

/// Ranges of a volume.
#[derive(Debug)]
pub struct WarmRanges {
    /// In bytes.
    pub ranges: Vec<Range<u64>>,
    /// No others follow.
    pub is_last: bool,
}

/// Reason for the end of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmEnd {
    /// All ranges are through.
    Done,
    /// An operator ended it.
    Asked,
    /// The operator's program stopped polling.
    Abandoned,
    /// The daemon stops.
    Stopped,
    /// The volume uses no cache any more.
    NoCache,
}

/// Progress of a warm-up. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WarmUp {
    /// Length of all ranges so far.
    pub asked_bytes: u64,
    /// Length of the processed ranges, with any result.
    pub done_bytes: u64,
    /// Read from the origin. The rest was cached already.
    pub read_bytes: u64,
    /// Length of pieces that the origin failed to give.
    pub failed_bytes: u64,
    /// Ranges that wait.
    pub ranges_waiting: u64,
    /// Ranges that may be added now.
    pub ranges_room: u64,
    /// Milliseconds since it began, or from its beginning to its end.
    pub elapsed_ms: u64,
    /// Reason for its end; absent while it runs.
    pub ended: Option<WarmEnd>,
}

/// Next piece for the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) volume: VolumeId,
    pub(crate) bytes: Range<u64>,
}

impl Piece {
    pub(crate) const fn len_bytes(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// A moment on the daemon's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) ms: u64,
    pub(crate) ns: u64,
}

/// A warm-up that runs or has ended.
#[derive(Debug)]
struct Warming {
    ranges: VecDeque<Range<u64>>,
    is_last: bool,
    bucket: Option<Bucket>,
    under_way: usize,
    began_ms: u64,
    /// Time of the last poll by the operator's program.
    asked_ms: u64,
    so_far: WarmUp,
}

impl Warming {
    fn new(limit_bytes_per_s: u64, now: Moment) -> Self {
        Self {
            ranges: VecDeque::new(),
            is_last: false,
            bucket: Rate::new(limit_bytes_per_s, None).map(|rate| Bucket::new(rate, now.ns)),
            under_way: 0,
            began_ms: now.ms,
            asked_ms: now.ms,
            so_far: WarmUp::default(),
        }
    }

    const fn runs(&self) -> bool {
        self.so_far.ended.is_none()
    }

    fn add(&mut self, more: WarmRanges) -> Result<(), String> {
        if self.ranges.len().saturating_add(more.ranges.len()) > WARM_RANGES_MAX {
            return Err(format!("at most {WARM_RANGES_MAX} ranges may wait; add these later"));
        }
        for range in more.ranges {
            self.so_far.asked_bytes += range.end - range.start;
            self.ranges.push_back(range);
        }
        self.is_last = more.is_last;
        Ok(())
    }

    fn end(&mut self, how: WarmEnd, now_ms: u64) {
        if self.runs() {
            self.so_far.ended = Some(how);
            self.so_far.elapsed_ms = now_ms.saturating_sub(self.began_ms);
            self.ranges.clear();
        }
    }

    /// The end comes by itself when nothing is left.
    fn end_if_through(&mut self, now_ms: u64) {
        if self.is_last && self.under_way == 0 && self.ranges.iter().all(Range::is_empty) {
            self.end(WarmEnd::Done, now_ms);
        }
    }

    fn seen(&self, now_ms: u64) -> WarmUp {
        let waiting = self.ranges.len();
        let elapsed_ms =
            if self.runs() { now_ms.saturating_sub(self.began_ms) } else { self.so_far.elapsed_ms };
        WarmUp {
            ranges_waiting: u64_from_usize(waiting),
            ranges_room: u64_from_usize(WARM_RANGES_MAX.saturating_sub(waiting)),
            elapsed_ms,
            ..self.so_far
        }
    }

    /// The next piece, if it may begin now. Its borders are those of pieces, so that no two touch one extent.
    fn take(&mut self, now_ns: u64) -> Option<Range<u64>> {
        while self.ranges.front().is_some_and(Range::is_empty) {
            self.ranges.pop_front();
        }
        let range = self.ranges.front_mut()?;
        let end = range.end.min((range.start / WARM_PIECE_BYTES + 1).saturating_mul(WARM_PIECE_BYTES));
        let tokens = end - range.start;
        if self.bucket.as_mut().is_some_and(|bucket| bucket.wait_ns(tokens, now_ns) > 0) {
            return None;
        }
        let piece = range.start..end;
        range.start = end;
        Some(piece)
    }
}

/// All warm-ups: those that run, and the last of each volume that ended.
#[derive(Debug, Default)]
pub(crate) struct WarmUps {
    volumes: BTreeMap<VolumeId, Warming>,
    under_way: Map<ReqId, Piece>,
    under_way_bytes: u64,
    /// Volume that was served last.
    turn: VolumeId,
    /// Until then nothing begins while clients have requests under way.
    paused_until_ms: u64,
}

impl WarmUps {
    /// Executes an operator's request about the volume's warm-up.
    ///
    /// # Errors
    /// When there is none, or one already, or too many ranges wait; in words for the operator.
    pub(crate) fn ask(&mut self, volume: VolumeId, ask: WarmCommand, now: Moment) -> Result<WarmUp, String> {
        let is_start = matches!(ask, WarmCommand::Start { .. });
        let known = self.volumes.get_mut(&volume);
        let warming = match (known, &ask) {
            (Some(warming), WarmCommand::Start { .. }) if warming.runs() || warming.under_way > 0 => {
                return Err("it is being warmed already".to_owned());
            }
            (_, WarmCommand::Start { limit_bytes_per_s, .. }) => {
                self.volumes.entry(volume).insert_entry(Warming::new(*limit_bytes_per_s, now)).into_mut()
            }
            (Some(warming), _) => warming,
            (None, _) => return Err("it was not warmed since the daemon started".to_owned()),
        };
        warming.asked_ms = now.ms;
        match ask {
            WarmCommand::Start { more, .. } | WarmCommand::Add(more) if is_start || warming.runs() => {
                warming.add(more)?;
            }
            WarmCommand::Stop => warming.end(WarmEnd::Asked, now.ms),
            // How it ended is the answer.
            WarmCommand::Start { .. } | WarmCommand::Add(_) | WarmCommand::Look => {}
        }
        warming.end_if_through(now.ms);
        Ok(warming.seen(now.ms))
    }

    /// Returns `true` if any runs.
    pub(crate) fn are_running(&self) -> bool {
        self.volumes.values().any(Warming::runs)
    }

    /// Returns `true` if the manager works on a piece, of that volume or of any.
    pub(crate) fn are_under_way(&self, volume: Option<VolumeId>) -> bool {
        volume.map_or(!self.under_way.is_empty(), |volume| {
            self.volumes.get(&volume).is_some_and(|warming| warming.under_way > 0)
        })
    }

    /// Returns the progress of the volume's warm-up, if there was one.
    pub(crate) fn look(&self, volume: VolumeId, now_ms: u64) -> Option<WarmUp> {
        self.volumes.get(&volume).map(|warming| warming.seen(now_ms))
    }

    /// Ends those that no program polls any more, and those of volumes for which `uses_cache` is `false`.
    pub(crate) fn end_where(&mut self, now_ms: u64, uses_cache: impl Fn(VolumeId) -> bool) {
        for (volume, warming) in &mut self.volumes {
            if !uses_cache(*volume) {
                warming.end(WarmEnd::NoCache, now_ms);
            } else if now_ms.saturating_sub(warming.asked_ms) > WARM_PATIENCE_MS {
                warming.end(WarmEnd::Abandoned, now_ms);
            }
        }
    }

    pub(crate) fn end_all(&mut self, how: WarmEnd, now_ms: u64) {
        self.volumes.values_mut().for_each(|warming| warming.end(how, now_ms));
    }

    pub(crate) fn end(&mut self, volume: VolumeId, how: WarmEnd, now_ms: u64) {
        if let Some(warming) = self.volumes.get_mut(&volume) {
            warming.end(how, now_ms);
        }
    }

    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.volumes.remove(&volume);
    }

    /// Returns `true` if the manager has capacity for another piece in addition to those in flight.
    pub(crate) fn has_room(&self, manager: &CacheManager) -> bool {
        manager.has_room_to_warm(self.under_way_bytes + WARM_PIECE_BYTES)
    }

    /// The next piece, if one may begin now; volumes take turns. `is_busy`: clients have requests under way.
    pub(crate) fn next(&mut self, is_busy: bool, now: Moment) -> Option<Piece> {
        let is_held = is_busy && (now.ms < self.paused_until_ms || self.under_way_bytes > 0);
        if is_held || self.under_way_bytes + WARM_PIECE_BYTES > WARM_BYTES_MAX {
            return None;
        }
        let turn = self.turn;
        let mut order: Vec<VolumeId> = self.volumes.keys().copied().collect();
        order.sort_unstable_by_key(|volume| (*volume <= turn, *volume));
        for volume in order {
            let Some(warming) = self.volumes.get_mut(&volume) else { continue };
            if let Some(bytes) = warming.take(now.ns) {
                self.turn = volume;
                return Some(Piece { volume, bytes });
            }
        }
        None
    }

    /// Records that the manager started a piece.
    pub(crate) fn begins(&mut self, piece: Piece, req: ReqId) {
        self.under_way_bytes += piece.len_bytes();
        if let Some(warming) = self.volumes.get_mut(&piece.volume) {
            warming.under_way += 1;
        }
        self.under_way.insert(req, piece);
    }

    /// Records bytes read from a volume's origin for a started piece.
    pub(crate) fn reads(&mut self, volume: VolumeId, read_bytes: u64, now: Moment) {
        if read_bytes == 0 {
            return;
        }
        self.paused_until_ms = now.ms + WARM_BUSY_PAUSE_MS;
        if let Some(warming) = self.volumes.get_mut(&volume) {
            warming.so_far.read_bytes += read_bytes;
            if let Some(bucket) = &mut warming.bucket {
                bucket.take(read_bytes, now.ns);
            }
        }
    }

    /// The manager has answered. False if the request is none of these.
    pub(crate) fn answered(&mut self, req: ReqId, result: Result<(), ErrorKind>, now_ms: u64) -> bool {
        let Some(piece) = self.under_way.remove(&req) else { return false };
        self.under_way_bytes -= piece.len_bytes();
        if let Some(warming) = self.volumes.get_mut(&piece.volume) {
            warming.under_way -= 1;
            warming.so_far.done_bytes += piece.len_bytes();
            if result.is_err() {
                warming.so_far.failed_bytes += piece.len_bytes();
            }
            warming.end_if_through(now_ms);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: VolumeId = VolumeId(1);
    const W: VolumeId = VolumeId(2);

    const fn at(ms: u64) -> Moment {
        Moment { ms, ns: ms * 1_000_000 }
    }

    fn more(range: Range<u64>) -> WarmRanges {
        WarmRanges { ranges: std::iter::once(range).collect(), is_last: true }
    }

    fn start(range: Range<u64>) -> WarmCommand {
        WarmCommand::Start { more: more(range), limit_bytes_per_s: 0 }
    }

    const fn start_all(ranges: Vec<Range<u64>>) -> WarmCommand {
        WarmCommand::Start { more: WarmRanges { ranges, is_last: true }, limit_bytes_per_s: 0 }
    }

    /// Requests everything that may start; returns the numbers of the requests.
    fn begin_all(warm_ups: &mut WarmUps, is_busy: bool, now: Moment, next: &mut u64) -> Vec<ReqId> {
        let mut begun = Vec::new();
        while let Some(piece) = warm_ups.next(is_busy, now) {
            *next += 1;
            let (volume, len_bytes) = (piece.volume, piece.len_bytes());
            warm_ups.begins(piece, ReqId(*next));
            warm_ups.reads(volume, len_bytes, now);
            begun.push(ReqId(*next));
        }
        begun
    }

    #[test]
    fn ranges_are_cut_at_the_borders_of_pieces_and_counted() {
        let mut warm_ups = WarmUps::default();
        let ranges = vec![8192..WARM_PIECE_BYTES + 8192, 0..8192];
        assert_eq!(warm_ups.ask(V, start_all(ranges), at(0)).unwrap().asked_bytes, WARM_PIECE_BYTES + 8192);
        let mut pieces = Vec::new();
        while let Some(piece) = warm_ups.next(false, at(0)) {
            pieces.push(piece.bytes.clone());
            warm_ups.begins(piece, ReqId(u64_from_usize(pieces.len())));
        }
        let border = WARM_PIECE_BYTES;
        assert_eq!(pieces, [8192..border, border..border + 8192, 0..8192]);
        assert!(warm_ups.answered(ReqId(1), Ok(()), 5) && !warm_ups.answered(ReqId(1), Ok(()), 5));
        assert!(warm_ups.answered(ReqId(2), Err(ErrorKind::Io), 5));
        assert!(
            warm_ups.are_running() && warm_ups.are_under_way(Some(V)) && !warm_ups.are_under_way(Some(W))
        );
        assert!(warm_ups.answered(ReqId(3), Ok(()), 7));
        let seen = warm_ups.look(V, 99).unwrap();
        assert_eq!((seen.ended, seen.elapsed_ms), (Some(WarmEnd::Done), 7));
        assert_eq!((seen.done_bytes, seen.failed_bytes), (border + 8192, 8192));
    }

    #[test]
    fn clients_leave_one_piece_at_a_time_and_a_pause() {
        let (mut warm_ups, mut next) = (WarmUps::default(), 0);
        warm_ups.ask(V, start(0..64 << 20), at(0)).unwrap();
        let first = begin_all(&mut warm_ups, true, at(0), &mut next);
        assert_eq!(first.len(), 1);
        warm_ups.answered(first[0], Ok(()), 1);
        assert_eq!(begin_all(&mut warm_ups, true, at(WARM_BUSY_PAUSE_MS - 1), &mut next).len(), 0);
        assert_eq!(begin_all(&mut warm_ups, true, at(WARM_BUSY_PAUSE_MS), &mut next).len(), 1);
        // Without clients it uses everything available, up to the bound.
        begin_all(&mut warm_ups, false, at(WARM_BUSY_PAUSE_MS), &mut next);
        assert_eq!(warm_ups.under_way_bytes, WARM_BYTES_MAX);
    }

    #[test]
    fn a_limit_holds_for_what_is_read() {
        let (mut warm_ups, mut next) = (WarmUps::default(), 0);
        let ask = WarmCommand::Start { more: more(0..64 << 20), limit_bytes_per_s: WARM_PIECE_BYTES };
        warm_ups.ask(V, ask, at(0)).unwrap();
        let mut begun = 0;
        for ms in (0..10_000).step_by(10) {
            for req in begin_all(&mut warm_ups, false, at(ms), &mut next) {
                begun += 1;
                warm_ups.answered(req, Ok(()), ms);
            }
        }
        assert!((9..=11).contains(&begun), "{begun} pieces in ten seconds");
    }

    #[test]
    fn a_warm_up_ends_at_a_word_without_questions_and_without_a_cache() {
        let mut warm_ups = WarmUps::default();
        assert!(warm_ups.ask(V, WarmCommand::Look, at(0)).unwrap_err().contains("not warmed"));
        warm_ups.ask(V, start(0..1 << 20), at(0)).unwrap();
        assert!(warm_ups.ask(V, start(0..1 << 20), at(0)).unwrap_err().contains("already"));
        assert_eq!(warm_ups.ask(V, WarmCommand::Stop, at(3)).unwrap().ended, Some(WarmEnd::Asked));
        assert_eq!(warm_ups.next(false, at(3)), None);
        // An ended one reports its end for any addition, and another may start.
        assert_eq!(warm_ups.ask(V, WarmCommand::Add(more(0..1)), at(4)).unwrap().ended, Some(WarmEnd::Asked));
        warm_ups.ask(V, start(0..1 << 20), at(5)).unwrap();
        warm_ups.ask(W, start(0..1 << 20), at(5 + WARM_PATIENCE_MS)).unwrap();
        warm_ups.end_where(6 + WARM_PATIENCE_MS, |_| true);
        assert_eq!(warm_ups.look(V, 0).unwrap().ended, Some(WarmEnd::Abandoned));
        assert_eq!(warm_ups.look(W, 0).unwrap().ended, None);
        warm_ups.end_where(6 + WARM_PATIENCE_MS, |_| false);
        assert_eq!(warm_ups.look(W, 0).unwrap().ended, Some(WarmEnd::NoCache));
    }

    #[test]
    fn volumes_take_turns_and_what_is_not_the_last_goes_on() {
        let mut warm_ups = WarmUps::default();
        let first = WarmRanges { is_last: false, ..more(0..2 * WARM_PIECE_BYTES) };
        warm_ups.ask(V, WarmCommand::Start { more: first, limit_bytes_per_s: 0 }, at(0)).unwrap();
        warm_ups.ask(W, start(0..2 * WARM_PIECE_BYTES), at(0)).unwrap();
        let mut turns = Vec::new();
        while let Some(piece) = warm_ups.next(false, at(0)) {
            turns.push(piece.volume);
            warm_ups.begins(piece, ReqId(u64_from_usize(turns.len())));
        }
        assert_eq!(turns, [V, W, V, W]);
        (1..=4).for_each(|req| assert!(warm_ups.answered(ReqId(req), Ok(()), 1)));
        assert_eq!(warm_ups.look(W, 1).unwrap().ended, Some(WarmEnd::Done));
        assert_eq!(warm_ups.look(V, 1).unwrap().ended, None, "others follow");
        assert_eq!(
            warm_ups
                .ask(V, WarmCommand::Add(WarmRanges { ranges: Vec::new(), is_last: true }), at(2))
                .unwrap()
                .ended,
            Some(WarmEnd::Done)
        );
    }

    #[test]
    fn ranges_that_wait_are_bounded() {
        let mut warm_ups = WarmUps::default();
        warm_ups.ask(V, start_all(vec![0..1; WARM_RANGES_MAX]), at(0)).unwrap();
        assert!(warm_ups.ask(V, WarmCommand::Add(more(0..1)), at(0)).unwrap_err().contains("later"));
        assert_eq!(warm_ups.look(V, 0).unwrap().ranges_room, 0);
    }
}
