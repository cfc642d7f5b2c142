//! Operations of a ring, with their memory.
//!
//! An [`Operation`] is moved into the ring and returned in its [`Completion`]: while it is in flight, only the kernel
//! accesses the memory it reads into, and no code can change the memory it writes from.

#![expect(unsafe_code, reason = "declares the constructor whose caller vouches for a device")]

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::{Lease, ReadLease};
use crate::buf::{AlignedBuf, SharedBuf};
use crate::event::EventFd;

/// Descriptor that stays open while an operation uses it.
#[derive(Debug, Clone)]
pub struct SharedFd {
    fd: Arc<OwnedFd>,
    waits: bool,
}

impl SharedFd {
    /// Creates a descriptor whose operations the kernel starts without blocking.
    #[must_use]
    pub fn new(fd: impl Into<OwnedFd>) -> Self {
        Self { fd: Arc::new(fd.into()), waits: false }
    }

    /// Creates the descriptor of a file. On some file systems (FUSE, NFS, SMB, Ceph, 9p) the kernel may block on a
    /// server during submission. Operations on these are executed by kernel workers, so that an unresponsive server
    /// delays no other operation of the ring.
    #[must_use]
    pub fn of_file(fd: impl Into<OwnedFd>) -> Self {
        let fd = fd.into();
        let waits = rustix::fs::fstatfs(&fd).is_ok_and(|info| waits_for_a_server(info.f_type));
        Self { fd: Arc::new(fd), waits }
    }

    /// Returns `true` if both are the same open file.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fd, &other.fd)
    }

    #[cfg(test)]
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.fd)
    }

    /// Returns `true` if a kernel worker must start its operations.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }
}

impl std::ops::Deref for SharedFd {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl std::os::fd::AsFd for SharedFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::os::fd::AsRawFd for SharedFd {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

/// Magic numbers of file systems (`statfs(2)`) that may block on a server.
const SERVED: [i64; 7] = [
    0x6573_5546, // FUSE
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x517b,      // SMB
    0x00c3_6400, // Ceph
    0x0102_1997, // 9p
];

fn waits_for_a_server(file_system: i64) -> bool {
    SERVED.contains(&file_system)
}

/// Memory that the kernel writes.
#[derive(Debug)]
pub enum Memory {
    /// A whole buffer.
    Buf(AlignedBuf),
    /// A range of an arena.
    Lease(Lease),
}

impl Memory {
    pub(crate) fn base(&self) -> NonNull<u8> {
        match self {
            Self::Buf(buf) => buf.base(),
            Self::Lease(lease) => lease.base(),
        }
    }

    pub(crate) const fn len_bytes(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len_bytes(),
            Self::Lease(lease) => lease.len_bytes(),
        }
    }
}

impl From<AlignedBuf> for Memory {
    fn from(buf: AlignedBuf) -> Self {
        Self::Buf(buf)
    }
}

impl From<Lease> for Memory {
    fn from(lease: Lease) -> Self {
        Self::Lease(lease)
    }
}

/// Destination of a read: a part of some memory.
#[derive(Debug)]
pub struct Target {
    memory: Memory,
    range: Range<usize>,
}

impl Target {
    /// Creates a target of the part `range` of `memory`.
    ///
    /// # Panics
    /// When the range does not lie inside the memory.
    #[must_use]
    pub fn new(memory: impl Into<Memory>, range: Range<usize>) -> Self {
        let memory = memory.into();
        assert_inside(&range, memory.len_bytes());
        Self { memory, range }
    }

    /// Creates a target of all of `memory`.
    #[must_use]
    pub fn whole(memory: impl Into<Memory>) -> Self {
        let memory = memory.into();
        let range = 0..memory.len_bytes();
        Self { memory, range }
    }

    /// Bytes to read.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.range.end - self.range.start
    }

