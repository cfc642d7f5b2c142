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
//! Out of scope: sockets, threads, clocks, retries, TLS records and certificates.
//!
//! | part of the protocol | server | client |
//! | --- | --- | --- |
//! | fixed newstyle, `NO_ZEROES` | yes | yes, also servers without them |
//! | oldstyle handshake | no (obsolete) | no |
//! | `EXPORT_NAME` | yes | as fallback for `GO` |
//! | `GO`, with `INFO_EXPORT`, `NAME`, `DESCRIPTION`, `BLOCK_SIZE` | yes | yes |
//! | `INFO` | yes | yes ([`client::Inquiry`]) |
//! | `LIST`, `ABORT` | yes | yes |
//! | `STRUCTURED_REPLY` | yes | yes |
//! | `LIST_META_CONTEXT` | yes | yes ([`client::Inquiry`]) |
//! | `SET_META_CONTEXT`, `BLOCK_STATUS`, any contexts the driver names | yes | yes |
//! | `EXTENDED_HEADERS` (branch `extension-ext-header`; tried with libnbd 1.24 and qemu 11.1) | yes | yes |
//! | `BLOCK_STATUS_PAYLOAD` | yes | yes |
//! | contexts with more than 32 bits of status | no | passed on |
//! | `STARTTLS` (off, allowed, required; rights per export) | yes | yes |
//! | `READ` with holes, `DF`, error chunks with text | yes | yes |
//! | `WRITE`, `FLUSH`, `FUA`, `TRIM`, `CACHE`, `DISC` | yes | yes |
//! | `WRITE_ZEROES` with `NO_HOLE`, `FAST_ZERO` | yes | yes |
//! | minimum block above 1 | enforced if the export says so | obeyed, no read-modify-write |
//! | `RESIZE` (experimental) | no | no |
//!
//! A client and a server joined in memory; a driver moves the same bytes through sockets (`examples/ram_server`):
//!
//! ```
//! use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession};
//! use zc_nbd::server::{BlockSizes, ExportFlags, ExportInfo, ServerConfig, ServerEvent, ServerSession};
//!
//! let exports = [ExportInfo {
//!     name: "disk".to_owned(),
//!     description: String::new(),
//!     size_bytes: 1 << 20,
//!     flags: ExportFlags { flush: true, ..ExportFlags::default() },
//!     blocks: BlockSizes::DEFAULT,
//!     contexts: Vec::new(),
//!     token: 7,
//! }];
//! let (mut up, mut down) = (Vec::new(), Vec::new());
//! let mut server = ServerSession::new(ServerConfig::default(), &mut down);
//! let mut client = ClientSession::new(ClientConfig { export: "disk".to_owned(), ..ClientConfig::default() });
//! let mut read = Vec::new();
//! loop {
//!     let received = std::mem::take(&mut down);
//!     let mut input = received.as_slice();
//!     let mut done = false;
//!     loop {
//!         read.extend_from_slice(client.take_payload(&mut input));
//!         match client.next_event(&mut input, &mut up)? {
//!             None => break,
//!             Some(ClientEvent::Ready) => {
//!                 client.read(4096, 512, 0, &mut up)?;
//!             }
//!             Some(ClientEvent::Done { result, .. }) => done = result.is_ok(),
//!             Some(_) => {}
//!         }
//!     }
//!     if done {
//!         break;
//!     }
//!     let received = std::mem::take(&mut up);
//!     let mut input = received.as_slice();
//!     while let Some(event) = server.next_event(&mut input, exports.as_slice(), &mut down) {
//!         if let ServerEvent::Request(request) = event {
//!             let length = request.length() as usize;
//!             server.reply_read(request, &mut down); // the header; the data follows
//!             down.resize(down.len() + length, 0xda);
//!         }
//!     }
//! }
//! assert_eq!(read, [0xda; 512]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Costs (`cargo bench -p zc-bench --bench nbd`, criterion's estimates on one virtual CPU of a busy machine, so with
//! an error of ten to twenty percent):
//!
//! | | simple | structured | extended |
//! | --- | --- | --- | --- |
//! | a READ parsed and its reply's header written | 172 ns | 128 ns | 290 ns |
//! | a reply with 4 KiB decoded by the client | 142 ns | 385 ns | 400 ns |
//! | a request header alone decoded | 28 ns | 28 ns | 35 ns |
//!
//! A BLOCK_STATUS parsed and answered takes 250 ns with one run, 15 ns a run with 1,024 runs and 58 ns a run with
//! 65,536.
//!
#![doc = include_str!("../RULES.md")]
#![forbid(unsafe_code)]

pub mod client;
pub mod proto;
pub mod server;
mod stream;
pub mod uri;
pub mod wire;

pub use proto::ErrorCode;
pub use stream::Need;
