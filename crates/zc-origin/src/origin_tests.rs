//! Origins on real files, through a real ring.

use std::os::fd::AsRawFd as _;
use std::path::Path;

use proptest::prelude::*;
use zc_core::ErrorKind;
use zc_io::{AlignedBuf, Arena, Operation, Ring, RingOptions, Segment, Target};

use crate::{Finished, Job, JobStep, Likeness, Origin, OriginOptions, OriginRequest, RequestClass, compare};

const LEN: u64 = 1 << 20;
const WRITE: OriginOptions = OriginOptions { write: true, direct: Some(false), create_len: Some(LEN) };
const DIRECT: OriginOptions = OriginOptions { direct: Some(true), ..WRITE };

pub(crate) fn dir() -> tempfile::TempDir {
    // Not the default folder: that may be a tmpfs, and O_DIRECT is tested here.
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// Runs one operation of a request.
fn carry_out(origin: &mut Origin, job: Job, operation: Operation) -> JobStep {
    let mut ring = Ring::new(RingOptions { entries: 1, ops_max: 1, poll_max_us: 0 }).unwrap();
    let mut out = Vec::new();
    ring.submit(operation, 0).unwrap();
    ring.submit_and_wait(1, None, &mut out).unwrap();
    let completion = out.remove(0);
    origin.advance(job, completion.result, completion.operation)
}

/// Drives one request to completion; returns its operations as well.
fn drive(origin: &mut Origin, request: OriginRequest) -> (Finished, Vec<String>) {
    let mut names = Vec::new();
    let mut step = origin.start(request);
    loop {
        match step {
            JobStep::Done(finished) => return (finished, names),
            JobStep::Submit(job, operation) => {
                let name = format!("{operation:?}");
                names.push(name.split([' ', '{']).next().unwrap().to_owned());
                step = carry_out(origin, job, operation);
            }
        }
    }
}

pub(crate) fn write(origin: &mut Origin, offset: u64, bytes: &[u8], fua: bool) -> Result<(), ErrorKind> {
    let segments = vec![Segment::whole(AlignedBuf::from(bytes))];
    let request = OriginRequest::Write { offset, segments, fua };
    drive(origin, request).0.result.map_err(|error| error.kind())
}

pub(crate) fn read(origin: &mut Origin, offset: u64, len: usize) -> Result<Vec<u8>, ErrorKind> {
    let mut buf = AlignedBuf::new(len);
    buf.fill(0xee);
    let (finished, _) = drive(origin, OriginRequest::Read { offset, target: Target::whole(buf) });
    finished.result.map_err(|error| error.kind())?;
    Ok(finished.target.unwrap().bytes().to_vec())
}

pub(crate) fn simple(origin: &mut Origin, request: OriginRequest) -> (Result<(), ErrorKind>, Vec<String>) {
    let (finished, names) = drive(origin, request);
    (finished.result.map_err(|error| error.kind()), names)
}

fn open(dir: &Path, options: OriginOptions) -> Origin {
    let path = dir.join("origin");
    // A test that starts a program forks: until exec, the child holds locks that were released here.
    if let Ok(file) = std::fs::File::open(&path) {
        file.lock().unwrap();
    }
    Origin::open(&path, options).unwrap()
}

#[test]
fn bytes_are_where_they_were_put_with_and_without_the_page_cache() {
    for options in [WRITE, DIRECT] {
        let dir = dir();
        let mut origin = open(dir.path(), options);
        assert_eq!(origin.caps().direct_writes, options == DIRECT);
        write(&mut origin, 512, &[7; 1024], true).unwrap();
        write(&mut origin, 4096, &[8; 8192], false).unwrap();
        assert_eq!(read(&mut origin, 512, 1024).unwrap(), [7; 1024]);
        assert_eq!(read(&mut origin, 4096, 8192).unwrap(), [8; 8192]);
        simple(&mut origin, OriginRequest::Flush).0.unwrap();
        let raw = std::fs::read(dir.path().join("origin")).unwrap();
        assert_eq!((raw.len(), &raw[512..1536]), (1 << 20, &[7; 1024][..]));
        assert_eq!(&raw[4096..12_288], &[8; 8192]);
    }
}

#[test]
fn memory_that_direct_io_does_not_take_works_too() {
    let dir = dir();
    let mut origin = open(dir.path(), DIRECT);
    assert!(origin.caps().direct_writes);
    let arena = Arena::new(AlignedBuf::new(8192));
    arena.lease(101..1125).fill(3);
    let part = |range| Segment::whole(arena.read_lease(range));
    let request =
        || OriginRequest::Write { offset: 512, segments: vec![part(101..200), part(200..1125)], fua: false };
    // Some file systems accept any memory, so the submitted segments are checked as well.
    let JobStep::Submit(_, Operation::Write { segments, .. }) = origin.start(request()) else { panic!() };
    assert!(segments.iter().all(|segment| segment.is_aligned(512)));
    simple(&mut origin, request()).0.unwrap();
    let odd = OriginRequest::Read { offset: 512, target: Target::whole(arena.lease(3001..4025)) };
    let even = OriginRequest::Read { offset: 512, target: Target::whole(AlignedBuf::new(1024)) };
    let mut fds = Vec::new();
    for request in [odd, even] {
        let JobStep::Submit(job, operation) = origin.start(request) else { panic!() };
        let Operation::Read { ref fd, .. } = operation else { panic!() };
        fds.push(fd.as_raw_fd());
        let JobStep::Done(finished) = carry_out(&mut origin, job, operation) else { panic!() };
        finished.result.unwrap();
        assert_eq!(finished.target.unwrap().bytes(), [3; 1024]);
    }
    assert_ne!(fds[0], fds[1], "only the aligned read goes past the page cache");
}

#[test]
fn bytes_past_the_end_read_as_zero_and_are_not_written() {
    let dir = dir();
    let path = dir.path().join("origin");
    std::fs::write(&path, [5; 1636]).unwrap();
    let error = Origin::open(&path, WRITE).unwrap_err().to_string();
    assert!(error.contains("not whole sectors of 512, and the last 100"), "{error}");
    std::fs::write(&path, [5; 1536]).unwrap();
    let mut origin = open(dir.path(), WRITE);
    assert_eq!((origin.len_bytes(), origin.is_created()), (1536, false));
    let bytes = read(&mut origin, 1024, 2048).unwrap();
    assert_eq!((&bytes[..512], &bytes[512..]), (&[5; 512][..], &[0; 1536][..]));
    assert_eq!(read(&mut origin, 1 << 40, 512).unwrap(), [0; 512]);
    assert_eq!(write(&mut origin, 1024, &[1; 1024], false), Err(ErrorKind::Invalid));
    assert_eq!(std::fs::read(&path).unwrap(), [5; 1536]);
}

#[test]
fn a_file_that_grows_is_read_and_written_to_its_new_end_once_that_is_taken_up() {
    let dir = dir();
    let mut origin = open(dir.path(), WRITE);
    assert_eq!(origin.measure(None).unwrap(), LEN);
    assert_eq!(origin.measure(Some(LEN - 512)).unwrap(), LEN, "it is not made shorter");
    assert!(origin.measure(Some(LEN + 500)).unwrap_err().to_string().contains("truncate --size=%512"));
    assert_eq!(origin.measure(Some(LEN + 512)).unwrap(), LEN + 512);
    assert_eq!(origin.len_bytes(), LEN);
    assert_eq!(write(&mut origin, LEN, &[1; 512], false), Err(ErrorKind::Invalid));
    origin.take_up_length(LEN + 512);
    origin.take_up_length(512);
    write(&mut origin, LEN, &[1; 512], false).unwrap();
    assert_eq!(read(&mut origin, LEN, 1024).unwrap(), [[1; 512], [0; 512]].concat());
    drop(origin);
    let reader = open(dir.path(), OriginOptions { write: false, ..WRITE });
    assert!(reader.measure(Some(LEN << 1)).unwrap_err().to_string().contains("for reading"));
}

#[test]
fn a_file_that_shrank_is_an_io_error_and_not_zeros() {
    let dir = dir();
    let mut origin = open(dir.path(), WRITE);
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("origin"))
        .and_then(|file| file.set_len(4096))
        .unwrap();
    assert_eq!(read(&mut origin, 4096, 512), Err(ErrorKind::Io));
    assert_eq!(origin.length_probe().measure().unwrap(), 4096);
}

