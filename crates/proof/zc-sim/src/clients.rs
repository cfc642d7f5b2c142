//! Clients: requests that wait for their answer, and the numbers of requests, buffers and contents.
//!
//! Invariants: a number is used once in a run, over crashes too.

use core::ops::Range;
use std::collections::BTreeMap;

use zc_core::{BufId, ReqId};

use crate::content::{self, SECTOR};

/// A request that was not answered yet.
#[derive(Debug)]
pub(crate) struct Client {
    volume: usize,
    offset: usize,
    len: usize,
    kind: ClientKind,
    start: u64,
    /// The volume may have written back when it was submitted.
    is_buffered: bool,
    /// The volume's settings, if they say that an answer means durable.
    settled: Option<u64>,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientKind {
    Read(BufId),
    Write { fua: bool },
    Clear { trim: bool, fua: bool },
    Flush,
    Hint,
}

impl ClientKind {
    /// Returns `true` for requests that change contents.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Clear { .. })
    }
}

impl Client {
    /// A request of so many bytes from there, issued at `start`.
    pub(crate) const fn new(volume: usize, offset: usize, len: usize, kind: ClientKind, start: u64) -> Self {
        Self { volume, offset, len, kind, start, is_buffered: false, settled: None }
    }

    /// `is_buffered`: the volume may write back. `settled`: the volume's settings, if an answer means durable by them.
    pub(crate) const fn under(self, is_buffered: bool, settled: Option<u64>) -> Self {
        Self { is_buffered, settled, ..self }
    }

    pub(crate) const fn volume(&self) -> usize {
        self.volume
    }

    /// First byte of the volume.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of the volume.
    pub(crate) const fn bytes(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// Sectors of the volume.
    pub(crate) const fn sectors(&self) -> Range<usize> {
        self.offset / SECTOR..self.offset / SECTOR + self.len / SECTOR
    }

    pub(crate) const fn kind(&self) -> ClientKind {
        self.kind
    }

    /// When it was issued.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    pub(crate) const fn is_buffered(&self) -> bool {
        self.is_buffered
    }

    pub(crate) const fn settled(&self) -> Option<u64> {
        self.settled
    }

    /// Returns `true` if it may change contents of a volume.
    fn may_write(&self, volume: usize) -> bool {
        self.volume == volume && !matches!(self.kind, ClientKind::Read(_) | ClientKind::Hint)
    }
}

/// All requests that wait.
#[derive(Debug)]
pub(crate) struct Clients {
    waiting: BTreeMap<u64, Client>,
    /// The next number of a request or a buffer.
    next: u64,
    /// The newest content that one write alone has.
    content: u64,
}

impl Clients {
    pub(crate) const fn new() -> Self {
        Self { waiting: BTreeMap::new(), next: 1, content: content::POOL }
    }

    /// Returns the clients for a copy of the machine, none of which waits.
    pub(crate) const fn fork(&self) -> Self {
        Self { waiting: BTreeMap::new(), next: self.next, content: self.content }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn waits(&self, req: ReqId) -> bool {
        self.waiting.contains_key(&req.0)
    }

    /// The process has ended: no request is answered any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// The number that comes next.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) const fn new_buf(&mut self) -> BufId {
        self.next += 1;
        BufId(self.next)
    }

    /// The content of a sector that no other write has.
    pub(crate) const fn new_content(&mut self) -> u64 {
        self.content += 1;
        self.content
    }

    /// So many contents in a row: the first of them.
    pub(crate) const fn new_contents(&mut self, sectors: usize) -> u64 {
        let first = self.content + 1;
        self.content += sectors as u64;
        first
    }

    /// A client asks, and waits.
    pub(crate) fn ask(&mut self, client: Client) -> ReqId {
        let req = self.next;
        self.next += 1;
        self.waiting.insert(req, client);
        ReqId(req)
    }

    /// A client is answered.
    pub(crate) fn take(&mut self, req: ReqId) -> Option<Client> {
        self.waiting.remove(&req.0)
    }

    /// When the oldest read that waits was issued.
    pub(crate) fn oldest_read(&self) -> u64 {
        let reads = self.waiting.values().filter(|client| matches!(client.kind, ClientKind::Read(_)));
        reads.map(|client| client.start).min().unwrap_or(u64::MAX)
    }

    /// Returns `true` if a request waits that may change contents of the volume.
    pub(crate) fn may_write(&self, volume: usize) -> bool {
        self.waiting.values().any(|client| client.may_write(volume))
    }

    /// A volume goes to write-back: what waits or is flushed meanwhile may be served so.
    pub(crate) fn writes_back(&mut self, volume: usize) {
        let clients = self.waiting.values_mut().filter(|client| client.volume == volume);
        clients.for_each(|client| client.is_buffered = true);
    }

    /// A request that no manager had is issued again now. Returns the request, and when it was issued before.
    pub(crate) fn issue_again(&mut self, req: ReqId, now: u64) -> Option<(&mut Client, u64)> {
        let client = self.waiting.get_mut(&req.0)?;
        let issued = core::mem::replace(&mut client.start, now);
        Some((client, issued))
    }
}

impl Client {
    /// The volume may write back now.
    pub(crate) const fn may_be_buffered(&mut self, is_buffered: bool) {
        self.is_buffered |= is_buffered;
    }
}
