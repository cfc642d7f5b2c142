//! A trace in bounded memory: the whole of it, or all requests for an even part of its addresses.
//!
//! Invariant: requests that are held name at most as many blocks as allowed. The part is the largest of the
//! whole, a half, a quarter and so on that fits; each has the next in it, so that a trace is read once for
//! each.
//!
//! It does not keep duplicates together. An address is in the part or not whatever it holds.

use std::path::Path;

use anyhow::Context as _;
use zc_recording::Share;
use zc_replay::{Ratios, Trace};
use zc_trace::{Options, Reader, Request, TraceError};

/// Requests in memory.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) trace: Trace,
    /// The part of the addresses of the trace.
    pub(super) share: Share,
    /// Part of a volume that the trace itself covers.
    pub(super) recorded: f64,
    pub(super) bad_lines: u64,
}

/// Reads a trace, keeping requests for at most `blocks_max` blocks.
pub(super) fn load(path: &Path, options: Options, ratios: Ratios, blocks_max: u64) -> anyhow::Result<Held> {
    let mut of = 1;
    loop {
        let share = Share::new(1, of).context("not even a millionth of the addresses can be held")?;
        let mut reader = Reader::open(path, options)?;
        let parts = reader.by_ref().flat_map(|request| parts(request, share));
        if let Some(trace) = Trace::load_at_most(parts, ratios, blocks_max)? {
            let any = share.is_whole() || trace.requests() > 0;
            anyhow::ensure!(any, "no part of the addresses has requests for {blocks_max} blocks or less");
            let (recorded, bad_lines) = (reader.sample_rate(), reader.bad_count());
            return Ok(Held { trace, share, recorded, bad_lines });
        }
        of *= 2;
    }
}

/// Returns the parts of a request inside the sample; flushes are always kept.
fn parts(
    request: Result<Request, TraceError>,
    share: Share,
) -> impl Iterator<Item = Result<Request, TraceError>> {
    let (other, range) = match request {
        Ok(request) if request.op.has_range() => (None, Some(request)),
        other => (Some(other), None),
    };
    let cut = move |request: Request| {
        let all = share.parts(request.offset_bytes, u64::from(request.len_bytes)).enumerate();
        all.map(move |(number, (offset_bytes, len_bytes))| {
            let len_bytes = u32::try_from(len_bytes).unwrap_or(request.len_bytes);
            Ok(Request { offset_bytes, len_bytes, continues: request.continues && number == 0, ..request })
        })
    };
    other.into_iter().chain(range.into_iter().flat_map(cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_trace_a_part_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let keys: String = (0..60_000_u32).map(|number| format!("{}\n", number * 7919 % 50_000)).collect();
        std::fs::write(&path, keys).unwrap();
        let held = |max| load(&path, Options::default(), Ratios::default(), max).unwrap();
        let whole = held(60_000);
        assert!(whole.share.is_whole() && whole.trace.requests() == 60_000);
        let part = held(20_000);
        assert_eq!((part.share.kept(), part.share.of(), part.bad_lines), (1, 4, 0));
        let requests = part.trace.requests();
        assert!((13_000..=20_000).contains(&requests), "{requests}");
        let touched = part.trace.footprint_bytes() as f64 / whole.trace.footprint_bytes() as f64;
        assert!((touched * 4.0 - 1.0).abs() < 0.1, "{touched}");
        load(&path, Options::default(), Ratios::default(), 0).unwrap_err();
    }

    #[test]
    fn flushes_and_errors_are_kept_and_ranges_are_cut() {
        let share = Share::new(1, 2).unwrap();
        let flush = Request::new(1, zc_trace::Op::Flush, 0, 0);
        assert_eq!(parts(Ok(flush), share).map(Result::unwrap).collect::<Vec<_>>(), [flush]);
        let long = Request { continues: true, ..Request::new(1, zc_trace::Op::Read, 4096, 64 << 20) };
        let all: Vec<Request> = parts(Ok(long), share).map(Result::unwrap).collect();
        let bytes: u64 = all.iter().map(|part| u64::from(part.len_bytes)).sum();
        assert!((24 << 20..40 << 20).contains(&bytes), "{bytes}");
        assert_eq!(all.iter().filter(|part| part.continues).count(), 1);
    }
}
