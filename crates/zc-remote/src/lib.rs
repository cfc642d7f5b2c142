//! A remote NBD export as an origin, without I/O.
//!
//! Job: carry out the requests of one volume on one export of an NBD server, over connections that may break
//! ([`Remote`]). A driver owns the socket, the clock and the memory of reads.
//!
//! ```text
//! submit, connected, received, closed, tick  ->  Remote  ->  next_effect: Connect, HangUp, Close, Done, Up, Down
//!                                                        ->  take_output: bytes to be sent
//! ```
//!
//! After each input the driver takes the effects and the output. Read data goes to the driver's [`Sink`] as it arrives.
//!
//! Invariants: each request is answered once. The promises across broken connections and restarts of the server stand
//! below, with the argument.
//!
//! Out of scope: ordering requests (of two that overlap, of which one is a change, the caller has one in flight),
//! resolving names, encryption.
#![doc = include_str!("../CONSISTENCY.md")]
#![forbid(unsafe_code)]

mod holes;
pub mod limits;
mod link;
mod owed;
mod pause;
mod remote;
mod request;
mod samples;

pub use remote::{Effect, Remote, Settings, Snapshot};
pub use request::{ConnId, Failure, Request, RequestId, Run, Status};

/// Receiver of read data.
pub trait Sink {
    /// Bytes of a read, from `at` on, counted from its first byte.
    fn data(&mut self, request: RequestId, at: u64, bytes: &[u8]);
    /// Zeros of a read.
    fn zeros(&mut self, request: RequestId, at: u64, len_bytes: u64);
}
