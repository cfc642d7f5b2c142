//! The ublk front end: `/dev/ublkbN`, a block device of the kernel served from user space.
//!
//! Job: the kernel interface and nothing else. [`Controller`] adds, starts, stops, recovers and removes devices;
//! [`Server`] fetches requests of a device and completes them, as a state machine whose operations run on the driver's
//! ring; [`preflight`] detects missing requirements; [`registration`] maps devices to volumes; [`guard`] prepares a
//! process to serve file systems.
//!
//! Invariants:
//! - Every control command has a deadline. One that times out is reported, and its memory leaked.
//! - Every tag that the kernel issues is completed exactly once, also after errors.
//! - Memory that the kernel may touch belongs to the operation in the ring.
//! - Sizes and offsets of the kernel interface are asserted at compile time.
//!
//! Out of scope: caching, threads, or waiting on the data path. It uses the ioctl-encoded commands only; Linux
//! 6.5 is the oldest kernel with all it needs.
//!
//! Source: the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`.
//!
//! This crate has unsafe code in `control` and `device`, each with its reason for soundness, and in `guard`.

mod control;
mod device;
mod error;
pub mod guard;
pub mod limits;
mod options;
mod preflight;
mod recovery;
pub mod registration;
mod request;
mod server;
mod uapi;

pub use control::Controller;
pub use device::CharDevice;
pub use error::UblkError;
pub use options::{Attributes, CopyMode, DeviceInfo, DeviceOptions, DeviceState, Features};
pub use preflight::{Driver, Preflight, driver, preflight};
pub use recovery::{ProcessState, holder_of};
pub use request::{Request, RequestOp};
pub use server::{Server, TagAction};
