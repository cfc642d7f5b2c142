//! One connection: requests in flight, output, and input.
//!
//! Job: send parts of requests, hand read data to its receiver, and report each part once when it is answered.
//!
//! Invariants: parts and their payload bytes in flight are bounded. Data of an abandoned read reaches no receiver.
//!
//! Out of scope: choosing requests, and acting on answers.

use bytes::Bytes;
use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_nbd::Need;
use zc_nbd::client::{
    ClientConfig, ClientError, ClientEvent, ClientSession, ClientTls, RemoteError, RemoteExport, RequestError,
};
use zc_nbd::proto::{command_flag, tx_flag};

use crate::limits::{CHANGE_BYTES_MAX, CONNECTIONS_MAX, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX};
use crate::owed::{Change, Stamp};
use crate::samples::Sample;
use crate::{ConnId, RequestId, Sink};

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
            Change::Zero { .. } if self.offers(tx_flag::SEND_WRITE_ZEROES) => CHANGE_BYTES_MAX,
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
            && self.parts.values().any(|part| part.is_abandoned && part.start < end && part.end > start)
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
        let (cookie, payload) = match change {
            Change::Trim => (self.session.trim(start, len, flags, &mut self.tail)?, None),
            Change::Zero { no_hole } if !writes_zeros => {
                let flags = if *no_hole { flags | command_flag::NO_HOLE } else { flags };
                (self.session.write_zeroes(start, len, flags, &mut self.tail)?, None)
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
        self.enter(cookie, Part { is_durable: fua, ..part });
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
        self.parts.insert(cookie, part);
    }

    /// Takes a part that was answered.
    fn leave(&mut self, cookie: u64) -> Option<Part> {
        let part = self.parts.remove(&cookie)?;
        self.payload_bytes -= part.payload_bytes;
        self.abandoned -= usize::from(part.is_abandoned);
        self.sampled -= usize::from(part.is_sampled_read);
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
                    if let Some(part) = self.leave(cookie) {
                        return Ok(Some(LinkEvent::Done(part, result)));
                    }
                }
                Some(ClientEvent::Listed(_) | ClientEvent::BlockStatus { .. }) => {}
            }
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

impl Part {
    const fn new(role: Role, start: u64, end: u64, sample: Option<Sample>, payload_bytes: u64) -> Self {
        let is_read = matches!(role, Role::Read { .. } | Role::Survey | Role::Sample);
        let is_sampled_read = sample.is_some() && is_read;
        Self {
            role,
            start,
            end,
            sample,
            is_durable: false,
            payload_bytes,
            is_sampled_read,
            is_abandoned: false,
        }
    }

    /// Its request, unless that has been answered otherwise.
    pub(crate) const fn request(&self) -> Option<RequestId> {
        match self.role {
            _ if self.is_abandoned => None,
            Role::Read { request, .. } | Role::Change { request } => Some(request),
            Role::Flush { request, .. } => request,
            Role::Settle | Role::Sample | Role::Survey | Role::Replay | Role::Probe { .. } => None,
        }
    }
}
