//! MC: LIST_META_CONTEXT and SET_META_CONTEXT.

use crate::case::{Case, format, must, should};
use crate::negotiation::Replies;
use crate::session::{Mode, Request, Session};
use crate::stop::{Check, Stop, applies, ensure, or_closed};
use crate::subject::{Need, Subject};
use crate::wire::{Message, cmd, err, info, meta_data, opt, rep};

const LIST: &str = "NBD_OPT_LIST_META_CONTEXT";
const SET: &str = "NBD_OPT_SET_META_CONTEXT";
const QUERY: &str = "Metadata querying";
const BASE: &str = "The base: metadata namespace";
const ALLOCATION: &str = "base:allocation";

pub(crate) const CASES: &[Case] = &[
    should(
        "MC-01",
        SET,
        "SET without structured replies is answered with ERR_INVALID",
        &[Need::Meta],
        |subject| {
            let mut conn = subject.negotiate()?;
            let replies = conn.set_meta(subject.export(), &[ALLOCATION])?;
            replies.refused("SET_META_CONTEXT", &[rep::INVALID, rep::EXT_HEADER_REQD])?;
            conn.still_negotiates()
        },
    ),
    must("MC-02", LIST, "no query lists every context that can be selected", &[Need::Meta], |subject| {
        let found = names(&list(subject, &[])?)?;
        ensure(found.iter().any(|name| name == ALLOCATION || name == "base:"), || format!("{found:?}"))
    }),
    must("MC-03", BASE, "the query base: lists base:allocation", &[Need::Meta], |subject| {
        let found = names(&list(subject, &["base:"])?)?;
        ensure(found == [ALLOCATION], || format!("{found:?}"))
    }),
    must("MC-04", LIST, "the query base:allocation lists just that", &[Need::Meta], |subject| {
        let found = names(&list(subject, &[ALLOCATION])?)?;
        ensure(found == [ALLOCATION], || format!("{found:?}"))
    }),
    must("MC-05", LIST, "a query of an unknown namespace is ignored: ACK alone", &[Need::Meta], |subject| {
        let found = names(&list(subject, &["x-conformance-unknown:thing"])?)?;
        ensure(found.is_empty(), || format!("{found:?}"))
    }),
    must("MC-06", BASE, "an unknown leaf in base: is ignored in LIST and SET", &[Need::Meta], |subject| {
        let mut conn = subject.negotiate_structured()?;
        for query in ["base:conformance-unknown", "base:allocatio", "base:allocations"] {
            let listed = names(conn.list_meta(subject.export(), &[query])?.acked("LIST")?)?;
            let set = names(conn.set_meta(subject.export(), &[query])?.acked("SET")?)?;
            ensure(listed.is_empty() && set.is_empty(), || {
                format!("`{query}` finds {listed:?} and {set:?}")
            })?;
        }
        Ok(())
    }),
    should("MC-07", LIST, "the ids that LIST returns are zero", &[Need::Meta], |subject| {
        let found = list(subject, &[])?.contexts()?;
        ensure(found.iter().all(|(id, _)| *id == 0), || format!("{found:?}"))
    }),
    must(
        "MC-08",
        LIST,
        "a query that is longer than the data is answered with ERR_INVALID",
        &[Need::Meta],
        |subject| {
            let mut data = meta_data(subject.export().as_bytes(), &[ALLOCATION]);
            data.pop();
            both_invalid(subject, &data)
        },
    ),
    must(
        "MC-09",
        LIST,
        "an export's name that is longer than the data is answered with ERR_INVALID",
        &[Need::Meta],
        |subject| both_invalid(subject, &Message::default().u32(1000).bytes(b"abc").u32(0).0),
    ),
    must(
        "MC-10",
        LIST,
        "more queries than the data holds are answered with ERR_INVALID",
        &[Need::Meta],
        |subject| {
            let data = Message::default()
                .counted(subject.export().as_bytes())
                .u32(2)
                .counted(ALLOCATION.as_bytes())
                .0;
            both_invalid(subject, &data)
        },
    ),
    format(
        "MC-11",
        LIST,
        "bytes after the last query are answered with ERR_INVALID",
        &[Need::Meta],
        |subject| {
            let mut data = meta_data(subject.export().as_bytes(), &[ALLOCATION]);
            data.push(0);
            both_invalid(subject, &data)
        },
    ),
    must("MC-12", SET, "no query selects nothing", &[Need::Meta], |subject| selects_nothing(subject, &[])),
    must("MC-13", BASE, "the query base: selects nothing", &[Need::Meta], |subject| {
        selects_nothing(subject, &["base:"])
    }),
    must("MC-14", SET, "base:allocation is selected with an id, then ACK", &[Need::Meta], |subject| {
        let found = names(&set(subject, &[ALLOCATION])?)?;
        ensure(found == [ALLOCATION], || format!("{found:?}"))
    }),
    must(
        "MC-15",
        LIST,
        "queries of unknown namespaces beside a known one are ignored",
        &[Need::Meta],
        |subject| {
            let found = names(&set(subject, &["x-conformance-unknown:a", ALLOCATION, "zzz:b"])?)?;
            ensure(found == [ALLOCATION], || format!("{found:?}"))
        },
    ),
    must("MC-16", SET, "a context that is asked for twice is selected once", &[Need::Meta], |subject| {
        let found = set(subject, &[ALLOCATION, ALLOCATION])?.contexts()?;
        ensure(found.len() == 1, || format!("{found:?}"))
    }),
    must("MC-17", SET, "every selected context has an id of its own", &[Need::Meta], |subject| {
        let listed = names(&list(subject, &[])?)?;
        applies(listed.len() > 1, "there is one context only")?;
        let queries: Vec<&str> = listed.iter().map(String::as_str).collect();
        let mut ids: Vec<u32> = set(subject, &queries)?.contexts()?.iter().map(|(id, _)| *id).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        ensure(ids.len() == all, || format!("{all} contexts share the ids {ids:?}"))
    }),
    format("MC-18", SET, "a SET that fails drops the contexts of the one before", &[Need::Meta], |subject| {
        let mut conn = subject.negotiate_structured()?;
        conn.set_meta(subject.export(), &[ALLOCATION])?.acked("SET_META_CONTEXT")?;
        let replies = conn.set_meta(&subject.no_export(), &[ALLOCATION])?;
        applies(replies.is_error(), "the server exports every name")?;
        no_status(subject, conn)
    }),
    format(
        "MC-19",
        SET,
        "a SET that selects nothing drops the contexts of the one before",
        &[Need::Meta],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            conn.set_meta(subject.export(), &[ALLOCATION])?.acked("SET_META_CONTEXT")?;
            conn.set_meta(subject.export(), &[])?.acked("SET_META_CONTEXT")?;
            no_status(subject, conn)
        },
    ),
    should(
        "MC-20",
        QUERY,
        "contexts of one export are not used for another",
        &[Need::Meta, Need::List],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            let servers = conn.option(opt::LIST, &[])?.servers()?;
            let other = servers.iter().find(|(name, _)| name != subject.export() && !name.is_empty());
            let Some((other, _)) = other.filter(|_| !subject.export().is_empty()) else {
                return Err(Stop::NotApplicable("there is one export only".to_owned()));
            };
            conn.set_meta(other, &[ALLOCATION])?.acked("SET_META_CONTEXT")?;
            no_status(subject, conn)
        },
    ),
    must(
        "MC-21",
        QUERY,
        "the names of contexts are a namespace, a colon and a leaf",
        &[Need::Meta],
        |subject| {
            let found = names(&list(subject, &[])?)?;
            let good = |name: &String| name.split_once(':').is_some_and(|(space, _)| !space.is_empty());
            ensure(found.iter().all(good), || format!("{found:?}"))
        },
    ),
    format(
        "MC-22",
        LIST,
        "a query without a colon selects nothing or is answered with ERR_INVALID",
        &[Need::Meta],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            let replies = conn.list_meta(subject.export(), &["base"])?;
            replies.refused("a query without a colon", &[rep::ACK, rep::INVALID])?;
            ensure(replies.items.is_empty(), || "it finds contexts".to_owned())?;
            conn.still_negotiates()
        },
    ),
    should(
        "MC-23",
        QUERY,
        "BLOCK_STATUS without a context is answered with EINVAL",
        &[Need::Structured],
        |subject| {
            let mut session = subject.session(Mode::Structured)?;
            let length = subject.unit();
            session.fails(Request::new(cmd::BLOCK_STATUS, 0, length), &[err::EINVAL])
        },
    ),
    format(
        "MC-24",
        LIST,
        "contexts of an unknown export are answered with an error, and options go on",
        &[Need::Meta],
        |subject| {
            let mut conn = subject.negotiate_structured()?;
            let replies = conn.list_meta(&subject.no_export(), &[])?;
            applies(replies.last != rep::ACK, "the server exports every name")?;
            replies.refused("an unknown export", &[rep::UNKNOWN, rep::TLS_REQD, rep::INVALID])?;
            conn.still_negotiates()
        },
    ),
    must("MC-25", SET, "STARTTLS aside, contexts survive options in between", &[Need::Meta], |subject| {
        let mut conn = subject.negotiate_structured()?;
        conn.set_meta(subject.export(), &[ALLOCATION])?.acked("SET_META_CONTEXT")?;
        conn.still_negotiates()?;
        conn.info(subject.export(), &[])?.acked("INFO")?;
        conn.list_meta(subject.export(), &[])?.acked("LIST_META_CONTEXT")?;
        let mut session = enter(subject, conn)?;
        session.ok(Request::new(cmd::BLOCK_STATUS, 0, subject.unit())).map(drop)
    }),
    should("MC-26", LIST, "LIST does not select: BLOCK_STATUS fails after it", &[Need::Meta], |subject| {
        let mut conn = subject.negotiate_structured()?;
        conn.list_meta(subject.export(), &[ALLOCATION])?.acked("LIST_META_CONTEXT")?;
        no_status(subject, conn)
    }),
    must(
        "MC-27",
        LIST,
        "a count of 4 Gi - 1 queries is answered with an error or ends the session",
        &[Need::Meta],
        |subject| {
            for number in [opt::LIST_META, opt::SET_META] {
                let mut conn = subject.negotiate_structured()?;
                let data = Message::default().counted(subject.export().as_bytes()).u32(u32::MAX).0;
                let Some(replies) = or_closed(conn.option(number, &data))? else { continue };
                replies.refused("4 Gi - 1 queries", &[rep::INVALID, rep::TOO_BIG])?;
                conn.still_negotiates()?;
            }
            Ok(())
        },
    ),
];

