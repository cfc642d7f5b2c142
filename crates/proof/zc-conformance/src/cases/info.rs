//! IN: INFO and GO, their information, and transmission flags.

use crate::case::{Case, format, must, should};
use crate::negotiation::Replies;
use crate::session::{Mode, Session};
use crate::stop::{Check, Stop, applies, ensure, or_closed};
use crate::subject::{Need, Subject};
use crate::wire::{Message, flag, info, opt, rep, reply_name, string};

const GO: &str = "NBD_OPT_INFO and NBD_OPT_GO";
const REP_INFO: &str = "NBD_REP_INFO";
const BLOCK: &str = "Size constraints";
const FLAGS: &str = "Transmission flags";

/// Every kind of information in the document.
const EVERYTHING: &[u16] = &[info::EXPORT, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];

pub(crate) const CASES: &[Case] = &[
    must("IN-01", GO, "INFO sends NBD_INFO_EXPORT before its ACK", &[Need::Plain], |subject| {
        info_reply(subject, &[])?.export().map(drop)
    }),
    must("IN-02", REP_INFO, "the reply with NBD_INFO_EXPORT has 12 bytes", &[Need::Plain], |subject| {
        let data = info_reply(subject, &[])?.info(info::EXPORT)?.unwrap_or_default();
        ensure(data.len() == 10, || format!("it has {} bytes", data.len() + 2))
    }),
    must("IN-03", GO, "after INFO options go on", &[Need::Plain], |subject| {
        let mut conn = subject.negotiate()?;
        conn.info(subject.export(), EVERYTHING)?.acked("INFO")?;
        conn.still_negotiates()
    }),
    must(
        "IN-04",
        GO,
        "GO enters the transmission, without padding even if NO_ZEROES was not asked for",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.connect()?;
            let offered = conn.greeting()?;
            conn.send(&u32::from(offered & 1).to_be_bytes())?;
            let replies = conn.go(subject.export(), &[])?;
            let (size, flags) = replies.acked("GO")?.export()?;
            let block = replies.block_sizes()?;
            let contexts = Vec::new();
            Session { conn, mode: Mode::Simple, size, flags, block, contexts, next_cookie: 1 }.still_serves()
        },
    ),
    must("IN-05", GO, "GO right after the same INFO tells the same", &[Need::Plain], |subject| {
        let mut conn = subject.negotiate()?;
        let mut first = conn.info(subject.export(), EVERYTHING)?.acked("INFO")?.infos()?;
        let mut second = conn.go(subject.export(), EVERYTHING)?.acked("GO")?.infos()?;
        first.sort();
        second.sort();
        ensure(first == second, || format!("INFO tells {first:02x?}, GO {second:02x?}"))
    }),
    must("IN-06", GO, "unknown information requests are ignored", &[Need::Plain], |subject| {
        info_reply(subject, &[0x7a63, info::BLOCK_SIZE, 0xffff])?.export().map(drop)
    }),
    must("IN-07", GO, "100 unknown information requests are ignored", &[Need::Plain], |subject| {
        let wanted: Vec<u16> = (1000..1100).collect();
        info_reply(subject, &wanted)?.export().map(drop)
    }),
    must(
        "IN-08",
        GO,
        "INFO of an unknown export is answered with ERR_UNKNOWN and options go on",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.info(&subject.no_export(), EVERYTHING)?;
            refuses_unknown(subject, &replies)?;
            conn.still_negotiates()
        },
    ),
    must(
        "IN-09",
        GO,
        "GO of an unknown export is answered with ERR_UNKNOWN, and GO of a known one is served then",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.go(&subject.no_export(), &[])?;
            refuses_unknown(subject, &replies)?;
            conn.go(subject.export(), &[info::BLOCK_SIZE])?.acked("GO").map(drop)
        },
    ),
    should("IN-10", GO, "nothing is told about an unknown export", &[Need::Plain], |subject| {
        let replies = subject.negotiate()?.info(&subject.no_export(), EVERYTHING)?;
        applies(replies.is_error(), "the server exports every name")?;
        ensure(replies.items.is_empty(), || format!("{} INFO replies came first", replies.items.len()))
    }),
    must(
        "IN-11",
        GO,
        "an unknown export with a name of 4096 bytes is answered with ERR_UNKNOWN",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.info(&"n".repeat(4096), &[])?;
            refuses_unknown(subject, &replies)?;
            conn.still_negotiates()
        },
    ),
    format(
        "IN-12",
        "Conventions",
        "a name of more than 4096 bytes is not accepted",
        &[Need::Plain],
        |subject| {
            let data = crate::wire::info_data(&[b'n'; 5000], &[]);
            not_accepted(subject, &data)
        },
    ),
    format("IN-13", "Conventions", "a name with a NUL byte is not accepted", &[Need::Plain], |subject| {
        let mut name = subject.export().as_bytes().to_vec();
        name.push(0);
        not_accepted(subject, &crate::wire::info_data(&name, &[]))
    }),
    format("IN-14", "Conventions", "a name that is not UTF-8 is not accepted", &[Need::Plain], |subject| {
        applies(!subject.offer.every_name, "the server exports every name")?;
        not_accepted(subject, &crate::wire::info_data(&[b'a', 0xff, 0xfe], &[]))
    }),
    format("IN-15", GO, "a name longer than the data allows is not accepted", &[Need::Plain], |subject| {
        let name = subject.export().as_bytes();
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        not_accepted(subject, &Message::default().u32(length + 3).bytes(name).u16(0).0)
    }),
    format("IN-16", GO, "a name of 4 GiB - 1 is not accepted", &[Need::Plain], |subject| {
        not_accepted(subject, &Message::default().u32(u32::MAX).u16(0).0)
    }),
    format("IN-17", GO, "data of less than 6 bytes is not accepted", &[Need::Plain], |subject| {
        not_accepted(subject, &[])?;
        not_accepted(subject, &[0; 5])
    }),
    format(
        "IN-18",
        GO,
        "more information requests than the data holds are not accepted",
        &[Need::Plain],
        |subject| {
            let data = Message::default().counted(subject.export().as_bytes()).u16(3).u16(info::BLOCK_SIZE).0;
            not_accepted(subject, &data)
        },
    ),
    must(
        "IN-19",
        REP_INFO,
        "the reply with NBD_INFO_BLOCK_SIZE has 14 bytes",
        &[Need::BlockSize],
        |subject| {
            let data = info_reply(subject, &[info::BLOCK_SIZE])?.info(info::BLOCK_SIZE)?.unwrap_or_default();
            ensure(data.len() == 12, || format!("it has {} bytes", data.len() + 2))
        },
    ),
    must(
        "IN-20",
        BLOCK,
        "the minimum block is a power of two, at most 64 KiB",
        &[Need::BlockSize],
        |subject| {
            let [minimum, _, _] = block_sizes(subject)?;
            ensure(minimum.is_power_of_two() && minimum <= 1 << 16, || format!("it is {minimum}"))
        },
    ),
    must(
        "IN-21",
        BLOCK,
        "the preferred block is a power of two, at least 512 and the minimum",
        &[Need::BlockSize],
        |subject| {
            let [minimum, preferred, _] = block_sizes(subject)?;
            ensure(preferred.is_power_of_two() && preferred >= minimum.max(512), || {
                format!("it is {preferred}, the minimum {minimum}")
            })
        },
    ),
    must(
        "IN-22",
        BLOCK,
        "the maximum payload is at least the preferred block",
        &[Need::BlockSize],
        |subject| {
            let [_, preferred, maximum] = block_sizes(subject)?;
            ensure(maximum >= preferred, || format!("it is {maximum}, the preferred block {preferred}"))
        },
    ),
    should("IN-23", BLOCK, "the maximum payload is at least 1 MiB", &[Need::BlockSize], |subject| {
        let [_, _, maximum] = block_sizes(subject)?;
        ensure(u64::from(maximum) >= subject.offer.size.min(1 << 20), || format!("it is {maximum}"))
    }),
    should("IN-24", BLOCK, "the size is a multiple of the minimum block", &[Need::BlockSize], |subject| {
        let [minimum, _, _] = block_sizes(subject)?;
        let size = subject.offer.size;
        ensure(size.is_multiple_of(u64::from(minimum)), || format!("{size} is no multiple of {minimum}"))
    }),
    must(
        "IN-25",
        GO,
        "ERR_BLOCK_SIZE_REQD is not sent to a client that asked for block sizes",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let info = conn.info(subject.export(), &[info::BLOCK_SIZE])?;
            let go = conn.go(subject.export(), &[info::BLOCK_SIZE])?;
            ensure(info.last != rep::BLOCK_SIZE_REQD && go.last != rep::BLOCK_SIZE_REQD, || {
                "it was sent all the same".to_owned()
            })
        },
    ),
    should(
        "IN-26",
        BLOCK,
        "a client that does not ask for block sizes is not refused",
        &[Need::Plain],
        |subject| subject.negotiate()?.go(subject.export(), &[])?.acked("GO").map(drop),
    ),
    must(
        "IN-27",
        REP_INFO,
        "NBD_INFO_NAME and NBD_INFO_DESCRIPTION are strings",
        &[Need::Plain],
        |subject| {
            let replies = info_reply(subject, EVERYTHING)?;
            for kind in [info::NAME, info::DESCRIPTION] {
                string(&replies.info(kind)?.unwrap_or_default(), "the information")?;
            }
            Ok(())
        },
    ),
    format("IN-28", REP_INFO, "NBD_INFO_NAME is a name that LIST returns", &[Need::List], |subject| {
        let mut conn = subject.negotiate()?;
        let Some(name) = conn.info(subject.export(), &[info::NAME])?.acked("INFO")?.info(info::NAME)? else {
            return Err(Stop::NotApplicable("no NBD_INFO_NAME".to_owned()));
        };
        let listed = conn.option(opt::LIST, &[])?.servers()?;
        let found = listed.iter().any(|(listed, _)| listed.as_bytes() == name);
        ensure(found, || format!("LIST returns {listed:?}, INFO {:?}", String::from_utf8_lossy(&name)))
    }),
    should("IN-29", REP_INFO, "each kind of information comes once", &[Need::Plain], |subject| {
        let mut kinds: Vec<u16> =
            info_reply(subject, EVERYTHING)?.infos()?.iter().map(|(kind, _)| *kind).collect();
        let all = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        ensure(kinds.len() == all, || format!("{all} replies of {} kinds", kinds.len()))
    }),
    format("IN-30", GO, "an empty name is the default export or unknown", &[Need::Plain], |subject| {
        let mut conn = subject.negotiate()?;
        conn.info("", &[])?
            .refused("INFO of the default export", &[rep::ACK, rep::UNKNOWN, rep::TLS_REQD])?;
        conn.still_negotiates()
    }),
    must("IN-31", FLAGS, "NBD_FLAG_HAS_FLAGS is set", &[Need::Plain], |subject| {
        let (_, flags) = info_reply(subject, &[])?.export()?;
        ensure(flags & flag::HAS_FLAGS != 0, || format!("the flags are {flags:#06x}"))
    }),
    must("IN-32", FLAGS, "NBD_FLAG_SEND_DF is clear without structured replies", &[Need::Plain], |subject| {
        let (_, flags) = info_reply(subject, &[])?.export()?;
        ensure(flags & flag::DF == 0, || format!("the flags are {flags:#06x}"))
    }),
    must(
        "IN-33",
        FLAGS,
        "NBD_FLAG_SEND_FAST_ZERO comes only with NBD_FLAG_SEND_WRITE_ZEROES",
        &[Need::Plain],
        |subject| {
            let (_, flags) = info_reply(subject, &[])?.export()?;
            let fast_alone = flags & flag::FAST_ZERO != 0 && flags & flag::WRITE_ZEROES == 0;
            ensure(!fast_alone, || format!("the flags are {flags:#06x}"))
        },
    ),
    must("IN-34", FLAGS, "no transmission flag is set that has no meaning", &[Need::Plain], |subject| {
        let (_, flags) = info_reply(subject, &[])?.export()?;
        ensure(flags & flag::RESERVED == 0, || format!("the flags are {flags:#06x}"))
    }),
    must(
        "IN-35",
        "ext: Transmission flags",
        "NBD_FLAG_BLOCK_STATUS_PAYLOAD is clear without extended headers",
        &[Need::Plain],
        |subject| {
            let (_, flags) = info_reply(subject, &[])?.export()?;
            ensure(flags & flag::STATUS_PAYLOAD == 0, || format!("the flags are {flags:#06x}"))
        },
    ),
    must(
        "IN-36",
        FLAGS,
        "NBD_FLAG_READ_ONLY is set on an export that is read-only",
        &[Need::ReadOnly],
        |subject| match subject.session_read_only(Mode::Simple) {
            Err(Stop::NotApplicable(why)) => Err(Stop::Fail(why)),
            other => other.map(drop),
        },
    ),
];

