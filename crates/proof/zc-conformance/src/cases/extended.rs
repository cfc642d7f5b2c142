//! EX: extended headers. Magic, cookie, echoed offset and the layout of chunks are checked for every reply.

use super::common::{commands, pattern};
use super::status::extents;
use crate::case::{Case, format, must, should};
use crate::conn::Conn;
use crate::session::{Mode, Request, Session};
use crate::stop::{Check, Stop, ensure, or_closed};
use crate::subject::{Need, Subject};
use crate::wire::{Message, cflag, chunk, cmd, err, flag, info, opt, rep};
use zc_core::u64_from_usize;

const OPTION: &str = "ext: NBD_OPT_EXTENDED_HEADERS";
const REPLY: &str = "ext: Extended reply chunk message";
const REQUEST: &str = "ext: Request message";
const FLAGS: &str = "ext: Command flags";
const STATUS: &str = "ext: NBD_CMD_BLOCK_STATUS";
const STATUS_EXT: &str = "ext: NBD_REPLY_TYPE_BLOCK_STATUS_EXT";

pub(crate) const CASES: &[Case] = &[
    must(
        "EX-01",
        OPTION,
        "EXTENDED_HEADERS is answered with ACK, ERR_UNSUP or ERR_POLICY",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.option(opt::EXTENDED, &[])?;
            replies.refused("EXTENDED_HEADERS", &[rep::ACK, rep::UNSUP, rep::POLICY])?;
            conn.still_negotiates()
        },
    ),
    should(
        "EX-02",
        OPTION,
        "EXTENDED_HEADERS with data is answered with ERR_INVALID",
        &[Need::Extended],
        |subject| {
            let mut conn = subject.negotiate()?;
            conn.option(opt::EXTENDED, b"x")?.refused("EXTENDED_HEADERS with data", &[rep::INVALID])?;
            conn.still_negotiates()
        },
    ),
    should(
        "EX-03",
        OPTION,
        "EXTENDED_HEADERS works without STRUCTURED_REPLY before it",
        &[Need::Extended],
        |subject| subject.session(Mode::Extended)?.still_serves(),
    ),
    format(
        "EX-04",
        OPTION,
        "EXTENDED_HEADERS after STRUCTURED_REPLY takes precedence",
        &[Need::Extended],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            conn.option(opt::EXTENDED, &[])?.acked("EXTENDED_HEADERS")?;
            enter(subject, conn)?.still_serves()
        },
    ),
    format(
        "EX-05",
        "ext: NBD_OPT_STRUCTURED_REPLY",
        "STRUCTURED_REPLY after it is answered with ERR_EXT_HEADER_REQD",
        &[Need::Extended],
        |subject| {
            let mut conn = subject.negotiate()?;
            conn.option(opt::EXTENDED, &[])?.acked("EXTENDED_HEADERS")?;
            conn.option(opt::STRUCTURED_REPLY, &[])?.refused("STRUCTURED_REPLY", &[rep::EXT_HEADER_REQD])?;
            enter(subject, conn)?.still_serves()
        },
    ),
    must(
        "EX-06",
        "ext: NBD_OPT_INFO and NBD_OPT_GO",
        "GO is not answered with ERR_UNSUP",
        &[Need::Extended],
        |subject| {
            let mut conn = subject.negotiate()?;
            conn.option(opt::EXTENDED, &[])?.acked("EXTENDED_HEADERS")?;
            let replies = conn.go(subject.export(), &[])?;
            ensure(replies.last != rep::UNSUP, || "it is".to_owned())
        },
    ),
    must(
        "EX-07",
        REPLY,
        "READ is answered in extended chunks that echo cookie and offset",
        &[Need::Extended],
        |subject| {
            let unit = subject.unit();
            let mut session = subject.session(Mode::Extended)?;
            for offset in [0, unit, 5 * unit] {
                session.read(offset, unit)?;
            }
            Ok(())
        },
    ),
    must(
        "EX-08",
        REPLY,
        "errors come in extended chunks that echo cookie and offset",
        &[Need::Extended],
        |subject| {
            let mut session = subject.session(Mode::Extended)?;
            let size = session.size;
            session.fails(Request::read(size, 512), &err::ALL)?;
            session.fails(Request::read(u64::MAX - 511, 512), &err::ALL)?;
            session.fails(Request::new(cmd::UNKNOWN, 77, 512), &err::ALL)
        },
    ),
    must(
        "EX-09",
        REPLY,
        "every command that succeeds is answered in extended chunks",
        &[Need::Extended],
        |subject| {
            let (offset, length) = (subject.unit() * 140, subject.unit());
            let contexts: &[&str] = if subject.offer.meta { &["base:allocation"] } else { &[] };
            let mut session = subject.session_with(Mode::Extended, contexts)?;
            let writable = subject.lacks(Need::Write).is_none();
            for request in commands(&session, writable, offset, length) {
                session.ok(request)?;
            }
            session.still_serves()
        },
    ),
    must("EX-10", FLAGS, "WRITE with PAYLOAD_LEN is read back", &[Need::Extended, Need::Write], |subject| {
        let (offset, length) = (subject.unit() * 144, subject.unit() * 3);
        let mut session = subject.session(Mode::Extended)?;
        let data = pattern(10, length);
        session.write(offset, &data)?;
        ensure(session.read(offset, length)? == data, || "it is not what is read".to_owned())
    }),
    should(
        "EX-11",
        FLAGS,
        "READ with PAYLOAD_LEN fails with EINVAL, its payload is consumed",
        &[Need::Extended],
        |subject| with_payload(subject, cmd::READ),
    ),
    should(
        "EX-12",
        FLAGS,
        "FLUSH with PAYLOAD_LEN fails with EINVAL, its payload is consumed",
        &[Need::Extended, Need::Flush],
        |subject| with_payload(subject, cmd::FLUSH),
    ),
    should(
        "EX-13",
        FLAGS,
        "TRIM with PAYLOAD_LEN fails with EINVAL, its payload is consumed",
        &[Need::Extended, Need::Write, Need::Trim],
        |subject| with_payload(subject, cmd::TRIM),
    ),
    should(
        "EX-14",
        FLAGS,
        "WRITE_ZEROES with PAYLOAD_LEN fails with EINVAL, its payload is consumed",
        &[Need::Extended, Need::Write, Need::Zeroes],
        |subject| with_payload(subject, cmd::WRITE_ZEROES),
    ),
    should(
        "EX-15",
        FLAGS,
        "an unknown command with PAYLOAD_LEN fails with EINVAL, its payload is consumed",
        &[Need::Extended],
        |subject| with_payload(subject, cmd::UNKNOWN),
    ),
    format(
        "EX-16",
        FLAGS,
        "WRITE with a payload but without PAYLOAD_LEN is carried out, refused or ends the session",
        &[Need::Extended, Need::Write],
        |subject| {
            // Clients that forget the flag exist: qemu 10.0 is one.
            let (offset, length) = (subject.unit() * 148, subject.unit());
            let mut session = subject.session(Mode::Extended)?;
            let data = pattern(16, length);
            let request = session.number(Request::write(offset, data.clone()));
            let mut bytes = request.bytes(Mode::Extended);
            bytes[5] &= !u8::try_from(cflag::PAYLOAD_LEN).unwrap_or_default();
            session.conn.send(&bytes)?;
            let Some(answer) = or_closed(session.answer(&request))? else { return Ok(()) };
            if answer.error() == 0 {
                return ensure(session.read(offset, length)? == data, || "it is not what is read".to_owned());
            }
            answer.failed(&request, &[err::EINVAL])?;
            or_closed(session.still_serves()).map(drop)
        },
    ),
    should(
        "EX-17",
        REQUEST,
        "WRITE with a payload of 1 TiB ends the session",
        &[Need::Extended, Need::Write],
        |subject| {
            let mut session = subject.session(Mode::Extended)?;
            let request = session.number(Request { length: 1 << 40, ..Request::write(0, Vec::new()) });
            session.send(&request)?;
            // A reply with a reason before the close is acceptable.
            or_closed(session.answer(&request))?;
            session.conn.expect_closed("after a WRITE of 1 TiB")
        },
    ),
    should(
        "EX-18",
        REQUEST,
        "READ of 2^63 bytes fails and the session goes on",
        &[Need::Extended],
        |subject| long(subject, cmd::READ),
    ),
    should(
        "EX-19",
        REQUEST,
        "TRIM of 2^63 bytes fails and the session goes on",
        &[Need::Extended, Need::Write, Need::Trim],
        |subject| long(subject, cmd::TRIM),
    ),
    should(
        "EX-20",
        REQUEST,
        "WRITE_ZEROES of 2^63 bytes fails and the session goes on",
        &[Need::Extended, Need::Write, Need::Zeroes],
        |subject| long(subject, cmd::WRITE_ZEROES),
    ),
    should(
        "EX-21",
        REQUEST,
        "CACHE of 2^63 bytes fails and the session goes on",
        &[Need::Extended, Need::Cache],
        |subject| long(subject, cmd::CACHE),
    ),
    must(
        "EX-22",
        STATUS_EXT,
        "BLOCK_STATUS is answered with extents of 64 bits and their count",
        &[Need::Extended, Need::Meta],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let length = session.size;
            let answer = session.ok(Request::new(cmd::BLOCK_STATUS, 0, length))?;
            let old = answer.chunks.iter().any(|chunk| chunk.kind == Some(chunk::STATUS));
            ensure(!old, || "a chunk with 32 bits came".to_owned())?;
            extents(&session, &answer).map(drop)
        },
    ),
    must(
        "EX-23",
        STATUS_EXT,
        "the upper half of the flags of base:allocation is zero",
        &[Need::Extended, Need::Meta],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let length = session.size;
            let answer = session.ok(Request::new(cmd::BLOCK_STATUS, 0, length))?;
            let extents = extents(&session, &answer)?;
            ensure(extents.iter().all(|(_, flags)| flags >> 32 == 0), || format!("{extents:?}"))
        },
    ),
    must(
        "EX-24",
        "ext: Transmission flags",
        "NBD_FLAG_SEND_DF fits what DF does with extended headers",
        &[Need::Extended],
        |subject| {
            let mut session = subject.session(Mode::Extended)?;
            let (request, answer) = session.call(Request::read(0, subject.unit()).flags(cflag::DF))?;
            let offered = session.flags & flag::DF != 0;
            ensure(offered == (answer.error() == 0), || format!("offered: {offered}"))?;
            if offered {
                answer.data(&request)?;
                let count = answer.content()?.len();
                ensure(count == 1, || format!("{count} content chunks"))?;
            }
            Ok(())
        },
    ),
    should(
        "EX-25",
        "ext: Transmission flags",
        "NBD_FLAG_BLOCK_STATUS_PAYLOAD is clear without a context",
        &[Need::Extended],
        |subject| {
            let flags = subject.session(Mode::Extended)?.flags;
            ensure(flags & flag::STATUS_PAYLOAD == 0, || format!("the flags are {flags:#06x}"))
        },
    ),
    must(
        "EX-26",
        STATUS,
        "a payload with the id of a context selects that context",
        &[Need::Extended, Need::Meta, Need::StatusPayload],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let ids = vec![session.contexts[0].0];
            let (request, answer) = status_payload(&mut session, subject.unit(), &ids)?;
            answer.succeeded(&request)?;
            extents(&session, &answer).map(drop)
        },
    ),
    must(
        "EX-27",
        STATUS,
        "a payload with an unknown id fails with EINVAL and is consumed",
        &[Need::Extended, Need::Meta, Need::StatusPayload],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let ids = vec![session.contexts[0].0 ^ 0x5555];
            status_refused(&mut session, subject.unit(), &ids)
        },
    ),
    must(
        "EX-28",
        STATUS,
        "a payload with an id twice fails with EINVAL and is consumed",
        &[Need::Extended, Need::Meta, Need::StatusPayload],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let ids = vec![session.contexts[0].0; 2];
            status_refused(&mut session, subject.unit(), &ids)
        },
    ),
    must(
        "EX-29",
        STATUS,
        "a payload without support for it fails with EINVAL and is consumed",
        &[Need::Extended, Need::Meta],
        |subject| {
            crate::stop::applies(subject.lacks(Need::StatusPayload).is_some(), "it is supported")?;
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let ids = vec![session.contexts[0].0];
            status_refused(&mut session, subject.unit(), &ids)
        },
    ),
    format("EX-30", REQUEST, "a compact request is not served", &[Need::Extended], |subject| {
        let mut session = subject.session(Mode::Extended)?;
        let request = session.number(Request::read(0, subject.unit()));
        session.conn.send(&request.bytes(Mode::Simple))?;
        session.conn.close_write()?;
        match session.answer(&request) {
            Ok(answer) => ensure(answer.error() != 0, || "it was served".to_owned()),
            Err(Stop::Closed(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }),
    format(
        "EX-31",
        "ext: NBD_OPT_SET_META_CONTEXT",
        "contexts can be set without STRUCTURED_REPLY",
        &[Need::Extended, Need::Meta],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            session.ok(Request::new(cmd::BLOCK_STATUS, 0, subject.unit())).map(drop)
        },
    ),
    format(
        "EX-32",
        REQUEST,
        "an effect length up to the end of the export is served by BLOCK_STATUS with REQ_ONE",
        &[Need::Extended, Need::Meta],
        |subject| {
            let mut session = subject.session_with(Mode::Extended, &["base:allocation"])?;
            let length = session.size;
            let answer = session.ok(Request::new(cmd::BLOCK_STATUS, 0, length).flags(cflag::REQ_ONE))?;
            let extents = extents(&session, &answer)?;
            ensure(extents.len() == 1 && extents[0].0 <= length, || format!("{extents:?}"))
        },
    ),
    must(
        "EX-33",
        "ext: Transmission",
        "64 reads in flight are each answered once, with their own offset",
        &[Need::Extended],
        |subject| {
            let unit = subject.unit();
            let mut session = subject.session(Mode::Extended)?;
            let places = (session.size / unit).max(1);
            let requests: Vec<Request> =
                (0..64).map(|number| session.number(Request::read(number % places * unit, unit))).collect();
            for request in &requests {
                session.send(request)?;
            }
            for (request, answer) in requests.iter().zip(session.answers(&requests)?) {
                answer.data(request)?;
            }
            Ok(())
        },
    ),
];

fn enter(subject: &Subject, mut conn: Conn) -> Result<Session, Stop> {
    let replies = conn.go(subject.export(), &[info::BLOCK_SIZE])?;
    let (size, flags) = replies.acked("GO")?.export()?;
    let block = replies.block_sizes()?;
    Ok(Session { conn, mode: Mode::Extended, size, flags, block, contexts: Vec::new(), next_cookie: 1 })
}

/// A command that takes no payload gets one made of DISC requests: a server that loses its place hangs up.
fn with_payload(subject: &Subject, cmd: u16) -> Check {
    let mut session = subject.session(Mode::Extended)?;
    let payload = Request::new(cmd::DISC, 0, 0).bytes(Mode::Extended).repeat(16);
    let length = u64_from_usize(payload.len());
    let request = Request { payload, ..Request::new(cmd, 0, length).flags(cflag::PAYLOAD_LEN) };
    session.fails(request, &[err::EINVAL])
}

/// An effect length that no export has.
fn long(subject: &Subject, cmd: u16) -> Check {
    let mut session = subject.session(Mode::Extended)?;
    let (request, answer) = session.call(Request::new(cmd, 0, 1 << 63))?;
    ensure(answer.error() != 0, || format!("{} succeeded", request.name()))?;
    session.still_serves()
}

fn status_payload(
    session: &mut Session,
    effect: u64,
    ids: &[u32],
) -> Result<(Request, crate::session::Answer), Stop> {
    let payload = ids.iter().fold(Message::default().u64(effect), |message, id| message.u32(*id)).0;
    let length = u64_from_usize(payload.len());
    let request = Request { payload, ..Request::new(cmd::BLOCK_STATUS, 0, length).flags(cflag::PAYLOAD_LEN) };
    session.call(request)
}

fn status_refused(session: &mut Session, effect: u64, ids: &[u32]) -> Check {
    let (request, answer) = status_payload(session, effect, ids)?;
    answer.failed(&request, &[err::EINVAL])?;
    session.still_serves()
}