fn list(subject: &Subject, queries: &[&str]) -> Result<Replies, Stop> {
    let replies = subject.negotiate_structured()?.list_meta(subject.export(), queries)?;
    replies.acked("LIST_META_CONTEXT")?;
    Ok(replies)
}

fn set(subject: &Subject, queries: &[&str]) -> Result<Replies, Stop> {
    let replies = subject.negotiate_structured()?.set_meta(subject.export(), queries)?;
    replies.acked("SET_META_CONTEXT")?;
    Ok(replies)
}

fn names(replies: &Replies) -> Result<Vec<String>, Stop> {
    Ok(replies.contexts()?.into_iter().map(|(_, name)| name).collect())
}

fn selects_nothing(subject: &Subject, queries: &[&str]) -> Check {
    let found = names(&set(subject, queries)?)?;
    ensure(found.is_empty(), || format!("{found:?}"))
}

/// Expects ERR_INVALID for LIST and SET with this data, and a working handshake afterwards.
fn both_invalid(subject: &Subject, data: &[u8]) -> Check {
    let mut conn = subject.negotiate_structured()?;
    for (number, name) in [(opt::LIST_META, "LIST_META_CONTEXT"), (opt::SET_META, "SET_META_CONTEXT")] {
        conn.option(number, data)?.refused(name, &[rep::INVALID])?;
        conn.still_negotiates()?;
    }
    Ok(())
}

fn enter(subject: &Subject, mut conn: crate::conn::Conn) -> Result<Session, Stop> {
    let replies = conn.go(subject.export(), &[info::BLOCK_SIZE])?;
    let (size, flags) = replies.acked("GO")?.export()?;
    let block = replies.block_sizes()?;
    Ok(Session { conn, mode: Mode::Structured, size, flags, block, contexts: Vec::new(), next_cookie: 1 })
}

/// In the transmission BLOCK_STATUS fails: no context is selected.
fn no_status(subject: &Subject, conn: crate::conn::Conn) -> Check {
    let mut session = enter(subject, conn)?;
    session.fails(Request::new(cmd::BLOCK_STATUS, 0, subject.unit()), &[err::EINVAL])
}