    /// Returns the memory.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// The bytes of the target.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Buf(buf) => &buf[self.range.clone()],
            Memory::Lease(lease) => &lease[self.range.clone()],
        }
    }

    /// The bytes of the target, to be changed.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Buf(buf) => &mut buf[self.range.clone()],
            Memory::Lease(lease) => &mut lease[self.range.clone()],
        }
    }

    /// Changes the length of the target; its start is unchanged.
    ///
    /// # Panics
    /// When it would exceed the memory.
    pub fn set_len_bytes(&mut self, len_bytes: usize) {
        let range = self.range.start..self.range.start.saturating_add(len_bytes);
        assert_inside(&range, self.memory.len_bytes());
        self.range = range;
    }

    /// Returns `true` if address and length are multiples of `align_bytes`, as direct I/O requires.
    #[must_use]
    pub fn is_aligned(&self, align_bytes: usize) -> bool {
        self.rest(0).is_aligned(align_bytes)
    }

    /// Returns address and length of the rest after `done_bytes`.
    pub(crate) fn rest(&self, done_bytes: usize) -> Piece {
        Piece::new(self.memory.base(), &self.range, done_bytes)
    }
}

/// Memory that the kernel reads.
#[derive(Debug, Clone)]
pub enum Source {
    /// A frozen buffer.
    Shared(SharedBuf),
    /// A range of an arena that no lease writes.
    Lease(ReadLease),
    /// A few bytes, such as a reply header.
    Bytes(Arc<[u8]>),
}

impl Source {
    fn base(&self) -> NonNull<u8> {
        match self {
            Self::Shared(buf) => buf.base(),
            Self::Lease(lease) => lease.base(),
            Self::Bytes(bytes) => NonNull::from(&**bytes).cast(),
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::Shared(buf) => buf.len_bytes(),
            Self::Lease(lease) => lease.len_bytes(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl From<AlignedBuf> for Source {
    fn from(buf: AlignedBuf) -> Self {
        Self::Shared(buf.into_shared())
    }
}

impl From<SharedBuf> for Source {
    fn from(buf: SharedBuf) -> Self {
        Self::Shared(buf)
    }
}

impl From<ReadLease> for Source {
    fn from(lease: ReadLease) -> Self {
        Self::Lease(lease)
    }
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Arc::from(bytes))
    }
}

/// Part of some memory to be written or sent. Clones share the memory.
#[derive(Debug, Clone)]
pub struct Segment {
    source: Source,
    range: Range<usize>,
}

impl Segment {
    /// Creates a segment of the part `range` of `source`.
    ///
    /// # Panics
    /// When the range does not lie inside the memory.
    #[must_use]
    pub fn new(source: impl Into<Source>, range: Range<usize>) -> Self {
        let source = source.into();
        assert_inside(&range, source.len_bytes());
        Self { source, range }
    }

    /// Creates a segment of all of `source`.
    #[must_use]
    pub fn whole(source: impl Into<Source>) -> Self {
        let source = source.into();
        let range = 0..source.len_bytes();
        Self { source, range }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.range.end - self.range.start
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Shared(buf) => &buf[self.range.clone()],
            Source::Lease(lease) => &lease[self.range.clone()],
            Source::Bytes(bytes) => &bytes[self.range.clone()],
        }
    }

    /// Returns the sub-segment `range`.
    ///
    /// # Panics
    /// When the range does not lie inside the segment.
    #[must_use]
    pub fn part(mut self, range: Range<usize>) -> Self {
        assert_inside(&range, self.len_bytes());
        self.range = self.range.start + range.start..self.range.start + range.end;
        self
    }

    /// Returns `true` if address and length are multiples of `align_bytes`, as direct I/O requires.
    #[must_use]
    pub fn is_aligned(&self, align_bytes: usize) -> bool {
        self.rest(0).is_aligned(align_bytes)
    }

    /// Returns address and length of the rest after `done_bytes`.
    pub(crate) fn rest(&self, done_bytes: usize) -> Piece {
        Piece::new(self.source.base(), &self.range, done_bytes)
    }
}

/// Address and length of a range of memory that an operation holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) start: *mut u8,
    pub(crate) len_bytes: usize,
}

