//! The state of a remote origin: connection attempts, stages, outages.
//!
//! Out of scope: sending requests (`issue`), applying answers (`answers`), and connections beside the first (`others`).

mod answers;
mod issue;
mod others;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zc_core::ErrorKind;
use zc_nbd::client::{ClientTls, RemoteExport};
use zc_nbd::proto::tx_flag;

use crate::Sink;
use crate::holes::Holes;
use crate::limits::{
    COMPARE_MS, HANDSHAKE_MS, LEAVE_MS, MIN_BLOCK_BYTES_MAX, SAMPLE_BYTES_MAX, SURVEY_PIECES,
};
use crate::link::{Link, Role};
use crate::owed::Owed;
use crate::pause::{Dice, Pauses};
use crate::request::{ConnId, Failure, Job, Request, RequestId, Status};
use crate::samples::{Sample, Samples};
use others::Links;

/// Settings of a remote origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the export; empty for the default one.
    pub export: String,
    /// TLS of the connection.
    pub tls: ClientTls,
    /// Changes will be requested.
    pub writable: bool,
    /// Connections, if the server says that a flush of one covers all; at least one.
    pub connections: usize,
    /// Requests fail when an outage has lasted this long. `None`: they wait.
    pub outage_max_ms: Option<u64>,
    /// Seed of the jitter and of the choice of samples.
    pub seed: u64,
}

/// An order to the driver, or a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Connect, then call [`Remote::connected`], or [`Remote::closed`] if that fails.
    Connect(ConnId),
    /// Send the output in plain, begin TLS, then call [`Remote::tls_started`].
    StartTls(ConnId),
    /// Send the output, then close the own half of the connection. Received bytes are handed on until the server closes.
    HangUp(ConnId),
    /// Close the connection at once, and report nothing of it any more.
    Close(ConnId),
    /// A request is answered. The driver may take the memory of a read back.
    Done {
        /// The request.
        request: RequestId,
        /// Its outcome.
        result: Result<(), Failure>,
    },
    /// A part of a read is zeros, which the server has reported before.
    Zeros {
        /// The request, which is not done yet.
        request: RequestId,
        /// First byte, counted from the first one of the request.
        at: u64,
        /// Count of bytes.
        len_bytes: u64,
    },
    /// States of the range of a [`Request::Status`], before it is done. Without it nothing is known.
    Status {
        /// The request.
        request: RequestId,
        /// The states.
        status: Status,
    },
    /// The server reports holes where content was read: its holes are not used any more.
    HolesDistrusted,
    /// Requests are carried out.
    Up(RemoteExport),
    /// Requests wait, for this reason. Repeated with each attempt that failed.
    Down(String),
    /// The server keeps the connection and answers nothing. Requests wait, or fail at the bound.
    Silent,
    /// The server answers again.
    Answering,
    /// The component has ended.
    Stopped,
}

/// State for the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The connection serves requests.
    pub is_up: bool,
    /// Connections that serve requests.
    pub connections: u64,
    /// Start of the outage, by the clock of [`Remote::tick`].
    pub outage_since_ms: Option<u64>,
    /// Reason of the outage; empty if there is none.
    pub why: String,
    /// Memory of owed changes.
    pub owed_bytes: u64,
    /// Requests without an answer.
    pub waiting: u64,
    /// Connections that served requests after the first one.
    pub reconnects: u64,
    /// Bytes written again after a reconnect.
    pub replayed_bytes: u64,
    /// Requests that failed because an outage lasted too long.
    pub expired: u64,
    /// Bytes of reads that needed no answer of the server, because it had reported zeros there.
    pub hole_bytes: u64,
    /// The server has refused fast zeroing.
    pub zeroes_slowly: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Down {
        retry_at_ms: u64,
    },
    /// Up to the end of the handshake.
    Greeting {
        until_ms: u64,
    },
    Comparing {
        until_ms: u64,
    },
    /// Retained changes from this number on are written again.
    Replaying {
        next: u64,
    },
    /// The flush before the first request.
    Settling,
    Up,
    /// The own half is closed.
    Leaving {
        until_ms: u64,
    },
    /// The first connection is dead, and another one is not.
    Parting,
    Stopped,
}

