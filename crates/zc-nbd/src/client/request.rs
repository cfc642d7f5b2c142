//! The client's requests.
//!
//! Job: encode requests that the export allows and remember them.
//!
//! Invariants: nothing is sent that the server did not offer or that lies outside the export.
//!
//! It does not split or align; the caller obeys [`super::RemoteExport::max_bytes`] and `min_bytes`.

use super::pending::Pending;
use super::{ClientSession, Phase};
use crate::proto::{command, command_flag, tx_flag};
use crate::wire::{HeaderStyle, RequestHeader, StatusFilter};

/// Reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The handshake is not done, or the session is over.
    #[error("NBD request: the connection is not ready")]
    NotReady,
    /// The server shuts down: [`ClientSession::disconnect`] is due.
    #[error("NBD request: the server is shutting down; disconnect")]
    Stopping,
    /// As many requests as configured are in flight.
    #[error("NBD request: too many requests are in flight; wait for a reply")]
    TooMany,
    /// The range is empty or not inside the export.
    #[error("NBD request: the range is empty or beyond the end of the export")]
    Range,
    /// The range is not a multiple of the export's minimum block size.
    #[error("NBD request: the range is not aligned to the server's minimum block size")]
    Alignment,
    /// The length is beyond the largest payload, or beyond 32 bits without extended headers.
    #[error("NBD request: the range is longer than the server allows; split it")]
    TooLong,
    /// The export is read-only.
    #[error("NBD request: the export is read-only")]
    ReadOnly,
    /// A context is not negotiated, repeated, or none is named.
    #[error("NBD request: a context is not negotiated or named twice, or none is named")]
    Context,
    /// The server does not offer the command or a flag.
    #[error("NBD request: the server does not offer this command or flag")]
    NotOffered,
}

