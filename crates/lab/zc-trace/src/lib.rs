//! Block traces: what a machine read and wrote, and when.
//!
//! Job: read traces of many formats, compressed or not, one request at a time ([`Reader`]), on a
//! thread of its own if that is wanted ([`alongside`]); tell what is in
//! one ([`Info`]); read what the daemon records ([`zc_recording`]) as well; make new ones from a template
//! ([`storm`]), from nothing ([`workload`]), of several ([`compose`]) or of a database that has real bytes
//! too ([`tpch`]); turn fingerprints back into bytes that compress as the originals did ([`contents`]).
//!
//! Invariants: no byte of a trace makes it panic or decides how much memory is spent: lines, decoders' windows and
//! counters are bounded ([`limits`]), what exceeds them is a bad line or an error. The same seed gives the same trace
//! and the same bytes on every machine.
//!
//! It does not hold contents (a trace has fingerprints and compressed sizes, never bytes), or replay.
//!
//! Times are relative to the first request. Offsets and lengths are in bytes, whatever the format counts in.
#![forbid(unsafe_code)]

mod alongside;
mod blkparse;
pub mod compose;
mod compressed;
pub mod contents;
mod detect;
mod distinct;
mod error;
mod fields;
mod fiu;
mod format;
mod info;
mod input;
mod iolog;
pub mod joined;
pub mod limits;
mod lines;
mod reader;
mod recorded;
mod request;
pub mod storm;
mod synthetic;
mod text;
pub mod tpch;
mod values;
pub mod workload;

pub use alongside::{alongside, thread_time};
pub use distinct::Distinct;
pub use error::TraceError;
pub use format::Format;
pub use info::{Info, Tally};
pub use reader::{BadLine, DeviceChoice, Options, Reader, Recorded};
pub use request::{Content, Op, Request};
pub use synthetic::{Boot, boot};
