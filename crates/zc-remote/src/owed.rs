//! Changes that the server may lose.
//!
//! Job: hold the newest change of each byte range that was sent and is not known to be durable.
//!
//! Invariants: entries do not overlap. An entry leaves by an answer that proves durability, by a newer change of its
//! range, or because the server refused it. The bytes held are at most twice those counted.
//!
//! Out of scope: sending requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use zc_core::usize_from_u64;

use crate::limits::OWED_ENTRY_BYTES;

/// Number of answers up to and including one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Stamp(pub(crate) u64);

/// Content of a changed range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Data(Bytes),
    Zero {
        /// The server is to keep the space.
        no_hole: bool,
    },
    /// Not needed any more.
    Trim,
}

impl Change {
    /// The change of `from..to` within the range.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Data(bytes) => Self::Data(bytes.slice(usize_from_u64(from)..usize_from_u64(to))),
            Self::Zero { .. } | Self::Trim => self.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Without an answer.
    Sent,
    Answered(Stamp),
}

#[derive(Debug, Clone)]
struct Entry {
    end: u64,
    change: Change,
    /// Length of the allocation that the bytes are a slice of.
    held: u64,
    mark: Mark,
}

impl Entry {
    fn counted(&self, start: u64) -> u64 {
        let data = if matches!(self.change, Change::Data(_)) { self.end - start } else { 0 };
        data + OWED_ENTRY_BYTES
    }

    /// The rest `from..to` of an entry that begins at `start`. Copies a small rest, which would keep a large allocation.
    fn rest(&self, start: u64, from: u64, to: u64) -> Self {
        let mut change = self.change.part(from - start, to - start);
        let mut held = self.held;
        if let Change::Data(bytes) = &mut change
            && (to - from) * 2 < held
        {
            *bytes = Bytes::copy_from_slice(bytes);
            held = to - from;
        }
        Self { end: to, change, held, mark: self.mark }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    entries: BTreeMap<u64, Entry>,
    bytes: u64,
    stamp: Stamp,
}

impl Owed {
    /// Bytes of memory, as they are counted against the bounds.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The stamp of the newest answer.
    pub(crate) const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns `true` if a change in the range is owed.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.entries.range(..end).next_back().is_some_and(|(_, entry)| entry.end > start)
    }

    pub(crate) fn sent(&mut self, start: u64, end: u64, change: Change) {
        self.remove(start, end);
        self.put(start, Entry { end, change, held: end - start, mark: Mark::Sent });
    }

    /// Stamps the changes of a range, which the server answered.
    pub(crate) fn answered(&mut self, start: u64, end: u64) {
        self.stamp.0 += 1;
        let stamp = self.stamp;
        for (_, entry) in self.entries.range_mut(start..end) {
            if entry.mark == Mark::Sent {
                entry.mark = Mark::Answered(stamp);
            }
        }
    }

    /// Stamps all unanswered changes: the connection is dead, and the server may have carried them out.
    pub(crate) fn all_answered(&mut self) {
        self.answered(0, u64::MAX);
    }

    /// Removes the entries that a flush covers: those with stamps up to `covers`, the newest stamp when it was sent. An
    /// error of the flush removes them as well, because the server may have lost them.
    pub(crate) fn flushed(&mut self, covers: Stamp) {
        let is_covered = |entry: &Entry| matches!(entry.mark, Mark::Answered(stamp) if stamp <= covers);
        let bytes = &mut self.bytes;
        self.entries.retain(|start, entry| {
            let goes = is_covered(entry);
            if goes {
                *bytes -= entry.counted(*start);
            }
            !goes
        });
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        let before = self.entries.range(..start).next_back().map(|(at, entry)| (*at, entry.end));
        if let Some((at, _)) = before.filter(|(_, ends)| *ends > start) {
            self.split(at, start, end);
        }
        while let Some(at) = self.entries.range(start..end).next().map(|(at, _)| *at) {
            self.split(at, start, end);
        }
    }

    /// Removes `start..end` from the entry at `at`, and keeps the rest of the entry.
    fn split(&mut self, at: u64, start: u64, end: u64) {
        let Some(entry) = self.entries.remove(&at) else { return };
        self.bytes -= entry.counted(at);
        if at < start {
            self.put(at, entry.rest(at, at, start));
        }
        if entry.end > end {
            self.put(end, entry.rest(at, end, entry.end));
        }
    }

    fn put(&mut self, start: u64, entry: Entry) {
        self.bytes += entry.counted(start);
        self.entries.insert(start, entry);
    }

