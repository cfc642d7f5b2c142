//! One operation in flight: its kernel entries, and the interpretation of their results.
//!
//! Job: transient conditions. A short read or write is continued where it stopped, EINTR is retried, EAGAIN of a
//! socket waits for readiness, EAGAIN of a file moves to a kernel worker that may block; each bounded.
//!
//! Invariants: an [`InFlight`] owns all memory that its kernel entry refers to (buffers inside the operation, and the
//! vectors, message header and time below) and is neither dropped nor changed between entry and result.
#![expect(unsafe_code, reason = "takes ownership of descriptors that the kernel created")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use io_uring::{opcode, squeue, types};
use zc_core::u64_from_usize;

use crate::event::COUNTER_BYTES;
use crate::limits::{ATTEMPTS_MAX, PIECES_PER_TRANSFER_MAX, TRANSFER_BYTES_MAX};
use crate::operation::{Completion, FallocateMode, Operation, Piece, Segment, SharedFd};

/// File position of descriptors that have none.
const NO_OFFSET: u64 = 0;
/// BLOCK_URING_CMD_DISCARD of linux/blkdev.h: _IO(0x12, 0).
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// Operation in the ring.
#[derive(Debug)]
pub(crate) struct InFlight {
    user: u64,
    operation: Operation,
    len_bytes: usize,
    done_bytes: usize,
    /// Consecutive attempts without progress.
    attempts: u8,
    phase: Phase,
    pub(crate) place: Place,
    /// A cancellation was requested.
    pub(crate) cancelled: bool,
    iovecs: Vec<libc::iovec>,
    message: Option<Box<libc::msghdr>>,
    time: Option<Box<types::Timespec>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Waiting in our queue.
    Queued,
    /// In the submission queue or the kernel, which owns its memory.
    Kernel,
}

/// Kind of the next kernel entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The operation itself.
    Plain,
    /// The operation itself, on a kernel worker that may block.
    Blocking,
    /// Waiting for the descriptor to become ready for it.
    Ready,
}

/// Interpretation of a kernel result.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The operation completed.
    Done(io::Result<usize>),
    /// The operation must be submitted again.
    Again,
}

impl InFlight {
    pub(crate) fn new(user: u64, operation: Operation) -> Self {
        let len_bytes = operation.len_bytes();
        Self {
            user,
            operation,
            len_bytes,
            done_bytes: 0,
            attempts: 0,
            phase: Phase::Plain,
            place: Place::Queued,
            cancelled: false,
            iovecs: Vec::new(),
            message: None,
            time: None,
        }
    }

    /// Returns `true` if only its device can complete it.
    pub(crate) const fn is_detached(&self) -> bool {
        matches!((&self.operation, self.place), (Operation::Command { .. }, Place::Kernel))
    }

    /// Returns the kernel entry for the remaining work.
    pub(crate) fn entry(&mut self) -> squeue::Entry {
        assert_eq!(self.place, Place::Queued, "an operation is in the kernel once");
        self.place = Place::Kernel;
        if self.phase == Phase::Ready {
            return self.readiness_entry();
        }
        let entry = self.plain_entry();
        if self.phase == Phase::Blocking || self.operation.waits() {
            return entry.flags(squeue::Flags::ASYNC);
        }
        entry
    }

