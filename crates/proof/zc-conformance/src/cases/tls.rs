//! TL: STARTTLS, the three modes of a server, and the rules inside TLS.

use crate::case::{Case, format, must, should};
use crate::cases::common::pattern;
use crate::session::{Mode, Request};
use crate::stop::{Check, Stop, applies, ensure, or_closed};
use crate::subject::{Need, Subject};
use crate::tls::old_hello;
use crate::wire::{FIXED_NEWSTYLE, OPTION_REPLY, cmd, info_data, opt, option, rep, reply_name};

const NOTLS: &str = "NOTLS mode";
const FORCED: &str = "FORCEDTLS mode";
const STARTTLS: &str = "NBD_OPT_STARTTLS";
const VERSIONS: &str = "TLS versions";

/// More plain text than any server sends after STARTTLS was acknowledged.
const LEAK_BYTES_MAX: usize = 4096;

pub(crate) const CASES: &[Case] = &[
    must(
        "TL-01",
        NOTLS,
        "STARTTLS is answered with an error that is not ERR_TLS_REQD",
        &[Need::NoTls],
        |subject| {
            let mut conn = subject.negotiate()?;
            let allowed = [rep::POLICY, rep::UNSUP, rep::PLATFORM, rep::INVALID];
            conn.option(opt::STARTTLS, &[])?.refused("STARTTLS", &allowed)?;
            conn.still_negotiates()
        },
    ),
    must("TL-02", NOTLS, "no option is answered with ERR_TLS_REQD", &[Need::NoTls], |subject| {
        let mut conn = subject.negotiate()?;
        for number in
            [opt::UNKNOWN, opt::LIST, opt::INFO, opt::LIST_META, opt::STRUCTURED_REPLY, opt::EXTENDED]
        {
            let data = if number == opt::INFO { info_data(b"no such export", &[]) } else { Vec::new() };
            let replies = conn.option(number, &data)?;
            ensure(replies.last != rep::TLS_REQD, || {
                format!("option {number} was answered with ERR_TLS_REQD")
            })?;
        }
        Ok(())
    }),
    must(
        "TL-03",
        STARTTLS,
        "STARTTLS with data is answered and the data consumed, or it ends the session",
        &[],
        |subject| {
            let mut conn = subject.negotiate()?;
            let Some(replies) = or_closed(conn.option(opt::STARTTLS, b"please"))? else { return Ok(()) };
            if replies.is_error() { conn.still_negotiates() } else { Ok(()) }
        },
    ),
    must("TL-04", FORCED, "STARTTLS is answered with ACK and nothing before it", &[Need::Tls], |subject| {
        let replies = subject.negotiate()?.option(opt::STARTTLS, &[])?;
        ensure(replies.items.is_empty(), || "other replies come before the ACK".to_owned())?;
        replies.acked("STARTTLS").map(drop)
    }),
    must(
        "TL-05",
        FORCED,
        "options behind STARTTLS in plain text are not answered",
        &[Need::Tls],
        |subject| {
            let mut bytes = option(opt::STARTTLS, &[]);
            bytes.extend(option(opt::LIST, &[]));
            bytes.extend(option(opt::ABORT, &[]));
            let mut conn = subject.negotiate()?;
            conn.send(&bytes)?;
            // A server that notices the trick may hang up at once.
            let Some(replies) = or_closed(conn.replies(opt::STARTTLS))? else { return Ok(()) };
            replies.acked("STARTTLS")?;
            or_closed(conn.close_write())?;
            no_plain_text(&conn.recv_to_end(LEAK_BYTES_MAX)?)
        },
    ),
    must("TL-06", FORCED, "a TLS handshake that fails ends the session", &[Need::Tls], |subject| {
        let mut conn = subject.negotiate()?;
        conn.option(opt::STARTTLS, &[])?.acked("STARTTLS")?;
        conn.send(&[0x47; 512])?;
        let rest = conn.recv_to_end(LEAK_BYTES_MAX)?;
        no_plain_text(&rest)?;
        ensure(rest.len() < LEAK_BYTES_MAX, || "the server goes on after a failed handshake".to_owned())
    }),
    must(
        "TL-07",
        FORCED,
        "every option but STARTTLS and ABORT is answered with ERR_TLS_REQD",
        &[Need::ForcedTls],
        |subject| {
            let mut conn = subject.negotiate()?;
            let info = info_data(subject.export().as_bytes(), &[]);
            let options: [(u32, &[u8]); 8] = [
                (opt::UNKNOWN, b""),
                (opt::LIST, b""),
                (opt::INFO, &info),
                (opt::GO, &info),
                (opt::STRUCTURED_REPLY, b""),
                (opt::EXTENDED, b""),
                (opt::LIST_META, b""),
                (opt::SET_META, b""),
            ];
            for (number, data) in options {
                let replies = conn.option(number, data)?;
                ensure(replies.last == rep::TLS_REQD && replies.items.is_empty(), || {
                    format!("option {number} was answered with {}", reply_name(replies.last))
                })?;
            }
            conn.option(opt::ABORT, &[])?.acked("ABORT").map(drop)
        },
    ),
    must("TL-08", FORCED, "EXPORT_NAME without TLS ends the session", &[Need::ForcedTls], |subject| {
        let mut conn = subject.negotiate()?;
        conn.send(&option(opt::EXPORT_NAME, subject.export().as_bytes()))?;
        conn.expect_closed("after EXPORT_NAME without TLS")
    }),
    must(
        "TL-09",
        "Server-side requirements",
        "a client without FIXED_NEWSTYLE is not given TLS",
        &[Need::Tls],
        |subject| {
            let mut conn = subject.connect()?;
            ensure(conn.greeting()? & FIXED_NEWSTYLE != 0, || "FIXED_NEWSTYLE is not offered".to_owned())?;
            conn.send(&[0; 4])?;
            match conn.option(opt::STARTTLS, &[]) {
                Ok(replies) => ensure(replies.is_error(), || "STARTTLS was accepted".to_owned()),
                Err(Stop::Closed(_)) => Ok(()),
                Err(other) => Err(other),
            }
        },
    ),
    must(
        "TL-10",
        "Server-side requirements",
        "the mode is the same before and after refused options",
        &[],
        |subject| {
            let mut conn = subject.negotiate()?;
            let first = conn.option(opt::UNKNOWN, &[])?.last;
            conn.option(opt::LIST, &[])?;
            conn.info(&subject.no_export(), &[])?;
            let second = conn.option(opt::UNKNOWN, &[])?.last;
            ensure(first == second, || format!("{}, then {}", reply_name(first), reply_name(second)))
        },
    ),
    format("TL-11", STARTTLS, "options are answered inside TLS", &[Need::Inside], |subject| {
        let mut conn = subject.negotiate_secured()?;
        conn.still_negotiates()?;
        conn.info(subject.export(), &[])?.acked("INFO inside TLS")?.export().map(drop)
    }),
    format(
        "TL-12",
        "Option reply types",
        "a second STARTTLS is answered with ERR_INVALID",
        &[Need::Inside],
        |subject| {
            let mut conn = subject.negotiate_secured()?;
            conn.option(opt::STARTTLS, &[])?.refused("a second STARTTLS", &[rep::INVALID])?;
            conn.still_negotiates()
        },
    ),
    must(
        "TL-13",
        STARTTLS,
        "structured replies that were negotiated before TLS are forgotten",
        &[Need::Inside, Need::Structured],
        |subject| forgotten(subject, Mode::Structured),
    ),
    must(
        "TL-14",
        STARTTLS,
        "extended headers that were negotiated before TLS are forgotten",
        &[Need::Inside, Need::Extended],
        |subject| forgotten(subject, Mode::Extended),
    ),
    must(
        "TL-15",
        STARTTLS,
        "metadata contexts that were set before TLS are forgotten",
        &[Need::Inside, Need::Meta],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            let set = conn.set_meta(subject.export(), &["base:allocation"])?;
            applies(!set.contexts()?.is_empty(), "base:allocation is not set before TLS")?;
            conn.start_tls(rustls::DEFAULT_VERSIONS)?;
            conn.negotiate(Mode::Structured)?;
            let mut session = subject.attach(conn, Mode::Structured)?;
            let (_, answer) = session.call(Request::new(cmd::BLOCK_STATUS, 0, subject.unit()))?;
            ensure(answer.error() != 0, || "BLOCK_STATUS succeeds without a context".to_owned())
        },
    ),
    must("TL-16", FORCED, "no option is answered with ERR_TLS_REQD inside TLS", &[Need::Inside], |subject| {
        let mut conn = subject.negotiate_secured()?;
        let info = info_data(subject.export().as_bytes(), &[]);
        let options: [(u32, &[u8]); 6] = [
            (opt::UNKNOWN, b""),
            (opt::LIST, b""),
            (opt::INFO, &info),
            (opt::STRUCTURED_REPLY, b""),
            (opt::EXTENDED, b""),
            (opt::GO, &info),
        ];
        for (number, data) in options {
            let replies = conn.option(number, data)?;
            ensure(replies.last != rep::TLS_REQD, || {
                format!("option {number} was answered with ERR_TLS_REQD")
            })?;
        }
        Ok(())
    }),
    format("TL-17", STARTTLS, "what is written inside TLS is read back", &[Need::Inside], |subject| {
        applies(subject.options.writes, "the export may not be written")?;
        let mut session = subject.attach(subject.negotiate_secured()?, Mode::Simple)?;
        let data = pattern(17, subject.unit() * 16);
        session.write(0, &data)?;
        let found = session.read(0, subject.unit() * 16)?;
        ensure(found == data, || "what was read is not what was written".to_owned())
    }),
    format("TL-18", STARTTLS, "EXPORT_NAME begins the transmission inside TLS", &[Need::Inside], |subject| {
        let mut conn = subject.negotiate_secured()?;
        conn.send(&option(opt::EXPORT_NAME, subject.export().as_bytes()))?;
        conn.recv(10, "the reply to EXPORT_NAME").map(drop)
    }),
    must("TL-19", VERSIONS, "TLS 1.2 is supported", &[Need::Inside], |subject| {
        let mut conn = subject.negotiate()?;
        conn.start_tls(&[&rustls::version::TLS12])?;
        conn.still_negotiates()
    }),
    should("TL-20", VERSIONS, "TLS 1.1 is not supported by default", &[Need::Tls], |subject| {
        /// The first byte of a record that carries a handshake, such as a server's hello.
        const HANDSHAKE: u8 = 0x16;
        let mut conn = subject.negotiate()?;
        conn.option(opt::STARTTLS, &[])?.acked("STARTTLS")?;
        conn.send(&old_hello())?;
        let answer = conn.recv_to_end(1)?;
        ensure(answer.first() != Some(&HANDSHAKE), || "a hello of TLS 1.1 was answered".to_owned())
    }),
];

/// Expects that options negotiated before TLS are void inside: requests are compact, and a READ has a simple reply.
fn forgotten(subject: &Subject, mode: Mode) -> Check {
    let mut conn = subject.negotiate()?;
    let taken = conn.negotiate(mode);
    applies(taken.is_ok(), "nothing is negotiated before TLS")?;
    conn.start_tls(rustls::DEFAULT_VERSIONS)?;
    let mut session = subject.attach(conn, Mode::Simple)?;
    session.read(0, subject.unit()).map(drop)
}

/// Expects that bytes after the ACK of STARTTLS are not an option reply.
fn no_plain_text(rest: &[u8]) -> Check {
    let magic = OPTION_REPLY.to_be_bytes();
    let leaked = rest.windows(magic.len()).any(|window| window == magic);
    ensure(!leaked, || "an option was answered in plain text after STARTTLS was acknowledged".to_owned())
}
