//! One connection: requests in flight, output, and input.
//!
//! Job: send parts of requests, hand read data to its receiver, and report each part once when it is answered.
//!
//! Invariants: parts and their payload bytes in flight are bounded. Data of an abandoned read reaches no receiver.
//!
//! Out of scope: choosing requests, and acting on answers.

use bytes::Bytes;
use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_nbd::ErrorCode;
use zc_nbd::Need;
use zc_nbd::client::{
    ClientConfig, ClientError, ClientEvent, ClientSession, ClientTls, RemoteError, RemoteExport, RequestError,
};
use zc_nbd::proto::{
    BASE_ALLOCATION, RESIDENCY, STATE_CACHED, STATE_CACHED_BEHIND, STATE_HOLE, STATE_ZERO, command_flag,
    tx_flag,
};
use zc_nbd::wire::StatusExtent;

use crate::limits::{
    CHANGE_BYTES_MAX, CONNECTIONS_MAX, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, SLOW_ZERO_BYTES_MAX,
    STATUS_RUNS_MAX,
};
use crate::owed::{Change, Stamp};
use crate::samples::Sample;
use crate::{ConnId, RequestId, Run, Sink, Status};

/// Zeros that are written where the server has no request for them.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Purpose of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A piece of a read. `base` is the first byte of the request.
    Read { request: RequestId, base: u64 },
    /// A piece of a write, trim or zeroing.
    Change { request: RequestId },
    /// A flush; `None`: of this component's own.
    Flush { request: Option<RequestId>, covers: Stamp },
    /// The flush before the first request.
    Settle,
    /// A piece of content that is compared.
    Sample,
    /// A piece of content that is read once, to be compared later.
    Survey,
    /// A block status for the engine.
    Status { request: RequestId },
    /// A block status of this component's own, for reads of holes.
    Holes,
    /// An owed change that is written again.
    Replay,
    /// A read whose answer shows that the server of this connection lives still, when another connection was made.
    Probe { conn: ConnId, attempt: u32 },
}

/// A request on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) role: Role,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// A piece of its content, which is kept or compared.
    pub(crate) sample: Option<Sample>,
    /// Its answer says that it is durable.
    pub(crate) is_durable: bool,
    /// States that a block status has returned so far.
    pub(crate) status: Status,
    /// The range was changed after the block status was sent, or while it was.
    pub(crate) is_stale: bool,
    /// A zeroing that the server is to refuse rather than to write. `no_hole` and `fua` of the zeroing.
    fast_zero: Option<(bool, bool)>,
    payload_bytes: u64,
    is_sampled_read: bool,
    /// Its request has been answered otherwise.
    is_abandoned: bool,
}

/// Progress of the connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The handshake is done.
    Ready,
    Done(Part, Result<(), RemoteError>),
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Link {
    session: ClientSession,
    /// Headers that wait behind `output`.
    tail: Vec<u8>,
    output: Vec<Bytes>,
    parts: Map<u64, Part>,
    payload_bytes: u64,
    /// Parts whose requests have been answered otherwise.
    abandoned: usize,
    /// Reads in flight that yield a sample.
    sampled: usize,
    /// Block statuses in flight.
    statuses: usize,
    /// The server has refused fast zeroing: where holes are allowed, and where they are not.
    zeroes_slowly: [bool; 2],
    /// The export, also after the end of the connection was announced.
    export: Option<RemoteExport>,
    /// The server sent something last, or had nothing to answer.
    pub(crate) heard_ms: u64,
    /// The read whose data arrives, and the place of the next byte in the export.
    filling: Option<(u64, u64)>,
    /// The session ended by an error: nothing that arrives counts any more.
    is_broken: bool,
}

impl Link {
    pub(crate) fn new(export: &str, tls: ClientTls) -> Self {
        let config = ClientConfig {
            export: export.to_owned(),
            tls,
            in_flight: IN_FLIGHT_MAX + CONNECTIONS_MAX,
            contexts: vec![BASE_ALLOCATION.to_owned(), RESIDENCY.to_owned()],
            ..ClientConfig::default()
        };
        Self {
            session: ClientSession::new(config),
            tail: Vec::new(),
            output: Vec::new(),
            parts: Map::default(),
            payload_bytes: 0,
            abandoned: 0,
            sampled: 0,
            statuses: 0,
            zeroes_slowly: [false; 2],
            export: None,
            heard_ms: 0,
            filling: None,
            is_broken: false,
        }
    }

    pub(crate) const fn export(&self) -> Option<&RemoteExport> {
        self.export.as_ref()
    }

    pub(crate) fn offers(&self, flag: u16) -> bool {
        self.export().is_some_and(|export| export.offers(flag))
    }

