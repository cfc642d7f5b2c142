//! SR: chunks of structured replies. Layout, cookies and unknown flags of chunks are checked for every reply.

use super::common::pattern;
use crate::case::{Case, format, must, should};
use crate::session::{Answer, Mode, Request, Session};
use crate::stop::{Stop, applies, ensure};
use crate::subject::{Need, Subject};
use crate::wire::{cflag, chunk, cmd, err, flag};
use zc_core::u64_from_usize;

const STRUCTURED: &str = "Structured reply chunk message";
const READ: &str = "NBD_CMD_READ";
const TYPES: &str = "Structured reply types";
const FLAGS: &str = "Transmission flags";

pub(crate) const CASES: &[Case] = &[
    must(
        "SR-01",
        STRUCTURED,
        "READ is answered in chunks with the structured magic",
        &[Need::Structured],
        |subject| {
            read_answer(subject, 0)?.1.chunks.iter().try_for_each(|chunk| {
                ensure(chunk.kind.is_some(), || "READ was answered with a simple reply".to_owned())
            })
        },
    ),
    must(
        "SR-02",
        STRUCTURED,
        "a READ that fails is answered in chunks too",
        &[Need::Structured],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let size = session.size;
            for request in [Request::read(size, 512), Request::read(0, 512).flags(cflag::UNKNOWN)] {
                let (_, answer) = session.call(request)?;
                ensure(answer.error() != 0, || "it succeeded".to_owned())?;
            }
            session.still_serves()
        },
    ),
    must(
        "SR-03",
        TYPES,
        "chunks of a READ are of known types and hold what their types need",
        &[Need::Structured],
        |subject| {
            let (_, answer) = read_answer(subject, 0)?;
            let known = |kind: Option<u16>| matches!(kind, Some(chunk::NONE | chunk::DATA | chunk::HOLE));
            ensure(answer.chunks.iter().all(|chunk| known(chunk.kind)), || "another type came".to_owned())
        },
    ),
    must(
        "SR-04",
        READ,
        "chunks cover the request, inside of it and without overlap",
        &[Need::Structured],
        |subject| {
            let (request, answer) = read_answer(subject, 0)?;
            answer.data(&request).map(drop)
        },
    ),
    must(
        "SR-05",
        "Structured reply flags",
        "the DONE flag is on the last chunk and only there",
        &[Need::Structured],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let requests =
                [0, 1, 2].map(|at| session.number(Request::read(at * subject.unit(), subject.unit())));
            for request in &requests {
                session.send(request)?;
            }
            session.answers(&requests)?;
            session.still_serves()
        },
    ),
    must("SR-06", READ, "with DF a READ of 64 KiB has one content chunk", &[Need::Df], |subject| {
        let mut session = subject.session(Mode::Structured)?;
        let length = session.size.min(1 << 16);
        let (request, answer) = session.call(Request::read(0, length).flags(cflag::DF))?;
        answer.data(&request)?;
        let content = answer.content()?;
        ensure(content == [(0, length)], || format!("the content chunks are {content:?}"))
    }),
    must(
        "SR-07",
        READ,
        "with DF data beside zeroes come as one data chunk",
        &[Need::Df, Need::Write, Need::Zeroes],
        |subject| {
            let (unit, offset) = (subject.unit(), subject.unit() * 120);
            let mut session = subject.session(Mode::Structured)?;
            mixed(&mut session, offset, unit)?;
            let (request, answer) = session.call(Request::read(offset, 4 * unit).flags(cflag::DF))?;
            answer.data(&request)?;
            let data = answer.chunks.iter().filter(|chunk| chunk.kind == Some(chunk::DATA)).count();
            let holes = answer.chunks.iter().filter(|chunk| chunk.kind == Some(chunk::HOLE)).count();
            ensure(data == 1 && holes == 0, || format!("{data} data chunks and {holes} holes"))
        },
    ),
    must(
        "SR-08",
        READ,
        "with DF a long READ has one content chunk or fails with EOVERFLOW",
        &[Need::Df, Need::Large],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let length = subject.payload_max().min(16 << 20);
            let (request, answer) = session.call(Request::read(0, length).flags(cflag::DF))?;
            if answer.error() != 0 {
                answer.failed(&request, &[err::EOVERFLOW])?;
                return ensure(answer.content()?.is_empty(), || "it failed and has content".to_owned());
            }
            answer.data(&request)?;
            let count = answer.content()?.len();
            ensure(count == 1, || format!("{count} content chunks"))
        },
    ),
    must(
        "SR-09",
        READ,
        "a READ over data and zeroes returns both",
        &[Need::Structured, Need::Write, Need::Zeroes],
        |subject| {
            let (unit, offset) = (subject.unit(), subject.unit() * 124);
            let mut session = subject.session(Mode::Structured)?;
            let expected = mixed(&mut session, offset, unit)?;
            ensure(session.read(offset, 4 * unit)? == expected, || "the bytes read are others".to_owned())
        },
    ),
    should(
        "SR-10",
        READ,
        "chunks of an aligned READ have offsets and lengths of 512 bytes",
        &[Need::Structured],
        |subject| {
            let content = read_answer(subject, 0)?.1.content()?;
            let aligned = |(at, length): &(u64, u64)| at.is_multiple_of(512) && length.is_multiple_of(512);
            ensure(content.iter().all(aligned), || format!("the chunks are {content:?}"))
        },
    ),
    must(
        "SR-11",
        TYPES,
        "no chunk holds more data than the maximum payload",
        &[Need::Structured, Need::Large, Need::BlockSize],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let length = session.size.min(48 << 20);
            applies(length > subject.payload_max(), "the maximum payload is larger than the export")?;
            let (request, answer) = session.call(Request::read(0, length))?;
            if answer.error() == 0 {
                answer.data(&request)?;
            }
            let data = answer.chunks.iter().filter(|chunk| chunk.kind == Some(chunk::DATA));
            let longest = data.map(|chunk| u64_from_usize(chunk.payload.len())).max().unwrap_or_default();
            ensure(longest <= subject.payload_max() + 8, || format!("a chunk has {longest} bytes"))
        },
    ),
    must(
        "SR-12",
        STRUCTURED,
        "WRITE is answered with a simple reply or chunks without content",
        &[Need::Structured, Need::Write],
        |subject| {
            let (offset, length) = (subject.unit() * 128, subject.unit());
            let mut session = subject.session(Mode::Structured)?;
            let answer = session.ok(Request::write(offset, pattern(12, length)))?;
            let kinds: Vec<Option<u16>> = answer.chunks.iter().map(|chunk| chunk.kind).collect();
            ensure(kinds == [None] || kinds == [Some(chunk::NONE)], || format!("the chunks are {kinds:?}"))
        },
    ),
    should(
        "SR-13",
        STRUCTURED,
        "errors of other commands come in chunks, with room for a text",
        &[Need::Structured],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let (_, answer) = session.call(Request::new(cmd::UNKNOWN, 0, 0))?;
            ensure(answer.chunks.iter().all(|chunk| chunk.kind.is_some()), || {
                "a simple reply came".to_owned()
            })
        },
    ),
    should("SR-14", READ, "an error is reported by one chunk", &[Need::Structured], |subject| {
        let mut session = subject.session(Mode::Structured)?;
        let size = session.size;
        let (_, answer) = session.call(Request::read(size, 512))?;
        let errors = answer.chunks.iter().filter(|chunk| chunk.error != 0).count();
        ensure(errors == 1, || format!("{errors} chunks report an error"))
    }),
    format(
        "SR-15",
        READ,
        "a READ beyond the end has no content outside of the export",
        &[Need::Structured],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let (size, unit) = (session.size, subject.unit());
            let (_, answer) = session.call(Request::read(size - size.min(unit), 2 * unit))?;
            ensure(answer.error() != 0, || "it succeeded".to_owned())?;
            let outside = answer.content()?.into_iter().any(|(at, length)| at.saturating_add(length) > size);
            ensure(!outside, || "it has".to_owned())
        },
    ),
    must(
        "SR-16",
        "Transmission",
        "32 reads of 64 KiB in flight are put together from their own chunks",
        &[Need::Structured, Need::Large],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let requests: Vec<Request> =
                (0..32).map(|number| session.number(Request::read(number << 16, 1 << 16))).collect();
            for request in &requests {
                session.send(request)?;
            }
            for (request, answer) in requests.iter().zip(session.answers(&requests)?) {
                answer.data(request)?;
            }
            session.still_serves()
        },
    ),
    should(
        "SR-17",
        READ,
        "a READ of zero bytes in structured replies does not end the session",
        &[Need::Structured],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let (_, answer) = session.call(Request::read(0, 0))?;
            ensure(answer.chunks.iter().all(|chunk| chunk.kind.is_some()), || {
                "a simple reply came".to_owned()
            })?;
            session.still_serves()
        },
    ),
    should(
        "SR-18",
        READ,
        "one more byte than the maximum payload is served in chunks, or fails and goes on",
        &[Need::Structured, Need::Large],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let length = subject.payload_max() + subject.unit();
            applies(
                length <= session.size.min(48 << 20),
                "the export is not larger than the maximum payload",
            )?;
            let (request, answer) = session.call(Request::read(0, length))?;
            if answer.error() == 0 {
                answer.data(&request)?;
            }
            session.still_serves()
        },
    ),
    must("SR-19", FLAGS, "NBD_FLAG_SEND_DF is set if DF is taken", &[Need::Structured], |subject| {
        let mut session = subject.session(Mode::Structured)?;
        let (_, answer) = session.call(Request::read(0, subject.unit()).flags(cflag::DF))?;
        let (offered, taken) = (session.flags & flag::DF != 0, answer.error() == 0);
        ensure(offered == taken, || format!("offered: {offered}, taken: {taken}"))
    }),
    must(
        "SR-20",
        "Structured reply chunk message",
        "zeroes and data written just now are read right by a long READ",
        &[Need::Structured, Need::Write, Need::Zeroes, Need::Large],
        |subject| {
            let unit = subject.unit();
            let mut session = subject.session(Mode::Structured)?;
            let from = 8 << 20;
            session.ok(Request::new(cmd::WRITE_ZEROES, from, 1 << 20))?;
            let data = pattern(20, unit);
            for at in [0, 7 * unit, 64 * unit] {
                session.write(from + at, &data)?;
            }
            let found = session.read(from, 1 << 20)?;
            let mut expected = vec![0; 1 << 20];
            for at in [0, 7 * unit, 64 * unit] {
                let at = zc_core::usize_from_u64(at);
                if at + data.len() <= expected.len() {
                    expected[at..at + data.len()].copy_from_slice(&data);
                }
            }
            ensure(found == expected, || "the bytes read are others".to_owned())
        },
    ),
];

/// A successful READ of 32 units.
fn read_answer(subject: &Subject, offset: u64) -> Result<(Request, Answer), Stop> {
    let mut session = subject.session(Mode::Structured)?;
    let length = (subject.unit() * 32).min(session.size / subject.unit() * subject.unit());
    let (request, answer) = session.call(Request::read(offset, length))?;
    answer.succeeded(&request)?;
    Ok((request, answer))
}

/// Writes data, two units of zeroes, data; returns the resulting contents.
fn mixed(session: &mut Session, offset: u64, unit: u64) -> Result<Vec<u8>, Stop> {
    let mut expected = pattern(7, 4 * unit);
    session.write(offset, &expected)?;
    session.ok(Request::new(cmd::WRITE_ZEROES, offset + unit, 2 * unit))?;
    let unit = zc_core::usize_from_u64(unit);
    expected[unit..3 * unit].fill(0);
    Ok(expected)
}
