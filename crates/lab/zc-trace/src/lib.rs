//! Block traces: timed reads and writes of machines.
//!
//! Job: read traces of many formats, compressed or not, one request at a time ([`Reader`]), optionally on a separate
//! thread ([`alongside`]); summarise one ([`Info`]); read the daemon's recordings ([`zc_recording`]) as well; make new
//! ones from a template ([`storm`]), from a model ([`workload`]), from several ([`compose`]) or from a database with
//! real bytes ([`tpch`]); turn fingerprints into bytes with the compressibility of the originals ([`contents`]).
//!
//! Invariants: no byte of a trace causes a panic or determines the size of an allocation: lines, decoders' windows and
//! counters are bounded ([`limits`]), and data beyond them is a bad line or an error. The same seed yields the same
//! trace and the same bytes on every machine.
//!
//! It does not hold contents (a trace has fingerprints and compressed sizes, never bytes), or replay.
//!
//! Times are relative to the first request. Offsets and lengths are in bytes, for every unit of the format.
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
