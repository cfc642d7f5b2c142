//! The engine in process, over real files, a Unix socket and its own client.

mod control;
mod rig;
mod serving;
mod restart;