/// A remote origin. See the crate documentation.
#[derive(Debug)]
pub struct Remote {
    settings: Settings,
    now_ms: u64,
    stage: Stage,
    links: Links,
    jobs: BTreeMap<RequestId, Job>,
    last_request: RequestId,
    /// Requests with parts that were not sent, in order: those that wait for no owed changes.
    reads: VecDeque<RequestId>,
    changes: VecDeque<RequestId>,
    owed: Owed,
    samples: Samples,
    holes: Holes,
    hole_bytes: u64,
    /// A flush of this component's own is in flight.
    is_flushing: bool,
    /// Failure of a flush that was not reported to the engine yet.
    flush_failure: Option<Failure>,
    /// The export as it was accepted last.
    known: Option<RemoteExport>,
    pauses: Pauses,
    dice: Dice,
    outage_since_ms: Option<u64>,
    why: String,
    /// The outage lasts longer than the bound.
    is_failing: bool,
    is_stopping: bool,
    effects: VecDeque<Effect>,
    reconnects: u64,
    replayed_bytes: u64,
    expired: u64,
}

impl Remote {
    /// A remote origin that begins to connect.
    #[must_use]
    pub fn new(settings: Settings, now_ms: u64) -> Self {
        let dice = Dice::new(settings.seed);
        let links = Links::new(settings.connections);
        let mut remote = Self {
            settings,
            now_ms,
            stage: Stage::Down { retry_at_ms: now_ms },
            links,
            jobs: BTreeMap::new(),
            last_request: RequestId(0),
            reads: VecDeque::new(),
            changes: VecDeque::new(),
            owed: Owed::default(),
            samples: Samples::default(),
            holes: Holes::default(),
            hole_bytes: 0,
            is_flushing: false,
            flush_failure: None,
            known: None,
            pauses: Pauses::default(),
            dice,
            outage_since_ms: None,
            why: String::new(),
            is_failing: false,
            is_stopping: false,
            effects: VecDeque::new(),
            reconnects: 0,
            replayed_bytes: 0,
            expired: 0,
        };
        remote.tick(now_ms);
        remote
    }

    /// Takes a request.
    pub fn submit(&mut self, request: Request) -> RequestId {
        self.last_request.0 += 1;
        if self.jobs.is_empty() {
            self.links.heard(self.now_ms);
        }
        let id = self.last_request;
        match self.objection(&request) {
            Ok((start, end)) => {
                let is_status = matches!(request, Request::Status { .. });
                let is_nothing = start == end && !matches!(request, Request::Flush);
                let job = Job::new(request, start, end);
                self.queue(id, &job);
                self.jobs.insert(id, job);
                let is_status_in_outage =
                    is_status && (self.stage != Stage::Up || self.outage_since_ms.is_some());
                if is_nothing || is_status_in_outage {
                    self.finish(id, Ok(()));
                }
                self.pump();
            }
            Err(failure) => self.effects.push_back(Effect::Done { request: id, result: Err(failure) }),
        }
        id
    }

    /// Returns the range of a request, or the reason why it cannot be carried out.
    fn objection(&self, request: &Request) -> Result<(u64, u64), Failure> {
        if self.is_stopping {
            return Err(Failure::new(ErrorKind::Shutdown, "the connection is closed"));
        }
        if self.is_failing {
            return Err(self.outage_failure());
        }
        let size_bytes = self.known.as_ref().map_or(u64::MAX, |export| export.size_bytes);
        let range = request.range().filter(|(_, end)| *end <= size_bytes);
        let outside = || Failure::new(ErrorKind::Invalid, "the range is not one of sectors of the export");
        let range = range.ok_or_else(outside)?;
        if request.change().is_some() && !self.settings.writable {
            return Err(Failure::new(ErrorKind::ReadOnly, "the origin was opened for reading"));
        }
        Ok(range)
    }

    fn outage_failure(&self) -> Failure {
        Failure::new(ErrorKind::Io, format!("the server has been out of reach for too long: {}", self.why))
    }

    fn queue(&mut self, id: RequestId, job: &Job) {
        let queue = if job.is_change() { &mut self.changes } else { &mut self.reads };
        queue.push_back(id);
    }

    /// Begins the handshake: the driver has connected.
    pub fn connected(&mut self, conn: ConnId) {
        if conn != ConnId::FIRST {
            self.other_connected(conn);
        } else if matches!(self.stage, Stage::Greeting { .. }) {
            self.links.first = Some(Link::new(&self.settings.export, self.settings.tls));
        }
    }

    /// TLS is up.
    pub fn tls_started(&mut self, conn: ConnId) {
        if let Some(link) = self.links.get_mut(conn).filter(|link| link.tls_due()) {
            link.tls_started();
        }
    }

    /// The connection is dead: closed by the server, broken, or never made.
    pub fn closed(&mut self, conn: ConnId, why: &str) {
        if conn != ConnId::FIRST {
            return self.other_closed(conn, why);
        }
        let is_expected = matches!(self.stage, Stage::Leaving { .. });
        let why = if is_expected { self.why.clone() } else { why.to_owned() };
        if !matches!(self.stage, Stage::Down { .. } | Stage::Parting | Stage::Stopped) {
            self.lost(why);
        }
    }

