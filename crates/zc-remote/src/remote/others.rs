//! Connections beside the first.
//!
//! Job: open as many as the configuration allows once the first serves requests, choose a connection for each part, and
//! end all connections together.
//!
//! Invariants: another connection serves requests only while the first does, and only if the server says that a flush of
//! one connection covers all. None is made before every connection of the set before is dead. All of a set lead to one
//! running server.
//!
//! Out of scope: writing owed changes again (the first connection does).

use zc_core::SECTOR_BYTES;
use zc_nbd::client::RemoteExport;
use zc_nbd::proto::tx_flag;

use super::{Effect, Remote, Stage};
use crate::limits::{
    COMPARE_MS, HANDSHAKE_MS, IN_FLIGHT_BYTES_MAX, LEAVE_MS, OTHER_ATTEMPTS_MAX, SILENCE_MS,
};
use crate::link::{Link, Part, Role};
use crate::owed::Change;
use crate::pause::Pauses;
use crate::request::ConnId;
use crate::samples::Sample;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherStage {
    /// No connection. `None`: none is wanted.
    Idle {
        retry_at_ms: Option<u64>,
    },
    /// Up to the end of the handshake.
    Greeting {
        until_ms: u64,
    },
    Comparing {
        until_ms: u64,
    },
    Up,
    /// The own half is closed.
    Leaving {
        until_ms: u64,
    },
}

#[derive(Debug)]
struct Other {
    stage: OtherStage,
    link: Option<Link>,
    pauses: Pauses,
    /// Attempts that failed since the first connection serves requests.
    failures: u32,
}

#[derive(Debug)]
pub(super) struct Links {
    pub(super) first: Option<Link>,
    others: Vec<Other>,
}

impl Links {
    pub(super) fn new(connections: usize) -> Self {
        let idle = || Other {
            stage: OtherStage::Idle { retry_at_ms: None },
            link: None,
            pauses: Pauses::default(),
            failures: 0,
        };
        Self { first: None, others: (1..connections).map(|_| idle()).collect() }
    }

    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Link> {
        match conn.0.checked_sub(1) {
            None => self.first.as_mut(),
            Some(at) => self.others.get_mut(at)?.link.as_mut(),
        }
    }

    fn other(&mut self, conn: ConnId) -> Option<&mut Other> {
        self.others.get_mut(conn.0.checked_sub(1)?)
    }

    fn iter(&self) -> impl Iterator<Item = &Link> {
        self.first.iter().chain(self.others.iter().filter_map(|other| other.link.as_ref()))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.first.iter_mut().chain(self.others.iter_mut().filter_map(|other| other.link.as_mut()))
    }

    /// Returns `true` if a connection beside the first is not dead.
    pub(super) fn has_others(&self) -> bool {
        self.others.iter().any(|other| !matches!(other.stage, OtherStage::Idle { .. }))
    }

    /// Connections that serve requests while the first does.
    pub(super) fn serving(&self) -> u64 {
        let others = self.others.iter().filter(|other| other.stage == OtherStage::Up);
        zc_core::u64_from_usize(1 + others.count())
    }

    /// Returns the connection with the fewest parts in flight, `None` if no part may be sent.
    pub(super) fn pick(&mut self, now_ms: u64) -> Option<&mut Link> {
        let payload_bytes: u64 = self.iter().map(Link::payload_bytes).sum();
        if payload_bytes >= IN_FLIGHT_BYTES_MAX {
            return None;
        }
        let others = self.others.iter_mut().filter(|other| other.stage == OtherStage::Up);
        let all = self.first.iter_mut().chain(others.filter_map(|other| other.link.as_mut()));
        let link = all.filter(|link| link.has_room()).min_by_key(|link| link.in_flight())?;
        if link.is_idle() {
            link.heard_ms = now_ms;
        }
        Some(link)
    }

    pub(super) fn payload_max(&self) -> u64 {
        self.first.as_ref().map_or(0, Link::payload_max)
    }

    pub(super) fn piece_max(&self, change: &Change) -> u64 {
        self.first.as_ref().map_or(0, |link| link.piece_max(change))
    }

    pub(super) fn is_in_doubt(&self, start: u64, end: u64) -> bool {
        self.iter().any(|link| link.is_in_doubt(start, end))
    }

    pub(super) fn is_changing(&self, start: u64, end: u64) -> bool {
        self.iter().any(|link| link.is_changing(start, end))
    }

    pub(super) fn forget_samples(&mut self, start: u64, end: u64) {
        self.iter_mut().for_each(|link| link.forget_samples(start, end));
    }

    /// Marks block statuses in flight whose range is changed.
    pub(super) fn outdate_statuses(&mut self, start: u64, end: u64) {
        self.iter_mut().for_each(|link| link.outdate_statuses(start, end));
    }

    /// Returns `true` if a server has refused fast zeroing on a connection.
    pub(super) fn zeroes_slowly(&self) -> bool {
        self.iter().any(Link::zeroes_slowly)
    }