    fn plain_entry(&mut self) -> squeue::Entry {
        let done = self.done_bytes;
        match &self.operation {
            Operation::Nop => opcode::Nop::new().build(),
            Operation::Read { fd, offset, target } => {
                let piece = target.rest(done);
                opcode::Read::new(raw(fd), piece.start, transfer_len(piece))
                    .offset(advance(*offset, done))
                    .build()
            }
            Operation::Write { fd, offset, segments, durable } => {
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                let offset = advance(*offset, done);
                if let [only] = segments.as_slice() {
                    let piece = only.rest(done);
                    return opcode::Write::new(raw(fd), piece.start, transfer_len(piece))
                        .offset(offset)
                        .rw_flags(flags)
                        .build();
                }
                fill_iovecs(&mut self.iovecs, segments, done);
                opcode::Writev::new(raw(fd), self.iovecs.as_ptr(), iovec_count(&self.iovecs))
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            Operation::Fsync { fd, datasync } => {
                let flags = if *datasync { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
                opcode::Fsync::new(raw(fd)).flags(flags).build()
            }
            Operation::Fallocate { fd, mode, offset, len } => {
                opcode::Fallocate::new(raw(fd), *len).offset(*offset).mode(mode_bits(*mode)).build()
            }
            Operation::Discard { fd, offset, len } => {
                let mut command = [0; 16];
                #[expect(clippy::host_endian_bytes, reason = "the kernel takes a native integer")]
                command[..8].copy_from_slice(&(*len).to_ne_bytes());
                opcode::UringCmd16::new(raw(fd), BLOCK_URING_CMD_DISCARD)
                    .addr(Some(*offset))
                    .cmd(command)
                    .build()
            }
            Operation::Command { fd, command } => {
                let (code, argument) = command.parts();
                opcode::UringCmd16::new(raw(fd), code).cmd(argument).build()
            }
            Operation::Accept { fd } => {
                opcode::Accept::new(raw(fd), std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Operation::Poll { fd, events } => opcode::PollAdd::new(raw(fd), *events).build(),
            Operation::Wait { event } => {
                let len = u32::try_from(COUNTER_BYTES).unwrap_or(u32::MAX);
                opcode::Read::new(types::Fd(event.raw_fd()), event.sink().as_ptr(), len)
                    .offset(NO_OFFSET)
                    .build()
            }
            Operation::Send { .. }
            | Operation::Recv { .. }
            | Operation::Timeout { .. }
            | Operation::Close { .. } => self.socket_or_control_entry(),
        }
    }

    fn socket_or_control_entry(&mut self) -> squeue::Entry {
        let done = self.done_bytes;
        match &mut self.operation {
            Operation::Send { fd, segments } => {
                fill_iovecs(&mut self.iovecs, segments, done);
                let message = self.message.insert(Box::new(message_of(&mut self.iovecs)));
                // MSG_NOSIGNAL: a closed peer is an error here, not a signal.
                let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).cast_unsigned();
                opcode::SendMsg::new(raw(fd), &raw const **message).flags(flags).build()
            }
            Operation::Recv { fd, target, exact } => {
                let piece = target.rest(done);
                let flags = if *exact { libc::MSG_WAITALL } else { 0 };
                opcode::Recv::new(raw(fd), piece.start, transfer_len(piece)).flags(flags).build()
            }
            Operation::Timeout { ms } => {
                let nanos = u32::try_from(*ms % 1000).unwrap_or(0) * 1_000_000;
                let time = self.time.insert(Box::new(types::Timespec::new().sec(*ms / 1000).nsec(nanos)));
                opcode::Timeout::new(&raw const **time).build()
            }
            Operation::Close { .. } => {
                let Operation::Close { fd } = std::mem::replace(&mut self.operation, Operation::Nop) else {
                    unreachable!("matched above");
                };
                // From here on the descriptor belongs to the kernel: it is closed regardless of the result.
                opcode::Close::new(types::Fd(fd.into_raw_fd())).build()
            }
            other => unreachable!("{other:?} is built elsewhere"),
        }
    }

    fn readiness_entry(&self) -> squeue::Entry {
        let (fd, events) = match &self.operation {
            Operation::Send { fd, .. } => (raw(fd), libc::POLLOUT),
            Operation::Recv { fd, .. } | Operation::Accept { fd } => (raw(fd), libc::POLLIN),
            Operation::Wait { event } => (types::Fd(event.raw_fd()), libc::POLLIN),
            other => unreachable!("{other:?} has no readiness"),
        };
        opcode::PollAdd::new(fd, u32::from(events.cast_unsigned())).build()
    }

    /// Processes a kernel result: a byte count or other value, or a negated errno.
    pub(crate) fn on_result(&mut self, result: i32) -> Verdict {
        assert_eq!(self.place, Place::Kernel, "a result for an operation that is not in the kernel");
        self.place = Place::Queued;
        let verdict = match u32::try_from(result) {
            Ok(value) if self.phase == Phase::Ready => {
                let _events: u32 = value;
                self.phase = Phase::Plain;
                Verdict::Again
            }
            Ok(value) => self.on_value(zc_core::usize_from_u32(value)),
            Err(_) => self.on_errno(-result),
        };
        match verdict {
            Verdict::Again if self.cancelled => {
                Verdict::Done(Err(io::Error::from_raw_os_error(libc::ECANCELED)))
            }
            verdict => verdict,
        }
    }

    fn on_value(&mut self, value: usize) -> Verdict {
        match &self.operation {
            Operation::Read { .. } | Operation::Recv { exact: true, .. } => {
                self.on_bytes(value, io::ErrorKind::UnexpectedEof)
            }
            Operation::Write { .. } | Operation::Send { .. } => {
                self.on_bytes(value, io::ErrorKind::WriteZero)
            }
            Operation::Wait { event } => {
                event.clear();
                Verdict::Done(Ok(0))
            }
            _ => Verdict::Done(Ok(value)),
        }
    }

    /// Adds `moved` bytes; 0 with bytes remaining means `at_end`.
    fn on_bytes(&mut self, moved: usize, at_end: io::ErrorKind) -> Verdict {
        assert!(moved <= self.len_bytes - self.done_bytes, "the kernel moved more than asked");
        self.done_bytes += moved;
        if self.done_bytes == self.len_bytes {
            return Verdict::Done(Ok(self.len_bytes));
        }
        if moved > 0 {
            self.attempts = 0;
            self.phase = Phase::Plain;
            return Verdict::Again;
        }
        if self.done_bytes == 0 && matches!(self.operation, Operation::Recv { .. }) {
            return Verdict::Done(Ok(0));
        }
        Verdict::Done(Err(at_end.into()))
    }

    fn on_errno(&mut self, errno: i32) -> Verdict {
        self.attempts += 1;
        let again = self.attempts < ATTEMPTS_MAX;
        match (&self.operation, errno) {
            (Operation::Timeout { .. }, libc::ETIME) => Verdict::Done(Ok(0)),
            (Operation::Close { .. } | Operation::Nop | Operation::Command { .. }, _) => fail(errno),
            (_, libc::EINTR) if again => Verdict::Again,
            (
                Operation::Send { .. }
                | Operation::Recv { .. }
                | Operation::Accept { .. }
                | Operation::Wait { .. },
                libc::EAGAIN,
            ) if again => {
                self.phase = Phase::Ready;
                Verdict::Again
            }
            (_, libc::EAGAIN) if again => {
                self.phase = Phase::Blocking;
                Verdict::Again
            }
            // The unaligned rest of an O_DIRECT read occurs only at the end of the file.
            (Operation::Read { .. }, libc::EINVAL) if self.done_bytes > 0 => {
                Verdict::Done(Err(io::ErrorKind::UnexpectedEof.into()))
            }
            _ => fail(errno),
        }
    }

    pub(crate) fn finish(self, result: io::Result<usize>) -> Completion {
        assert_eq!(self.place, Place::Queued, "memory comes back after the kernel is done with it");
        let mut completion =
            Completion { user: self.user, result, operation: self.operation, accepted: None };
        if let (Operation::Accept { .. }, Ok(value)) = (&completion.operation, &completion.result) {
            let raw = i32::try_from(*value).unwrap_or(-1);
            assert!(raw >= 0, "descriptors are 31-bit numbers");
            // SAFETY: the kernel just created this descriptor for the accept, and no other code has its number.
            completion.accepted = Some(unsafe { OwnedFd::from_raw_fd(raw) });
            completion.result = Ok(0);
        }
        completion
    }
}

fn fail(errno: i32) -> Verdict {
    Verdict::Done(Err(io::Error::from_raw_os_error(errno)))
}

fn raw(fd: &SharedFd) -> types::Fd {
    types::Fd(fd.as_raw_fd())
}

fn transfer_len(piece: Piece) -> u32 {
    u32::try_from(piece.len_bytes.min(TRANSFER_BYTES_MAX)).unwrap_or(u32::MAX)
}

/// Offsets beyond the largest file are refused by the kernel, so saturation is harmless.
fn advance(offset: u64, done_bytes: usize) -> u64 {
    offset.saturating_add(u64_from_usize(done_bytes))
}

fn iovec_count(iovecs: &[libc::iovec]) -> u32 {
    u32::try_from(iovecs.len()).unwrap_or(u32::MAX)
}

/// Lists the rest of `segments` after `done_bytes`, up to the kernel's bounds for one transfer.
fn fill_iovecs(iovecs: &mut Vec<libc::iovec>, segments: &[Segment], done_bytes: usize) {
    iovecs.clear();
    iovecs.reserve(segments.len().min(PIECES_PER_TRANSFER_MAX));
    let mut skip_bytes = done_bytes;
    let mut total_bytes = 0;
    for segment in segments {
        let skip = skip_bytes.min(segment.len_bytes());
        skip_bytes -= skip;
        let piece = segment.rest(skip);
        let len_bytes = piece.len_bytes.min(TRANSFER_BYTES_MAX - total_bytes);
        if len_bytes == 0 {
            continue;
        }
        if iovecs.len() == PIECES_PER_TRANSFER_MAX {
            break;
        }
        iovecs.push(libc::iovec { iov_base: piece.start.cast(), iov_len: len_bytes });
        total_bytes += len_bytes;
    }
}

fn message_of(iovecs: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: a message header is integers and pointers, for which all-zero bytes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = iovecs.len();
    message
}

const fn mode_bits(mode: FallocateMode) -> i32 {
    match mode {
        FallocateMode::Allocate => 0,
        FallocateMode::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        FallocateMode::ZeroRange => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::AlignedBuf;
    use crate::operation::Target;

    fn null() -> SharedFd {
        SharedFd::new(std::fs::File::open("/dev/null").unwrap())
    }

    fn recv(exact: bool) -> InFlight {
        let target = Target::whole(AlignedBuf::new(100));
        InFlight::new(1, Operation::Recv { fd: null(), target, exact })
    }

    fn read() -> InFlight {
        InFlight::new(1, Operation::read(&null(), 0, AlignedBuf::new(100)))
    }

    fn opcode_of(flight: &mut InFlight) -> u32 {
        flight.entry().get_opcode()
    }

    /// Feeds results; returns `None` while the operation continues, then the outcome.
    fn feed(flight: &mut InFlight, results: &[i32]) -> Option<Result<usize, Option<i32>>> {
        for &result in results {
            let _entry = flight.entry();
            if let Verdict::Done(outcome) = flight.on_result(result) {
                return Some(outcome.map_err(|error| error.raw_os_error()));
            }
        }
        None
    }

    #[test]
    fn a_socket_that_is_not_ready_is_waited_for() {
        let mut flight = recv(true);
        assert_eq!(feed(&mut flight, &[40, -libc::EAGAIN]), None);
        assert_eq!(opcode_of(&mut flight), u32::from(opcode::PollAdd::CODE));
        assert!(matches!(flight.on_result(1), Verdict::Again));
        assert_eq!(opcode_of(&mut flight), u32::from(opcode::Recv::CODE));
        assert!(matches!(flight.on_result(60), Verdict::Done(Ok(100))));
    }

    #[test]
    fn a_file_that_would_block_moves_to_a_worker() {
        let mut flight = read();
        assert_eq!(feed(&mut flight, &[-libc::EAGAIN]), None);
        assert_eq!(opcode_of(&mut flight), u32::from(opcode::Read::CODE));
        assert_eq!(flight.phase, Phase::Blocking);
        assert!(matches!(flight.on_result(100), Verdict::Done(Ok(100))));
    }

    #[test]
    fn interruptions_are_bounded_and_progress_resets_the_bound() {
        let many = vec![-libc::EINTR; usize::from(ATTEMPTS_MAX) - 1];
        let mut flight = read();
        assert_eq!(feed(&mut flight, &many), None);
        assert_eq!(feed(&mut flight, &[1]), None);
        assert_eq!(feed(&mut flight, &many), None);
        assert_eq!(feed(&mut flight, &[-libc::EINTR]), Some(Err(Some(libc::EINTR))));
    }

    #[test]
    fn short_results_add_up_and_the_end_of_a_file_is_an_error() {
        assert_eq!(feed(&mut read(), &[30, 30, 40]), Some(Ok(100)));
        assert_eq!(feed(&mut read(), &[30, 0]), Some(Err(None)));
        // The unaligned rest of a direct read.
        assert_eq!(feed(&mut read(), &[30, -libc::EINVAL]), Some(Err(None)));
        assert_eq!(feed(&mut read(), &[-libc::EINVAL]), Some(Err(Some(libc::EINVAL))));
        assert_eq!(feed(&mut recv(true), &[0]), Some(Ok(0)));
        assert_eq!(feed(&mut recv(true), &[1, 0]), Some(Err(None)));
        assert_eq!(feed(&mut recv(false), &[30]), Some(Ok(30)));
    }

    #[test]
    fn a_cancelled_operation_does_not_go_on() {
        let mut flight = read();
        flight.cancelled = true;
        assert_eq!(feed(&mut flight, &[30]), Some(Err(Some(libc::ECANCELED))));
        let mut flight = read();
        flight.cancelled = true;
        assert_eq!(feed(&mut flight, &[100]), Some(Ok(100)));
    }

    #[test]
    #[should_panic(expected = "moved more than asked")]
    fn a_result_beyond_the_request_breaks_an_invariant() {
        feed(&mut read(), &[101]);
    }

    #[test]
    fn vectors_skip_what_is_done_and_empty_pieces() {
        let bytes = |len| Segment::whole(&vec![0; len][..]);
        let segments = [bytes(10), bytes(0), bytes(20), bytes(5)];
        let lens = |done| {
            let mut iovecs = Vec::new();
            fill_iovecs(&mut iovecs, &segments, done);
            iovecs.iter().map(|iovec| iovec.iov_len).collect::<Vec<_>>()
        };
        assert_eq!(lens(0), [10, 20, 5]);
        assert_eq!(lens(9), [1, 20, 5]);
        assert_eq!(lens(10), [20, 5]);
        assert_eq!(lens(31), [4]);
        assert_eq!(lens(35), [0; 0]);
    }
}
