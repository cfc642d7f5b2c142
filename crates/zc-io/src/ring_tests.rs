//! The ring against real files, sockets and events.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;

use crate::operation::{FallocateMode, Memory, Operation, Segment, SharedFd, Source, Target};
use crate::{AlignedBuf, Arena, Completion, EventFd, Gather, Ring, RingOptions, probe};

fn ring(entries: u32) -> Ring {
    Ring::new(RingOptions { entries, ops_max: 512, poll_max_us: 100 }).unwrap()
}

fn shared(fd: impl Into<OwnedFd>) -> SharedFd {
    SharedFd::new(fd)
}

fn file_of(bytes: &[u8]) -> (File, SharedFd) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let fd = shared(file.try_clone().unwrap());
    (file, fd)
}

/// Waits for `count` completions, in order of their tokens.
fn wait(ring: &mut Ring, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    while out.len() < count {
        assert!(ring.in_flight() > 0, "{} of {count} came", out.len());
        ring.submit_and_wait(count - out.len(), None, &mut out).unwrap();
    }
    out.sort_by_key(|completion| completion.user);
    out
}

fn run(ring: &mut Ring, operation: Operation) -> Completion {
    ring.submit(operation, 1).unwrap();
    wait(ring, 1).remove(0)
}

fn errno(completion: &Completion) -> Option<i32> {
    completion.result.as_ref().err().and_then(io::Error::raw_os_error)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn the_kernel_of_the_test_machine_is_usable() {
    assert!(probe().unwrap().deferred);
}

#[test]
fn bytes_written_are_read_back_and_buffers_return() {
    let mut ring = ring(8);
    let (_file, fd) = file_of(b"");
    let bytes = pattern(10_000);
    let segment = Segment::whole(AlignedBuf::from(&bytes[..]));
    let write =
        Operation::Write { fd: SharedFd::clone(&fd), offset: 5, segments: vec![segment], durable: true };
    assert_eq!(run(&mut ring, write).result.unwrap(), 10_000);
    assert_eq!(
        run(&mut ring, Operation::Fsync { fd: SharedFd::clone(&fd), datasync: true }).result.unwrap(),
        0
    );
    let target = Target::new(AlignedBuf::new(12_000), 100..10_100);
    let read = run(&mut ring, Operation::Read { fd, offset: 5, target });
    assert_eq!(read.result.unwrap(), 10_000);
    let Some(Memory::Buf(buf)) = read.operation.into_target().map(Target::into_memory) else { panic!() };
    assert_eq!(&buf[100..10_100], bytes);
    assert!(buf[..100].iter().chain(&buf[10_100..]).all(|&byte| byte == 0));
}

#[test]
fn a_read_past_the_end_is_an_error_and_not_a_short_success() {
    let mut ring = ring(8);
    let (_file, fd) = file_of(&pattern(5000));
    for offset in [4000, 5000, 9000] {
        let read = run(&mut ring, Operation::read(&fd, offset, AlignedBuf::new(4096)));
        assert_eq!(read.result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "at {offset}");
    }
    let read = run(&mut ring, Operation::read(&fd, 1000, AlignedBuf::new(4000)));
    assert_eq!(read.operation.into_target().unwrap().bytes(), &pattern(5000)[1000..]);
}

#[test]
fn a_negative_result_is_the_errno_it_means() {
    let mut ring = ring(8);
    let (reader, _writer) = io::pipe().unwrap();
    let write = run(&mut ring, Operation::write(&shared(reader), 0, &b"x"[..]));
    assert_eq!(errno(&write), Some(libc::EBADF));
}

#[test]
fn more_operations_than_the_ring_has_entries_all_end() {
    let mut ring = ring(8);
    let bytes = pattern(128 * 512);
    let (_file, fd) = file_of(&bytes);
    for user in 0..128_u64 {
        ring.submit(Operation::read(&fd, user * 512, AlignedBuf::new(512)), user).unwrap();
    }
    assert_eq!(ring.in_flight(), 128);
    for (completion, expected) in wait(&mut ring, 128).into_iter().zip(bytes.chunks(512)) {
        assert_eq!(completion.result.unwrap(), 512);
        assert_eq!(completion.operation.into_target().unwrap().bytes(), expected);
    }
    assert_eq!((ring.in_flight(), ring.room()), (0, 512));
    assert!(format!("{ring:?}").contains("kernel_entries: 0"));
}

#[test]
fn a_full_ring_hands_the_operation_back() {
    let mut ring = Ring::new(RingOptions { entries: 1, ops_max: 2, poll_max_us: 0 }).unwrap();
    ring.submit(Operation::Nop, 0).unwrap();
    ring.submit(Operation::Nop, 1).unwrap();
    let full = ring.submit(Operation::Timeout { ms: 1 }, 2).unwrap_err();
    assert!(matches!(*full.operation, Operation::Timeout { ms: 1 }));
    assert_eq!(wait(&mut ring, 2).len(), 2);
    ring.submit(Operation::Nop, 3).unwrap();
}

#[test]
fn several_reads_land_in_one_buffer_through_leases() {
    let mut ring = ring(8);
    let bytes = pattern(128 << 10);
    let (_file, fd) = file_of(&bytes);
    let arena = Arena::new(AlignedBuf::new(128 << 10));
    for part in 0..16_u64 {
        let start = usize::try_from(part).unwrap() * 8192;
        ring.submit(Operation::read(&fd, part * 8192, arena.lease(start..start + 8192)), part).unwrap();
    }
    assert!(arena.try_read_lease(8191..8192).is_none());
    for completion in wait(&mut ring, 16) {
        assert_eq!(completion.result.unwrap(), 8192);
    }
    let written = arena.read_lease(0..128 << 10);
    assert_eq!(&*written, bytes);
    // The same memory is written to a file while a read lease is held here.
    let (_copy, copy_fd) = file_of(b"");
    let write = run(&mut ring, Operation::write(&copy_fd, 0, written.clone()));
    assert_eq!(write.result.unwrap(), 128 << 10);
    assert_eq!(written.len(), 128 << 10);
}

#[test]
fn a_vectored_write_with_many_segments_is_whole() {
    let mut ring = ring(8);
    let (mut file, fd) = file_of(b"");
    let bytes = AlignedBuf::from(&pattern(3000)[..]).into_shared();
    let segments: Vec<_> =
        (0..3000).map(|at| Segment::new(Source::Shared(bytes.clone()), at..at + 1)).collect();
    let write = run(&mut ring, Operation::Write { fd, offset: 0, segments, durable: false });
    assert_eq!(write.result.unwrap(), 3000);
    let mut read = Vec::new();
    io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, pattern(3000));
}