    /// Restarts the time-outs for silence.
    pub(super) fn heard(&mut self, now_ms: u64) {
        self.iter_mut().for_each(|link| link.heard_ms = now_ms);
    }

    /// Returns the earliest time at which a connection with parts in flight counts as silent.
    pub(super) fn silence_at_ms(&self) -> Option<u64> {
        let waiting = self.iter().filter(|link| !link.is_idle());
        waiting.map(|link| link.heard_ms.saturating_add(SILENCE_MS)).min()
    }

    /// Returns the next time-out or attempt of a connection beside the first. `is_up`: the first serves requests.
    pub(super) fn next_tick_ms(&self, is_up: bool) -> Option<u64> {
        let due = |other: &Other| match other.stage {
            OtherStage::Idle { retry_at_ms } => retry_at_ms.filter(|_| is_up),
            OtherStage::Greeting { until_ms }
            | OtherStage::Comparing { until_ms }
            | OtherStage::Leaving { until_ms } => Some(until_ms),
            OtherStage::Up => None,
        };
        self.others.iter().filter_map(due).min()
    }
}

impl Remote {
    /// Returns the start of the silence of a connection on which requests wait, `None` if there is none.
    pub(super) fn silent_since_ms(&self) -> Option<u64> {
        let at_ms = self.links.silence_at_ms().filter(|_| !self.jobs.is_empty())?;
        (self.now_ms >= at_ms).then(|| at_ms.saturating_sub(SILENCE_MS))
    }

    /// Begins to open the other connections: the first one serves requests.
    pub(super) fn begin_others(&mut self) {
        let has_sectors = self.known.as_ref().is_some_and(|export| export.size_bytes > 0);
        let is_offered = self.links.first.as_ref().is_some_and(|link| link.offers(tx_flag::CAN_MULTI_CONN));
        let is_wanted = has_sectors && is_offered;
        let retry_at_ms = is_wanted.then_some(self.now_ms);
        for other in &mut self.links.others {
            (other.stage, other.failures) = (OtherStage::Idle { retry_at_ms }, 0);
        }
        self.tick_others();
    }

    pub(super) fn tick_others(&mut self) {
        for at in 0..self.links.others.len() {
            let conn = ConnId(at + 1);
            match self.links.others[at].stage {
                OtherStage::Idle { retry_at_ms: Some(at_ms) }
                    if self.stage == Stage::Up && self.now_ms >= at_ms =>
                {
                    let until_ms = self.now_ms.saturating_add(HANDSHAKE_MS);
                    self.links.others[at].stage = OtherStage::Greeting { until_ms };
                    self.effects.push_back(Effect::Connect(conn));
                }
                OtherStage::Greeting { until_ms } | OtherStage::Leaving { until_ms }
                    if self.now_ms >= until_ms =>
                {
                    self.drop_other(conn);
                }
                OtherStage::Comparing { until_ms } if self.now_ms >= until_ms => self.leave_other(conn),
                _ => {}
            }
        }
    }

    pub(super) fn other_connected(&mut self, conn: ConnId) {
        let link = Link::new(&self.settings.export, self.settings.tls);
        if let Some(other) = self.links.other(conn)
            && matches!(other.stage, OtherStage::Greeting { .. })
        {
            other.link = Some(link);
        }
    }

    /// Compares the export with that of the first connection, also by its samples, after the handshake.
    pub(super) fn other_greeted(&mut self, conn: ConnId) {
        let export = self.links.get_mut(conn).and_then(|link| link.export().cloned());
        let is_same = |export: &RemoteExport| {
            self.known.as_ref().is_some_and(|known| {
                let size = |export: &RemoteExport| (export.size_bytes, export.min_bytes, export.max_bytes);
                size(export) == size(known) && export.flags == known.flags && export.name == known.name
            })
        };
        if !export.is_some_and(|export| is_same(&export)) {
            return self.leave_other(conn);
        }
        let links = &self.links;
        let is_still = |kept: &&Sample| {
            !self.owed.overlaps(kept.offset, kept.end()) && !links.is_changing(kept.offset, kept.end())
        };
        let most = links.payload_max();
        let range = |kept: &Sample| (kept.offset, kept.end().min(kept.offset + most));
        let ranges: Vec<(u64, u64)> = self.samples.iter().filter(is_still).map(range).collect();
        if let Some(other) = self.links.other(conn) {
            other.stage = OtherStage::Comparing { until_ms: self.now_ms.saturating_add(COMPARE_MS) };
        }
        for (start, end) in ranges {
            let sample = Sample::empty(start, end - start);
            let Some(link) = self.links.get_mut(conn) else { return };
            if link.read(Role::Sample, start, end, Some(sample)).is_err() {
                return self.leave_other(conn);
            }
        }
        self.other_compared(conn);
    }

