//! NBD codec and session machines without I/O.
//!
//! Job: both sides of the NBD protocol (NetworkBlockDevice/nbd, doc/proto.md) as pure state machines: received bytes
//! in, events and bytes to send out. A driver with sockets, an in-memory test and a fuzzer use the same code.
//! [`server::ServerSession`] serves exports, [`client::ClientSession`] uses one, [`wire`] has the messages,
//! [`uri`] the addresses.
//!
//! Invariants: payload bytes of READ and WRITE never pass through a session, so nothing is copied twice; buffers,
//! counts and lengths are bounded ([`proto::limits`], [`server::ServerLimits`]) and checked before anything is
//! allocated; no input makes the crate panic. Misuse by the driver (answering with data outside the request) does.
//!
//! What it does not do: sockets, threads, clocks, retries, TLS.
//!
//! | part of the protocol | server | client |
//! | --- | --- | --- |
//! | fixed newstyle, `NO_ZEROES` | yes | yes, also servers without them |
//! | oldstyle handshake | no (obsolete) | no |
//! | `EXPORT_NAME` | yes | as fallback for `GO` |
//! | `GO`, with `INFO_EXPORT`, `NAME`, `DESCRIPTION`, `BLOCK_SIZE` | yes | yes |
//! | `INFO` | yes | no: `GO` tells the same |
//! | `LIST`, `ABORT` | yes | yes |
//! | `STRUCTURED_REPLY` | yes | yes |
//! | `LIST_META_CONTEXT` | yes | no |
//! | `SET_META_CONTEXT`, `BLOCK_STATUS`, any contexts the driver names | yes | yes |
//! | `EXTENDED_HEADERS` | yes, off by default: tried with qemu 10.0 only, not with libnbd | same |
//! | `BLOCK_STATUS_PAYLOAD` | no: refused with `EINVAL` | no |
//! | `STARTTLS` | no: `ERR_UNSUP` | no |
//! | `READ` with holes, `DF`, error chunks with text | yes | yes |
//! | `WRITE`, `FLUSH`, `FUA`, `TRIM`, `CACHE`, `DISC` | yes | yes |
//! | `WRITE_ZEROES` with `NO_HOLE`, `FAST_ZERO` | yes | yes |
//! | minimum block above 1 | enforced if the export says so | obeyed, no read-modify-write |
//! | `RESIZE` (experimental) | no | no |
#![forbid(unsafe_code)]

pub mod client;
pub mod proto;
pub mod server;
mod stream;
pub mod uri;
pub mod wire;

pub use proto::ErrorCode;
pub use stream::Need;