#[test]
fn fallocate_punches_holes_and_keeps_the_length() {
    let mut ring = ring(8);
    let (file, fd) = file_of(&pattern(64 << 10));
    let mode = FallocateMode::PunchHole;
    let punch = Operation::Fallocate { fd: SharedFd::clone(&fd), mode, offset: 4096, len: 8192 };
    assert_eq!(run(&mut ring, punch).result.unwrap(), 0);
    assert_eq!(file.metadata().unwrap().len(), 64 << 10);
    let read = run(&mut ring, Operation::read(&fd, 0, AlignedBuf::new(64 << 10)));
    let target = read.operation.into_target().unwrap();
    assert!(target.bytes()[4096..12_288].iter().all(|&byte| byte == 0));
    assert_eq!(target.bytes()[..4096], pattern(4096));
}

/// A peer that reads slowly from a socket with a small buffer makes every send partial.
#[test]
fn a_send_larger_than_the_socket_buffer_is_whole() {
    for nonblocking in [false, true] {
        let mut ring = ring(8);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
        ours.set_nonblocking(nonblocking).unwrap();
        let payload = pattern(300_000);
        let segments = vec![
            Segment::whole(&b"header"[..]),
            Segment::new(AlignedBuf::from(&payload[..]), 0..200_000),
            Segment::new(AlignedBuf::from(&payload[..]), 200_000..300_000),
        ];
        let peer = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut piece = [0; 1000];
            while all.len() < 300_006 {
                let count = theirs.read(&mut piece).unwrap();
                assert!(count > 0);
                all.extend_from_slice(&piece[..count]);
            }
            all
        });
        let send = run(&mut ring, Operation::Send { fd: shared(ours), segments });
        assert_eq!(send.result.unwrap(), 300_006);
        let all = peer.join().unwrap();
        assert_eq!((&all[..6], &all[6..]), (&b"header"[..], &payload[..]));
    }
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_no_signal() {
    let mut ring = ring(8);
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let send =
        run(&mut ring, Operation::Send { fd: shared(ours), segments: vec![Segment::whole(&b"x"[..])] });
    assert_eq!(errno(&send), Some(libc::EPIPE));
}

