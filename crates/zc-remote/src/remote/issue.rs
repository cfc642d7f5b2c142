//! Requests on their way to the server.
//!
//! Job: cut requests into parts, send as many as may be in flight, flush when much is owed, and write owed changes
//! again.
//!
//! Invariants: nothing of the engine is sent outside the stage `Up`. A change is owed from the moment in which it is
//! sent.

use zc_nbd::client::RequestError;
use zc_nbd::proto::tx_flag;

use super::{Effect, Remote, Stage};
use crate::limits::{OWED_FLUSH_BYTES, OWED_HOLD_BYTES, STATUS_BYTES_MAX};
use crate::link::Role;
use crate::owed::Change;
use crate::request::{FlushOf, Job, Request, RequestId};
use crate::samples::Sample;

/// Progress of a request at the head of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Issued {
    /// A part was sent; more follow.
    Part,
    /// Everything was sent.
    All,
    /// Nothing was sent, for now.
    Nothing,
    /// An abandoned request of the same sectors has no answer yet.
    InDoubt,
}

impl Remote {
    /// Sends parts until a bound or the order of requests stops it.
    pub(super) fn pump(&mut self) {
        while self.stage == Stage::Up {
            self.flush_owed();
            let read = self.pump_queue(false);
            let may_change = self.owed.bytes() < OWED_HOLD_BYTES || !self.offers_flush();
            let changed = may_change && self.pump_queue(true);
            if !read && !changed {
                return;
            }
        }
    }

    fn offers_flush(&self) -> bool {
        self.links.first.as_ref().is_some_and(|link| link.offers(tx_flag::SEND_FLUSH))
    }

    /// Flushes when much is owed, one flush at a time.
    fn flush_owed(&mut self) {
        if self.owed.bytes() < OWED_FLUSH_BYTES || self.is_flushing || !self.offers_flush() {
            return;
        }
        let role = Role::Flush { request: None, covers: self.owed.stamp() };
        let now_ms = self.now_ms;
        self.is_flushing = self.links.pick(now_ms).is_some_and(|link| link.flush(role).is_ok());
    }

    /// Sends a part of the first request of a queue that need not wait for an abandoned one. Returns `false` if nothing
    /// was sent.
    fn pump_queue(&mut self, of_changes: bool) -> bool {
        let count = if of_changes { self.changes.len() } else { self.reads.len() };
        for _ in 0..count {
            match self.pump_first(of_changes) {
                Issued::InDoubt => {
                    let queue = if of_changes { &mut self.changes } else { &mut self.reads };
                    queue.rotate_left(1);
                }
                issued => return issued != Issued::Nothing,
            }
        }
        false
    }