    /// Largest payload, in whole sectors.
    pub(crate) fn payload_max(&self) -> u64 {
        let sector = u64::from(zc_core::SECTOR_BYTES);
        self.export().map_or(sector, |export| u64::from(export.max_bytes) / sector * sector)
    }

    /// Longest piece of a change that goes out as one request.
    pub(crate) fn piece_max(&self, change: &Change) -> u64 {
        match change {
            Change::Zero { no_hole } if self.offers(tx_flag::SEND_WRITE_ZEROES) => {
                let is_slow = self.zeroes_slowly[usize::from(*no_hole)];
                if is_slow { SLOW_ZERO_BYTES_MAX } else { CHANGE_BYTES_MAX }
            }
            Change::Zero { .. } => self.payload_max().min(u64_from_usize(ZEROS.len())),
            Change::Trim => CHANGE_BYTES_MAX,
            Change::Data(_) => self.payload_max(),
        }
    }

    /// Returns `true` if another part may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.parts.len() < IN_FLIGHT_MAX && self.payload_bytes < IN_FLIGHT_BYTES_MAX
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.parts.len()
    }

    pub(crate) const fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Returns `true` if nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns `true` if changes have no answer.
    pub(crate) fn has_changes(&self) -> bool {
        self.parts.values().any(|part| matches!(part.role, Role::Change { .. } | Role::Replay))
    }

    /// Returns `true` if an abandoned change or read of the range has no answer.
    pub(crate) fn is_in_doubt(&self, start: u64, end: u64) -> bool {
        self.abandoned > 0
            && self
                .parts
                .values()
                .any(|part| part.is_abandoned && !part.is_status() && part.start < end && part.end > start)
    }

    /// Returns `true` if a change of the range has no answer.
    pub(crate) fn is_changing(&self, start: u64, end: u64) -> bool {
        let is_change = |part: &Part| matches!(part.role, Role::Change { .. } | Role::Replay);
        self.parts.values().any(|part| is_change(part) && part.start < end && part.end > start)
    }

    /// Removes the samples of reads in flight that overlap a changed range.
    pub(crate) fn forget_samples(&mut self, start: u64, end: u64) {
        if self.sampled == 0 {
            return;
        }
        for part in self.parts.values_mut() {
            let is_touched = |sample: &Sample| sample.offset < end && sample.end() > start;
            if part.is_sampled_read && part.sample.as_ref().is_some_and(is_touched) {
                part.sample = None;
            }
        }
    }

    /// Marks the block statuses in flight whose range is changed: they may describe it before or after the change.
    pub(crate) fn outdate_statuses(&mut self, start: u64, end: u64) {
        if self.statuses == 0 {
            return;
        }
        for part in self.parts.values_mut() {
            part.is_stale |= part.is_status() && part.start < end && part.end > start;
        }
    }

    /// Returns `true` if the server reports allocation or residency.
    pub(crate) fn has_status(&self) -> bool {
        !self.session.contexts().is_empty()
    }

    /// Returns `true` if the server reports allocation.
    pub(crate) fn has_allocation(&self) -> bool {
        self.session.contexts().iter().any(|(_, name)| name == BASE_ALLOCATION)
    }

    /// Returns `true` if the server has refused fast zeroing that may leave holes.
    pub(crate) const fn zeroes_slowly(&self) -> bool {
        self.zeroes_slowly[0]
    }

    /// The requests of the engine have been answered otherwise.
    pub(crate) fn abandon_all(&mut self) {
        self.parts.values_mut().for_each(|part| part.is_abandoned = true);
        self.abandoned = self.parts.len();
    }

    pub(crate) const fn tls_due(&self) -> bool {
        self.session.tls_due()
    }

    pub(crate) fn tls_started(&mut self) {
        self.session.tls_started(&mut self.tail);
    }

    /// Announces the end of the connection, if the handshake is done.
    pub(crate) fn disconnect(&mut self) {
        let _not_ready = self.session.disconnect(&mut self.tail);
    }

    /// Stops processing: bytes that arrive are ignored.
    pub(crate) const fn break_off(&mut self) {
        self.is_broken = true;
    }

    pub(crate) fn take_output(&mut self) -> Vec<Bytes> {
        self.close_tail();
        std::mem::take(&mut self.output)
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.output.push(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }

    pub(crate) fn read(
        &mut self,
        role: Role,
        start: u64,
        end: u64,
        sample: Option<Sample>,
    ) -> Result<(), RequestError> {
        let length = u32::try_from(end - start).map_err(|_| RequestError::TooLong)?;
        let cookie = self.session.read(start, length, 0, &mut self.tail)?;
        self.enter(cookie, Part::new(role, start, end, sample, end - start));
        Ok(())
    }

    /// Sends a piece of a change, which is no longer than [`Self::piece_max`].
    pub(crate) fn change(
        &mut self,
        role: Role,
        (start, end): (u64, u64),
        change: &Change,
        fua: bool,
        sample: Option<Sample>,
    ) -> Result<(), RequestError> {
        let flags = if fua { command_flag::FUA } else { 0 };
        let len = end - start;
        let writes_zeros = matches!(change, Change::Zero { .. }) && !self.offers(tx_flag::SEND_WRITE_ZEROES);
        let mut fast_zero = None;
        let (cookie, payload) = match change {
            Change::Trim => (self.session.trim(start, len, flags, &mut self.tail)?, None),
            Change::Zero { no_hole } if !writes_zeros => {
                let is_fast =
                    self.offers(tx_flag::SEND_FAST_ZERO) && !self.zeroes_slowly[usize::from(*no_hole)];
                fast_zero = is_fast.then_some((*no_hole, fua));
                (self.zero(start, len, (*no_hole, fua), is_fast)?, None)
            }
            Change::Zero { .. } | Change::Data(_) => {
                let length = u32::try_from(len).map_err(|_| RequestError::TooLong)?;
                let payload = match change {
                    Change::Data(bytes) => bytes.clone(),
                    _ => Bytes::from_static(&ZEROS).slice(..usize_from_u64(len)),
                };
                (self.session.write(start, length, flags, &mut self.tail)?, Some(payload))
            }
        };
        let payload_bytes = payload.as_ref().map_or(0, |_| len);
        if let Some(payload) = payload {
            self.close_tail();
            self.output.push(payload);
        }
        let part = Part::new(role, start, end, sample, payload_bytes);
        self.enter(cookie, Part { is_durable: fua, fast_zero, ..part });
        Ok(())
    }

    fn zero(
        &mut self,
        start: u64,
        len: u64,
        (no_hole, fua): (bool, bool),
        is_fast: bool,
    ) -> Result<u64, RequestError> {
        let mut flags = if fua { command_flag::FUA } else { 0 };
        flags |= if no_hole { command_flag::NO_HOLE } else { 0 };
        flags |= if is_fast { command_flag::FAST_ZERO } else { 0 };
        self.session.write_zeroes(start, len, flags, &mut self.tail)
    }

    /// Sends a zeroing that the server has refused to do fast as one that may take its time. If the connection is ending,
    /// it counts as not answered, and begins again on the next one.
    fn zero_slowly(&mut self, part: Part, (no_hole, fua): (bool, bool)) {
        self.zeroes_slowly[usize::from(no_hole)] = true;
        if let Ok(cookie) = self.zero(part.start, part.end - part.start, (no_hole, fua), false) {
            self.enter(cookie, Part { fast_zero: None, ..part });
        }
    }

    /// Requests the states of a range. `is_changing`: a change of the range has no answer.
    pub(crate) fn status(
        &mut self,
        role: Role,
        (start, end): (u64, u64),
        is_changing: bool,
    ) -> Result<(), RequestError> {
        let cookie = self.session.block_status(start, end - start, 0, &mut self.tail)?;
        self.enter(cookie, Part { is_stale: is_changing, ..Part::new(role, start, end, None, 0) });
        Ok(())
    }

    pub(crate) fn flush(&mut self, role: Role) -> Result<(), RequestError> {
        let cookie = self.session.flush(&mut self.tail)?;
        self.enter(cookie, Part::new(role, 0, 0, None, 0));
        Ok(())
    }

    fn enter(&mut self, cookie: u64, part: Part) {
        self.payload_bytes += part.payload_bytes;
        self.sampled += usize::from(part.is_sampled_read);
        self.statuses += usize::from(part.is_status());
        self.parts.insert(cookie, part);
    }

    /// Takes a part that was answered.
    fn leave(&mut self, cookie: u64) -> Option<Part> {
        let part = self.parts.remove(&cookie)?;
        self.payload_bytes -= part.payload_bytes;
        self.abandoned -= usize::from(part.is_abandoned);
        self.sampled -= usize::from(part.is_sampled_read);
        self.statuses -= usize::from(part.is_status());
        Some(part)
    }

    /// Takes bytes from the front of `input` up to the next event; `None`: nothing more follows from them.
    pub(crate) fn next_event(
        &mut self,
        input: &mut &[u8],
        sink: &mut dyn Sink,
    ) -> Result<Option<LinkEvent>, ClientError> {
        if self.is_broken {
            *input = &[];
            return Ok(None);
        }
        loop {
            if matches!(self.session.need(), Need::Payload { .. }) {
                let data = self.session.take_payload(input);
                self.take_data(data, sink);
                if matches!(self.session.need(), Need::Payload { .. }) {
                    return Ok(None);
                }
            }
            let event =
                self.session.next_event(input, &mut self.tail).inspect_err(|_| self.is_broken = true)?;
            match event {
                None => return Ok(None),
                Some(ClientEvent::Ready) => {
                    self.export = self.session.export().cloned();
                    return Ok(Some(LinkEvent::Ready));
                }
                Some(ClientEvent::ReadData { cookie, offset, .. }) => self.filling = Some((cookie, offset)),
                Some(ClientEvent::ReadHole { cookie, offset, length }) => {
                    self.deliver(cookie, offset, length, None, sink);
                }
                Some(ClientEvent::Done { cookie, result }) => {
                    let Some(part) = self.leave(cookie) else { continue };
                    let is_slow = matches!(&result, Err(error) if error.code == ErrorCode::NotSup);
                    match part.fast_zero.filter(|_| is_slow && !part.is_abandoned) {
                        Some(flags) => self.zero_slowly(part, flags),
                        None => return Ok(Some(LinkEvent::Done(part, result))),
                    }
                }
                Some(ClientEvent::BlockStatus { cookie, context, extents }) => {
                    self.take_status(cookie, context, &extents);
                }
                Some(ClientEvent::Listed(_)) => {}
            }
        }
    }

    /// Keeps the states of one context. Unknown flags are ignored, and so are states beyond the range.
    fn take_status(&mut self, cookie: u64, context: u32, extents: &[StatusExtent]) {
        let name =
            self.session.contexts().iter().find(|(id, _)| *id == context).map(|(_, name)| name.as_str());
        let Some(part) = self.parts.get_mut(&cookie) else { return };
        let len_bytes = part.end - part.start;
        match name {
            Some(BASE_ALLOCATION) => {
                part.status.allocation = runs(extents, STATE_HOLE | STATE_ZERO, len_bytes);
            }
            Some(RESIDENCY) => {
                part.status.residency = runs(extents, STATE_CACHED | STATE_CACHED_BEHIND, len_bytes);
            }
            _ => {}
        }
    }

    fn take_data(&mut self, data: &[u8], sink: &mut dyn Sink) {
        let Some((cookie, at)) = self.filling.filter(|_| !data.is_empty()) else { return };
        let len_bytes = u64_from_usize(data.len());
        self.deliver(cookie, at, len_bytes, Some(data), sink);
        self.filling = Some((cookie, at + len_bytes));
    }

    /// Hands a piece of a read on. `data` is `None` for zeros. The session has checked that it lies inside the part.
    fn deliver(&mut self, cookie: u64, at: u64, len_bytes: u64, data: Option<&[u8]>, sink: &mut dyn Sink) {
        let Some(part) = self.parts.get_mut(&cookie) else { return };
        if let Some(sample) = &mut part.sample {
            sample.fill(at, len_bytes, data);
        }
        let Role::Read { request, base } = part.role else { return };
        if part.is_abandoned {
            return;
        }
        match data {
            Some(data) => sink.data(request, at - base, data),
            None => sink.zeros(request, at - base, len_bytes),
        }
    }
}