impl ClientSession {
    /// Requests data. `flags`: `DF`, `FUA`. Returns the request's cookie.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn read(
        &mut self,
        offset: u64,
        length: u32,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        self.request(command::READ, offset, length.into(), flags, out)
    }

    /// Appends the header of a write; the caller sends `length` payload bytes right behind it. `flags`: `FUA`.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn write(
        &mut self,
        offset: u64,
        length: u32,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        self.request(command::WRITE, offset, length.into(), flags, out)
    }

    /// Makes every write replied to so far durable.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn flush(&mut self, out: &mut Vec<u8>) -> Result<u64, RequestError> {
        self.request(command::FLUSH, 0, 0, 0, out)
    }

    /// Discards a range. `flags`: `FUA`.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn trim(
        &mut self,
        offset: u64,
        length: u64,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        self.request(command::TRIM, offset, length, flags, out)
    }

    /// Zeroes a range. `flags`: `FUA`, `NO_HOLE`, `FAST_ZERO`.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn write_zeroes(
        &mut self,
        offset: u64,
        length: u64,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        self.request(command::WRITE_ZEROES, offset, length, flags, out)
    }

    /// Requests a prefetch of a range.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn cache(&mut self, offset: u64, length: u64, out: &mut Vec<u8>) -> Result<u64, RequestError> {
        self.request(command::CACHE, offset, length, 0, out)
    }

    /// Requests the extents of a range in every negotiated context. `flags`: `REQ_ONE`.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn block_status(
        &mut self,
        offset: u64,
        length: u64,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        let cookie = self.request(command::BLOCK_STATUS, offset, length, flags, out)?;
        if let Some(pending) = self.pending.get_mut(&cookie) {
            pending.contexts_due = self.contexts.iter().map(|(id, _)| *id).collect();
        }
        Ok(cookie)
    }

    /// As [`ClientSession::block_status`], of some of the negotiated contexts only, by their ids. Servers offer it
    /// with [`tx_flag::BLOCK_STATUS_PAYLOAD`].
    ///
    /// # Errors
    /// See [`RequestError`]; nothing was sent then.
    pub fn block_status_of(
        &mut self,
        contexts: &[u32],
        offset: u64,
        length: u64,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        let number = command::BLOCK_STATUS;
        self.check(number, offset, length, flags)?;
        let offered = self.export.as_ref().is_some_and(|export| export.offers(tx_flag::BLOCK_STATUS_PAYLOAD));
        if !offered || self.style != HeaderStyle::Extended {
            return Err(RequestError::NotOffered);
        }
        let is_known = |id: &u32| self.contexts.iter().any(|(known, _)| known == id);
        let repeats = contexts.iter().enumerate().any(|(at, id)| contexts[..at].contains(id));
        if contexts.is_empty() || repeats || !contexts.iter().all(is_known) {
            return Err(RequestError::Context);
        }
        let filter = StatusFilter { length, contexts: contexts.to_vec() };
        let payload = zc_core::u64_from_usize(StatusFilter::body_bytes(contexts.len()));
        let cookie = self.take_cookie();
        let flags_sent = flags | command_flag::PAYLOAD_LEN;
        RequestHeader { flags: flags_sent, command: number, cookie, offset, length: payload }
            .encode(self.style, out);
        filter.encode(out);
        let mut pending = Pending::new(number, flags, offset, length);
        pending.contexts_due = filter.contexts;
        self.pending.insert(cookie, pending);
        Ok(cookie)
    }

    /// Sends a disconnect. Replies to requests in flight still arrive; no further request is sent.
    ///
    /// # Errors
    /// [`RequestError::NotReady`].
    pub fn disconnect(&mut self, out: &mut Vec<u8>) -> Result<(), RequestError> {
        if self.export.take().is_none() || matches!(self.phase, Phase::Ended) {
            return Err(RequestError::NotReady);
        }
        let header = RequestHeader { flags: 0, command: command::DISC, cookie: 0, offset: 0, length: 0 };
        header.encode(self.style, out);
        Ok(())
    }

    fn request(
        &mut self,
        number: u16,
        offset: u64,
        length: u64,
        flags: u16,
        out: &mut Vec<u8>,
    ) -> Result<u64, RequestError> {
        self.check(number, offset, length, flags)?;
        let cookie = self.take_cookie();
        let extended_write = self.style == HeaderStyle::Extended && number == command::WRITE;
        let wire_flags = if extended_write { flags | command_flag::PAYLOAD_LEN } else { flags };
        let header = RequestHeader { flags: wire_flags, command: number, cookie, offset, length };
        header.encode(self.style, out);
        self.pending.insert(cookie, Pending::new(number, flags, offset, length));
        Ok(cookie)
    }

    fn take_cookie(&mut self) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie = cookie.wrapping_add(1);
        cookie
    }

    fn check(&self, number: u16, offset: u64, length: u64, flags: u16) -> Result<(), RequestError> {
        let Some(export) = &self.export else { return Err(RequestError::NotReady) };
        if matches!(self.phase, Phase::Ended) {
            return Err(RequestError::NotReady);
        }
        if self.stopping {
            return Err(RequestError::Stopping);
        }
        if self.pending.len() >= self.config.in_flight {
            return Err(RequestError::TooMany);
        }
        let (wanted, legal) = match number {
            command::READ => (0, command_flag::DF),
            command::WRITE => (0, 0),
            command::FLUSH => (tx_flag::SEND_FLUSH, 0),
            command::TRIM => (tx_flag::SEND_TRIM, 0),
            command::CACHE => (tx_flag::SEND_CACHE, 0),
            command::WRITE_ZEROES => {
                (tx_flag::SEND_WRITE_ZEROES, command_flag::NO_HOLE | command_flag::FAST_ZERO)
            }
            _ => (0, command_flag::REQ_ONE),
        };
        let offered = [
            (command_flag::FUA, tx_flag::SEND_FUA),
            (command_flag::DF, tx_flag::SEND_DF),
            (command_flag::FAST_ZERO, tx_flag::SEND_FAST_ZERO),
        ];
        let missing = offered.iter().any(|(flag, bit)| flags & flag != 0 && !export.offers(*bit));
        let unknown = flags & !(legal | command_flag::FUA) != 0;
        let no_context = number == command::BLOCK_STATUS && self.contexts.is_empty();
        if missing || unknown || no_context || !export.offers(wanted) {
            return Err(RequestError::NotOffered);
        }
        let writes = matches!(number, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if writes && export.is_read_only() {
            return Err(RequestError::ReadOnly);
        }
        if number == command::FLUSH {
            return Ok(());
        }
        self.check_range(number, offset, length)
    }

    fn check_range(&self, number: u16, offset: u64, length: u64) -> Result<(), RequestError> {
        let Some(export) = &self.export else { return Err(RequestError::NotReady) };
        let inside = offset.checked_add(length).is_some_and(|end| end <= export.size_bytes);
        if length == 0 || !inside {
            return Err(RequestError::Range);
        }
        let min = u64::from(export.min_bytes);
        if !offset.is_multiple_of(min) || !length.is_multiple_of(min) {
            return Err(RequestError::Alignment);
        }
        let has_payload = matches!(number, command::READ | command::WRITE);
        let most = match self.style {
            _ if has_payload => u64::from(export.max_bytes),
            HeaderStyle::Extended => u64::MAX,
            HeaderStyle::Simple | HeaderStyle::Structured => u32::MAX.into(),
        };
        if length > most { Err(RequestError::TooLong) } else { Ok(()) }
    }
}
