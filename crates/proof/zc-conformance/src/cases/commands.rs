//! TR: requests that succeed, in every kind of reply: data, cookies, many in flight, FUA, flush, disconnect.

use super::common::{commands, in_every_mode, pattern};
use crate::case::{Case, format, must, should};
use crate::session::{Mode, Request, Session};
use crate::stop::{Check, Stop, ensure, or_closed};
use crate::subject::{Need, Subject};
use crate::wire::{cflag, cmd, err, error_name};
use zc_core::u64_from_usize;

const REQUEST: &str = "Request message";
const TRANSMISSION: &str = "Transmission";
const SIMPLE: &str = "Simple reply message";
const ORDERING: &str = "Ordering of messages and writes";
const BASELINE: &str = "Baseline";
const READ: &str = "NBD_CMD_READ";
const WRITE: &str = "NBD_CMD_WRITE";
const DISC: &str = "NBD_CMD_DISC";
const ZEROES: &str = "NBD_CMD_WRITE_ZEROES";
const FUA: &str = "Command flags";
const SIZES: &str = "Size constraints";

pub(crate) const CASES: &[Case] = &[
    must(
        "TR-01",
        SIMPLE,
        "READ is answered with the simple magic, its cookie and its bytes",
        &[Need::Plain],
        |subject| {
            let length = subject.unit();
            subject.session(Mode::Simple)?.read(0, length).map(drop)
        },
    ),
    must("TR-02", READ, "reading twice returns the same bytes", &[Need::Plain], |subject| {
        let length = subject.unit();
        in_every_mode(subject, |session| {
            let first = session.read(0, length)?;
            ensure(first == session.read(0, length)?, || "the bytes differ".to_owned())
        })
    }),
    must("TR-03", WRITE, "what was written is read", &[Need::Write], |subject| {
        let (offset, length) = (subject.unit() * 2, subject.unit() * 2);
        let seed = std::cell::Cell::new(3);
        in_every_mode(subject, |session| {
            seed.set(seed.get() + 1);
            write_and_read(session, offset, &pattern(seed.get(), length))
        })
    }),
    must(
        "TR-04",
        TRANSMISSION,
        "cookies are opaque: zero, all ones and any other come back",
        &[Need::Plain],
        |subject| {
            let length = subject.unit();
            in_every_mode(subject, |session| {
                for cookie in [0, u64::MAX, 1, 1 << 63, 0x0102_0304_0506_0708] {
                    let request = Request { cookie, ..Request::read(0, length) };
                    session.send(&request)?;
                    session.answer(&request)?.data(&request)?;
                }
                Ok(())
            })
        },
    ),
    must(
        "TR-05",
        TRANSMISSION,
        "the same cookie in several requests is echoed for each",
        &[Need::Plain],
        |subject| {
            let length = subject.unit();
            in_every_mode(subject, |session| {
                let request = Request { cookie: 7, ..Request::read(0, length) };
                for _ in 0..4 {
                    session.send(&request)?;
                }
                let mut ends = 0;
                while ends < 4 {
                    ends += u32::from(session.chunk(std::slice::from_ref(&request))?.is_last());
                }
                session.still_serves()
            })
        },
    ),
    must(
        "TR-06",
        TRANSMISSION,
        "64 reads in flight are each answered once, with their own bytes",
        &[Need::Plain],
        |subject| {
            let length = subject.unit();
            in_every_mode(subject, |session| many_reads(session, length, 64))
        },
    ),
    must(
        "TR-07",
        TRANSMISSION,
        "reads and writes in flight are each answered once",
        &[Need::Write],
        |subject| {
            let unit = subject.unit();
            in_every_mode(subject, |session| {
                let mut requests = Vec::new();
                for number in 0..32 {
                    let offset = (16 + number) * unit;
                    requests.push(session.number(Request::write(offset, pattern(number, unit))));
                    requests.push(session.number(Request::read(0, unit)));
                }
                for request in &requests {
                    session.send(request)?;
                }
                for (request, answer) in requests.iter().zip(session.answers(&requests)?) {
                    answer.succeeded(request)?;
                }
                for number in 0..32 {
                    let found = session.read((16 + number) * unit, unit)?;
                    ensure(found == pattern(number, unit), || format!("write {number} is not what is read"))?;
                }
                Ok(())
            })
        },
    ),
    format("TR-08", REQUEST, "a request that comes byte by byte is understood", &[Need::Plain], |subject| {
        let length = subject.unit();
        in_every_mode(subject, |session| {
            let request = session.number(Request::read(0, length));
            for byte in request.bytes(session.mode) {
                session.conn.send(&[byte])?;
            }
            session.answer(&request)?.data(&request).map(drop)
        })
    }),
    format("TR-09", REQUEST, "a payload that comes in pieces is put together", &[Need::Write], |subject| {
        let (offset, length) = (subject.unit() * 4, subject.unit());
        in_every_mode(subject, |session| {
            let data = pattern(9, length);
            let request = session.number(Request::write(offset, data.clone()));
            for piece in request.bytes(session.mode).chunks(101) {
                session.conn.send(piece)?;
            }
            session.answer(&request)?.succeeded(&request)?;
            ensure(session.read(offset, length)? == data, || "it is not what is read".to_owned())
        })
    }),
    format("TR-10", READ, "the last bytes of the export can be read", &[Need::Plain], |subject| {
        in_every_mode(subject, |session| {
            let minimum = session.block.map_or(1, |[minimum, _, _]| u64::from(minimum));
            let length = minimum.min(session.size);
            session.read(session.size / minimum * minimum - length, length).map(drop)
        })
    }),
    format("TR-11", WRITE, "the last bytes of the export can be written", &[Need::Write], |subject| {
        in_every_mode(subject, |session| {
            let minimum = session.block.map_or(1, |[minimum, _, _]| u64::from(minimum));
            let length = minimum.min(session.size);
            let offset = session.size / minimum * minimum - length;
            write_and_read(session, offset, &pattern(11, length))
        })
    }),
    should(
        "TR-12",
        SIZES,
        "without other constraints single bytes can be read",
        &[Need::Plain, Need::Unaligned],
        |subject| {
            in_every_mode(subject, |session| {
                let whole = session.read(0, 1024)?;
                for (offset, length) in [(0, 1), (1, 1), (511, 2), (3, 700)] {
                    let found = session.read(offset, length)?;
                    let from = zc_core::usize_from_u64(offset);
                    ensure(found[..] == whole[from..from + found.len()], || {
                        format!("{length} bytes at {offset} are others than those of a larger read")
                    })?;
                }
                Ok(())
            })
        },
    ),
    should(
        "TR-13",
        SIZES,
        "without other constraints single bytes can be written, and their neighbours stay",
        &[Need::Write, Need::Unaligned],
        |subject| {
            let offset = subject.unit() * 6;
            in_every_mode(subject, |session| {
                let mut expected = pattern(13, 8192);
                session.write(offset, &expected)?;
                for (at, length) in [(1, 1), (511, 2), (4095, 2), (5000, 1500)] {
                    let bytes = pattern(at, length);
                    session.write(offset + at, &bytes)?;
                    let from = zc_core::usize_from_u64(at);
                    expected[from..from + bytes.len()].copy_from_slice(&bytes);
                }
                ensure(session.read(offset, 8192)? == expected, || "the bytes read are others".to_owned())
            })
        },
    ),
    must("TR-14", FUA, "FUA is accepted on every command", &[Need::Plain, Need::Fua], |subject| {
        let (offset, length) = (subject.unit() * 8, subject.unit());
        let writable = subject.lacks(Need::Write).is_none();
        for mode in super::common::modes(subject) {
            let contexts: &[&str] =
                if mode != Mode::Simple && subject.offer.meta { &["base:allocation"] } else { &[] };
            let mut session = subject.session_with(mode, contexts)?;
            let mut requests = commands(&session, writable, offset, length);
            if subject.lacks(Need::Flush).is_none() {
                requests.push(Request::new(cmd::FLUSH, 0, 0));
            }
            for request in requests {
                session.ok(request.flags(cflag::FUA))?;
            }
        }
        Ok(())
    }),
    must("TR-15", WRITE, "WRITE with FUA is read back", &[Need::Write, Need::Fua], |subject| {
        let (offset, length) = (subject.unit() * 10, subject.unit());
        in_every_mode(subject, |session| {
            let data = pattern(15, length);
            session.ok(Request::write(offset, data.clone()).flags(cflag::FUA))?;
            ensure(session.read(offset, length)? == data, || "it is not what is read".to_owned())
        })
    }),
    must("TR-16", "NBD_CMD_FLUSH", "FLUSH succeeds after writes", &[Need::Flush], |subject| {
        let (offset, length) = (subject.unit() * 12, subject.unit());
        let writable = subject.lacks(Need::Write).is_none();
        in_every_mode(subject, |session| {
            if writable {
                session.write(offset, &pattern(16, length))?;
            }
            session.ok(Request::new(cmd::FLUSH, 0, 0)).map(drop)
        })
    }),
    must(
        "TR-17",
        ZEROES,
        "WRITE_ZEROES reads back as zeroes, its neighbours stay",
        &[Need::Write, Need::Zeroes],
        |subject| zeroes(subject, 0),
    ),
    must("TR-18", FUA, "WRITE_ZEROES takes NO_HOLE", &[Need::Write, Need::Zeroes], |subject| {
        zeroes(subject, cflag::NO_HOLE)
    }),
    must(
        "TR-19",
        ZEROES,
        "WRITE_ZEROES with FAST_ZERO succeeds or fails with ENOTSUP",
        &[Need::Write, Need::FastZero],
        |subject| {
            let (offset, length) = (subject.unit() * 60, subject.unit() * 2);
            in_every_mode(subject, |session| {
                let (request, answer) =
                    session.call(Request::new(cmd::WRITE_ZEROES, offset, length).flags(cflag::FAST_ZERO))?;
                answer.failed(&request, &[0, err::ENOTSUP])
            })
        },
    ),
    should(
        "TR-20",
        ZEROES,
        "a FAST_ZERO that fails leaves the bytes as they were, one that succeeds zeroes them",
        &[Need::Write, Need::FastZero],
        |subject| {
            let (offset, length) = (subject.unit() * 64, subject.unit() * 2);
            in_every_mode(subject, |session| {
                let before = pattern(20, length);
                session.write(offset, &before)?;
                let (_, answer) =
                    session.call(Request::new(cmd::WRITE_ZEROES, offset, length).flags(cflag::FAST_ZERO))?;
                let found = session.read(offset, length)?;
                let good =
                    if answer.error() == 0 { found.iter().all(|byte| *byte == 0) } else { found == before };
                ensure(good, || format!("{} and the bytes do not fit that", error_name(answer.error())))
            })
        },
    ),
    format(
        "TR-21",
        "NBD_CMD_TRIM",
        "TRIM succeeds and what lies beside it stays",
        &[Need::Write, Need::Trim],
        |subject| {
            let (unit, offset) = (subject.unit(), subject.unit() * 68);
            in_every_mode(subject, |session| {
                let data = pattern(21, unit);
                session.write(offset, &data)?;
                session.write(offset + 3 * unit, &data)?;
                session.ok(Request::new(cmd::TRIM, offset + unit, 2 * unit))?;
                let stays =
                    session.read(offset, unit)? == data && session.read(offset + 3 * unit, unit)? == data;
                ensure(stays, || "bytes beside the trimmed range changed".to_owned())
            })
        },
    ),
    must(
        "TR-22",
        "NBD_CMD_CACHE",
        "CACHE changes nothing that can be read",
        &[Need::Plain, Need::Cache],
        |subject| {
            let length = subject.unit() * 2;
            in_every_mode(subject, |session| {
                let before = session.read(0, length)?;
                session.call(Request::new(cmd::CACHE, 0, length))?;
                ensure(session.read(0, length)? == before, || "the bytes differ".to_owned())
            })
        },
    ),
    must("TR-23", DISC, "DISC ends the connection without a reply", &[Need::Plain], |subject| {
        in_every_mode(subject, |session| {
            session.still_serves()?;
            session.send(&Request::new(cmd::DISC, 0, 0))?;
            session.conn.expect_closed("after DISC")
        })
    }),
    must("TR-24", DISC, "requests in flight before DISC are handled", &[Need::Write], |subject| {
        disconnect_in_flight(subject, false)
    }),
    must(
        "TR-25",
        "Transmission flags",
        "what one connection wrote and flushed another reads",
        &[Need::Write, Need::Flush, Need::MultiConn],
        |subject| {
            let (offset, length) = (subject.unit() * 100, subject.unit());
            let mut writer = subject.session(Mode::Simple)?;
            let mut reader = subject.session(Mode::Simple)?;
            for seed in 0..8 {
                let data = pattern(250 + seed, length);
                reader.read(offset, length)?;
                writer.write(offset, &data)?;
                writer.ok(Request::new(cmd::FLUSH, 0, 0))?;
                ensure(reader.read(offset, length)? == data, || {
                    "the other connection reads older bytes".to_owned()
                })?;
            }
            Ok(())
        },
    ),
    must(
        "TR-26",
        ORDERING,
        "a flush of one connection covers the writes that another had answered",
        &[Need::Write, Need::Flush, Need::MultiConn],
        |subject| {
            let (offset, length) = (subject.unit() * 104, subject.unit());
            let mut writer = subject.session(Mode::Simple)?;
            let mut other = subject.session(Mode::Simple)?;
            let data = pattern(26, length);
            writer.write(offset, &data)?;
            other.ok(Request::new(cmd::FLUSH, 0, 0))?;
            ensure(other.read(offset, length)? == data, || {
                "the other connection reads older bytes".to_owned()
            })
        },
    ),
    must(
        "TR-27",
        "Transmission flags",
        "a write with FUA is seen by other connections",
        &[Need::Write, Need::Fua, Need::MultiConn],
        |subject| {
            let (offset, length) = (subject.unit() * 108, subject.unit());
            let mut writer = subject.session(Mode::Simple)?;
            let mut reader = subject.session(Mode::Simple)?;
            for seed in 0..8 {
                let data = pattern(270 + seed, length);
                reader.read(offset, length)?;
                writer.ok(Request::write(offset, data.clone()).flags(cflag::FUA))?;
                ensure(reader.read(offset, length)? == data, || {
                    "the other connection reads older bytes".to_owned()
                })?;
            }
            Ok(())
        },
    ),
    should(
        "TR-28",
        SIZES,
        "a READ of 32 MiB does not end the session",
        &[Need::Plain, Need::Large],
        |subject| {
            in_every_mode(subject, |session| {
                let (request, answer) = session.call(Request::read(0, 32 << 20))?;
                if answer.error() == 0 {
                    answer.data(&request)?;
                }
                session.still_serves()
            })
        },
    ),
    should(
        "TR-29",
        SIZES,
        "a WRITE of 32 MiB does not end the session",
        &[Need::Write, Need::Large],
        |subject| {
            let data = pattern(29, 32 << 20);
            in_every_mode(subject, |session| {
                let (_, answer) = session.call(Request::write(16 << 20, data.clone()))?;
                if answer.error() == 0 {
                    let at = (16 << 20) + (20 << 20);
                    let found = session.read(at, 4096)?;
                    let from = 20 << 20;
                    ensure(found[..] == data[from..from + found.len()], || {
                        "it is not what is read".to_owned()
                    })?;
                }
                session.still_serves()
            })
        },
    ),
    should(
        "TR-30",
        SIZES,
        "TRIM of 4 GiB - 1 or up to the end does not end the session",
        &[Need::Write, Need::Trim],
        |subject| large_effect(subject, cmd::TRIM),
    ),
    should(
        "TR-31",
        SIZES,
        "WRITE_ZEROES of 4 GiB - 1 or up to the end does not end the session",
        &[Need::Write, Need::Zeroes],
        |subject| large_effect(subject, cmd::WRITE_ZEROES),
    ),
    should("TR-32", READ, "READ of zero bytes does not end the session", &[Need::Plain], |subject| {
        empty(subject, cmd::READ)
    }),
    should("TR-33", WRITE, "WRITE of zero bytes does not end the session", &[Need::Write], |subject| {
        empty(subject, cmd::WRITE)
    }),
    should(
        "TR-34",
        "NBD_CMD_TRIM",
        "TRIM of zero bytes does not end the session",
        &[Need::Write, Need::Trim],
        |subject| empty(subject, cmd::TRIM),
    ),
    should(
        "TR-35",
        ZEROES,
        "WRITE_ZEROES of zero bytes does not end the session",
        &[Need::Write, Need::Zeroes],
        |subject| empty(subject, cmd::WRITE_ZEROES),
    ),
    format(
        "TR-36",
        BASELINE,
        "4 connections at once are served",
        &[Need::Plain, Need::MultiConn],
        |subject| {
            let mut sessions = Vec::new();
            for _ in 0..16 {
                sessions.push(subject.session(Mode::Simple)?);
            }
            sessions.iter_mut().try_for_each(Session::still_serves)
        },
    ),
    format(
        "TR-37",
        TRANSMISSION,
        "a client that vanishes amid a WRITE does not disturb the next",
        &[Need::Write],
        |subject| {
            let (offset, length) = (subject.unit() * 112, subject.unit());
            let mut session = subject.session(Mode::Simple)?;
            let request = session.number(Request::write(offset, pattern(37, length)));
            let mut bytes = request.bytes(Mode::Simple);
            bytes.truncate(bytes.len() / 2);
            session.conn.send(&bytes)?;
            drop(session);
            subject.session(Mode::Simple)?.still_serves()
        },
    ),
    format("TR-38", REQUEST, "a request without the magic is not served", &[Need::Plain], |subject| {
        let length = subject.unit();
        let mut session = subject.session(Mode::Simple)?;
        let request = session.number(Request::read(0, length));
        let mut bytes = request.bytes(Mode::Simple);
        bytes[1] ^= 0xff;
        session.conn.send(&bytes)?;
        session.conn.close_write()?;
        match session.answer(&request) {
            Ok(answer) => ensure(answer.error() != 0, || "it was served".to_owned()),
            Err(Stop::Closed(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }),
    format("TR-39", DISC, "requests in flight before DISC are replied to", &[Need::Write], |subject| {
        disconnect_in_flight(subject, true)
    }),
];

/// Sends 16 writes and DISC at once; afterwards another connection reads the data. A server that need not reply may
/// close at any time.
fn disconnect_in_flight(subject: &Subject, replies: bool) -> Check {
    let (unit, first) = (subject.unit(), subject.unit() * 80);
    let seed = if replies { 39 } else { 24 };
    in_every_mode(subject, |session| {
        let data = pattern(seed, unit);
        let mut requests = Vec::new();
        for number in 0..16 {
            requests.push(session.number(Request::write(first + number * unit, data.clone())));
        }
        let mut bytes: Vec<u8> = requests.iter().flat_map(|request| request.bytes(session.mode)).collect();
        bytes.extend(Request::new(cmd::DISC, 0, 0).bytes(session.mode));
        session.conn.send(&bytes)?;
        let answers = session.answers(&requests);
        let answers = if replies { Some(answers?) } else { or_closed(answers)? };
        // A write reported with ESHUTDOWN was handled too; all the others must be present afterwards.
        let mut failed = [false; 16];
        if let Some(answers) = answers {
            for ((request, answer), failed) in requests.iter().zip(answers).zip(&mut failed) {
                answer.failed(request, &[0, err::ESHUTDOWN])?;
                *failed = answer.error() != 0;
            }
            session.conn.expect_closed("after DISC")?;
        }
        let mut after = subject.session(session.mode)?;
        for number in (0..16).zip(failed).filter(|(_, failed)| !failed).map(|(number, _)| number) {
            let found = after.read(first + number * unit, unit)?;
            ensure(found == data, || format!("write {number} before DISC is not what is read"))?;
        }
        Ok(())
    })
}

fn write_and_read(session: &mut Session, offset: u64, data: &[u8]) -> Check {
    session.write(offset, data)?;
    let found = session.read(offset, u64_from_usize(data.len()))?;
    ensure(found == data, || "what is read is not what was written".to_owned())
}

fn many_reads(session: &mut Session, length: u64, count: u64) -> Check {
    let places = (session.size / length).max(1);
    let mut requests = Vec::new();
    for number in 0..count {
        requests.push(session.number(Request::read(number % places * length, length)));
    }
    for request in &requests {
        session.send(request)?;
    }
    let answers = session.answers(&requests)?;
    for (request, answer) in requests.iter().zip(answers).step_by(7) {
        let alone = session.read(request.offset, request.length)?;
        ensure(answer.data(request)? == alone, || {
            format!("the bytes at {} are others than those of a read alone", request.offset)
        })?;
    }
    Ok(())
}

fn zeroes(subject: &Subject, flags: u16) -> Check {
    let (unit, offset) = (subject.unit(), subject.unit() * 52);
    in_every_mode(subject, |session| {
        let data = pattern(17, 4 * unit);
        session.write(offset, &data)?;
        session.ok(Request::new(cmd::WRITE_ZEROES, offset + unit, 2 * unit).flags(flags))?;
        let mut expected = data.clone();
        let unit = zc_core::usize_from_u64(unit);
        expected[unit..3 * unit].fill(0);
        ensure(session.read(offset, u64_from_usize(expected.len()))? == expected, || {
            "the bytes read are others".to_owned()
        })
    })
}

/// The longest request without payload: any answer will do, but an answer.
fn large_effect(subject: &Subject, cmd: u16) -> Check {
    let mut session = subject.session(Mode::Simple)?;
    let minimum = u64::from(subject.minimum());
    let whole = (u64::from(u32::MAX) / minimum * minimum).min(session.size / minimum * minimum);
    let offset = (session.size / minimum * minimum - whole).max(session.size / 2 / minimum * minimum);
    let lengths = [session.size / minimum * minimum - offset, u64::from(u32::MAX) / minimum * minimum];
    for length in lengths {
        session.call(Request::new(cmd, offset, length))?;
        session.still_serves()?;
    }
    Ok(())
}

/// A request of no bytes: any answer will do, but an answer.
fn empty(subject: &Subject, cmd: u16) -> Check {
    in_every_mode(subject, |session| {
        session.call(Request::new(cmd, 0, 0))?;
        session.still_serves()
    })
}