    fn pump_first(&mut self, of_changes: bool) -> Issued {
        let queue = if of_changes { &self.changes } else { &self.reads };
        let Some(id) = queue.front().copied() else { return Issued::Nothing };
        let issued = match self.issue(id) {
            Ok(issued) => issued,
            Err(RequestError::TooMany | RequestError::NotReady | RequestError::Stopping) => Issued::Nothing,
            Err(error) => {
                let failure = crate::Failure::new(zc_core::ErrorKind::Invalid, error.to_string());
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.failure = Some(failure);
                    job.next = job.end;
                }
                Issued::All
            }
        };
        if issued == Issued::All {
            let queue = if of_changes { &mut self.changes } else { &mut self.reads };
            queue.pop_front();
            self.settle(id);
        }
        issued
    }

    fn issue(&mut self, id: RequestId) -> Result<Issued, RequestError> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(Issued::All) };
        let Some(link) = self.links.pick(self.now_ms) else { return Ok(Issued::Nothing) };
        let is_due = job.flush == FlushOf::Due && job.next >= job.end;
        if is_due || job.request == Request::Flush {
            if link.offers(tx_flag::SEND_FLUSH) {
                link.flush(Role::Flush { request: Some(id), covers: self.owed.stamp() })?;
                job.parts += 1;
            }
            job.flush = FlushOf::Sent;
            return Ok(Issued::All);
        }
        if job.failure.is_some() || job.next >= job.end {
            return Ok(Issued::All);
        }
        match job.request.change() {
            Some(Change::Trim) if !link.offers(tx_flag::SEND_TRIM) => {
                job.next = job.end;
                Ok(Issued::All)
            }
            Some(change) => self.issue_change(id, &change),
            None if matches!(job.request, Request::Status { .. }) => self.issue_status(id),
            None => self.issue_read(id),
        }
    }

    fn issue_read(&mut self, id: RequestId) -> Result<Issued, RequestError> {
        if let Some(issued) = self.skip_holes(id) {
            return Ok(issued);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(Issued::All) };
        let (start, end) = (job.next, job.end.min(job.next.saturating_add(self.links.payload_max())));
        let end = self.holes.cut(start, end);
        if self.links.is_in_doubt(start, end) {
            return Ok(Issued::InDoubt);
        }
        let drawn = self.samples.draw(start, end, &mut self.dice);
        let drawn = drawn.filter(|(from, to)| !self.links.is_changing(*from, *to));
        let Some(link) = self.links.pick(self.now_ms) else { return Ok(Issued::Nothing) };
        let sample = drawn.map(|(from, to)| Sample::empty(from, to - from));
        link.read(Role::Read { request: id, base: job.start }, start, end, sample)?;
        let issued = advance(job, end);
        self.request_holes(start);
        Ok(issued)
    }

    /// Answers the next part of a read if it lies in a hole.
    fn skip_holes(&mut self, id: RequestId) -> Option<Issued> {
        let job = self.jobs.get_mut(&id)?;
        let zeros_end = self.holes.zeros_from(job.next, job.end);
        let len_bytes = zeros_end - job.next;
        if len_bytes == 0 {
            return None;
        }
        let at = job.next - job.start;
        self.hole_bytes += len_bytes;
        self.effects.push_back(Effect::Zeros { request: id, at, len_bytes });
        job.next = zeros_end;
        Some(if job.next < job.end { Issued::Part } else { Issued::All })
    }

    /// Requests the holes around a read that is the first one there. The read does not wait for them.
    fn request_holes(&mut self, at: u64) {
        let size_bytes = self.known.as_ref().map_or(0, |export| export.size_bytes);
        let Some((start, end)) = self.holes.region_due(at, size_bytes) else { return };
        let is_changing = self.links.is_changing(start, end);
        let Some(link) = self.links.pick(self.now_ms).filter(|link| link.has_allocation()) else { return };
        if link.status(Role::Holes, (start, end), is_changing).is_ok() {
            self.holes.requested(start);
        }
    }

    fn issue_status(&mut self, id: RequestId) -> Result<Issued, RequestError> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(Issued::All) };
        let (start, end) = (job.next, job.end.min(job.next.saturating_add(STATUS_BYTES_MAX)));
        let is_changing = self.links.is_changing(start, end);
        let Some(link) = self.links.pick(self.now_ms) else { return Ok(Issued::Nothing) };
        if link.has_status() {
            link.status(Role::Status { request: id }, (start, end), is_changing)?;
            job.parts += 1;
        }
        job.next = job.end;
        Ok(Issued::All)
    }

    fn issue_change(&mut self, id: RequestId, change: &Change) -> Result<Issued, RequestError> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(Issued::All) };
        let end = job.end.min(job.next.saturating_add(self.links.piece_max(change)));
        let start = job.next;
        if self.links.is_in_doubt(start, end) {
            return Ok(Issued::InDoubt);
        }
        self.links.forget_samples(start, end);
        self.links.outdate_statuses(start, end);
        let Some(link) = self.links.pick(self.now_ms) else { return Ok(Issued::Nothing) };
        let part = change.part(start - job.start, end - job.start);
        let fua = job.request.fua() && link.offers(tx_flag::SEND_FUA);
        if job.request.fua() && !fua {
            job.flush = FlushOf::Due;
        }
        let sample = match &part {
            Change::Data(bytes) => self.samples.draw(start, end, &mut self.dice).map(|(from, to)| {
                let range = zc_core::usize_from_u64(from - start)..zc_core::usize_from_u64(to - start);
                Sample::full(from, &bytes[range])
            }),
            Change::Zero { .. } | Change::Trim => None,
        };
        link.change(Role::Change { request: id }, (start, end), &part, fua, sample)?;
        self.samples.forget(start, end);
        self.holes.forget(start, end);
        self.owed.sent(start, end, part);
        Ok(advance(job, end))
    }

    /// Ends a request of which every part was answered, or sends its flush.
    pub(super) fn settle(&mut self, id: RequestId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.parts > 0 || (job.failure.is_none() && job.next < job.end) {
            return;
        }
        if let Some(failure) = job.failure.take() {
            self.finish(id, Err(failure));
            return;
        }
        match job.flush {
            FlushOf::Due => {
                // It may be in the queue of changes as well, whose head it was.
                if !self.reads.contains(&id) {
                    self.reads.push_front(id);
                }
            }
            FlushOf::None if job.request == Request::Flush => {}
            FlushOf::None | FlushOf::Sent => self.finish(id, Ok(())),
        }
    }

    /// Writes owed changes again, as many as may be in flight.
    pub(super) fn replay(&mut self) {
        while let Stage::Replaying { next } = self.stage {
            let Some(link) = &mut self.links.first else { return };
            let Some((start, ends, change)) = self.owed.next_from(next) else {
                if !link.has_changes() {
                    self.replayed();
                }
                return;
            };
            if !link.has_room() {
                return;
            }
            let end = ends.min(start.saturating_add(link.piece_max(&change)));
            self.stage = Stage::Replaying { next: end };
            if matches!(change, Change::Trim) && !link.offers(tx_flag::SEND_TRIM) {
                continue;
            }
            let part = change.part(0, end - start);
            if let Err(error) = link.change(Role::Replay, (start, end), &part, false, None) {
                return self.drop_connection(error.to_string());
            }
            self.replayed_bytes += end - start;
        }
    }
}

/// A part up to `end` was sent.
const fn advance(job: &mut Job, end: u64) -> Issued {
    job.next = end;
    job.parts += 1;
    if job.next < job.end { Issued::Part } else { Issued::All }
}