#[test]
fn an_origin_that_is_withdrawn_takes_no_request_that_would_make_it_longer() {
    let dir = dir();
    let mut origin = open(dir.path(), WRITE);
    origin.withdraw();
    let len_bytes = origin.len_bytes();
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("origin"))
        .and_then(|file| file.set_len(4096))
        .unwrap();
    assert_eq!(write(&mut origin, len_bytes - 512, &[1; 512], false), Err(ErrorKind::Io));
    assert_eq!(read(&mut origin, 0, 512), Err(ErrorKind::Io));
    assert_eq!(origin.length_probe().measure().unwrap(), 4096);
}

#[test]
fn malformed_and_forbidden_requests_are_refused_without_io() {
    let dir = dir();
    let mut origin = open(dir.path(), WRITE);
    assert_eq!(write(&mut origin, 1, &[0; 512], false), Err(ErrorKind::Invalid));
    assert_eq!(write(&mut origin, 0, &[0; 511], false), Err(ErrorKind::Invalid));
    assert_eq!(write(&mut origin, u64::MAX - 511, &[0; 512], false), Err(ErrorKind::Invalid));
    drop(origin);
    let mut origin = open(dir.path(), OriginOptions::default());
    assert_eq!(write(&mut origin, 0, &[0; 512], false), Err(ErrorKind::ReadOnly));
    let trim = OriginRequest::Trim { offset: 0, len: 512, fua: false };
    assert_eq!(simple(&mut origin, trim), (Err(ErrorKind::ReadOnly), Vec::new()));
    assert_eq!(read(&mut origin, 0, 512).unwrap(), [0; 512]);
}