impl Piece {
    fn new(base: NonNull<u8>, range: &Range<usize>, done_bytes: usize) -> Self {
        assert!(done_bytes <= range.len(), "more bytes done than asked for");
        // `wrapping_add` requires no guarantee about the allocation; the range was checked when the part was created.
        let start = base.as_ptr().wrapping_add(range.start).wrapping_add(done_bytes);
        Self { start, len_bytes: range.len() - done_bytes }
    }

    fn is_aligned(self, align_bytes: usize) -> bool {
        self.start.addr().is_multiple_of(align_bytes) && self.len_bytes.is_multiple_of(align_bytes)
    }
}

fn assert_inside(range: &Range<usize>, len_bytes: usize) {
    assert!(
        range.start <= range.end && range.end <= len_bytes,
        "part {range:?} of memory of {len_bytes} bytes"
    );
}

/// Memory of a device command.
#[derive(Debug)]
pub enum CommandMemory {
    /// None; the address is 0.
    None,
    /// The device may write it.
    Into(Target),
    /// The device only reads it.
    From(Segment),
}

/// Device-specific command (IORING_OP_URING_CMD with 16 bytes of argument), with the memory that the device may access
/// while it is in flight.
#[derive(Debug)]
pub struct DeviceCommand {
    code: u32,
    head: [u8; 8],
    memory: CommandMemory,
}

impl DeviceCommand {
    /// Creates a command: its code, the first half of its argument, and the memory whose address is the second half.
    ///
    /// # Safety
    /// In its present state, the device must interpret the second half of the argument as an address, access no other
    /// memory of this process, only until the command completes, and write it only if it is a target.
    #[must_use]
    pub const unsafe fn new(code: u32, head: [u8; 8], memory: CommandMemory) -> Self {
        Self { code, head, memory }
    }

    /// Returns the memory.
    #[must_use]
    pub fn into_target(self) -> Option<Target> {
        match self.memory {
            CommandMemory::Into(target) => Some(target),
            CommandMemory::None | CommandMemory::From(_) => None,
        }
    }

    /// Returns the code and the argument.
    pub(crate) fn parts(&self) -> (u32, [u8; 16]) {
        let address = match &self.memory {
            CommandMemory::None => 0,
            CommandMemory::Into(target) => target.rest(0).start.expose_provenance(),
            CommandMemory::From(segment) => segment.rest(0).start.expose_provenance(),
        };
        let mut argument = [0; 16];
        argument[..8].copy_from_slice(&self.head);
        #[expect(clippy::host_endian_bytes, reason = "the kernel takes a native integer")]
        argument[8..].copy_from_slice(&zc_core::u64_from_usize(address).to_ne_bytes());
        (self.code, argument)
    }
}

/// Mode of a fallocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Reserve space; the file grows if needed.
    Allocate,
    /// Deallocate space; the range reads as zero, the length stays. Block devices: zero and deallocate.
    PunchHole,
    /// The range reads as zero and keeps its space, the length stays.
    ZeroRange,
}

