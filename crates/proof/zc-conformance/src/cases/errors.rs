//! ER: requests that must not succeed: beyond the end, unknown commands and flags, read-only exports.

use super::common::{all_fail, beyond_end, commands, in_every_mode, modes, pattern};
use crate::case::{Case, format, must, should};
use crate::session::{Mode, Request, Session};
use crate::stop::{Check, applies, ensure};
use crate::subject::{Need, Subject};
use crate::wire::{cflag, cmd, err, error_name, flag};

const ERRORS: &str = "Error values";
const SIZES: &str = "Size constraints";
const SIMPLE: &str = "Simple reply message";
const RO: &str = "Transmission flags";
const ZEROES: &str = "NBD_CMD_WRITE_ZEROES";

pub(crate) const CASES: &[Case] = &[
    should(
        "ER-01",
        ERRORS,
        "READ that begins inside and ends beyond the export fails with EINVAL",
        &[Need::Plain],
        |subject| beyond(subject, cmd::READ, &[], Place::Across),
    ),
    should("ER-02", ERRORS, "READ beyond the export fails with EINVAL", &[Need::Plain], |subject| {
        beyond(subject, cmd::READ, &[], Place::Behind)
    }),
    should(
        "ER-03",
        ERRORS,
        "READ whose offset and length overflow 64 bits fails with EINVAL",
        &[Need::Plain],
        |subject| beyond(subject, cmd::READ, &[], Place::Overflow),
    ),
    should(
        "ER-04",
        ERRORS,
        "WRITE that ends beyond the export fails with ENOSPC or EINVAL, its payload is consumed",
        &[Need::Write],
        |subject| beyond(subject, cmd::WRITE, &[], Place::Across),
    ),
    should(
        "ER-05",
        ERRORS,
        "WRITE beyond the export fails with ENOSPC or EINVAL, its payload is consumed",
        &[Need::Write],
        |subject| beyond(subject, cmd::WRITE, &[], Place::Behind),
    ),
    should(
        "ER-06",
        ERRORS,
        "WRITE whose offset and length overflow fails with ENOSPC or EINVAL, its payload is consumed",
        &[Need::Write],
        |subject| beyond(subject, cmd::WRITE, &[], Place::Overflow),
    ),
    should(
        "ER-07",
        ERRORS,
        "TRIM beyond the export fails with EINVAL",
        &[Need::Write, Need::Trim],
        |subject| everywhere(subject, cmd::TRIM, &[]),
    ),
    should(
        "ER-08",
        ZEROES,
        "WRITE_ZEROES beyond the export fails with ENOSPC or EINVAL",
        &[Need::Write, Need::Zeroes],
        |subject| everywhere(subject, cmd::WRITE_ZEROES, &[]),
    ),
    should(
        "ER-09",
        SIZES,
        "CACHE beyond the export fails with EINVAL",
        &[Need::Plain, Need::Cache],
        |subject| everywhere(subject, cmd::CACHE, &[]),
    ),
    should(
        "ER-10",
        "NBD_CMD_BLOCK_STATUS",
        "BLOCK_STATUS beyond the export fails with EINVAL",
        &[Need::Meta],
        |subject| everywhere(subject, cmd::BLOCK_STATUS, &["base:allocation"]),
    ),
    should("ER-11", ERRORS, "an unknown command fails with EINVAL", &[Need::Plain], |subject| {
        in_every_mode(subject, |session| session.fails(Request::new(cmd::UNKNOWN, 0, 0), &[err::EINVAL]))
    }),
    should(
        "ER-12",
        ERRORS,
        "command 8, of an extension that was not negotiated, fails with EINVAL",
        &[Need::Plain],
        |subject| in_every_mode(subject, |session| session.fails(Request::new(8, 0, 0), &[err::EINVAL])),
    ),
    should(
        "ER-13",
        ERRORS,
        "command 0xffff with a length fails with EINVAL and has no payload",
        &[Need::Plain],
        |subject| {
            in_every_mode(subject, |session| session.fails(Request::new(0xffff, 0, 4096), &[err::EINVAL]))
        },
    ),
    should("ER-14", ERRORS, "an unknown flag makes READ fail with EINVAL", &[Need::Plain], |subject| {
        wrong_flag(subject, cmd::READ, cflag::UNKNOWN)
    }),
    should(
        "ER-15",
        ERRORS,
        "an unknown flag makes WRITE fail with EINVAL, its payload is consumed",
        &[Need::Write],
        |subject| wrong_flag(subject, cmd::WRITE, cflag::UNKNOWN),
    ),
    should(
        "ER-16",
        ERRORS,
        "an unknown flag makes FLUSH fail with EINVAL",
        &[Need::Plain, Need::Flush],
        |subject| {
            in_every_mode(subject, |session| {
                session.fails(Request::new(cmd::FLUSH, 0, 0).flags(cflag::UNKNOWN), &[err::EINVAL])
            })
        },
    ),
    should(
        "ER-17",
        ERRORS,
        "an unknown flag makes TRIM fail with EINVAL",
        &[Need::Write, Need::Trim],
        |subject| wrong_flag(subject, cmd::TRIM, cflag::UNKNOWN),
    ),
    should(
        "ER-18",
        ERRORS,
        "an unknown flag makes WRITE_ZEROES fail with EINVAL",
        &[Need::Write, Need::Zeroes],
        |subject| wrong_flag(subject, cmd::WRITE_ZEROES, cflag::UNKNOWN),
    ),
    must(
        "ER-19",
        "NBD_CMD_CACHE",
        "an unknown flag is rejected by CACHE",
        &[Need::Plain, Need::Cache],
        |subject| wrong_flag(subject, cmd::CACHE, cflag::UNKNOWN),
    ),
    should(
        "ER-20",
        ERRORS,
        "an unknown flag makes BLOCK_STATUS fail with EINVAL",
        &[Need::Meta],
        |subject| wrong_flag(subject, cmd::BLOCK_STATUS, cflag::UNKNOWN),
    ),
    should(
        "ER-21",
        ERRORS,
        "NO_HOLE, REQ_ONE or FAST_ZERO makes READ fail with EINVAL",
        &[Need::Plain],
        |subject| {
            [cflag::NO_HOLE, cflag::REQ_ONE, cflag::FAST_ZERO]
                .into_iter()
                .try_for_each(|flag| wrong_flag(subject, cmd::READ, flag))
        },
    ),
    should(
        "ER-22",
        ERRORS,
        "NO_HOLE, DF, REQ_ONE or FAST_ZERO makes WRITE fail with EINVAL",
        &[Need::Write],
        |subject| {
            [cflag::NO_HOLE, cflag::DF, cflag::REQ_ONE, cflag::FAST_ZERO]
                .into_iter()
                .try_for_each(|flag| wrong_flag(subject, cmd::WRITE, flag))
        },
    ),
    should(
        "ER-23",
        ERRORS,
        "DF or REQ_ONE makes WRITE_ZEROES fail with EINVAL",
        &[Need::Write, Need::Zeroes],
        |subject| {
            [cflag::DF, cflag::REQ_ONE]
                .into_iter()
                .try_for_each(|flag| wrong_flag(subject, cmd::WRITE_ZEROES, flag))
        },
    ),
    should(
        "ER-24",
        ERRORS,
        "NO_HOLE, DF or REQ_ONE makes TRIM fail with EINVAL",
        &[Need::Write, Need::Trim],
        |subject| {
            [cflag::NO_HOLE, cflag::DF, cflag::REQ_ONE]
                .into_iter()
                .try_for_each(|flag| wrong_flag(subject, cmd::TRIM, flag))
        },
    ),
    should(
        "ER-25",
        ERRORS,
        "DF makes READ fail with EINVAL if it was not offered",
        &[Need::Plain],
        |subject| {
            let mut session = subject.session(Mode::Simple)?;
            let length = subject.unit();
            session.fails(Request::read(0, length).flags(cflag::DF), &[err::EINVAL])
        },
    ),
    should(
        "ER-26",
        "ext: Command flags",
        "PAYLOAD_LEN makes READ fail with EINVAL without extended headers",
        &[Need::Plain],
        |subject| {
            let length = subject.unit();
            for mode in modes(subject).into_iter().filter(|mode| *mode != Mode::Extended) {
                let mut session = subject.session(mode)?;
                session.fails(Request::read(0, length).flags(cflag::PAYLOAD_LEN), &[err::EINVAL])?;
            }
            Ok(())
        },
    ),
    should(
        "ER-27",
        ZEROES,
        "FAST_ZERO fails with EINVAL if it was not offered",
        &[Need::Write, Need::Zeroes],
        |subject| {
            applies(subject.offer.flags & flag::FAST_ZERO == 0, "FAST_ZERO is offered")?;
            wrong_flag(subject, cmd::WRITE_ZEROES, cflag::FAST_ZERO)
        },
    ),
    should("ER-28", ERRORS, "FUA fails with EINVAL if it was not offered", &[Need::Plain], |subject| {
        applies(subject.offer.flags & flag::FUA == 0, "FUA is offered")?;
        wrong_flag(subject, cmd::READ, cflag::FUA)
    }),
    must("ER-29", SIMPLE, "an error has no payload: the next reply is found", &[Need::Plain], |subject| {
        let mut session = subject.session(Mode::Simple)?;
        let (length, size) = (subject.unit(), session.size);
        for _ in 0..4 {
            let (request, answer) = session.call(Request::read(size, length))?;
            ensure(answer.error() != 0, || format!("{} beyond the end succeeded", request.name()))?;
        }
        session.still_serves()
    }),
    format("ER-30", ERRORS, "error numbers are those of the protocol", &[Need::Plain], |subject| {
        // Every reply of this suite is checked for that; here are the requests that provoke most kinds.
        every_error(subject, |_, _| Ok(()))
    }),
    should("ER-31", ERRORS, "EOVERFLOW is not used for ordinary requests", &[Need::Plain], |subject| {
        every_error(subject, |request, error| {
            ensure(error != err::EOVERFLOW, || {
                format!("{} failed with {}", request.name(), error_name(error))
            })
        })
    }),
    should("ER-32", ERRORS, "ENOTSUP is used for FAST_ZERO only", &[Need::Plain], |subject| {
        every_error(subject, |request, error| {
            ensure(error != err::ENOTSUP, || format!("{} failed with {}", request.name(), error_name(error)))
        })
    }),
    should("ER-33", ERRORS, "ENOMEM is not used", &[Need::Plain], |subject| {
        every_error(subject, |request, error| {
            ensure(error != err::ENOMEM, || format!("{} failed with {}", request.name(), error_name(error)))
        })
    }),
    should(
        "ER-34",
        SIZES,
        "a request that is not aligned to the minimum block fails with EINVAL",
        &[Need::BlockSize],
        |subject| {
            applies(subject.minimum() > 1, "every alignment is served")?;
            let length = subject.unit();
            in_every_mode(subject, |session| {
                session.fails(Request::read(1, length), &[err::EINVAL])?;
                session.fails(Request::read(0, length - 1), &[err::EINVAL])
            })
        },
    ),
    must(
        "ER-35",
        RO,
        "a read-only export does not take WRITE, and consumes its payload",
        &[Need::ReadOnly],
        |subject| read_only(subject, cmd::WRITE, &err::ALL),
    ),
    should("ER-36", ERRORS, "WRITE to a read-only export fails with EPERM", &[Need::ReadOnly], |subject| {
        read_only(subject, cmd::WRITE, &[err::EPERM])
    }),
    should("ER-37", ERRORS, "TRIM of a read-only export fails with EPERM", &[Need::ReadOnly], |subject| {
        read_only(subject, cmd::TRIM, &[err::EPERM])
    }),
    should(
        "ER-38",
        ZEROES,
        "WRITE_ZEROES to a read-only export fails with EPERM",
        &[Need::ReadOnly],
        |subject| read_only(subject, cmd::WRITE_ZEROES, &[err::EPERM]),
    ),
    must("ER-39", RO, "a read-only export is the same after refused writes", &[Need::ReadOnly], |subject| {
        let length = subject.unit();
        let mut session = subject.session_read_only(Mode::Simple)?;
        let before = session.read(0, length)?;
        let other: Vec<u8> = before.iter().map(|byte| !byte).collect();
        session.call(Request::write(0, other))?;
        session.call(Request::new(cmd::WRITE_ZEROES, 0, length))?;
        session.call(Request::new(cmd::TRIM, 0, length))?;
        ensure(session.read(0, length)? == before, || "its bytes changed".to_owned())
    }),
    format(
        "ER-40",
        RO,
        "FLUSH of a read-only export succeeds if it is offered",
        &[Need::ReadOnly],
        |subject| {
            let mut session = subject.session_read_only(Mode::Simple)?;
            applies(session.flags & flag::FLUSH != 0, "no FLUSH")?;
            session.ok(Request::new(cmd::FLUSH, 0, 0)).map(drop)
        },
    ),
    format(
        "ER-41",
        ERRORS,
        "a WRITE of 1 MiB that is refused has its payload consumed",
        &[Need::Write],
        |subject| {
            // The payload is a row of DISC requests: a server that loses its place ends the session.
            in_every_mode(subject, |session| {
                let disc = Request::new(cmd::DISC, 0, 0).bytes(session.mode);
                let payload: Vec<u8> = disc.iter().copied().cycle().take(1 << 20).collect();
                let size = session.size;
                session.fails(Request::write(size, payload), &err::ALL)
            })
        },
    ),
    must(
        "ER-42",
        SIMPLE,
        "failed and successful requests in flight are told apart",
        &[Need::Plain],
        |subject| {
            let unit = subject.unit();
            in_every_mode(subject, |session| {
                let size = session.size;
                let mut requests = Vec::new();
                for number in 0..32 {
                    let offset = if number % 2 == 0 { 0 } else { size };
                    requests.push(session.number(Request::read(offset, unit)));
                }
                for request in &requests {
                    session.send(request)?;
                }
                for (request, answer) in requests.iter().zip(session.answers(&requests)?) {
                    let fails = request.offset == size;
                    ensure(fails == (answer.error() != 0), || {
                        format!("READ at {} was answered with {}", request.offset, error_name(answer.error()))
                    })?;
                }
                Ok(())
            })
        },
    ),
];