#[test]
fn trims_and_zero_writes_leave_zeros_and_neighbours() {
    for (no_hole, fua) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = dir();
        let mut origin = open(dir.path(), WRITE);
        write(&mut origin, 0, &[9; 65_536], false).unwrap();
        let zero = OriginRequest::WriteZeroes { offset: 512, len: 16_384, no_hole, fua };
        let (result, names) = simple(&mut origin, zero);
        result.unwrap();
        assert_eq!(names.last().is_some_and(|name| name == "Fsync"), fua);
        simple(&mut origin, OriginRequest::Trim { offset: 32_768, len: 4096, fua }).0.unwrap();
        let bytes = read(&mut origin, 0, 65_536).unwrap();
        for (at, byte) in bytes.into_iter().enumerate() {
            let zero = (512..16_896).contains(&at) || (32_768..36_864).contains(&at);
            assert_eq!(byte, if zero { 0 } else { 9 }, "byte {at}");
        }
    }
}

/// Results of a device without fallocate, discard and durable writes, substituted for the real ones.
#[test]
fn what_an_origin_cannot_do_is_done_another_way_and_remembered() {
    let dir = dir();
    let mut origin = open(dir.path(), OriginOptions { create_len: Some(8 << 20), ..WRITE });
    let unsupported = || std::io::Error::from(rustix::io::Errno::OPNOTSUPP);
    let zero = OriginRequest::WriteZeroes { offset: 512, len: (5 << 20) / 2, no_hole: true, fua: true };
    let JobStep::Submit(job, operation) = origin.start(zero) else { panic!() };
    assert!(matches!(operation, Operation::Fallocate { .. }));
    let mut step = origin.advance(job, Err(unsupported()), operation);
    let mut pieces = Vec::new();
    loop {
        let JobStep::Submit(job, operation) = step else { panic!("{step:?}") };
        let Operation::Write { offset, ref segments, durable: false, .. } = operation else { break };
        assert!(segments[0].bytes().iter().all(|&byte| byte == 0));
        let len = segments[0].len_bytes();
        pieces.push((offset, len));
        step = origin.advance(job, Ok(len), operation);
    }
    assert_eq!(pieces, [(512, 1 << 20), ((1 << 20) + 512, 1 << 20), ((2 << 20) + 512, 1 << 19)]);
    assert!(!origin.caps().can_zero && origin.caps().can_punch);

    let trim = || OriginRequest::Trim { offset: 0, len: 512, fua: false };
    let JobStep::Submit(job, operation) = origin.start(trim()) else { panic!() };
    let JobStep::Done(finished) = origin.advance(job, Err(unsupported()), operation) else { panic!() };
    finished.result.unwrap();
    assert_eq!(simple(&mut origin, trim()), (Ok(()), Vec::new()));

    let zero = OriginRequest::WriteZeroes { offset: 0, len: 512, no_hole: false, fua: false };
    let JobStep::Submit(job, operation) = origin.start(zero) else { panic!() };
    let busy = std::io::Error::from(rustix::io::Errno::BUSY);
    let JobStep::Submit(_, operation) = origin.advance(job, Err(busy), operation) else { panic!() };
    assert!(matches!(operation, Operation::Write { .. }) && origin.caps().can_punch);

    let durable = |fua| OriginRequest::Write { offset: 0, segments: Vec::new(), fua };
    let JobStep::Submit(job, operation) = origin.start(durable(true)) else { panic!() };
    assert!(matches!(operation, Operation::Write { durable: true, .. }));
    let JobStep::Submit(beside, second) = origin.start(durable(true)) else { panic!() };
    let JobStep::Submit(job, operation) = origin.advance(job, Err(unsupported()), operation) else {
        panic!()
    };
    let JobStep::Submit(_, second) = origin.advance(beside, Err(unsupported()), second) else { panic!() };
    assert!(matches!(second, Operation::Write { durable: false, .. }), "the one beside it is repeated, too");
    assert!(matches!(operation, Operation::Write { durable: false, .. }));
    let JobStep::Submit(_, operation) = origin.advance(job, Ok(0), operation) else { panic!() };
    assert!(matches!(operation, Operation::Fsync { .. }));
    assert_eq!(simple(&mut origin, durable(true)), (Ok(()), vec!["Write".to_owned(), "Fsync".to_owned()]));
    assert_eq!(simple(&mut origin, durable(false)), (Ok(()), vec!["Write".to_owned()]));
}

