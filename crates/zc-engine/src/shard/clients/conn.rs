//! One client connection: socket, NBD session, bytes in both directions.
//!
//! Job: hold the state of a connection, gather the replies of a turn into one send, and choose the next receive.
//!
//! Invariants: at most one receive and one send are in the ring. Bytes of replies leave in the order in which the
//! session wrote their headers. While a WRITE's payload is due, nothing else is read from the socket.
//!
//! Out of scope: I/O (the shard submits the operations) or requests (`request` does).

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use zc_core::{VolumeId, u64_from_usize, usize_from_u64};
use zc_io::{AlignedBuf, Memory, Operation, Segment, SharedFd, Source, Target};
use zc_nbd::Need;
use zc_nbd::server::{HoleForm, Request, ServerConfig, ServerEvent, ServerLimits, ServerSession, TlsMode};
use zc_nbd::wire::HeaderStyle;

use crate::front::access::{Export, View};
use crate::front::peer::{self, Peer};
use crate::front::settings::FrontLimits;
use crate::front::shares::Holder;
use crate::front::sparse::pieces;
use crate::front::tls::{RECORD_BYTES_MAX, Received, Tls, TlsLayer};
use crate::front::tls_pool::{HandedBack, Handover};
use crate::limits::{
    ARRIVAL_BYTES_PER_S_MIN, BARRED_MAX, COMPACT_BYTES_MAX, COMPACT_UNSENT_BYTES, HANDSHAKE_RECEIVE_BYTES,
    RECEIVE_BYTES, SEND_BYTES_MAX, SHORT_STALL_MS,
};
use crate::shard::pending::RingId;

/// A WRITE whose payload is being received.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) request: Request,
    /// Destination of the bytes; `None` while the ring has it.
    pub(crate) memory: Option<AlignedBuf>,
    /// Offset of the payload in `memory`: its distance from a sector boundary.
    pub(crate) skip_bytes: usize,
    pub(crate) filled_bytes: usize,
    /// Charged memory.
    pub(crate) held_bytes: u64,
    /// Time from which its first byte could arrive.
    pub(crate) began_ms: u64,
}

/// A request that has not begun.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: Request,
    pub(crate) since_ms: u64,
    /// For memory, not for service.
    pub(crate) lacks_memory: bool,
}

/// A connection's receive in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Nothing,
    Input,
    Payload,
    Records,
}

/// Result of a receive.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// Bytes for the session, or a part of a payload.
    Input,
    Payload,
    /// Bytes of a TLS handshake, for a handshake thread.
    Handshake(Handover),
}

/// A piece of a reply.
#[derive(Debug)]
enum Unsent {
    /// `len_bytes` of the connection's `head`, after those of the previous pieces.
    Head { len_bytes: usize },
    /// Bytes, and the memory that is free when they have been sent.
    Data { segment: Segment, held_bytes: u64 },
}