/// An operation for the ring. Offsets and lengths in bytes.
#[derive(Debug)]
pub enum Operation {
    /// Does nothing.
    Nop,
    /// Reads from a file or device until the target is full; a file that ends earlier is
    /// [`io::ErrorKind::UnexpectedEof`].
    Read {
        /// Source.
        fd: SharedFd,
        /// First byte.
        offset: u64,
        /// Destination.
        target: Target,
    },
    /// Writes all segments, one after the other, to a file or device.
    Write {
        /// Destination.
        fd: SharedFd,
        /// First byte.
        offset: u64,
        /// The bytes.
        segments: Vec<Segment>,
        /// Complete only when the bytes are durable (RWF_DSYNC).
        durable: bool,
    },
    /// Makes completed writes durable.
    Fsync {
        /// The file.
        fd: SharedFd,
        /// Flush only the metadata needed to read the data (fdatasync).
        datasync: bool,
    },
    /// Changes the allocation of a range.
    Fallocate {
        /// The file or device.
        fd: SharedFd,
        /// Mode.
        mode: FallocateMode,
        /// First byte.
        offset: u64,
        /// Length.
        len: u64,
    },
    /// Discards a range of a block device (Linux 6.12; older kernels return EOPNOTSUPP). Contents become undefined.
    Discard {
        /// The block device.
        fd: SharedFd,
        /// First byte, a multiple of the logical block size.
        offset: u64,
        /// Length, a multiple of the logical block size.
        len: u64,
    },
    /// Sends all segments to a stream socket.
    Send {
        /// The socket.
        fd: SharedFd,
        /// The bytes.
        segments: Vec<Segment>,
    },
    /// Receives from a stream socket. `Ok(0)`: the peer closed before any byte.
    Recv {
        /// The socket.
        fd: SharedFd,
        /// Destination.
        target: Target,
        /// Complete only when the target is full; a peer that closes earlier is [`io::ErrorKind::UnexpectedEof`].
        /// Otherwise any available bytes complete it.
        exact: bool,
    },
    /// Accepts a connection: [`Completion::accepted`].
    Accept {
        /// The listening socket.
        fd: SharedFd,
    },
    /// Waits until one of the `events` (POLLIN, ...) occurs; the result has the events that occurred.
    Poll {
        /// The descriptor.
        fd: SharedFd,
        /// Bits of poll(2).
        events: u32,
    },
    /// Waits for a wake-up.
    Wait {
        /// The event.
        event: EventFd,
    },
    /// Completes after `ms` milliseconds.
    Timeout {
        /// Duration.
        ms: u64,
    },
    /// Device-specific command, such as ublk's. Only the device completes it: cancellation has no effect.
    Command {
        /// The device.
        fd: SharedFd,
        /// Command.
        command: DeviceCommand,
    },
    /// Closes a descriptor. Returned as [`Operation::Nop`].
    Close {
        /// The descriptor.
        fd: OwnedFd,
    },
}

impl Operation {
    /// Creates a read of a whole buffer or lease.
    #[must_use]
    pub fn read(fd: &SharedFd, offset: u64, memory: impl Into<Memory>) -> Self {
        Self::Read { fd: SharedFd::clone(fd), offset, target: Target::whole(memory) }
    }

    /// Creates a write of one segment without durability.
    #[must_use]
    pub fn write(fd: &SharedFd, offset: u64, source: impl Into<Source>) -> Self {
        Self::write_as(fd, offset, source, false)
    }

    /// Creates a write of one piece of memory; if `durable`, it completes only when its bytes are durable.
    #[must_use]
    pub fn write_as(fd: &SharedFd, offset: u64, source: impl Into<Source>, durable: bool) -> Self {
        Self::Write { fd: SharedFd::clone(fd), offset, segments: vec![Segment::whole(source)], durable }
    }

    /// Returns the memory of a read, a receive or a command.
    #[must_use]
    pub fn into_target(self) -> Option<Target> {
        match self {
            Self::Read { target, .. } | Self::Recv { target, .. } => Some(target),
            Self::Command { command, .. } => command.into_target(),
            _ => None,
        }
    }

    /// Returns `true` if the kernel may block on a server during its submission.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Read { fd, .. }
            | Self::Write { fd, .. }
            | Self::Fsync { fd, .. }
            | Self::Fallocate { fd, .. } => fd.waits(),
            _ => false,
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Self::Read { target, .. } | Self::Recv { target, .. } => target.len_bytes(),
            Self::Write { segments, .. } | Self::Send { segments, .. } => {
                segments.iter().map(Segment::len_bytes).sum()
            }
            _ => 0,
        }
    }
}

/// Completed operation.
#[derive(Debug)]
pub struct Completion {
    /// The token given with the operation.
    pub user: u64,
    /// Bytes transferred (reads, writes, sends: all of them), poll bits, or 0.
    pub result: io::Result<usize>,
    /// The operation, with its memory.
    pub operation: Operation,
    /// The connection of a successful [`Operation::Accept`].
    pub accepted: Option<OwnedFd>,
}
