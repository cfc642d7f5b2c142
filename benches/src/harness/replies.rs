//! Replies of a server that only the benchmarks have: all of a turn leave in one send.

use zc_io::{Operation, Segment, SharedBuf, SharedFd};

/// Replies that a socket's buffer is likely to take at once, in bytes.
const QUICK_SEND_BYTES: usize = 16 << 10;

/// Replies of a connection that were not sent.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// Bytes of the last ones, to be appended to.
    pub(crate) heads: Vec<u8>,
    segments: Vec<Segment>,
    is_sending: bool,
}

impl Replies {
    /// Appends data after the header.
    pub(crate) fn push_data(&mut self, data: SharedBuf, len_bytes: usize) {
        self.close();
        self.push(Segment::new(data, 0..len_bytes));
    }

    /// A whole reply, whatever its place among the others.
    pub(crate) fn push(&mut self, segment: Segment) {
        self.segments.push(segment);
    }

    /// Returns one send with all replies, with `true` if it is small enough to complete during submission. `None`
    /// while another is in flight.
    pub(crate) fn send(&mut self, fd: &SharedFd) -> Option<(Operation, bool)> {
        if self.is_sending {
            return None;
        }
        self.close();
        if self.segments.is_empty() {
            return None;
        }
        self.is_sending = true;
        let segments = std::mem::take(&mut self.segments);
        let is_quick = segments.iter().map(Segment::len_bytes).sum::<usize>() <= QUICK_SEND_BYTES;
        Some((Operation::Send { fd: SharedFd::clone(fd), segments }, is_quick))
    }

    /// The send has ended.
    pub(crate) const fn sent(&mut self) {
        self.is_sending = false;
    }

    fn close(&mut self) {
        if !self.heads.is_empty() {
            self.segments.push(Segment::whole(&self.heads[..]));
            self.heads.clear();
        }
    }
}