/// A send in flight.
#[derive(Debug, Clone, Copy)]
struct Sending {
    wire_bytes: u64,
    held_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) fd: SharedFd,
    pub(crate) peer: Peer,
    /// Source under which it is counted.
    pub(crate) source: peer::Source,
    pub(crate) session: ServerSession,
    pub(crate) ring: RingId,
    /// The attached export.
    pub(crate) volume: Option<VolumeId>,
    pub(crate) payload: Option<Payload>,
    /// Request that waits for its share. A WRITE's payload is not read from the socket until then.
    pub(crate) waiting: Option<Waiting>,
    /// Between socket and session, after the client requested it.
    tls: Option<TlsLayer>,
    /// `true` while a handshake thread has the layer, with received bytes and their destination.
    is_away: bool,
    /// Received over TLS and not yet decrypted; `None` while the ring has it, or without TLS.
    cipher: Option<AlignedBuf>,
    said_goodbye: bool,
    /// Names in the client's certificate.
    names: Vec<String>,
    /// `None` while the ring has it.
    input: Option<AlignedBuf>,
    /// Received and not yet taken by the session.
    input_range: Range<usize>,
    receiving: Receiving,
    /// Reply headers, and small replies that were copied together, since the last send.
    head: Vec<u8>,
    /// Bytes of `head` that are in `segments`.
    head_listed_bytes: usize,
    /// Replies of this turn.
    segments: Vec<Unsent>,
    /// Memory held by `segments` and the send in flight.
    unsent_bytes: u64,
    sending: Option<Sending>,
    /// Memory that its requests in flight hold.
    pub(crate) charged_bytes: u64,
    /// Most memory of requests in flight, and of replies that it may leave lying.
    bytes_max: u64,
    /// Part of `unsent_bytes` in the shard's total.
    pub(crate) unsent_counted_bytes: u64,
    /// Memory beyond its reserve, as recorded in the shard's totals.
    pub(crate) taken_bytes: u64,
    /// Bytes of its reads and prefetches that are with the manager.
    pub(crate) serving_bytes: u64,
    /// Requests with a next piece, which begins in a turn of the connection.
    pub(crate) due: VecDeque<u64>,
    /// Its changes that wait for others to end.
    pub(crate) barred: usize,
    /// Virtual time of its next request (see `shares`), and `true` if it is in line for it.
    pub(crate) virtual_units: u64,
    pub(crate) is_in_line: bool,
    /// The client has disconnected or violated the protocol: answer requests in flight, then close.
    pub(crate) closing: bool,
    /// The socket is of no more use.
    pub(crate) dead: bool,
    /// When the connection last made progress that its client has to make.
    pub(crate) progress_ms: u64,
    /// When the last send of replies began.
    pub(crate) taken_ms: u64,
    pub(crate) accepted_ms: u64,
}

impl Conn {
    pub(crate) fn new(
        fd: SharedFd,
        (peer, source): (Peer, peer::Source),
        limits: &FrontLimits,
        tls: TlsMode,
        now_ms: u64,
    ) -> Self {
        let bytes_max = limits.bytes_per_connection;
        let limits = ServerLimits {
            in_flight: limits.requests,
            in_flight_bytes: limits.bytes_per_connection,
            ..ServerLimits::default()
        };
        let mut head = Vec::new();
        let session = ServerSession::new(ServerConfig { limits, tls, ..ServerConfig::default() }, &mut head);
        Self {
            fd,
            peer,
            source,
            session,
            ring: RingId::FIRST,
            volume: None,
            payload: None,
            waiting: None,
            tls: None,
            is_away: false,
            cipher: None,
            said_goodbye: false,
            names: Vec::new(),
            input: Some(AlignedBuf::new(HANDSHAKE_RECEIVE_BYTES)),
            input_range: 0..0,
            receiving: Receiving::Nothing,
            head,
            head_listed_bytes: 0,
            segments: Vec::new(),
            unsent_bytes: 0,
            sending: None,
            charged_bytes: 0,
            bytes_max,
            unsent_counted_bytes: 0,
            taken_bytes: 0,
            serving_bytes: 0,
            due: VecDeque::new(),
            barred: 0,
            virtual_units: 0,
            is_in_line: false,
            closing: false,
            dead: false,
            progress_ms: now_ms,
            taken_ms: now_ms,
            accepted_ms: now_ms,
        }
    }

    /// The next event that the received bytes hold.
    pub(crate) fn next_event(&mut self, exports: &[Export]) -> Option<ServerEvent> {
        let is_secured = self.session.is_secured();
        let catalog = &View { exports, peer: self.peer, is_secured, names: &self.names };
        let Some(input) = &self.input else {
            // The ring has the buffer: no bytes are available, but the session may proceed without.
            return self.session.next_event(&mut &[][..], catalog, &mut self.head);
        };
        let mut bytes = &input[self.input_range.clone()];
        let event = self.session.next_event(&mut bytes, catalog, &mut self.head);
        self.input_range.start = self.input_range.end - bytes.len();
        event
    }

