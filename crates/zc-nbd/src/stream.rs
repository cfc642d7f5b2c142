//! Input handling shared by both state machines.
//!
//! Invariants: no byte beyond the requested ones is consumed. It does no I/O.

/// Need of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// More bytes from the peer, through `next_event`.
    Input,
    /// This many payload bytes, straight into the driver's buffer.
    Payload {
        /// Bytes that are missing.
        bytes: u64,
    },
    /// Nothing from the peer: answer requests, send output or start TLS first, then call `next_event` again.
    Replies,
    /// Nothing: the session is over or the peer has announced its departure.
    Nothing,
}

/// Moves bytes from `input` to `partial` until it holds `wanted`; returns `true` if it does.
pub(crate) fn fill(partial: &mut Vec<u8>, input: &mut &[u8], wanted: usize) -> bool {
    let missing = wanted.saturating_sub(partial.len());
    let (head, rest) = input.split_at(missing.min(input.len()));
    partial.extend_from_slice(head);
    *input = rest;
    partial.len() >= wanted
}

/// Cuts up to `most` bytes off the front of `input`.
pub(crate) fn cut<'a>(input: &mut &'a [u8], most: u64) -> &'a [u8] {
    let count = zc_core::u64_from_usize(input.len()).min(most);
    let (head, rest) = input.split_at(zc_core::usize_from_u64(count));
    *input = rest;
    head
}
