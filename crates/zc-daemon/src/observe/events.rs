//! Changes of the daemon's state, for programs that follow them.
//!
//! Job: compare a verdict with the previous one, and record the differences.
//!
//! Invariants: a lasting state is recorded once when it begins and once when it ends. Numbers increase by one, from
//! one, and are never reused by a daemon. At most [`EVENTS_MAX`] events are kept; a reader detects missed ones by the
//! numbers.
//!
//! It does not poll. The control plane does, once in `LOOK_MS` and at every query. Changes between two polls are not
//! seen, and an incident that repeats within an hour is the same one.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::observe::verdict::{Level, Reason, Verdict};
use zc_engine::shard::stats::ShardStats;

const EVENTS_MAX: usize = 1024;

/// Event that ends the last problem.
const BACK_TO_NORMAL: &str = "back-to-normal";
/// Writes wait for space; not part of the verdict, because short waits are how writers are throttled.
const LOW_SPACE: &str = "low-space";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Begins,
    Ends,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    number: u64,
    /// Seconds since 1970, by the machine's clock.
    unix_s: u64,
    uptime_ms: u64,
    /// The kind of the reason, or that all problems are resolved.
    event: &'static str,
    change: Change,
    level: Level,
    volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    what: String,
    follows: String,
    command: String,
}

/// The newest events, and the lasting problems.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    last_number: u64,
    lasting: BTreeMap<(&'static str, Option<String>, Option<String>), Reason>,
}

impl Events {
    /// Records events by comparing the current state with the previous one.
    pub(crate) fn observe(&mut self, verdict: &Verdict, stats: &ShardStats, unix_s: u64) {
        let reasons = verdict.reasons.iter().cloned().chain(of_space(stats));
        let now: BTreeMap<_, _> = reasons
            .map(|reason| ((reason.kind, reason.volume.clone(), reason.store.clone()), reason))
            .collect();
        let before = std::mem::take(&mut self.lasting);
        let at = (unix_s, stats.uptime_ms);
        let was_wrong = !before.is_empty();
        for (key, reason) in before.iter().filter(|(key, _)| !now.contains_key(*key)) {
            self.note(at, key.0, Change::Ends, reason.clone());
        }
        for (key, reason) in now.iter().filter(|(key, _)| !before.contains_key(*key)) {
            self.note(at, key.0, Change::Begins, reason.clone());
        }
        if was_wrong && now.is_empty() {
            let (what, follows) = ("all problems are resolved".to_owned(), "nothing".to_owned());
            let (command, level) = ("nothing".to_owned(), Level::Healthy);
            let reason =
                Reason { kind: BACK_TO_NORMAL, level, volume: None, store: None, what, follows, command };
            self.note(at, BACK_TO_NORMAL, Change::Begins, reason);
        }
        self.lasting = now;
    }

    fn note(&mut self, at: (u64, u64), event: &'static str, change: Change, reason: Reason) {
        let Reason { kind: _, level, volume, store, what, follows, command } = reason;
        let (unix_s, uptime_ms) = at;
        self.last_number += 1;
        let number = self.last_number;
        self.kept.push_back(Event {
            number,
            unix_s,
            uptime_ms,
            event,
            change,
            level,
            volume,
            store,
            what,
            follows,
            command,
        });
        if self.kept.len() > EVENTS_MAX {
            self.kept.pop_front();
        }
    }

    /// The newest, at most `most`, the newest first.
    pub(crate) fn newest(&self, most: usize) -> Vec<Event> {
        self.kept.iter().rev().take(most).cloned().collect()
    }

    /// Events that are kept with a higher number, the oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<Event> {
        self.kept.iter().filter(|event| event.number > number).cloned().collect()
    }
}

/// Volumes whose writes wait for space for dirty data.
fn of_space(stats: &ShardStats) -> impl Iterator<Item = Reason> {
    let waiting = stats.dirty.iter().filter(|(_, dirty)| dirty.waiting_writes > 0 && !dirty.fenced);
    waiting.map(|(name, dirty)| Reason {
        kind: LOW_SPACE,
        level: Level::Degraded,
        volume: Some(name.clone()),
        store: None,
        what: format!("{} writes wait for space for dirty data", dirty.waiting_writes),
        follows: "writes are as slow as the origin".to_owned(),
        command: "if it lasts: raise dirty_high, or take a larger cache".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_engine::shard::stats::Dirty;

    fn verdict(kinds: &[(&'static str, Option<&str>)]) -> Verdict {
        let reason = |(kind, volume): &(&'static str, Option<&str>)| Reason {
            kind,
            level: Level::Degraded,
            volume: volume.map(str::to_owned),
            store: None,
            what: "w".to_owned(),
            follows: "f".to_owned(),
            command: "c".to_owned(),
        };
        let state = if kinds.is_empty() { Level::Healthy } else { Level::Degraded };
        Verdict { state, reasons: kinds.iter().map(reason).collect() }
    }

    fn changes_after(events: &Events, after: u64) -> Vec<(u64, &'static str, Change)> {
        events.after(after).iter().map(|event| (event.number, event.event, event.change)).collect()
    }

    #[test]
    fn what_lasts_is_noted_at_both_ends_and_once_each() {
        let mut events = Events::default();
        let quiet = ShardStats::default();
        let mut look = |kinds: &[(&'static str, Option<&str>)]| {
            events.observe(&verdict(kinds), &quiet, 7);
            changes_after(&events, 0)
        };
        assert_eq!(look(&[]), []);
        let fenced = (1, "fenced", Change::Begins);
        assert_eq!(look(&[("fenced", Some("a"))]), [fenced]);
        assert_eq!(look(&[("fenced", Some("a"))]), [fenced]);
        // The same of another volume is another.
        let both = [fenced, (2, "fenced", Change::Begins)];
        assert_eq!(look(&[("fenced", Some("a")), ("fenced", Some("b"))]), both);
        assert_eq!(look(&[("fenced", Some("b"))]).last(), Some(&(3, "fenced", Change::Ends)));
        let end = look(&[]);
        assert_eq!(end[3..], [(4, "fenced", Change::Ends), (5, BACK_TO_NORMAL, Change::Begins)]);
        assert_eq!(changes_after(&events, 4), [(5, BACK_TO_NORMAL, Change::Begins)]);
    }

    #[test]
    fn writes_that_wait_are_low_space() {
        let mut events = Events::default();
        let dirty = |waiting_writes| Dirty { waiting_writes, ..Dirty::default() };
        for waiting in [0, 3, 5, 0] {
            let stats =
                ShardStats { dirty: [("v".to_owned(), dirty(waiting))].into(), ..ShardStats::default() };
            events.observe(&verdict(&[]), &stats, 7);
        }
        let changes = [(1, LOW_SPACE, Change::Begins), (2, LOW_SPACE, Change::Ends)];
        assert_eq!(changes_after(&events, 0)[..2], changes);
    }

    #[test]
    fn the_oldest_go_first() {
        let mut events = Events::default();
        for round in 0..EVENTS_MAX {
            let kinds: &[_] = if round % 2 == 0 { &[("fenced", None)] } else { &[] };
            events.observe(&verdict(kinds), &ShardStats::default(), 7);
        }
        let kept = events.after(0);
        assert_eq!(kept.len(), EVENTS_MAX);
        assert_eq!(kept.last().map(|event| event.number), Some(events.last_number));
        assert!(events.last_number > zc_core::u64_from_usize(EVENTS_MAX));
    }
}