    /// Returns the first owed change at or behind an address: start, end and content.
    pub(crate) fn next_from(&self, start: u64) -> Option<(u64, u64, Change)> {
        let before = self.entries.range(..start).next_back();
        if let Some((at, entry)) = before.filter(|(_, entry)| entry.end > start) {
            return Some((start, entry.end, entry.change.part(start - at, entry.end - at)));
        }
        let (at, entry) = self.entries.range(start..).next()?;
        Some((*at, entry.end, entry.change.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the model's export.
    const SIZE: u64 = 48;

    #[derive(Debug, Clone)]
    enum Input {
        Sent(u64, u64, u8),
        Answered(u64, u64),
        Remove(u64, u64),
        Flush,
    }

    fn input() -> impl Strategy<Value = Input> {
        let range = (0..SIZE - 1, 1..SIZE).prop_map(|(start, len)| (start, (start + len).min(SIZE)));
        prop_oneof![
            4 => (range.clone(), 0..=9_u8).prop_map(|((start, end), kind)| Input::Sent(start, end, kind)),
            2 => range.clone().prop_map(|(start, end)| Input::Answered(start, end)),
            1 => range.prop_map(|(start, end)| Input::Remove(start, end)),
            1 => Just(Input::Flush),
        ]
    }

    /// A byte of the model: content, and `true` if its change was answered.
    type Model = Vec<Option<(Change, bool)>>;

    fn change(kind: u8, len: u64) -> Change {
        match kind {
            0 => Change::Trim,
            1 => Change::Zero { no_hole: false },
            kind => Change::Data(Bytes::from(vec![kind; usize_from_u64(len)])),
        }
    }

    fn apply(owed: &mut Owed, model: &mut Model, input: &Input) {
        let range = |start: u64, end: u64| usize_from_u64(start)..usize_from_u64(end);
        match *input {
            Input::Sent(start, end, kind) => {
                owed.sent(start, end, change(kind, end - start));
                model[range(start, end)].fill(Some((change(kind, 1), false)));
            }
            // Answers are for whole changes, which the map may have cut.
            Input::Answered(start, end) => {
                let starts: Vec<u64> = owed.entries.range(start..end).map(|(at, _)| *at).collect();
                owed.answered(start, end);
                for at in starts {
                    let ends = owed.entries[&at].end;
                    model[range(at, ends)].iter_mut().flatten().for_each(|byte| byte.1 = true);
                }
            }
            Input::Remove(start, end) => {
                owed.remove(start, end);
                model[range(start, end)].fill(None);
            }
            Input::Flush => {
                owed.flushed(owed.stamp());
                let is_covered = |byte: &Option<(Change, bool)>| byte.as_ref().is_some_and(|byte| byte.1);
                model.iter_mut().filter(|byte| is_covered(byte)).for_each(|byte| *byte = None);
            }
        }
    }

    fn check(owed: &Owed, model: &Model) {
        let mut found: Model = vec![None; usize_from_u64(SIZE)];
        let (mut bytes, mut at) = (0, 0);
        while let Some((start, end, change)) = owed.next_from(at) {
            assert!(start >= at && end > start, "entries do not overlap");
            let entry = &owed.entries[&start];
            bytes += entry.counted(start);
            assert!(entry.held <= (end - start) * 2 || !matches!(change, Change::Data(_)));
            for byte in start..end {
                let content = change.part(byte - start, byte - start + 1);
                found[usize_from_u64(byte)] = Some((content, entry.mark != Mark::Sent));
            }
            at = end;
        }
        assert_eq!((&found, bytes), (model, owed.bytes()));
        for start in 0..SIZE {
            let is_owed = model[usize_from_u64(start)].is_some();
            assert_eq!(owed.overlaps(start, start + 1), is_owed);
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_map_of_bytes(inputs in prop::collection::vec(input(), 0..40)) {
            let (mut owed, mut model) = (Owed::default(), vec![None; usize_from_u64(SIZE)]);
            for input in &inputs {
                apply(&mut owed, &mut model, input);
                check(&owed, &model);
            }
        }
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_sent() {
        let mut owed = Owed::default();
        let data = || Change::Data(Bytes::from(vec![1; 8]));
        owed.sent(0, 8, data());
        owed.sent(8, 16, data());
        owed.answered(0, 8);
        let covers = owed.stamp();
        owed.answered(8, 16);
        owed.flushed(covers);
        assert_eq!(owed.next_from(0).map(|(start, end, _)| (start, end)), Some((8, 16)));
        owed.flushed(owed.stamp());
        assert_eq!((owed.next_from(0), owed.bytes()), (None, 0));
    }
}
