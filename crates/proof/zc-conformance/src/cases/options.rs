//! OP: unknown options, ABORT, LIST, STRUCTURED_REPLY, and options in every order.

use crate::case::{Case, format, must, should};
use crate::conn::Conn;
use crate::session::{Mode, Session};
use crate::stop::{Check, Stop, ensure, or_closed};
use crate::subject::{Need, Subject};
use crate::wire::{opt, option, rep, string};

const FIXED: &str = "Fixed newstyle negotiation";
const BASELINE: &str = "Baseline";
const ABORT: &str = "NBD_OPT_ABORT";
const LIST: &str = "NBD_OPT_LIST";
const STRUCTURED: &str = "NBD_OPT_STRUCTURED_REPLY";
const REPLY_TYPES: &str = "Option reply types";

pub(crate) const CASES: &[Case] = &[
    must("OP-01", BASELINE, "an unknown option is answered with ERR_UNSUP", &[Need::Plain], |subject| {
        unknown(subject, opt::UNKNOWN, &[])
    }),
    must(
        "OP-02",
        BASELINE,
        "the data of an unknown option is consumed and the next option is served",
        &[Need::Plain],
        |subject| unknown(subject, opt::UNKNOWN, b"some data"),
    ),
    must(
        "OP-03",
        BASELINE,
        "an unknown option with 4096 bytes of data is answered with ERR_UNSUP",
        &[Need::Plain],
        |subject| unknown(subject, opt::UNKNOWN, &[0x5a; 4096]),
    ),
    must(
        "OP-04",
        BASELINE,
        "data of 1 MiB is consumed or ends the session, and is never taken for options",
        &[Need::Plain],
        |subject| {
            // The data is a row of ABORTs: a server that loses its place answers them.
            let mut data = Vec::new();
            while data.len() < 1 << 20 {
                data.extend(option(opt::ABORT, &[]));
            }
            let mut conn = subject.negotiate()?;
            let Some(replies) = or_closed(conn.option(opt::UNKNOWN, &data))? else { return Ok(()) };
            replies.refused("an unknown option", &[rep::UNSUP, rep::TOO_BIG, rep::INVALID])?;
            conn.still_negotiates()
        },
    ),
    must(
        "OP-05",
        BASELINE,
        "the withdrawn PEEK_EXPORT is answered with ERR_UNSUP",
        &[Need::Plain],
        |subject| unknown(subject, opt::PEEK_EXPORT, b"x"),
    ),
    must("OP-06", BASELINE, "option 0 is answered with ERR_UNSUP", &[Need::Plain], |subject| {
        unknown(subject, 0, &[])
    }),
    must("OP-07", BASELINE, "option 0xffffffff is answered with ERR_UNSUP", &[Need::Plain], |subject| {
        unknown(subject, u32::MAX, &[])
    }),
    format("OP-08", FIXED, "an option that comes byte by byte is understood", &[Need::Plain], |subject| {
        let mut conn = subject.negotiate()?;
        for byte in option(opt::UNKNOWN, b"abc") {
            conn.send(&[byte])?;
        }
        conn.replies(opt::UNKNOWN)?.refused("an unknown option", &[rep::UNSUP])
    }),
    must(
        "OP-09",
        "Conventions",
        "the data of an error reply is a string: UTF-8, no NUL, at most 4096 bytes",
        &[],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.option(opt::UNKNOWN, &[])?;
            string(&replies.last_data, "the text of an error reply")?;
            let replies = conn.info(&subject.no_export(), &[])?;
            string(&replies.last_data, "the text of an error reply").map(drop)
        },
    ),
    must(
        "OP-10",
        "Termination of the session during option haggling",
        "a client may send 24 options that are refused",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            (0..24).try_for_each(|_| conn.still_negotiates())
        },
    ),
    must("OP-11", ABORT, "ABORT is answered with ACK", &[], |subject| {
        subject.negotiate()?.option(opt::ABORT, &[])?.acked("ABORT").map(drop)
    }),
    should("OP-12", ABORT, "ABORT with data is answered with ACK", &[], |subject| {
        subject.negotiate()?.option(opt::ABORT, b"good bye")?.acked("ABORT with data").map(drop)
    }),
    should(
        "OP-13",
        ABORT,
        "a client that sends ABORT and is gone does not disturb the next",
        &[],
        |subject| {
            for _ in 0..8 {
                subject.negotiate()?.send(&option(opt::ABORT, &[]))?;
            }
            subject.negotiate()?.still_negotiates()
        },
    ),
    must(
        "OP-14",
        LIST,
        "LIST is answered with SERVER replies and ACK, or refused",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.option(opt::LIST, &[])?;
            if replies.is_error() {
                replies.refused("LIST", &[rep::POLICY, rep::SHUTDOWN])?;
            }
            let others = replies.items.iter().any(|(kind, _)| *kind != rep::SERVER);
            ensure(!others, || "LIST was answered with other replies than SERVER".to_owned())?;
            conn.still_negotiates()
        },
    ),
    must(
        "OP-15",
        REPLY_TYPES,
        "the names that LIST returns fit their replies and are strings",
        &[Need::List],
        |subject| subject.negotiate()?.option(opt::LIST, &[])?.servers().map(drop),
    ),
    should("OP-16", LIST, "LIST with data is answered with ERR_INVALID", &[Need::List], |subject| {
        let mut conn = subject.negotiate()?;
        conn.option(opt::LIST, b"all")?.refused("LIST with data", &[rep::INVALID])?;
        conn.still_negotiates()
    }),
    format("OP-17", REPLY_TYPES, "an export that LIST names is known to INFO", &[Need::List], |subject| {
        let mut conn = subject.negotiate()?;
        let servers = conn.option(opt::LIST, &[])?.servers()?;
        for (name, _) in servers.iter().take(8) {
            let replies = conn.info(name, &[])?;
            ensure(replies.last != rep::UNKNOWN, || {
                format!("INFO does not know the listed export `{name}`")
            })?;
        }
        Ok(())
    }),
    format("OP-18", REPLY_TYPES, "ACK carries no data", &[], |subject| {
        let mut conn = subject.negotiate()?;
        for number in [opt::LIST, opt::STRUCTURED_REPLY, opt::EXTENDED] {
            let replies = conn.option(number, &[])?;
            ensure(replies.is_error() || replies.last_data.is_empty(), || {
                format!("the ACK of option {number} carries {} bytes", replies.last_data.len())
            })?;
        }
        Ok(())
    }),
    must(
        "OP-19",
        STRUCTURED,
        "STRUCTURED_REPLY is answered with ACK or ERR_UNSUP",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.option(opt::STRUCTURED_REPLY, &[])?;
            replies.refused("STRUCTURED_REPLY", &[rep::ACK, rep::UNSUP, rep::POLICY])?;
            conn.still_negotiates()
        },
    ),
    should(
        "OP-20",
        STRUCTURED,
        "STRUCTURED_REPLY with data is answered with ERR_INVALID",
        &[Need::Structured],
        |subject| {
            let mut conn = subject.negotiate()?;
            conn.option(opt::STRUCTURED_REPLY, b"x")?
                .refused("STRUCTURED_REPLY with data", &[rep::INVALID])?;
            conn.still_negotiates()
        },
    ),
    must(
        "OP-21",
        "Simple reply message",
        "structured replies that were refused are not used",
        &[Need::Structured],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.option(opt::STRUCTURED_REPLY, b"x")?;
            let mode = if replies.is_error() { Mode::Simple } else { Mode::Structured };
            enter(conn, subject, mode)?.still_serves()
        },
    ),
    format(
        "OP-22",
        FIXED,
        "a second STRUCTURED_REPLY is accepted or answered with ERR_INVALID",
        &[Need::Structured],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            conn.option(opt::STRUCTURED_REPLY, &[])?
                .refused("a second STRUCTURED_REPLY", &[rep::ACK, rep::INVALID])?;
            enter(conn, subject, Mode::Structured)?.still_serves()
        },
    ),
    must(
        "OP-23",
        BASELINE,
        "LIST, STRUCTURED_REPLY, INFO and an unknown option work in every order",
        &[Need::Plain],
        every_order,
    ),
    must(
        "OP-24",
        "Reserved Magic values",
        "transmission begins in simple replies if nothing else was negotiated",
        &[Need::Plain],
        |subject| enter(subject.negotiate()?, subject, Mode::Simple)?.still_serves(),
    ),
    format(
        "OP-25",
        FIXED,
        "an option whose data never comes does not disturb others, and its end ends the session",
        &[Need::Plain],
        |subject| {
            let mut stuck = subject.negotiate()?;
            let mut bytes = option(opt::UNKNOWN, &[0; 64]);
            bytes.truncate(40);
            stuck.send(&bytes)?;
            subject.negotiate()?.still_negotiates()?;
            stuck.close_write()?;
            stuck.recv_to_end(4096).map(drop)
        },
    ),
    format("OP-26", REPLY_TYPES, "LIST returns the same names twice in a row", &[Need::List], |subject| {
        let mut conn = subject.negotiate()?;
        let first = conn.option(opt::LIST, &[])?.servers()?;
        let second = conn.option(opt::LIST, &[])?.servers()?;
        ensure(first == second, || format!("{first:?}, then {second:?}"))
    }),
];