#[test]
fn a_failed_operation_is_a_failed_request() {
    let dir = dir();
    let mut origin = open(dir.path(), WRITE);
    let requests = || {
        [
            OriginRequest::Read { offset: 0, target: Target::whole(AlignedBuf::new(512)) },
            OriginRequest::Write { offset: 0, segments: Vec::new(), fua: true },
            OriginRequest::Flush,
            OriginRequest::Trim { offset: 0, len: 512, fua: true },
            OriginRequest::WriteZeroes { offset: 0, len: 512, no_hole: false, fua: true },
        ]
    };
    for request in requests() {
        let class = request.class();
        let JobStep::Submit(job, operation) = origin.start(request) else { panic!() };
        let error = std::io::Error::from(rustix::io::Errno::NOSPC);
        let JobStep::Done(finished) = origin.advance(job, Err(error), operation) else { panic!("{class:?}") };
        assert_eq!(finished.result.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(finished.target.is_some(), class == RequestClass::Read);
    }
}

#[test]
fn a_write_by_another_program_shows_in_the_identity() {
    let dir = dir();
    let origin = open(dir.path(), WRITE);
    let before = origin.identity().unwrap();
    drop(origin);
    assert_eq!(compare(&before, &open(dir.path(), WRITE).identity().unwrap()), Likeness::Same);
    std::fs::write(dir.path().join("origin"), vec![1; 1 << 20]).unwrap();
    let after = open(dir.path(), WRITE).identity().unwrap();
    assert!(matches!(compare(&before, &after), Likeness::Changed(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Random requests, direct and buffered, compared with the same on memory.
    #[test]
    fn an_origin_agrees_with_memory(
        direct in any::<bool>(),
        ops in prop::collection::vec((0usize..120, 1usize..40, 0u8..6, any::<bool>()), 1..40)
    ) {
        let dir = dir();
        let mut origin = open(dir.path(), if direct { DIRECT } else { WRITE });
        let mut model = vec![0_u8; 160 * 512];
        for (number, (first, count, what, flag)) in ops.into_iter().enumerate() {
            let fill = u8::try_from(number + 1).unwrap();
            let (offset, len) = (u64::try_from(first * 512).unwrap(), u64::try_from(count * 512).unwrap());
            let range = first * 512..(first + count) * 512;
            match what {
                0 | 1 => {
                    write(&mut origin, offset, &vec![fill; count * 512], flag).unwrap();
                    model[range].fill(fill);
                }
                2 => {
                    let zero = OriginRequest::WriteZeroes { offset, len, no_hole: flag, fua: false };
                    simple(&mut origin, zero).0.unwrap();
                    model[range].fill(0);
                }
                // A trimmed file reads as zero here; the contract is weaker.
                3 => {
                    simple(&mut origin, OriginRequest::Trim { offset, len, fua: flag }).0.unwrap();
                    model[range].fill(0);
                }
                4 => simple(&mut origin, OriginRequest::Flush).0.unwrap(),
                _ => prop_assert_eq!(&read(&mut origin, offset, count * 512).unwrap(), &model[range]),
            }
        }
        prop_assert_eq!(read(&mut origin, 0, model.len()).unwrap(), model);
    }
}