    /// Moves payload bytes received along with requests into the payload's memory; returns `true` when complete.
    pub(crate) fn take_payload(&mut self) -> bool {
        let Some(payload) = &mut self.payload else { return false };
        let (Some(memory), Some(input)) = (&mut payload.memory, &self.input) else { return false };
        let mut bytes = &input[self.input_range.clone()];
        let taken = self.session.take_payload(&mut bytes);
        let at = payload.skip_bytes + payload.filled_bytes;
        memory[at..at + taken.len()].copy_from_slice(taken);
        payload.filled_bytes += taken.len();
        self.input_range.start = self.input_range.end - bytes.len();
        u64_from_usize(payload.filled_bytes) == payload.request.length()
    }

    /// Returns the receive that the session needs, if none is in flight.
    pub(crate) fn receive(&mut self) -> Option<Operation> {
        if self.dead || self.is_away || self.receiving != Receiving::Nothing || !self.input_range.is_empty() {
            return None;
        }
        if self.tls.is_some() {
            return self.receive_records();
        }
        match self.session.need() {
            Need::Payload { .. } => {
                let payload = self.payload.as_mut()?;
                let memory = payload.memory.take()?;
                let start = payload.skip_bytes + payload.filled_bytes;
                let end = payload.skip_bytes + usize_from_u64(payload.request.length());
                self.receiving = Receiving::Payload;
                let target = Target::new(memory, start..end);
                Some(Operation::Recv { fd: SharedFd::clone(&self.fd), target, exact: false })
            }
            Need::Input => {
                let mut memory = self.input.take()?;
                if self.volume.is_some() && memory.len() < RECEIVE_BYTES {
                    memory = AlignedBuf::new(RECEIVE_BYTES);
                }
                self.receiving = Receiving::Input;
                let target = Target::whole(memory);
                Some(Operation::Recv { fd: SharedFd::clone(&self.fd), target, exact: false })
            }
            Need::Replies | Need::Nothing => None,
        }
    }

    /// Returns `true` if the client requested TLS and has received the reply.
    pub(crate) fn is_tls_due(&self) -> bool {
        self.session.tls_due()
            && self.tls.is_none()
            && !self.is_away
            && self.unsent_bytes == 0
            && self.head.is_empty()
    }

    /// Returns the reason why new TLS settings would refuse this client. A handshake in progress uses the old ones.
    pub(crate) fn is_refused_by(&self, tls: &Tls) -> Option<String> {
        if self.is_away || (self.tls.is_some() && !self.session.is_secured()) {
            return Some("TLS has other settings now".to_owned());
        }
        tls.refuses(self.tls.as_ref())
    }

    /// Begins TLS. False: it cannot.
    pub(crate) fn start_tls(&mut self, tls: &Tls) -> bool {
        self.tls = tls.layer();
        self.cipher = Some(AlignedBuf::new(RECEIVE_BYTES));
        // For the plain text of one receive, and the rest of a record.
        self.input = Some(AlignedBuf::new(RECEIVE_BYTES + RECORD_BYTES_MAX));
        self.tls.is_some()
    }

    /// The next receive of a connection with TLS.
    fn receive_records(&mut self) -> Option<Operation> {
        if matches!(self.session.need(), Need::Nothing) || (self.session.is_secured() && self.is_paused()) {
            return None;
        }
        let memory = self.cipher.take()?;
        self.receiving = Receiving::Records;
        Some(Operation::Recv { fd: SharedFd::clone(&self.fd), target: Target::whole(memory), exact: false })
    }

    fn is_paused(&self) -> bool {
        self.session.need() == Need::Replies
    }

    /// Returns `true` if the client has closed the TLS session and all its earlier requests were served. The missing
    /// rest of a payload will not arrive.
    pub(crate) fn is_over(&self) -> bool {
        let over = self.tls.as_ref().is_some_and(TlsLayer::is_over);
        over && match self.session.need() {
            Need::Payload { bytes } => u64_from_usize(self.input_range.len()) < bytes,
            // Input that the session holds back continues when replies have been sent.
            Need::Replies => false,
            Need::Input | Need::Nothing => self.input_range.is_empty(),
        }
    }