/// Returns the runs of a range with these flags. Others are ignored.
fn runs(extents: &[StatusExtent], known: u32, len_bytes: u64) -> Vec<Run> {
    let mut left = len_bytes;
    let mut runs: Vec<Run> = Vec::new();
    for extent in extents {
        let len_bytes = extent.length.min(left);
        let flags = u32::try_from(extent.flags & u64::from(known)).unwrap_or(0);
        if len_bytes == 0 {
            break;
        }
        left -= len_bytes;
        let is_full = runs.len() == STATUS_RUNS_MAX;
        match runs.last_mut() {
            Some(last) if last.flags == flags => last.len_bytes += len_bytes,
            _ if is_full => break,
            _ => runs.push(Run { len_bytes, flags }),
        }
    }
    runs
}

impl Part {
    fn new(role: Role, start: u64, end: u64, sample: Option<Sample>, payload_bytes: u64) -> Self {
        let is_read = matches!(role, Role::Read { .. } | Role::Survey | Role::Sample);
        let is_sampled_read = sample.is_some() && is_read;
        Self {
            role,
            start,
            end,
            sample,
            is_durable: false,
            status: Status::default(),
            is_stale: false,
            fast_zero: None,
            payload_bytes,
            is_sampled_read,
            is_abandoned: false,
        }
    }

    const fn is_status(&self) -> bool {
        matches!(self.role, Role::Status { .. } | Role::Holes)
    }

    /// Its request, unless that has been answered otherwise.
    pub(crate) const fn request(&self) -> Option<RequestId> {
        match self.role {
            _ if self.is_abandoned => None,
            Role::Read { request, .. } | Role::Change { request } | Role::Status { request } => Some(request),
            Role::Flush { request, .. } => request,
            Role::Settle | Role::Sample | Role::Survey | Role::Holes | Role::Replay | Role::Probe { .. } => {
                None
            }
        }
    }
}
