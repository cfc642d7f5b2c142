//! io_uring, aligned buffers and block devices: everything of zcached that talks to the kernel about data.
//!
//! Job: give the data plane one ring ([`Ring`]) whose operations own their memory, the buffers it works on
//! ([`AlignedBuf`], [`SharedBuf`], [`Arena`] with its leases, [`BufPool`]), wake-ups from other threads
//! ([`EventFd`]), jobs for them ([`JobQueue`]) and carefully opened files and block devices ([`BlockFile`]).
//!
//! Invariants:
//! - Memory and descriptors of an operation belong to the ring from [`Ring::submit`] until the completion hands
//!   them back; dropping the ring cancels and waits, it never frees memory that the kernel may still touch.
//! - A success is a whole success: short reads and writes of files are continued, a file that ends too early is an
//!   error. Only a plain receive may bring less than asked.
//! - Two leases of one [`Arena`] never overlap unless both only read; this is checked at run time, in release too.
//!
//! Out of scope: scheduling, retries of failed devices, checksums, protocols. It needs io_uring and has no
//! other engine; [`probe`] tells in one sentence why it cannot be used where it cannot.
//!
//! This is the one crate (besides the ublk front end) with unsafe code: in `buf`, `arena`, `slot`, `ring`, `heap`,
//! `inherited`, `ioctl` and `operation`, each place with the reason why it is sound.

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
