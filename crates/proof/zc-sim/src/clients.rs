//! Clients: unanswered requests, and the numbers of requests, buffers and contents.
//!
//! Invariant: a number is used once in a run, across crashes too.

use core::ops::Range;
use std::collections::BTreeMap;

use zc_core::{BufId, ReqId};

use crate::content::{self, SECTOR};

/// Unanswered request.
#[derive(Debug)]
pub(crate) struct Client {
    volume: usize,
    offset: usize,
    len: usize,
    kind: ClientKind,
    start: u64,
    /// The volume may have been in write-back when the request was submitted.
    is_buffered: bool,
    /// Number of the volume's settings if, under them, an answer means durable.
    settled: Option<u64>,
}

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
    /// Creates a request issued at `start`; offset and length are in bytes.
    pub(crate) const fn new(volume: usize, offset: usize, len: usize, kind: ClientKind, start: u64) -> Self {
        Self { volume, offset, len, kind, start, is_buffered: false, settled: None }
    }

    /// Sets the volume's state: `is_buffered` if it may write back, and `settled` to the number of its settings if an
    /// answer means durable.
    pub(crate) const fn under(self, is_buffered: bool, settled: Option<u64>) -> Self {
        Self { is_buffered, settled, ..self }
    }

    pub(crate) const fn volume(&self) -> usize {
        self.volume
    }

    /// Returns the first byte in the volume.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the byte range in the volume.
    pub(crate) const fn bytes(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// Returns the sector range in the volume.
    pub(crate) const fn sectors(&self) -> Range<usize> {
        self.offset / SECTOR..self.offset / SECTOR + self.len / SECTOR
    }

    pub(crate) const fn kind(&self) -> ClientKind {
        self.kind
    }

    /// Returns the time of issue.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    pub(crate) const fn is_buffered(&self) -> bool {
        self.is_buffered
    }

    pub(crate) const fn settled(&self) -> Option<u64> {
        self.settled
    }

    /// Returns `true` if the request may change contents of the volume.
    fn may_write(&self, volume: usize) -> bool {
        self.volume == volume && !matches!(self.kind, ClientKind::Read(_) | ClientKind::Hint)
    }
}

/// All unanswered requests.
#[derive(Debug)]
pub(crate) struct Clients {
    waiting: BTreeMap<u64, Client>,
    /// Next number of a request or a buffer.
    next: u64,
    /// Newest content that is unique to one write.
    content: u64,
}

impl Clients {
    pub(crate) const fn new() -> Self {
        Self { waiting: BTreeMap::new(), next: 1, content: content::POOL }
    }

    /// Returns the clients for a copy of the machine, with no request outstanding.
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

    /// Drops all requests: the process has ended.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    pub(crate) const fn new_buf(&mut self) -> BufId {
        self.next += 1;
        BufId(self.next)
    }

    /// Returns new sector content that no other write uses.
    pub(crate) const fn new_content(&mut self) -> u64 {
        self.content += 1;
        self.content
    }

    /// Returns the first of `sectors` consecutive new contents.
    pub(crate) const fn new_contents(&mut self, sectors: usize) -> u64 {
        let first = self.content + 1;
        self.content += sectors as u64;
        first
    }

    /// Records a client's request as outstanding.
    pub(crate) fn ask(&mut self, client: Client) -> ReqId {
        let req = self.next;
        self.next += 1;
        self.waiting.insert(req, client);
        ReqId(req)
    }

    /// Removes an answered request.
    pub(crate) fn take(&mut self, req: ReqId) -> Option<Client> {
        self.waiting.remove(&req.0)
    }

    /// Returns the issue time of the oldest outstanding read.
    pub(crate) fn oldest_read(&self) -> u64 {
        let reads = self.waiting.values().filter(|client| matches!(client.kind, ClientKind::Read(_)));
        reads.map(|client| client.start).min().unwrap_or(u64::MAX)
    }

    /// Returns `true` if an outstanding request may change contents of the volume.
    pub(crate) fn may_write(&self, volume: usize) -> bool {
        self.waiting.values().any(|client| client.may_write(volume))
    }

    /// Marks outstanding requests of a volume that enters write-back, since they may be served in that mode.
    pub(crate) fn writes_back(&mut self, volume: usize) {
        let clients = self.waiting.values_mut().filter(|client| client.volume == volume);
        clients.for_each(|client| client.is_buffered = true);
    }

    /// Reissues a request that no manager received. Returns the request and its former issue time.
    pub(crate) fn issue_again(&mut self, req: ReqId, now: u64) -> Option<(&mut Client, u64)> {
        let client = self.waiting.get_mut(&req.0)?;
        let issued = core::mem::replace(&mut client.start, now);
        Some((client, issued))
    }
}

impl Client {
    /// Records that the volume may write back now.
    pub(crate) const fn may_be_buffered(&mut self, is_buffered: bool) {
        self.is_buffered |= is_buffered;
    }
}
