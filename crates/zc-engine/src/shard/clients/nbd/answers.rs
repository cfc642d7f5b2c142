//! Memory of requests in flight, charged to their connection, and their replies.
//!
//! Invariants: a closed connection gets no reply. A request's memory is released from its connection's share when the
//! request ends.

use zc_cache::ResidencyRun;
use zc_core::{ErrorKind, u64_from_usize};
use zc_io::{AlignedBuf, Segment};
use zc_nbd::ErrorCode;
use zc_nbd::server::Request;

use crate::origin::map::Mapped;
use crate::shard::clients::conn::Conn;
use crate::shard::clients::nbd::NbdFront;
use crate::shard::clients::status;

/// Reply to a client.
#[derive(Debug)]
pub(crate) enum Answer<'a> {
    /// Bytes, and the size of their memory.
    Read {
        bytes: Segment,
        held_bytes: u64,
    },
    /// States of a range in cache and origin.
    Status {
        cache: &'a [ResidencyRun],
        origin: &'a Mapped,
    },
    Done,
    Failed(ErrorKind),
}

impl NbdFront {
    /// Records that the manager serves `bytes` for a request.
    pub(crate) fn serve(&mut self, conn: u64, bytes: u64) {
        self.shares.serve(bytes);
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.serving_bytes += bytes;
        }
    }

    /// Charges a request with additional memory.
    pub(crate) fn charge(&mut self, id: u64, bytes: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.charged_bytes += bytes;
            self.recount(id);
        }
    }

    /// A change waits for its range, or no longer.
    pub(crate) fn barred(&mut self, id: u64, waits: bool) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.barred = if waits { conn.barred + 1 } else { conn.barred - 1 };
            self.touch(id);
        }
    }

    /// Schedules a request's next piece, to begin in a turn of its connection. Returns `false` if the client has
    /// disconnected.
    pub(crate) fn piece_due(&mut self, id: u64, client: u64) -> bool {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.dead) else { return false };
        conn.due.push_back(client);
        self.touch(id);
        true
    }

    /// Returns the connections abandoned since the last call, if they have requests, and their requests without a
    /// started next piece.
    pub(crate) fn take_given_up(&mut self) -> (zc_core::Set<u64>, Vec<u64>) {
        if self.given_up.is_empty() {
            return (zc_core::Set::default(), Vec::new());
        }
        (std::mem::take(&mut self.given_up), std::mem::take(&mut self.given_up_pieces))
    }

    /// Ends a request, releasing this memory and these served bytes.
    pub(crate) fn end(&mut self, conn: u64, request: Request, held: (u64, u64), answer: Answer<'_>) {
        let (charged_bytes, served_bytes) = held;
        let answer = self.fitting(conn, charged_bytes, answer);
        self.shares.served(served_bytes);
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.charged_bytes -= charged_bytes;
            conn.serving_bytes -= served_bytes;
        }
        self.answer(conn, request, answer);
        self.recount(conn);
    }

    /// Returns the reply to a request that was charged with `charged_bytes`. Bytes in larger memory are copied, if the
    /// connection may not hold the difference.
    fn fitting<'a>(&self, id: u64, charged_bytes: u64, answer: Answer<'a>) -> Answer<'a> {
        let Answer::Read { bytes, held_bytes } = &answer else { return answer };
        let more_bytes = held_bytes.saturating_sub(charged_bytes);
        let may_hold = |conn: &Conn| self.shares.may_hold(self.division(), &conn.holder(id), more_bytes);
        if more_bytes == 0 || self.conns.get(&id).is_none_or(may_hold) {
            return answer;
        }
        let copy = AlignedBuf::from(bytes.bytes());
        Answer::Read { held_bytes: u64_from_usize(copy.held_bytes()), bytes: Segment::whole(copy) }
    }

    fn answer(&mut self, id: u64, request: Request, answer: Answer<'_>) {
        let wanted = match answer {
            Answer::Status { .. } => self.wanted(id, &request),
            _ => Vec::new(),
        };
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.dead) else { return };
        match answer {
            Answer::Read { bytes, held_bytes } => conn.reply_read(request, bytes, held_bytes),
            Answer::Status { cache, origin } => {
                let mut extents = status::extents(wanted, &request, cache, origin);
                let of = |context: u32| {
                    let found = extents.iter_mut().find(|(id, _)| *id == context);
                    found.map(|(_, extents)| std::mem::take(extents)).unwrap_or_default()
                };
                let (session, head) = conn.reply();
                session.reply_block_status(request, of, head);
            }
            Answer::Done => {
                let (session, head) = conn.reply();
                session.reply_done(request, head);
            }
            Answer::Failed(kind) => {
                // Origins support every request except fast zeroing in some way.
                let is_slow = kind == ErrorKind::Unsupported && request.fast_zero();
                let code = if is_slow { ErrorCode::NotSup } else { ErrorCode::from(kind) };
                let (session, head) = conn.reply();
                session.reply_error(request, code, &kind.to_string(), head);
            }
        }
        self.touch(id);
    }

    /// Returns the contexts of a BLOCK_STATUS: id, and `true` for `base:allocation`.
    pub(crate) fn wanted(&self, conn: u64, request: &Request) -> Vec<(u32, bool)> {
        let contexts = self.conns.get(&conn).map_or(&[][..], |conn| conn.session.contexts());
        let wanted = contexts.iter().filter(|(id, _)| request.wants_context(*id));
        wanted.map(|(id, name)| (*id, name == zc_nbd::proto::BASE_ALLOCATION)).collect()
    }
}
