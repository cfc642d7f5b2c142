//! Answers of the server.
//!
//! Job: apply an answer to its request, to the owed changes, and to the connection.

use zc_nbd::ErrorCode;
use zc_nbd::client::RemoteError;
use zc_nbd::proto::tx_flag;

use super::{Effect, Remote, Stage};
use crate::link::{Link, LinkEvent, Part, Role};
use crate::owed::Stamp;
use crate::request::{ConnId, Failure, RequestId};

impl Remote {
    pub(super) fn take_event(&mut self, conn: ConnId, event: LinkEvent) {
        match event {
            LinkEvent::Ready if conn != ConnId::FIRST => self.other_greeted(conn),
            LinkEvent::Ready if matches!(self.stage, Stage::Greeting { .. }) => self.greeted(),
            LinkEvent::Ready => {}
            LinkEvent::Done(_, Err(error)) if error.code == ErrorCode::Shutdown => self.server_stops(),
            LinkEvent::Done(part, result) => self.answered(conn, part, result),
        }
    }

    /// The server refuses a request because it is stopping. The request stays without an answer, and is sent again on the
    /// next connection.
    fn server_stops(&mut self) {
        self.end_all("the server is shutting down".to_owned());
    }

    fn answered(&mut self, conn: ConnId, part: Part, result: Result<(), RemoteError>) {
        match part.role {
            Role::Read { .. } | Role::Survey => self.read_answered(part, result),
            Role::Status { .. } | Role::Holes => self.status_answered(part, result.is_ok()),
            Role::Change { .. } => self.change_answered(part, result),
            Role::Flush { covers, .. } => self.flush_answered(&part, covers, result),
            Role::Settle => match result {
                Ok(()) if self.stage == Stage::Settling => self.up(),
                Ok(()) => {}
                Err(error) => self.refused("a flush", &error),
            },
            Role::Sample if conn != ConnId::FIRST => self.other_sample_answered(conn, &part, result.is_ok()),
            Role::Sample => self.sample_answered(&part, result),
            // Any answer will do.
            Role::Probe { conn, attempt } => self.other_proved(conn, attempt),
            Role::Replay => match result {
                Ok(()) => {
                    if !self.has_volatile_cache() {
                        self.owed.remove(part.start, part.end);
                    }
                    self.replay();
                }
                Err(error) => self.refused("a write that it had taken before", &error),
            },
        }
    }

    /// Ends the attempt: the server refuses a flush, sample or replay that has to precede the requests.
    fn refused(&mut self, what: &str, error: &RemoteError) {
        let text = Failure::of_server(error).text;
        self.end_connection(ConnId::FIRST, &format!("the server refuses {what}: {text}"));
    }

    fn read_answered(&mut self, part: Part, result: Result<(), RemoteError>) {
        let request = part.request();
        if let Some(sample) = part.sample.filter(|sample| result.is_ok() && sample.is_full()) {
            self.samples.keep(sample, &mut self.dice);
        }
        self.part_answered(request, result.map_err(|error| Failure::of_server(&error)));
    }

    /// Takes states of a range. An error means that nothing is known of it.
    fn status_answered(&mut self, part: Part, is_ok: bool) {
        if part.role == Role::Holes {
            self.holes.answered();
        }
        let (request, mut status) = (part.request(), part.status);
        if !is_ok {
            return self.part_answered(request, Ok(()));
        }
        if !part.is_stale && !self.holes.add(part.start, &status.allocation, &self.samples) {
            self.effects.push_back(Effect::HolesDistrusted);
        }
        if !self.holes.is_trusted() {
            status.allocation.clear();
        }
        if let Some(request) = request.filter(|request| self.jobs.contains_key(request)) {
            self.effects.push_back(Effect::Status { request, status });
        }
        self.part_answered(request, Ok(()));
    }

    fn change_answered(&mut self, part: Part, result: Result<(), RemoteError>) {
        let request = part.request();
        let (start, end) = (part.start, part.end);
        let is_durable = part.is_durable || !self.has_volatile_cache();
        if result.is_err() || is_durable {
            self.owed.remove(start, end);
        } else {
            self.owed.answered(start, end);
        }
        if let Some(sample) = part.sample.filter(|_| result.is_ok()) {
            self.samples.keep(sample, &mut self.dice);
        }
        self.part_answered(request, result.map_err(|error| Failure::of_server(&error)));
    }

    /// Returns `false` if each answer of the server says that a change is durable.
    fn has_volatile_cache(&self) -> bool {
        // The first connection may be dead while another one still answers.
        let flags = self.known.as_ref().map(|export| export.flags);
        let flags = self.links.first.as_ref().and_then(Link::export).map(|export| export.flags).or(flags);
        flags.is_some_and(|flags| flags & tx_flag::SEND_FLUSH != 0)
    }

    /// Once a connection is to end, a flush of another one proves nothing: it counts as not answered.
    fn flush_answered(&mut self, part: &Part, covers: Stamp, result: Result<(), RemoteError>) {
        if self.stage != Stage::Up {
            return;
        }
        self.owed.flushed(covers);
        let Role::Flush { request: of, .. } = part.role else { return };
        self.is_flushing &= of.is_some();
        let mut result = result.map_err(|error| Failure::of_server(&error));
        let is_engine_flush = part.request().is_some_and(|id| self.is_flush(id));
        if !is_engine_flush && let Err(failure) = &result {
            self.flush_failure = Some(failure.clone());
        }
        if is_engine_flush && let Some(failure) = self.flush_failure.take() {
            result = Err(failure);
        }
        self.part_answered(part.request(), result);
    }

    fn is_flush(&self, id: RequestId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.request == crate::Request::Flush)
    }

    fn sample_answered(&mut self, part: &Part, result: Result<(), RemoteError>) {
        let Some(read) = &part.sample else { return };
        if let Err(error) = result {
            return self.refused("to read what it was read before", &error);
        }
        if !matches!(self.stage, Stage::Comparing { .. }) {
            return;
        }
        if !self.samples.agree(read) {
            return self.part_ways(format!(
                "the export has other content than before at byte {}: it is another one, or was written by another program",
                read.offset
            ));
        }
        self.compared();
    }

    /// A part of a request was answered; `None`: of one that was answered otherwise.
    fn part_answered(&mut self, request: Option<RequestId>, result: Result<(), Failure>) {
        let Some(id) = request else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.parts = job.parts.saturating_sub(1);
        if let Err(failure) = result {
            job.failure.get_or_insert(failure);
            job.next = job.end;
        }
        self.settle(id);
    }
}