#[test]
fn receiving_exactly_waits_for_all_bytes_and_tells_a_clean_end_from_a_torn_one() {
    for nonblocking in [false, true] {
        let mut ring = ring(8);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(nonblocking).unwrap();
        let fd = shared(ours);
        let recv = |len, exact| Operation::Recv {
            fd: SharedFd::clone(&fd),
            target: Target::whole(AlignedBuf::new(len)),
            exact,
        };
        ring.submit(recv(6, true), 1).unwrap();
        theirs.write_all(b"abc").unwrap();
        let mut out = Vec::new();
        assert_eq!(ring.submit_and_wait(1, Some(Duration::from_millis(1)), &mut out).unwrap(), 0);
        theirs.write_all(b"defgh").unwrap();
        let whole = wait(&mut ring, 1).remove(0);
        assert_eq!(whole.operation.into_target().unwrap().bytes(), b"abcdef");
        assert_eq!(run(&mut ring, recv(100, false)).result.unwrap(), 2);
        theirs.write_all(b"xy").unwrap();
        ring.submit(recv(3, true), 1).unwrap();
        drop(theirs);
        let torn = wait(&mut ring, 1).remove(0);
        assert_eq!(torn.result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(run(&mut ring, recv(3, true)).result.unwrap(), 0);
    }
}

#[test]
fn connections_are_accepted_and_closed() {
    let mut ring = ring(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    ring.submit(Operation::Accept { fd: shared(listener) }, 1).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let accepted = wait(&mut ring, 1).remove(0);
    assert_eq!(accepted.result.unwrap(), 0);
    let close = run(&mut ring, Operation::Close { fd: accepted.accepted.unwrap() });
    assert_eq!(close.result.unwrap(), 0);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_wake_from_another_thread_ends_the_wait_each_time() {
    let mut ring = ring(8);
    let event = EventFd::new().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (go_on, gone_on) = std::sync::mpsc::channel();
    let waker = event.waker();
    let worker = std::thread::spawn(move || {
        for number in 0..300 {
            sender.send(number).unwrap();
            waker.wake();
            // Every third continues without a handshake, so that wakes also coincide.
            if number % 3 == 0 {
                gone_on.recv().unwrap();
            }
        }
    });
    ring.submit(Operation::Wait { event }, 1).unwrap();
    let mut next = 0;
    while next < 300 {
        let completion = wait(&mut ring, 1).remove(0);
        completion.result.unwrap();
        for number in receiver.try_iter() {
            assert_eq!(number, next);
            next += 1;
            if number % 3 == 0 {
                go_on.send(()).unwrap();
            }
        }
        ring.submit(completion.operation, 1).unwrap();
    }
    worker.join().unwrap();
}

#[test]
fn polls_and_timeouts_end() {
    let mut ring = ring(8);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let events = u32::from(libc::POLLIN.cast_unsigned());
    let poll = run(&mut ring, Operation::Poll { fd: shared(ours), events });
    assert_eq!(poll.result.unwrap(), usize::try_from(events).unwrap());
    assert_eq!(run(&mut ring, Operation::Timeout { ms: 2 }).result.unwrap(), 0);
}

#[test]
fn waiting_ends_with_its_timeout_and_at_once_when_nothing_is_in_flight() {
    let mut ring = ring(8);
    let mut out = Vec::new();
    assert_eq!(ring.submit_and_wait(1, None, &mut out).unwrap(), 0);
    ring.submit(Operation::Timeout { ms: 3_600_000 }, 1).unwrap();
    assert_eq!(ring.submit_and_wait(1, Some(Duration::from_millis(2)), &mut out).unwrap(), 0);
    assert_eq!(ring.submit_and_wait(0, None, &mut out).unwrap(), 0);
    assert_eq!(ring.in_flight(), 1);
}

#[test]
fn cancelled_operations_end_once_wherever_they_are() {
    let mut ring = ring(2);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let fd = shared(ours);
    let recv = || Operation::Recv {
        fd: SharedFd::clone(&fd),
        target: Target::whole(AlignedBuf::new(1)),
        exact: true,
    };
    let mut out = Vec::new();
    ring.submit(recv(), 1).unwrap();
    ring.submit(recv(), 2).unwrap();
    ring.submit_and_wait(0, None, &mut out).unwrap();
    for _ in 0..20 {
        ring.submit(recv(), 3).unwrap();
    }
    ring.cancel_all();
    ring.cancel_all();
    let ended = wait(&mut ring, 22);
    assert_eq!(ended.iter().map(|completion| completion.user).filter(|&user| user == 3).count(), 20);
    assert!(ended.iter().all(|completion| errno(completion) == Some(libc::ECANCELED)));
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn dropping_the_ring_gives_back_what_was_in_flight() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let fd = shared(ours);
    let arena = Arena::new(AlignedBuf::new(8192));
    let mut out = Vec::new();
    {
        let mut ring = ring(4);
        for user in 0..100 {
            let start = usize::try_from(user).unwrap() * 10;
            let target = Target::whole(arena.lease(start..start + 10));
            ring.submit(Operation::Recv { fd: SharedFd::clone(&fd), target, exact: true }, user).unwrap();
        }
        ring.submit(Operation::Wait { event: EventFd::new().unwrap() }, 100).unwrap();
        ring.submit(Operation::Timeout { ms: 3_600_000 }, 101).unwrap();
        ring.submit_and_wait(0, None, &mut out).unwrap();
    }
    assert!(out.is_empty());
    // Every lease and every use of the socket is released.
    assert_eq!(fd.holders(), 1);
    assert_eq!(arena.try_into_buf().unwrap().len(), 8192);
    drop(fd);
    assert_eq!((&theirs).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn an_empty_write_and_an_empty_read_succeed() {
    let mut ring = ring(8);
    let (_file, fd) = file_of(b"abc");
    let write =
        Operation::Write { fd: SharedFd::clone(&fd), offset: 0, segments: Vec::new(), durable: false };
    assert_eq!(run(&mut ring, write).result.unwrap(), 0);
    assert_eq!(run(&mut ring, Operation::read(&fd, 9, AlignedBuf::new(0))).result.unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Random vectored writes and reads of one file compared with the same in memory, many in flight.
    #[test]
    fn a_file_agrees_with_memory(
        ops in prop::collection::vec((0usize..50_000, prop::collection::vec(0usize..3000, 1..6)), 1..30)
    ) {
        let mut ring = ring(4);
        let mut model = vec![0; 70_000];
        let (_file, fd) = file_of(&model);
        for (number, (offset, lens)) in ops.iter().enumerate() {
            let fill = u8::try_from(number + 1).unwrap();
            let segments: Vec<_> =
                lens.iter().map(|&len| Segment::whole(Source::from(&vec![fill; len][..]))).collect();
            let total: usize = lens.iter().sum();
            model[*offset..offset + total].fill(fill);
            let offset_bytes = u64::try_from(*offset).unwrap();
            let write = Operation::Write { fd: SharedFd::clone(&fd), offset: offset_bytes, segments, durable: false };
            prop_assert_eq!(run(&mut ring, write).result.unwrap(), total);
        }
        for (user, (offset, _)) in (0..).zip(&ops) {
            let read = Operation::read(&fd, u64::try_from(*offset).unwrap(), AlignedBuf::new(5000));
            ring.submit(read, user).unwrap();
        }
        for (completion, (offset, _)) in wait(&mut ring, ops.len()).into_iter().zip(&ops) {
            let target = completion.operation.into_target().unwrap();
            prop_assert_eq!(target.bytes(), &model[*offset..offset + 5000]);
        }
    }
}

#[test]
fn gathering_ends_with_its_count_or_with_one_after_its_time() {
    let mut ring = ring(8);
    assert!(ring.features().gathering, "the test machine has Linux 6.12 or newer");
    let (_near, far) = UnixStream::pair().unwrap();
    let (event, mut out) = (EventFd::new().unwrap(), Vec::new());
    let recv = |fd: &SharedFd| Operation::Recv {
        fd: SharedFd::clone(fd),
        target: Target::whole(AlignedBuf::new(10)),
        exact: false,
    };
    let far = shared(far);
    ring.submit(Operation::Wait { event: event.clone() }, 1).unwrap();
    ring.submit(recv(&far), 2).unwrap();
    // One is ready and would suffice; a kernel worker completes the other later, and one call returns both.
    event.waker().wake();
    let (_file, file) = file_of(&pattern(100_000));
    ring.submit(Operation::Fsync { fd: file, datasync: false }, 3).unwrap();
    let both = Gather { count: 2, time_us: 10_000_000 };
    assert_eq!(ring.submit_and_gather(1, Some(both), None, &mut out).unwrap(), 2);
    // One never completes: the time-out ends the wait. A count above the operations in flight does not wait forever
    // either.
    ring.submit(Operation::Wait { event: event.clone() }, 1).unwrap();
    event.waker().wake();
    let many = Gather { count: 99, time_us: 1000 };
    assert_eq!(ring.submit_and_gather(1, Some(many), None, &mut out).unwrap(), 1);
    // Nothing completes: the time-out applies as usual.
    let timeout = Some(Duration::from_millis(3));
    assert_eq!(ring.submit_and_gather(1, Some(many), timeout, &mut out).unwrap(), 0);
}
