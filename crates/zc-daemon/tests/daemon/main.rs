//! The daemon in process, over real files, a Unix socket and its own client.
#![expect(clippy::unwrap_used, reason = "tests")]

mod control;
mod faults;
mod limits;
mod raw;
mod restart;
mod rig;
mod serving;
mod shares;
mod tls;
