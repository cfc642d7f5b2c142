//! Fetches: stored bytes come from the device or from memory, then to a job that checks them.
//!
//! Job: begin the reads of a fetch, and cut apart what they bring. Invariant: a fetch ends once, when all its reads and
//! its job have. What it does not do: check bytes (the job does), or choose reads (`spans` does).

use bytes::Bytes;
use zc_core::{BufId, ErrorKind, Map, OpId, usize_from_u32};
use zc_store::seam::{FetchPart, FetchTo};
use zc_store::{Event, Superblock};

use crate::base::Base;
use crate::job::{Fetched, Job, Kind};
use crate::ops::InFlight;
use crate::seam::DeviceOperation;
use crate::spans::{Span, spans};

/// A fetch in progress; named by the store's operation.
#[derive(Debug)]
struct Fetch {
    parts: Vec<Fetched>,
    reads_left: usize,
    to: FetchTo,
    /// Bytes of the buffer that it is decoded into, if it is.
    dest_bytes: Option<u32>,
    urgent: bool,
}

/// Fetches by the store's operations.
#[derive(Debug, Default)]
pub(crate) struct Fetches(Map<OpId, Fetch>);

impl Fetches {
    /// Begins a fetch of the store. `dest_bytes`: how long the buffer is that it is decoded into, if it is.
    pub(crate) fn begin(
        &mut self,
        op: OpId,
        parts: &[FetchPart],
        (to, dest_bytes): (FetchTo, Option<u32>),
        urgent: bool,
        base: &mut Base,
    ) {
        let segment_bytes = base.segment_bytes();
        let device = |part: &FetchPart| part.memory.is_none();
        let places = parts.iter().enumerate().filter(|(_, part)| device(part)).map(|(index, part)| {
            (index, Superblock::device_offset(part.stored.place, segment_bytes), part.stored.stored_bytes)
        });
        let spans = spans(places.collect());
        let fetched = parts.iter().map(|part| Fetched {
            stored: part.stored,
            bytes: part.memory.map_or(Err(ErrorKind::Io), |slice| Ok(base.slice(slice))),
            dest_offset_bytes: part.dest_offset_bytes,
        });
        let fetch = Fetch { parts: fetched.collect(), reads_left: spans.len(), to, dest_bytes, urgent };
        self.0.insert(op, fetch);
        spans.into_iter().for_each(|span| read_span(op, span, base));
        self.check(op, base);
    }

    /// A read of the device ended.
    pub(crate) fn span_read(
        &mut self,
        op: OpId,
        span: Span,
        result: &Result<Bytes, ErrorKind>,
        base: &mut Base,
    ) {
        let Some(fetch) = self.0.get_mut(&op) else { return };
        fetch.reads_left -= 1;
        if result.is_err() && span.parts.len() > 1 {
            // A place that cannot be read takes no neighbour along: each part is read by itself.
            let alone: Vec<Span> = span.each(|index| fetch.parts[index].stored.stored_bytes).collect();
            fetch.reads_left += alone.len();
            alone.into_iter().for_each(|span| read_span(op, span, base));
            return;
        }
        for (index, start) in &span.parts {
            let part = &mut fetch.parts[*index];
            let start = usize_from_u32(*start);
            let end = start + usize_from_u32(part.stored.stored_bytes);
            part.bytes = match result {
                Ok(bytes) if bytes.len() >= end => Ok(bytes.slice(start..end)),
                Ok(_) => Err(ErrorKind::Io),
                Err(kind) => Err(*kind),
            };
        }
        self.check(op, base);
    }

    /// If all bytes are there, has them checked.
    fn check(&mut self, op: OpId, base: &mut Base) {
        let Some(fetch) = self.0.get_mut(&op).filter(|fetch| fetch.reads_left == 0) else { return };
        let job =
            Job(Kind::Decode { parts: core::mem::take(&mut fetch.parts), dest_bytes: fetch.dest_bytes });
        base.begin_job(InFlight::Decode { fetch: op }, job, fetch.urgent);
    }

    /// The bytes were checked. The buffer that was decoded into, and its bytes.
    pub(crate) fn decoded(
        &mut self,
        op: OpId,
        parts: Vec<Fetched>,
        dest: Option<Bytes>,
        base: &mut Base,
    ) -> Option<(BufId, Bytes)> {
        let fetch = self.0.remove(&op)?;
        let mut results = Vec::with_capacity(parts.len());
        for (number, part) in (0..).zip(parts) {
            results.push(part.bytes.as_ref().map(|_| ()).map_err(|kind| *kind));
            if let FetchTo::Stored(first) = fetch.to {
                // A part that failed has a buffer too: the store lets go of all of them.
                base.keep_as(BufId(first.0 + number), part.bytes.unwrap_or_default());
            }
        }
        base.push(Event::Fetched { op, results });
        match fetch.to {
            FetchTo::Decoded(buf) => Some((buf, dest?)),
            FetchTo::Stored(_) | FetchTo::Nowhere => None,
        }
    }
}

fn read_span(fetch: OpId, span: Span, base: &mut Base) {
    let operation = DeviceOperation::Read { offset_bytes: span.offset_bytes, len_bytes: span.len_bytes };
    base.begin_device(InFlight::Fetch { fetch, span }, operation);
}