    /// Compares a piece that was read again. One that was changed since then proves nothing.
    pub(super) fn other_sample_answered(&mut self, conn: ConnId, part: &Part, is_ok: bool) {
        let is_comparing =
            self.links.other(conn).is_some_and(|other| matches!(other.stage, OtherStage::Comparing { .. }));
        if !is_comparing {
            return;
        }
        let agrees = part.sample.as_ref().is_none_or(|read| self.samples.agree(read));
        if !is_ok || !agrees {
            return self.leave_other(conn);
        }
        self.other_compared(conn);
    }

    /// Sends the probe on the first connection once no comparison is in flight. The server may have restarted without a
    /// notice of the end of the first connection, so the first one has to answer once more.
    fn other_compared(&mut self, conn: ConnId) {
        let is_idle = self.links.get_mut(conn).is_some_and(|link| link.is_idle());
        if !is_idle || self.stage != Stage::Up {
            return;
        }
        let attempt = self.links.other(conn).map_or(0, |other| other.failures);
        let role = Role::Probe { conn, attempt };
        let asked = self.links.first.as_mut().map(|link| link.read(role, 0, u64::from(SECTOR_BYTES), None));
        if !matches!(asked, Some(Ok(()))) {
            self.leave_other(conn);
        }
    }

    /// Puts a connection to use after the answer of its probe: both lead to the same running server.
    pub(super) fn other_proved(&mut self, conn: ConnId, attempt: u32) {
        let is_up = self.stage == Stage::Up;
        if let Some(other) = self.links.other(conn)
            && is_up
            && other.failures == attempt
            && matches!(other.stage, OtherStage::Comparing { .. })
        {
            other.stage = OtherStage::Up;
            other.pauses.reset();
        }
    }

    /// Ends a connection on which the server broke the protocol or refused the client.
    pub(super) fn end_other(&mut self, conn: ConnId, why: &str) {
        let Some(other) = self.links.other(conn) else { return };
        if let Some(link) = &mut other.link {
            link.break_off();
        }
        match other.stage {
            OtherStage::Up => self.end_all(why.to_owned()),
            OtherStage::Leaving { .. } => {}
            _ => self.drop_other(conn),
        }
    }

    /// Ends every connection: their requests are sent again on the next ones.
    pub(super) fn end_all(&mut self, why: String) {
        self.end_others();
        if self.links.first.is_some() {
            self.part_ways(why);
        }
    }

    /// Ends the connections beside the first, without overtaking requests that the server may still carry out.
    pub(super) fn end_others(&mut self) {
        for at in 0..self.links.others.len() {
            let conn = ConnId(at + 1);
            match self.links.others[at].stage {
                OtherStage::Idle { .. } => {
                    self.links.others[at].stage = OtherStage::Idle { retry_at_ms: None };
                }
                OtherStage::Greeting { .. } => {
                    self.effects.push_back(Effect::Close(conn));
                    self.links.others[at].link = None;
                    self.links.others[at].stage = OtherStage::Idle { retry_at_ms: None };
                }
                OtherStage::Comparing { .. } | OtherStage::Up => self.leave_other(conn),
                OtherStage::Leaving { .. } => {}
            }
        }
    }

    /// Says goodbye, closes the own half, and waits for the server's.
    fn leave_other(&mut self, conn: ConnId) {
        let until_ms = self.now_ms.saturating_add(LEAVE_MS);
        let Some(other) = self.links.other(conn) else { return };
        if let Some(link) = &mut other.link {
            link.disconnect();
        }
        other.stage = OtherStage::Leaving { until_ms };
        self.effects.push_back(Effect::HangUp(conn));
    }

    /// Closes a connection that the server does not close.
    fn drop_other(&mut self, conn: ConnId) {
        self.effects.push_back(Effect::Close(conn));
        self.other_closed(conn, "the server does not answer");
    }

    /// Removes a dead connection. If it served requests, all are ended: the server may have restarted.
    pub(super) fn other_closed(&mut self, conn: ConnId, why: &str) {
        let retry_at_ms = self.next_attempt_ms(conn);
        let is_up = self.stage == Stage::Up;
        let Some(other) = self.links.other(conn) else { return };
        let was_up = other.stage == OtherStage::Up;
        other.link = None;
        other.stage = OtherStage::Idle { retry_at_ms: retry_at_ms.filter(|_| is_up && !was_up) };
        if was_up {
            self.end_all(why.to_owned());
        }
        if self.stage == Stage::Parting && !self.links.has_others() {
            self.all_dead();
        }
    }

    /// Returns the time of the next attempt after one that failed, `None` after [`OTHER_ATTEMPTS_MAX`] failures.
    fn next_attempt_ms(&mut self, conn: ConnId) -> Option<u64> {
        let other = self.links.others.get_mut(conn.0.checked_sub(1)?)?;
        other.failures = other.failures.saturating_add(1);
        let pause_ms = other.pauses.next_ms(&mut self.dice);
        (other.failures < OTHER_ATTEMPTS_MAX).then(|| self.now_ms.saturating_add(pause_ms))
    }
}