    /// Takes encrypted bytes in; those of a handshake are for another thread.
    fn received_records(&mut self, cipher: AlignedBuf, received_bytes: usize) -> io::Result<Arrived> {
        let (Some(mut layer), Some(mut plain)) = (self.tls.take(), self.input.take()) else {
            unreachable!("records are received into both buffers of a connection with TLS")
        };
        if !layer.is_up() {
            self.is_away = true;
            return Ok(Arrived::Handshake(Handover { layer, cipher, received_bytes, plain }));
        }
        let received = layer.receive(&cipher[..received_bytes], &mut plain);
        self.take_layer(layer, cipher, plain, received).map(|()| Arrived::Input)
    }

    /// Takes the TLS layer back from a handshake thread.
    ///
    /// # Errors
    /// When the bytes are not TLS although they must be.
    pub(crate) fn handed_back(&mut self, back: HandedBack) -> io::Result<()> {
        self.is_away = false;
        let HandedBack { layer, cipher, plain, received, .. } = back;
        self.take_layer(layer, cipher, plain, received)
    }

    fn take_layer(
        &mut self,
        layer: TlsLayer,
        cipher: AlignedBuf,
        plain: AlignedBuf,
        received: io::Result<Received>,
    ) -> io::Result<()> {
        (self.cipher, self.input) = (Some(cipher), Some(plain));
        let tls = self.tls.insert(layer);
        self.input_range = 0..received?.plain_bytes;
        if self.session.tls_due() && tls.is_up() {
            self.names = tls.names();
            self.session.tls_started();
        }
        Ok(())
    }

