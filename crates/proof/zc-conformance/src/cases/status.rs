//! BS: BLOCK_STATUS, in structured and extended replies.

use super::common::pattern;
use crate::case::{Case, format, must, should};
use crate::session::{Answer, Mode, Request, Session};
use crate::stop::{Check, Stop, applies, ensure};
use crate::subject::{Need, Subject};
use crate::wire::{Cursor, STATE_HOLE, STATE_ZERO, cflag, chunk, cmd};

const STATUS: &str = "NBD_CMD_BLOCK_STATUS";
const TYPE: &str = "NBD_REPLY_TYPE_BLOCK_STATUS";
const ALLOCATION: &str = "base:allocation metadata context";

/// Extents of one context: length and flags.
pub(crate) type Extents = Vec<(u64, u64)>;

pub(crate) const CASES: &[Case] = &[
    must(
        "BS-01",
        STATUS,
        "there is one chunk for the one selected context, with its id",
        &[Need::Meta],
        |subject| {
            in_both(subject, |session| {
                let length = session.size;
                status(session, 0, length.min(1 << 30), 0).map(drop)
            })
        },
    ),
    must("BS-02", STATUS, "there is one chunk for each of several contexts", &[Need::Meta], |subject| {
        let listed = subject.negotiate_structured()?.list_meta(subject.export(), &[])?.contexts()?;
        let names: Vec<&str> = listed.iter().map(|(_, name)| name.as_str()).collect();
        let mut session = subject.session_with(Mode::Structured, &names)?;
        applies(session.contexts.len() > 1, "there is one context only")?;
        let answer = session.ok(Request::new(cmd::BLOCK_STATUS, 0, subject.unit()))?;
        let mut found: Vec<u32> = Vec::new();
        for chunk in answer.chunks.iter().filter(|chunk| chunk.kind == Some(chunk::STATUS)) {
            found.push(Cursor::new(&chunk.payload, "a status chunk").u32()?);
        }
        let mut wanted: Vec<u32> = session.contexts.iter().map(|(id, _)| *id).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        ensure(found == wanted, || format!("the ids are {wanted:?}, the chunks are for {found:?}"))
    }),
    must("BS-03", TYPE, "no extent is empty", &[Need::Meta], |subject| {
        in_both(subject, |session| {
            let length = session.size.min(1 << 30);
            let extents = status(session, 0, length, 0)?;
            ensure(extents.iter().all(|(length, _)| *length > 0), || format!("{extents:?}"))
        })
    }),
    must(
        "BS-04",
        STATUS,
        "with REQ_ONE there is one extent, not longer than asked for",
        &[Need::Meta],
        |subject| {
            let unit = subject.unit();
            in_both(subject, |session| {
                for length in [unit, 16 * unit, session.size / unit * unit] {
                    let length = length.min(1 << 31);
                    let extents = status(session, 0, length, cflag::REQ_ONE)?;
                    ensure(extents.len() == 1 && extents[0].0 <= length, || {
                        format!("asked for {length} bytes, the extents are {extents:?}")
                    })?;
                }
                Ok(())
            })
        },
    ),
    must(
        "BS-05",
        TYPE,
        "all extents but the last are together shorter than what was asked for",
        &[Need::Meta],
        |subject| {
            let unit = subject.unit();
            in_both(subject, |session| {
                for (offset, length) in [(0, unit), (0, 200 * unit), (unit, 3 * unit)] {
                    let length = length.min(session.size - offset);
                    let extents = status(session, offset, length, 0)?;
                    let first: u64 = extents.iter().rev().skip(1).map(|(length, _)| *length).sum();
                    ensure(first < length, || {
                        format!("asked for {length} bytes, the extents are {extents:?}")
                    })?;
                }
                Ok(())
            })
        },
    ),
    format("BS-06", STATUS, "no extent leaves the export", &[Need::Meta], |subject| {
        let unit = subject.unit();
        in_both(subject, |session| {
            let offset = session.size / unit * unit - unit;
            let extents = status(session, offset, session.size - offset, 0)?;
            let end: u64 = extents.iter().map(|(length, _)| *length).sum();
            ensure(offset + end <= session.size, || {
                format!("from {offset} on {extents:?}, the size is {}", session.size)
            })
        })
    }),
    should("BS-07", ALLOCATION, "of the flags only HOLE and ZERO are set", &[Need::Meta], |subject| {
        in_both(subject, |session| {
            let length = session.size.min(1 << 30);
            let extents = status(session, 0, length, 0)?;
            let known = STATE_HOLE | STATE_ZERO;
            ensure(extents.iter().all(|(_, flags)| flags & !known == 0), || format!("{extents:?}"))
        })
    }),
    should(
        "BS-08",
        STATUS,
        "extents of an aligned request are multiples of 512 bytes",
        &[Need::Meta],
        |subject| {
            let minimum = u64::from(subject.minimum()).max(512);
            in_both(subject, |session| {
                let length = session.size.min(1 << 30);
                let extents = status(session, 0, length, 0)?;
                let inner = extents.iter().rev().skip(1);
                ensure(inner.clone().all(|(length, _)| length.is_multiple_of(minimum)), || {
                    format!("{extents:?}")
                })
            })
        },
    ),
    should("BS-09", STATUS, "neighbours have different flags", &[Need::Meta], |subject| {
        in_both(subject, |session| {
            let length = session.size.min(1 << 30);
            let extents = status(session, 0, length, 0)?;
            ensure(extents.windows(2).all(|pair| pair[0].1 != pair[1].1), || format!("{extents:?}"))
        })
    }),
    format("BS-10", ALLOCATION, "what is marked ZERO reads as zeroes", &[Need::Meta], |subject| {
        let (unit, writable) = (subject.unit(), subject.lacks(Need::Write).is_none());
        in_both(subject, |session| {
            if writable {
                session.write(152 * unit, &pattern(10, unit))?;
            }
            let length = session.size.min(4 << 20);
            let mut at = 0;
            for (length, flags) in status(session, 0, length, 0)? {
                let end = (at + length).min(session.size).min(4 << 20);
                if flags & STATE_ZERO != 0 && end > at {
                    let bytes = session.read(at, end - at)?;
                    ensure(bytes.iter().all(|byte| *byte == 0), || format!("{at} to {end} is not zero"))?;
                }
                at += length;
            }
            Ok(())
        })
    }),
    format(
        "BS-11",
        ALLOCATION,
        "what was just written is not marked ZERO",
        &[Need::Meta, Need::Write],
        |subject| {
            let (unit, offset) = (subject.unit(), subject.unit() * 132);
            in_both(subject, |session| {
                session.write(offset, &pattern(11, unit))?;
                let extents = status(session, offset, unit, 0)?;
                ensure(extents[0].1 & STATE_ZERO == 0, || format!("{extents:?}"))
            })
        },
    ),
    should("BS-12", STATUS, "a chunk has at most 2^20 extents", &[Need::Meta], |subject| {
        in_both(subject, |session| {
            let length = session.size.min(1 << 30);
            let count = status(session, 0, length, 0)?.len();
            ensure(count <= 1 << 20, || format!("{count} extents"))
        })
    }),
    must(
        "BS-13",
        STATUS,
        "going on behind the last extent ends at the end of the export",
        &[Need::Meta],
        |subject| {
            in_both(subject, |session| {
                let (mut at, mut turns) = (0, 0);
                while at < session.size && turns < 1000 {
                    let length = (session.size - at).min(1 << 31);
                    at += status(session, at, length, 0)?.iter().map(|(length, _)| *length).sum::<u64>();
                    turns += 1;
                }
                ensure(at >= session.size || turns == 1000, || format!("it ends at {at}"))
            })
        },
    ),
    format(
        "BS-14",
        STATUS,
        "a request at an odd byte is answered from there on",
        &[Need::Meta, Need::Unaligned],
        |subject| in_both(subject, |session| status(session, 4097, 513, 0).map(drop)),
    ),
    should(
        "BS-15",
        STATUS,
        "BLOCK_STATUS of zero bytes does not end the session",
        &[Need::Meta],
        |subject| {
            in_both(subject, |session| {
                session.call(Request::new(cmd::BLOCK_STATUS, 0, 0))?;
                session.still_serves()
            })
        },
    ),
    should(
        "BS-16",
        STATUS,
        "BLOCK_STATUS that fails is answered without extents",
        &[Need::Meta],
        |subject| {
            in_both(subject, |session| {
                let size = session.size;
                let (_, answer) = session.call(Request::new(cmd::BLOCK_STATUS, size, 512))?;
                ensure(answer.error() != 0, || "it succeeded beyond the end".to_owned())?;
                session.still_serves()
            })
        },
    ),
    format(
        "BS-17",
        "The base: metadata namespace",
        "the status after WRITE_ZEROES and WRITE fits what is read",
        &[Need::Meta, Need::Write, Need::Zeroes],
        |subject| {
            let (unit, offset) = (subject.unit(), subject.unit() * 136);
            in_both(subject, |session| {
                session.ok(Request::new(cmd::WRITE_ZEROES, offset, 4 * unit))?;
                session.write(offset + unit, &pattern(17, unit))?;
                let mut at = offset;
                for (length, flags) in status(session, offset, 4 * unit, 0)? {
                    let written = at < offset + 2 * unit && at + length > offset + unit;
                    ensure(!written || flags & STATE_ZERO == 0, || {
                        format!("{length} bytes at {at} are marked ZERO")
                    })?;
                    at += length;
                }
                Ok(())
            })
        },
    ),
    must("BS-18", STATUS, "BLOCK_STATUS is answered in chunks", &[Need::Meta], |subject| {
        let mut session = subject.session_with(Mode::Structured, &["base:allocation"])?;
        let answer = session.ok(Request::new(cmd::BLOCK_STATUS, 0, subject.unit()))?;
        ensure(answer.chunks.iter().all(|chunk| chunk.kind.is_some()), || "a simple reply came".to_owned())
    }),
];