/// Position of a request relative to the end of the export.
#[derive(Debug, Clone, Copy)]
enum Place {
    Across,
    Behind,
    Overflow,
}

impl Place {
    fn request(self, cmd: u16, session: &Session, unit: u64) -> Request {
        let minimum = session.block.map_or(512, |[minimum, _, _]| u64::from(minimum)).max(512);
        let end = session.size / minimum * minimum;
        let offset = match self {
            Self::Across => end.saturating_sub(unit),
            Self::Behind => (end + unit).next_multiple_of(minimum),
            Self::Overflow => u64::MAX - unit + 1,
        };
        let length = unit * 2;
        if cmd == cmd::WRITE {
            Request::write(offset, pattern(offset, length))
        } else {
            Request::new(cmd, offset, length)
        }
    }
}

fn beyond(subject: &Subject, cmd: u16, contexts: &[&str], place: Place) -> Check {
    for mode in modes(subject) {
        if !contexts.is_empty() && mode == Mode::Simple {
            continue;
        }
        let mut session = subject.session_with(mode, contexts)?;
        let request = place.request(cmd, &session, subject.unit());
        all_fail(&mut session, vec![request], beyond_end)?;
    }
    Ok(())
}

fn everywhere(subject: &Subject, cmd: u16, contexts: &[&str]) -> Check {
    [Place::Across, Place::Behind, Place::Overflow]
        .into_iter()
        .try_for_each(|place| beyond(subject, cmd, contexts, place))
}