fn unknown(subject: &Subject, number: u32, data: &[u8]) -> Check {
    let mut conn = subject.negotiate()?;
    conn.option(number, data)?.refused("an unknown option", &[rep::UNSUP])?;
    conn.still_negotiates()
}

/// Enters the transmission.
fn enter(mut conn: Conn, subject: &Subject, mode: Mode) -> Result<Session, Stop> {
    let replies = conn.go(subject.export(), &[crate::wire::info::BLOCK_SIZE])?;
    let (size, flags) = replies.acked("GO")?.export()?;
    Ok(Session {
        conn,
        mode,
        size,
        flags,
        block: replies.block_sizes()?,
        contexts: Vec::new(),
        next_cookie: 1,
    })
}

/// All 24 orders of four options, each followed by GO and a read.
fn every_order(subject: &Subject) -> Check {
    let mut orders = vec![Vec::new()];
    for number in [opt::LIST, opt::STRUCTURED_REPLY, opt::INFO, opt::UNKNOWN] {
        orders = orders
            .iter()
            .flat_map(|order: &Vec<u32>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, number);
                    longer
                })
            })
            .collect();
    }
    for order in orders {
        let mut conn = subject.negotiate()?;
        let mut mode = Mode::Simple;
        for number in &order {
            let replies = match *number {
                opt::INFO => conn.info(subject.export(), &[])?,
                number => conn.option(number, &[])?,
            };
            match *number {
                opt::INFO => drop(replies.acked("INFO")?),
                opt::UNKNOWN => replies.refused("an unknown option", &[rep::UNSUP])?,
                opt::STRUCTURED_REPLY if replies.last == rep::ACK => mode = Mode::Structured,
                _ => {}
            }
        }
        enter(conn, subject, mode)?.still_serves()?;
    }
    Ok(())
}