/// In structured replies, and in extended ones where they are offered.
fn in_both(subject: &Subject, check: impl Fn(&mut Session) -> Check) -> Check {
    let modes: &[Mode] =
        if subject.offer.extended { &[Mode::Structured, Mode::Extended] } else { &[Mode::Structured] };
    for mode in modes {
        let mut session = subject.session_with(*mode, &["base:allocation"])?;
        match check(&mut session) {
            Err(Stop::Fail(why)) => return Err(Stop::Fail(format!("{why} ({mode:?} replies)"))),
            other => other?,
        }
    }
    Ok(())
}

/// A successful BLOCK_STATUS: the extents of the only context.
fn status(session: &mut Session, offset: u64, length: u64, flags: u16) -> Result<Extents, Stop> {
    let answer = session.ok(Request::new(cmd::BLOCK_STATUS, offset, length).flags(flags))?;
    extents(session, &answer)
}

/// The extents of the only context. There is one chunk, and it is for that context.
pub(crate) fn extents(session: &Session, answer: &Answer) -> Result<Extents, Stop> {
    let kind = if session.mode == Mode::Extended { chunk::STATUS_EXT } else { chunk::STATUS };
    let found: Vec<_> = answer.chunks.iter().filter(|chunk| chunk.kind == Some(kind)).collect();
    let [chunk] = found.as_slice() else {
        return Err(Stop::Fail(format!("{} status chunks for one context", found.len())));
    };
    let mut cursor = Cursor::new(&chunk.payload, "a status chunk");
    let id = cursor.u32()?;
    let known = session.contexts.first().is_some_and(|(known, _)| *known == id);
    ensure(known, || format!("a status chunk for the context {id}, which was not selected"))?;
    let mut extents = Vec::new();
    if kind == chunk::STATUS_EXT {
        let count = cursor.u32()?;
        while !cursor.is_empty() {
            extents.push((cursor.u64()?, cursor.u64()?));
        }
        ensure(u32::try_from(extents.len()) == Ok(count), || {
            format!("the chunk counts {count} extents and has {}", extents.len())
        })?;
    } else {
        while !cursor.is_empty() {
            extents.push((u64::from(cursor.u32()?), u64::from(cursor.u32()?)));
        }
    }
    Ok(extents)
}