    /// Reuses a receive that completed without data.
    pub(crate) fn returned(&mut self, operation: Operation) {
        drop(operation);
        self.receiving = Receiving::Nothing;
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// When they are no TLS although they must be.
    pub(crate) fn received(&mut self, bytes: usize, operation: Operation) -> io::Result<Arrived> {
        let Some(Memory::Buf(memory)) = operation.into_target().map(Target::into_memory) else {
            unreachable!("connections receive into whole buffers");
        };
        let was = std::mem::replace(&mut self.receiving, Receiving::Nothing);
        if was == Receiving::Records {
            return self.received_records(memory, bytes);
        }
        if was == Receiving::Input {
            self.input = Some(memory);
            self.input_range = 0..bytes;
            return Ok(Arrived::Input);
        }
        let Some(payload) = &mut self.payload else { unreachable!("a payload is received for a WRITE") };
        payload.memory = Some(memory);
        payload.filled_bytes += bytes;
        self.session.payload_received(u64_from_usize(bytes));
        let is_complete = u64_from_usize(payload.filled_bytes) == payload.request.length();
        Ok(if is_complete { Arrived::Payload } else { Arrived::Input })
    }

    /// The session together with the output its replies go to.
    pub(crate) fn reply(&mut self) -> (&mut ServerSession, &mut Vec<u8>) {
        (&mut self.session, &mut self.head)
    }

    /// Answers a read with bytes whose memory has `held_bytes`; zero blocks are sent as holes to clients with support.
    pub(crate) fn reply_read(&mut self, request: Request, data: Segment, held_bytes: u64) {
        if request.length() <= COMPACT_BYTES_MAX && self.unsent_bytes() >= self.loose_bytes_max() {
            self.session.reply_read(request, &mut self.head);
            self.head.extend_from_slice(data.bytes());
            if u64_from_usize(self.head.len()) >= COMPACT_UNSENT_BYTES {
                self.freeze_head();
            }
            return;
        }
        let sparse = self.session.style() != HeaderStyle::Simple && !request.dont_fragment();
        let pieces = if sparse { pieces(data.bytes(), request.offset()) } else { None };
        let Some(pieces) = pieces else {
            self.session.reply_read(request, &mut self.head);
            self.push_data(data, held_bytes);
            return;
        };
        let mut reply = self.session.begin_read(request);
        let mut at = 0;
        // All of the memory is held until the last piece of data has been sent.
        let last = pieces.iter().rposition(|piece| !piece.is_zero);
        for (index, piece) in pieces.into_iter().enumerate() {
            let len = u64_from_usize(piece.len_bytes);
            let end = at + piece.len_bytes;
            if piece.is_zero {
                let form = self.session.read_hole(&mut reply, len, &mut self.head);
                assert!(form == HoleForm::Chunk, "holes are chunks where a read may have several");
            } else {
                self.session.read_data(&mut reply, len, &mut self.head);
                let held_bytes = if Some(index) == last { held_bytes } else { 0 };
                self.push_data(data.clone().part(at..end), held_bytes);
            }
            at = end;
        }
        self.session.end_read(reply);
    }

    /// Returns the memory that replies may hold before small ones are merged by copying. Without a send in flight the
    /// client reads fast enough: data that fits one send leaves at the end of the turn, and copying it is useless. The
    /// pages of a device read may be twice as long as the useful bytes.
    const fn loose_bytes_max(&self) -> u64 {
        if self.sending.is_some() { COMPACT_UNSENT_BYTES } else { 2 * SEND_BYTES_MAX }
    }

    /// Appends data after the headers written so far.
    fn push_data(&mut self, segment: Segment, held_bytes: u64) {
        self.list_head();
        self.unsent_bytes += held_bytes;
        self.segments.push(Unsent::Data { segment, held_bytes });
    }

    /// Appends the newly written part of the head to the pieces.
    fn list_head(&mut self) {
        let len_bytes = self.head.len() - self.head_listed_bytes;
        if len_bytes > 0 {
            self.segments.push(Unsent::Head { len_bytes });
            self.head_listed_bytes = self.head.len();
        }
    }

    /// Gives all that the head has memory of its own, in which it can be sent.
    fn freeze_head(&mut self) {
        self.list_head();
        if self.head.is_empty() {
            return;
        }
        let frozen = Source::from(&self.head[..]);
        let mut at = 0;
        for unsent in &mut self.segments {
            if let Unsent::Head { len_bytes } = *unsent {
                let segment = Segment::new(frozen.clone(), at..at + len_bytes);
                *unsent = Unsent::Data { segment, held_bytes: u64_from_usize(len_bytes) };
                at += len_bytes;
            }
        }
        self.unsent_bytes += u64_from_usize(at);
        self.head.clear();
        self.head_listed_bytes = 0;
    }

    /// Memory of replies that the client has not taken.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes + u64_from_usize(self.head.len())
    }

    /// Memory that it holds: of requests in flight, of a payload that arrives, of replies.
    pub(crate) fn held_bytes(&self) -> u64 {
        let payload = self.payload.as_ref().map_or(0, |payload| payload.held_bytes);
        self.charged_bytes + payload + self.unsent_bytes()
    }