/// A valid request but for one flag fails with EINVAL.
fn wrong_flag(subject: &Subject, cmd: u16, flag: u16) -> Check {
    let (offset, length) = (subject.unit() * 116, subject.unit());
    for mode in modes(subject) {
        let contexts: &[&str] = if cmd == cmd::BLOCK_STATUS { &["base:allocation"] } else { &[] };
        if !contexts.is_empty() && mode == Mode::Simple {
            continue;
        }
        let mut session = subject.session_with(mode, contexts)?;
        let request = match cmd {
            cmd::WRITE => Request::write(offset, pattern(116, length)),
            cmd => Request::new(cmd, offset, length),
        };
        session.fails(request.flags(flag), &[err::EINVAL])?;
    }
    Ok(())
}

/// Bad requests of many kinds: each fails, and `good` judges its error number.
fn every_error(subject: &Subject, good: impl Fn(&Request, u32) -> Check) -> Check {
    let writable = subject.lacks(Need::Write).is_none();
    in_every_mode(subject, |session| {
        let (unit, size) = (subject.unit(), session.size);
        let mut requests = commands(session, writable, size + unit, unit);
        requests.extend(
            commands(session, writable, 0, unit).into_iter().map(|request| request.flags(cflag::UNKNOWN)),
        );
        requests.push(Request::new(cmd::UNKNOWN, 0, unit));
        requests.push(Request::read(u64::MAX, 512));
        for request in requests {
            let (request, answer) = session.call(request)?;
            good(&request, answer.error())?;
        }
        session.still_serves()
    })
}

fn read_only(subject: &Subject, cmd: u16, allowed: &[u32]) -> Check {
    let length = subject.unit();
    for mode in modes(subject) {
        let mut session = subject.session_read_only(mode)?;
        let request = match cmd {
            cmd::WRITE => Request::write(0, vec![0xa5; zc_core::usize_from_u64(length)]),
            cmd => Request::new(cmd, 0, length),
        };
        session.fails(request, allowed)?;
    }
    Ok(())
}
