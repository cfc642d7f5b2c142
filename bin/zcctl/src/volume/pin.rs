//! Lists of pinned ranges: additions and removals.
//!
//! Invariants: the result is sorted, and no two ranges touch. It is independent of the volume's size.

use core::ops::Range;

use zc_core::units::ByteSpan;

pub(super) const KEY: &str = "pin";

/// The ranges, and these.
pub(super) fn with(before: &[ByteSpan], more: &[ByteSpan]) -> Vec<ByteSpan> {
    union(before.iter().chain(more).map(range))
}

pub(super) fn without(before: &[ByteSpan], less: &[ByteSpan]) -> Vec<ByteSpan> {
    let rest = |left: Vec<Range<u64>>, less: &ByteSpan| {
        let gone = range(less);
        let around = |range: Range<u64>| {
            [range.start..range.end.min(gone.start), range.start.max(gone.end)..range.end]
        };
        left.into_iter().flat_map(around).filter(|range| range.start < range.end).collect()
    };
    union(less.iter().fold(before.iter().map(range).collect(), rest))
}

pub(super) fn to_toml(spans: &[ByteSpan]) -> String {
    let texts: Vec<String> = spans.iter().map(|span| format!("\"{span}\"")).collect();
    format!("[{}]", texts.join(", "))
}

fn range(span: &ByteSpan) -> Range<u64> {
    span.of(u64::MAX)
}

fn union(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<ByteSpan> {
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(range),
        }
    }
    let span = |range: Range<u64>| {
        let end_bytes = Some(range.end).filter(|end| *end != u64::MAX);
        ByteSpan { start_bytes: range.start, end_bytes }
    };
    merged.into_iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(texts: &[&str]) -> Vec<ByteSpan> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let before = spans(&["1MiB-2MiB", "8MiB-"]);
        let more = |texts: &[&str]| to_toml(&with(&before, &spans(texts)));
        assert_eq!(more(&["0-1MiB"]), "[\"0 B-2 MiB\", \"8 MiB-\"]");
        assert_eq!(more(&["4MiB-9MiB", "3MiB-4MiB"]), "[\"1 MiB-2 MiB\", \"3 MiB-\"]");
        let less = |texts: &[&str]| to_toml(&without(&before, &spans(texts)));
        assert_eq!(less(&["1536K-16MiB"]), "[\"1 MiB-1536 KiB\", \"16 MiB-\"]");
        assert_eq!(less(&["9MiB-10MiB"]), "[\"1 MiB-2 MiB\", \"8 MiB-9 MiB\", \"10 MiB-\"]");
        assert_eq!((less(&["0-"]).as_str(), less(&["4MiB-5MiB"])), ("[]", to_toml(&before)));
    }
}