    /// Returns `true` if the client has left so much unread that its requests are no longer read.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent_bytes() >= self.bytes_max
    }

    /// Returns `true` if no reply to its client is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.in_flight() == 0 && self.unsent_bytes() == 0 && self.payload.is_none()
    }

    /// Returns `true` if its requests in flight hold their maximum memory, or the maximum number of changes waits
    /// behind them.
    pub(crate) const fn is_busy(&self) -> bool {
        self.charged_bytes >= self.bytes_max || self.barred >= BARRED_MAX
    }

    /// Returns a send of the queued data, up to a bound, if none is in flight.
    pub(crate) fn send(&mut self) -> Option<Operation> {
        if self.dead || self.is_away || self.sending.is_some() {
            return None;
        }
        self.freeze_head();
        if self.segments.is_empty() && !self.tls.as_ref().is_some_and(TlsLayer::has_output) {
            return None;
        }
        let (mut segments, mut sending) = self.next_send();
        if let Some(tls) = &mut self.tls {
            tls.encrypt(&segments);
            let records = tls.take_output();
            self.unsent_bytes -= sending.held_bytes;
            let bytes = u64_from_usize(records.len());
            sending = Sending { wire_bytes: bytes, held_bytes: bytes };
            self.unsent_bytes += bytes;
            segments = vec![Segment::whole(&records[..])];
        }
        self.sending = Some(sending);
        Some(Operation::Send { fd: SharedFd::clone(&self.fd), segments })
    }

    /// Returns the segments of the next send.
    fn next_send(&mut self) -> (Vec<Segment>, Sending) {
        let mut sending = Sending { wire_bytes: 0, held_bytes: 0 };
        let mut count = 0;
        for unsent in &self.segments {
            let Unsent::Data { segment, held_bytes } = unsent else { unreachable!("the head is frozen") };
            count += 1;
            sending.wire_bytes += u64_from_usize(segment.len_bytes());
            sending.held_bytes += held_bytes;
            if sending.wire_bytes >= SEND_BYTES_MAX {
                break;
            }
        }
        let mut segments = Vec::with_capacity(count);
        segments.extend(self.segments.drain(..count).filter_map(|unsent| match unsent {
            Unsent::Data { segment, .. } => Some(segment),
            Unsent::Head { .. } => None,
        }));
        (segments, sending)
    }

    /// Returns `true`, once, if a TLS close must be sent: it distinguishes the end from a truncated connection.
    pub(crate) fn says_goodbye(&mut self) -> bool {
        if self.is_away {
            return false;
        }
        let first = !std::mem::replace(&mut self.said_goodbye, true);
        match &mut self.tls {
            Some(tls) if first => {
                tls.close();
                true
            }
            _ => false,
        }
    }

    pub(crate) fn sent(&mut self) {
        self.unsent_bytes -= self.sending.take().map_or(0, |sending| sending.held_bytes);
    }

    /// Bytes of the send under way.
    pub(crate) fn sending_bytes(&self) -> u64 {
        self.sending.map_or(0, |sending| sending.wire_bytes)
    }

    /// Returns `true` if an operation of this connection is in the ring.
    pub(crate) fn is_in_ring(&self) -> bool {
        self.receiving != Receiving::Nothing || self.sending.is_some()
    }

    /// Returns `true` if every answer to the client has been sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.session.in_flight() == 0 && self.unsent_bytes == 0 && self.head.is_empty()
    }

    /// Shuts the socket down; operations in flight complete soon.
    pub(crate) fn kill(&mut self) {
        if !self.dead {
            self.dead = true;
            let _gone_already = rustix::net::shutdown(&*self.fd, rustix::net::Shutdown::Both);
            self.segments.clear();
            self.head.clear();
            self.head_listed_bytes = 0;
            self.unsent_bytes = self.sending.map_or(0, |sending| sending.held_bytes);
        }
    }

    /// The connection in its role as a holder of memory.
    pub(crate) fn holder(&self, conn: u64) -> Holder {
        Holder { conn, client: self.source, volume: self.volume, held_bytes: self.held_bytes() }
    }

    /// Returns `true` if its client has stalled for so long that other waiters need not wait for it. While others
    /// wait, it must receive or send at least [`ARRIVAL_BYTES_PER_S_MIN`].
    pub(crate) fn is_stalled(&self, now_ms: u64) -> bool {
        let since = |then: u64| now_ms.saturating_sub(then);
        let takes_none = self.sending_bytes() > 0 && since(self.taken_ms) > SHORT_STALL_MS;
        let brings_none = self.payload.as_ref().is_some_and(|payload| {
            let earned_ms = u64_from_usize(payload.filled_bytes) * 1000 / ARRIVAL_BYTES_PER_S_MIN;
            since(payload.began_ms) > SHORT_STALL_MS + earned_ms
        });
        takes_none || brings_none
    }
}
