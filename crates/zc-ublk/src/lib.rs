//! The ublk front end: `/dev/ublkbN`, a block device of the kernel that is served from user space.
//!
//! Job: the kernel interface and nothing else. [`Controller`] adds, starts, stops, recovers and removes devices;
//! [`Server`] takes requests from a device and gives results back, as a machine whose operations run on the ring of
//! whoever drives it; [`preflight`] says what is missing before anything is tried; [`registration`] keeps which device
//! belongs to which volume; [`guard`] makes a process fit to stand below a file system.
//!
//! Invariants:
//! - Every control command has a deadline. One that the kernel does not end is reported, and its memory leaked.
//! - Every tag that the kernel hands out is given back exactly once, also after errors.
//! - Memory that the kernel may touch belongs to the operation in the ring.
//! - Sizes and offsets of everything that crosses the border are asserted when this is compiled.
//!
//! Out of scope: caching, threads, or waiting on the data path. It uses the ioctl-encoded commands only; Linux
//! 6.5 is the oldest kernel with all it needs.
//!
//! Source of the facts: the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`.
//!
//! This crate has unsafe code in `control` and `device`, each place with the reason why it is sound, and in `guard`.

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
pub use server::{Server, Step};