    /// The driver has received bytes.
    pub fn received(&mut self, conn: ConnId, bytes: &[u8], sink: &mut dyn Sink) {
        if let Some(link) = self.links.get_mut(conn) {
            link.heard_ms = self.now_ms;
        }
        let is_heard = self.stage == Stage::Up && self.silent_since_ms().is_none();
        if is_heard && self.outage_since_ms.take().is_some() {
            self.is_failing = false;
            self.effects.push_back(Effect::Answering);
        }
        let mut input = bytes;
        while let Some(link) = self.links.get_mut(conn) {
            match link.next_event(&mut input, sink) {
                Ok(Some(event)) => self.take_event(conn, event),
                Ok(None) => break,
                Err(error) => {
                    self.end_connection(conn, &error.to_string().escape_debug().to_string());
                    break;
                }
            }
        }
        if self.links.get_mut(conn).is_some_and(|link| link.tls_due()) {
            self.effects.push_back(Effect::StartTls(conn));
        }
        self.pump();
    }

    /// Advances the time. `now_ms` never goes back.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        match self.stage {
            Stage::Down { retry_at_ms } if self.now_ms >= retry_at_ms => {
                self.stage = Stage::Greeting { until_ms: self.now_ms.saturating_add(HANDSHAKE_MS) };
                self.effects.push_back(Effect::Connect(ConnId::FIRST));
            }
            Stage::Greeting { until_ms } if self.now_ms >= until_ms => {
                self.drop_connection("the server does not answer".to_owned());
            }
            Stage::Comparing { until_ms } if self.now_ms >= until_ms => {
                self.drop_connection("the server does not answer reads".to_owned());
            }
            Stage::Leaving { until_ms } if self.now_ms >= until_ms => {
                self.drop_connection(self.why.clone());
            }
            Stage::Up if self.outage_since_ms.is_none() => self.notice_silence(),
            _ => {}
        }
        self.tick_others();
        self.expire();
    }

    /// Begins an outage if requests get no answer.
    fn notice_silence(&mut self) {
        let Some(since_ms) = self.silent_since_ms() else { return };
        self.outage_since_ms = Some(since_ms);
        self.why = "the server keeps the connection and does not answer".to_owned();
        self.effects.push_back(Effect::Silent);
        self.end_statuses();
    }

    /// Completes block statuses without runs, because an outage has begun.
    fn end_statuses(&mut self) {
        let is_status =
            |(id, job): (&RequestId, &Job)| matches!(job.request, Request::Status { .. }).then_some(*id);
        let ids: Vec<RequestId> = self.jobs.iter().filter_map(is_status).collect();
        self.reads.retain(|id| !ids.contains(id));
        ids.into_iter().for_each(|id| self.finish(id, Ok(())));
    }

    /// The time of the next [`Self::tick`] that changes something.
    #[must_use]
    pub fn next_tick_ms(&self) -> Option<u64> {
        let stage = match self.stage {
            Stage::Down { retry_at_ms } => Some(retry_at_ms),
            Stage::Greeting { until_ms } | Stage::Comparing { until_ms } | Stage::Leaving { until_ms } => {
                Some(until_ms)
            }
            Stage::Up if !self.jobs.is_empty() && self.outage_since_ms.is_none() => {
                self.links.silence_at_ms()
            }
            Stage::Replaying { .. } | Stage::Settling | Stage::Up | Stage::Parting | Stage::Stopped => None,
        };
        let bound = self.expires_at_ms().filter(|_| !self.is_failing);
        [stage, bound, self.links.next_tick_ms(self.stage == Stage::Up)].into_iter().flatten().min()
    }

    fn expires_at_ms(&self) -> Option<u64> {
        Some(self.outage_since_ms?.saturating_add(self.settings.outage_max_ms?))
    }

    /// Changes the bound of outages.
    pub fn set_outage_max(&mut self, outage_max_ms: Option<u64>) {
        self.settings.outage_max_ms = outage_max_ms;
        self.is_failing &= self.expires_at_ms().is_some_and(|at| at <= self.now_ms);
        self.expire();
    }

    /// Fails waiting requests if the outage has lasted too long.
    fn expire(&mut self) {
        if self.is_failing || self.expires_at_ms().is_none_or(|at| at > self.now_ms) {
            return;
        }
        self.is_failing = true;
        self.expired += zc_core::u64_from_usize(self.jobs.len());
        self.fail_all(&self.outage_failure());
    }

    /// Answers every request with a failure. Sent changes stay owed.
    fn fail_all(&mut self, failure: &Failure) {
        self.links.iter_mut().for_each(Link::abandon_all);
        self.reads.clear();
        self.changes.clear();
        let ids: Vec<RequestId> = self.jobs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.finish(id, Err(failure.clone())));
    }

    /// Ends the component: says goodbye to the server, and fails requests in flight.
    pub fn stop(&mut self) {
        if self.is_stopping {
            return;
        }
        self.is_stopping = true;
        self.fail_all(&Failure::new(ErrorKind::Shutdown, "the daemon closes the connection"));
        match &mut self.links.first {
            Some(link) => {
                link.disconnect();
                self.leave("the daemon closes the connection".to_owned());
            }
            None => {
                self.stage = Stage::Stopped;
                self.effects.push_back(Effect::Stopped);
            }
        }
    }

    /// The next effect.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes the bytes to be sent on a connection.
    pub fn take_output(&mut self, conn: ConnId) -> Vec<Bytes> {
        self.links.get_mut(conn).map_or_else(Vec::new, Link::take_output)
    }

    /// State for the status.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            is_up: self.stage == Stage::Up,
            connections: if self.stage == Stage::Up { self.links.serving() } else { 0 },
            outage_since_ms: self.outage_since_ms,
            why: if self.outage_since_ms.is_some() { self.why.clone() } else { String::new() },
            owed_bytes: self.owed.bytes(),
            waiting: zc_core::u64_from_usize(self.jobs.len()),
            reconnects: self.reconnects,
            replayed_bytes: self.replayed_bytes,
            expired: self.expired,
            hole_bytes: self.hole_bytes,
            zeroes_slowly: self.links.zeroes_slowly(),
        }
    }

    /// Ends the connection for a fault of the server, without overtaking requests that it may still carry out.
    fn end_connection(&mut self, conn: ConnId, why: &str) {
        if conn != ConnId::FIRST {
            return self.end_other(conn, why);
        }
        let Some(link) = &mut self.links.first else { return };
        link.break_off();
        if link.has_changes() {
            self.leave(why.to_owned());
        } else {
            self.drop_connection(why.to_owned());
        }
    }

    /// Ends the connection to an export that is not used. The server may answer requests in flight, because some servers
    /// fail an assertion otherwise.
    fn part_ways(&mut self, why: String) {
        if let Some(link) = &mut self.links.first {
            link.disconnect();
        }
        self.leave(why);
    }

    /// Closes the own half and waits for the server's.
    fn leave(&mut self, why: String) {
        if !matches!(self.stage, Stage::Leaving { .. }) {
            self.why = why;
            self.stage = Stage::Leaving { until_ms: self.now_ms.saturating_add(LEAVE_MS) };
            self.effects.push_back(Effect::HangUp(ConnId::FIRST));
        }
    }

    fn drop_connection(&mut self, why: String) {
        self.effects.push_back(Effect::Close(ConnId::FIRST));
        self.lost(why);
    }

    /// The first connection is dead: the others are to end as well.
    fn lost(&mut self, why: String) {
        self.links.first = None;
        self.why = why;
        self.end_statuses();
        if !self.is_stopping {
            self.outage_since_ms.get_or_insert(self.now_ms);
            self.effects.push_back(Effect::Down(self.why.clone()));
        }
        self.stage = Stage::Parting;
        self.end_others();
        if !self.links.has_others() {
            self.all_dead();
        }
    }

    /// Schedules the next attempt once no connection is left. Requests in flight will be sent again.
    fn all_dead(&mut self) {
        self.owed.all_answered();
        self.holes.reset();
        self.is_flushing = false;
        if self.is_stopping {
            self.stage = Stage::Stopped;
            self.effects.push_back(Effect::Stopped);
            return;
        }
        self.reads.clear();
        self.changes.clear();
        for (id, job) in std::mem::take(&mut self.jobs) {
            self.begin_again(id, job);
        }
        let pause_ms = self.pauses.next_ms(&mut self.dice);
        self.stage = Stage::Down { retry_at_ms: self.now_ms.saturating_add(pause_ms) };
        self.expire();
    }

    fn begin_again(&mut self, id: RequestId, mut job: Job) {
        match job.failure.take() {
            Some(failure) => self.effects.push_back(Effect::Done { request: id, result: Err(failure) }),
            None => {
                job.restart();
                self.queue(id, &job);
                self.jobs.insert(id, job);
            }
        }
    }

    fn finish(&mut self, id: RequestId, result: Result<(), Failure>) {
        if self.jobs.remove(&id).is_some() {
            self.effects.push_back(Effect::Done { request: id, result });
        }
    }

    /// Checks the export after the handshake.
    fn greeted(&mut self) {
        let Some(export) = self.links.first.as_ref().and_then(Link::export) else { return };
        if let Some(why) = self.difference(export) {
            return self.part_ways(why);
        }
        let comparable = self.samples.iter().filter(|kept| !self.owed.overlaps(kept.offset, kept.end()));
        let payload_max = self.links.first.as_ref().map_or(0, Link::payload_max);
        let range = |kept: &Sample| (kept.offset, kept.end().min(kept.offset + payload_max));
        let ranges: Vec<(u64, u64)> = comparable.map(range).collect();
        self.stage = Stage::Comparing { until_ms: self.now_ms.saturating_add(COMPARE_MS) };
        for (start, end) in ranges {
            let sample = Sample::empty(start, end - start);
            let Some(link) = &mut self.links.first else { return };
            if let Err(error) = link.read(Role::Sample, start, end, Some(sample)) {
                return self.drop_connection(error.to_string());
            }
        }
        self.compared();
    }

    /// Returns the reason why the export cannot be used or differs from the earlier one, `None` if there is none.
    fn difference(&self, export: &RemoteExport) -> Option<String> {
        let sector = u64::from(zc_core::SECTOR_BYTES);
        if export.min_bytes > MIN_BLOCK_BYTES_MAX || u64::from(export.max_bytes) < sector {
            return Some(format!(
                "the export takes requests of {} to {} bytes, and sectors have 512",
                export.min_bytes, export.max_bytes
            ));
        }
        if !export.size_bytes.is_multiple_of(sector) {
            return Some(format!(
                "the export has {} bytes, which are not whole sectors of 512",
                export.size_bytes
            ));
        }
        if self.settings.writable && export.is_read_only() {
            return Some("the export is read-only".to_owned());
        }
        let before = self.known.as_ref()?;
        if export.size_bytes < before.size_bytes {
            return Some(format!(
                "the export has {} bytes and had {} before",
                export.size_bytes, before.size_bytes
            ));
        }
        let changed = export.flags ^ before.flags;
        if changed & (tx_flag::READ_ONLY | tx_flag::SEND_FLUSH) != 0 {
            return Some("the export is writable or flushed otherwise than before".to_owned());
        }
        match (&export.name, &before.name) {
            (Some(now), Some(before)) if now != before => Some(format!(
                "the export is \"{}\" and was \"{}\"",
                now.escape_debug(),
                before.escape_debug()
            )),
            _ => None,
        }
    }

    /// Begins the replay once no comparison is in flight.
    fn compared(&mut self) {
        if matches!(self.stage, Stage::Comparing { .. })
            && self.links.first.as_ref().is_some_and(Link::is_idle)
        {
            self.stage = Stage::Replaying { next: 0 };
            self.replay();
        }
    }

    /// Continues after the replay: the server holds every change that this daemon sent.
    fn replayed(&mut self) {
        let Some(link) = &mut self.links.first else { return };
        if self.known.is_none() && self.settings.writable && link.offers(tx_flag::SEND_FLUSH) {
            self.stage = Stage::Settling;
            if let Err(error) = link.flush(Role::Settle) {
                self.drop_connection(error.to_string());
            }
            return;
        }
        self.up();
    }

    /// Reads pieces of the export, to recognise it by them if nothing else is known of its content.
    fn survey(&mut self, size_bytes: u64) {
        let Some(link) = &mut self.links.first else { return };
        for piece in 0..SURVEY_PIECES {
            let start = size_bytes / SURVEY_PIECES * piece / SAMPLE_BYTES_MAX * SAMPLE_BYTES_MAX;
            let end = (start + SAMPLE_BYTES_MAX).min(size_bytes).min(start + link.payload_max());
            let sample = Sample::empty(start, end - start);
            // A server that takes no such read is no worse off.
            let _refused = link.read(Role::Survey, start, end, Some(sample));
        }
    }

    fn up(&mut self) {
        let Some(export) = self.links.first.as_ref().and_then(Link::export).cloned() else { return };
        self.stage = Stage::Up;
        if self.known.is_some() {
            self.reconnects += 1;
        } else {
            self.survey(export.size_bytes);
        }
        self.known = Some(export.clone());
        self.pauses.reset();
        self.outage_since_ms = None;
        self.is_failing = false;
        self.effects.push_back(Effect::Up(export));
        self.begin_others();
    }
}
