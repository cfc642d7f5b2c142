//! Tests of the tag state machine without a kernel: operations are inspected, their completions simulated.

use std::fs::File;

use super::*;
use crate::uapi::op;

fn server(copy: CopyMode, op_flags: u32) -> Server {
    let fd = SharedFd::new(File::open("/dev/null").unwrap());
    let descriptor = IoDescriptor { op_flags, nr_sectors: 8, start_sector: 16, addr: 0 };
    Server { link: Link::Fake { fd, descriptor }, machine: Machine::new(copy, 1, 2, 1 << 20, 64 << 10) }
}

fn end(server: &mut Server, result: io::Result<usize>, operation: Operation) -> TagAction {
    server.ended(0, 0, result, operation, AlignedBuf::new)
}

/// Fetches tag 0 and completes the fetch.
fn begin(server: &mut Server, value: usize) -> TagAction {
    let operation = server.fetch(0, 0);
    end(server, Ok(value), operation)
}

fn submitted(step: TagAction) -> Operation {
    let TagAction::Submit(operation) = step else { panic!("{step:?} is no operation") };
    operation
}

fn read_bytes() -> Segment {
    Segment::whole(AlignedBuf::new(4096))
}

#[test]
fn a_read_goes_back_with_its_result_in_one_command() {
    let mut server = server(CopyMode::InCommand, op::READ);
    let TagAction::Serve { request, memory: None } = begin(&mut server, 0) else {
        panic!("a read is served")
    };
    assert_eq!((request.op, request.offset_bytes, request.len_bytes), (RequestOp::Read, 8192, 4096));
    let operation = submitted(server.complete(0, 0, Ok(Some(read_bytes()))));
    assert!(matches!(operation, Operation::Command { .. }));
    // The same command fetches the next request.
    assert!(matches!(end(&mut server, Ok(0), operation), TagAction::Serve { .. }));
}

#[test]
fn a_write_asks_for_its_bytes() {
    let mut server = server(CopyMode::InCommand, op::WRITE | op::FUA);
    let load = submitted(begin(&mut server, 1));
    let TagAction::Serve { request, memory: Some(memory) } = end(&mut server, Ok(0), load) else {
        panic!("a write is served with its bytes")
    };
    assert_eq!((memory.len(), request.fua), (4096, true));
    submitted(server.complete(0, 0, Ok(None)));
}

#[test]
fn the_other_mode_copies_by_reading_and_writing() {
    let mut server_of_writes = server(CopyMode::UserCopy, op::WRITE);
    let load = submitted(begin(&mut server_of_writes, 0));
    assert!(matches!(&load, Operation::Read { offset, .. } if *offset == 0x8000_0000));
    assert!(matches!(end(&mut server_of_writes, Ok(4096), load), TagAction::Serve { memory: Some(_), .. }));

    let mut server = server(CopyMode::UserCopy, op::READ);
    begin(&mut server, 0);
    let copy = submitted(server.complete(0, 0, Ok(Some(read_bytes()))));
    assert!(matches!(copy, Operation::Write { .. }));
    let commit = submitted(end(&mut server, Ok(4096), copy));
    assert!(matches!(commit, Operation::Command { .. }));
}

#[test]
fn a_failed_copy_fails_the_request_and_not_the_tag() {
    let mut server = server(CopyMode::UserCopy, op::WRITE);
    let load = submitted(begin(&mut server, 0));
    let commit = submitted(end(&mut server, Err(io::Error::from_raw_os_error(libc::EFAULT)), load));
    assert!(matches!(commit, Operation::Command { .. }));
    assert!(!server.is_gone());
}

/// With copies in commands, the driver accepts the completion of a READ only with an address; in the other mode only
/// without. Otherwise the tag is lost, and its user waits forever.
#[test]
fn a_failed_read_goes_back_with_an_address_where_the_driver_wants_one() {
    for (copy, wanted) in [(CopyMode::InCommand, true), (CopyMode::UserCopy, false)] {
        let mut server = server(copy, op::READ);
        begin(&mut server, 0);
        let commit = submitted(server.complete(0, 0, Err(libc::EIO)));
        let Operation::Command { command, .. } = commit else { panic!("{commit:?} ends no request") };
        assert_eq!(format!("{command:?}").contains("memory: From("), wanted, "{copy:?}: {command:?}");
    }
}

#[test]
fn what_is_not_offered_is_given_back_at_once() {
    for (op_flags, value) in [(4, 0), (op::READ, 1), (op::WRITE, 0), (0xff, 0)] {
        let mut server = server(CopyMode::InCommand, op_flags);
        let commit = submitted(begin(&mut server, value));
        assert!(matches!(commit, Operation::Command { .. }), "{op_flags:#x}");
    }
}

#[test]
fn a_device_that_grows_serves_what_is_behind_its_old_end() {
    let mut server = server(CopyMode::InCommand, op::READ);
    server.machine.size_bytes = 8192;
    let refused = submitted(begin(&mut server, 0));
    server.grow(8192 + 4096);
    server.grow(512);
    assert!(matches!(end(&mut server, Ok(0), refused), TagAction::Serve { .. }));
}

#[test]
fn a_device_is_gone_when_all_its_tags_are() {
    let gone = || Err(io::Error::from_raw_os_error(libc::ENODEV));
    let mut server = server(CopyMode::InCommand, op::FLUSH);
    assert_eq!(server.tags().collect::<Vec<_>>(), [(0, 0), (0, 1)]);
    let (first, second) = (server.fetch(0, 0), server.fetch(0, 1));
    assert!(matches!(server.ended(0, 1, gone(), second, AlignedBuf::new), TagAction::Gone));
    assert!(!server.is_gone());
    // A pending request is completed; the kernel then reports that the tag is gone.
    assert!(matches!(end(&mut server, Ok(0), first), TagAction::Serve { .. }));
    let commit = submitted(server.complete(0, 0, Err(libc::EIO)));
    assert!(matches!(end(&mut server, gone(), commit), TagAction::Gone));
    assert!(server.is_gone());
}

#[test]
#[should_panic(expected = "was not handed out")]
fn a_request_is_given_back_once() {
    let mut server = server(CopyMode::InCommand, op::FLUSH);
    begin(&mut server, 0);
    submitted(server.complete(0, 0, Ok(None)));
    let _twice = server.complete(0, 0, Ok(None));
}

#[test]
fn buffers_of_tags_do_not_meet() {
    assert_eq!(buffer_offset(0, 1) - buffer_offset(0, 0), 32 << 20);
    assert_eq!(buffer_offset(1, 0) - buffer_offset(0, 0), 1 << 41);
    assert!(buffer_offset(0, 4095) + (32 << 20) <= buffer_offset(1, 0));
}
