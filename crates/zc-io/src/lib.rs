//! io_uring, aligned buffers and block devices: the kernel interfaces of zcached's data path.
//!
//! Job: give the data plane one ring ([`Ring`]) whose operations own their memory, its buffers ([`AlignedBuf`],
//! [`SharedBuf`], [`Arena`] with its leases, [`BufPool`]), wake-ups from other threads ([`EventFd`]), jobs for them
//! ([`JobQueue`]) and safely opened files and block devices ([`BlockFile`]).
//!
//! Invariants:
//! - Memory and descriptors of an operation belong to the ring from [`Ring::submit`] until its completion returns
//!   them; dropping the ring cancels and waits, and never frees memory that the kernel may still access.
//! - A success is complete: short reads and writes of files are continued, and a premature end of file is an error.
//!   Only a plain receive may return less than requested.
//! - Two leases of one [`Arena`] never overlap unless both only read; this is checked at run time, in release too.
//!
//! Out of scope: scheduling, retries of failed devices, checksums, protocols. It needs io_uring and has no other
//! backend; [`probe`] explains in one sentence why io_uring is unavailable.
//!
//! This is the one crate (besides the ublk front end) with unsafe code: in `buf`, `arena`, `slot`, `ring`, `heap`,
//! `inherited`, `ioctl` and `operation`, each with its reason for soundness.

mod arena;
mod below;
mod buf;
mod core_dump;
mod errno;
mod error;
mod event;
mod files;
mod heap;
mod in_use;
mod inherited;
mod ioctl;
mod jobs;
pub mod limits;
mod operation;
mod pmem;
mod poll;
mod pool;
mod ring;
#[cfg(test)]
mod ring_tests;
mod slot;

pub use arena::{Arena, Lease, ReadLease};
pub use below::{Stretch, lies_on};
pub use buf::{AlignedBuf, PAGE_BYTES, SharedBuf};
pub use core_dump::set_core_dumps;
pub use errno::name_errnos;
pub use error::{IoError, kind_of};
pub use event::{EventFd, Waker};
pub use files::{BlockFile, FileKind, Identity, OpenOptions, length_of};
pub use heap::give_heap_back;
pub use in_use::block_device_user;
pub use inherited::take_passed_sockets;
pub use jobs::{JobQueue, NextJob};
pub use operation::{
    CommandMemory, Completion, DeviceCommand, FallocateMode, Memory, Operation, Segment, SharedFd, Source,
    Target,
};
pub use pmem::is_persistent_memory;
pub use poll::PollStats;
pub use pool::{BufPool, Owner, PoolUse};
pub use ring::{Features, Gather, Ring, RingFull, RingOptions, probe};