/// The replies to an accepted INFO of the export.
fn info_reply(subject: &Subject, wanted: &[u16]) -> Result<Replies, Stop> {
    let replies = subject.negotiate()?.info(subject.export(), wanted)?;
    replies.acked("INFO")?;
    Ok(replies)
}

fn block_sizes(subject: &Subject) -> Result<[u32; 3], Stop> {
    info_reply(subject, &[info::BLOCK_SIZE])?
        .block_sizes()?
        .ok_or_else(|| Stop::Fail("no NBD_INFO_BLOCK_SIZE although it was asked for".to_owned()))
}

/// A server with TLS may hide unknown exports. A server that exports every name has none that is unknown.
fn refuses_unknown(subject: &Subject, replies: &Replies) -> Check {
    applies(replies.last != rep::ACK, "the server exports every name")?;
    let allowed: &[u32] = if subject.offer.tls { &[rep::UNKNOWN, rep::TLS_REQD] } else { &[rep::UNKNOWN] };
    replies.refused("an unknown export", allowed)
}

/// INFO and GO with this data get an error or end the session; another client is served all the same.
fn not_accepted(subject: &Subject, data: &[u8]) -> Check {
    for (number, name) in [(opt::INFO, "INFO"), (opt::GO, "GO")] {
        let mut conn = subject.negotiate()?;
        if let Some(replies) = or_closed(conn.option(number, data))? {
            ensure(replies.is_error(), || format!("{name} was answered with {}", reply_name(replies.last)))?;
            or_closed(conn.still_negotiates())?;
        }
    }
    subject.negotiate()?.still_negotiates()
}
