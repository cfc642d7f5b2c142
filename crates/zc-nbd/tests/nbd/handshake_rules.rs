//! The numbered rules of the handshake, against raw bytes.

use crate::disk::{FIRST_FLAGS, SIZE};
use crate::raw::{BOTH_FLAGS, ask, attached, go_data, greeted, greeted_with, kinds, meta_data};
use zc_nbd::proto::{handshake_flag, info, option, reply, tx_flag};
use zc_nbd::server::{CloseReason, ServerConfig, ServerLimits};
use zc_nbd::wire::{
    ExportNameReply, HeaderStyle, InfoReply, MetaContextReply, OptionHeader, OptionReplyHeader, ServerEntry,
};

#[test]
fn must_01_unknown_client_flags_drop_the_connection() {
    for bit in 2..32 {
        let server = greeted_with(ServerConfig::default(), BOTH_FLAGS | 1 << bit);
        assert!(matches!(server.closed, Some(CloseReason::Rule(_))), "bit {bit}");
    }
    assert_eq!(greeted().closed, None);
}

#[test]
fn must_01_a_wrong_magic_drops_the_connection() {
    let mut server = greeted();
    server.feed(&[0x55; 16]);
    assert!(matches!(server.closed, Some(CloseReason::Wire(_))));
}

#[test]
fn must_02_an_unknown_export_name_ends_the_session() {
    let mut server = greeted();
    assert!(ask(&mut server, option::EXPORT_NAME, b"nosuch").is_empty());
    assert_eq!(server.closed, Some(CloseReason::UnknownExport("nosuch".to_owned())));
}

#[test]
fn must_02_padding_only_unless_both_sides_chose_no_zeroes() {
    let flags = FIRST_FLAGS & !tx_flag::SEND_DF;
    for (client, length) in [(BOTH_FLAGS, 10), (handshake_flag::FIXED_NEWSTYLE.into(), 134), (0, 134)] {
        let mut server = greeted_with(ServerConfig::default(), client);
        let mut message = Vec::new();
        OptionHeader::encode_with(option::EXPORT_NAME, b"first", &mut message);
        server.feed(&message);
        let sent = server.sent();
        assert_eq!(sent.len(), length);
        assert_eq!(ExportNameReply::decode(&sent), Ok(ExportNameReply { size_bytes: SIZE, flags }));
        assert!(sent[10..].iter().all(|byte| *byte == 0));
        assert_eq!(server.log, ["attached 1"]);
    }
}

#[test]
fn must_02_the_empty_name_is_the_first_export() {
    let mut server = greeted();
    ask_raw(&mut server, option::EXPORT_NAME, b"");
    assert_eq!(server.log, ["attached 1"]);
}

fn ask_raw(server: &mut crate::disk::Server, number: u32, data: &[u8]) {
    let mut message = Vec::new();
    OptionHeader::encode_with(number, data, &mut message);
    server.feed(&message);
    server.sent();
}

#[test]
fn must_03_go_and_info_give_the_same_and_end_with_ack() {
    let mut server = greeted();
    let wanted = go_data("first", &[info::DESCRIPTION, 99, info::BLOCK_SIZE, info::NAME, info::NAME]);
    let replies = ask(&mut server, option::INFO, &wanted);
    assert!(server.log.is_empty(), "INFO attaches nothing");
    assert_eq!(ask(&mut server, option::GO, &wanted), replies);
    assert_eq!(server.log, ["attached 1"]);
    let infos: Vec<InfoReply> =
        replies[..4].iter().map(|(_, body)| InfoReply::decode(body).unwrap()).collect();
    assert_eq!(
        infos,
        [
            InfoReply::Export { size_bytes: SIZE, flags: FIRST_FLAGS & !tx_flag::SEND_DF },
            InfoReply::Name("first".to_owned()),
            InfoReply::Description("about first".to_owned()),
            InfoReply::BlockSize { min: 1, preferred: 4096, max: 32 << 20 },
        ]
    );
    assert_eq!(replies[0].1.len(), 12);
    assert_eq!(replies[4..], [(reply::ACK, Vec::new())]);
}

#[test]
fn must_03_an_unknown_export_keeps_the_connection() {
    let mut server = greeted();
    for number in [option::INFO, option::GO] {
        assert_eq!(kinds(&ask(&mut server, number, &go_data("nosuch", &[]))), [reply::ERR_UNKNOWN]);
    }
    assert_eq!(kinds(&ask(&mut server, option::GO, &go_data("", &[]))), [reply::INFO, reply::ACK]);
}

#[test]
fn must_03_lengths_that_do_not_fit_are_invalid() {
    let mut server = greeted();
    let good = go_data("first", &[info::NAME]);
    let mut long_name = good.clone();
    long_name[3] = 200;
    let mut more_infos = good.clone();
    more_infos[10] = 9;
    let mut trailing = good.clone();
    trailing.push(0);
    let mut huge = good.clone();
    huge[..4].fill(0xff);
    for bad in [&[][..], &good[..3], &good[..good.len() - 1], &long_name, &more_infos, &trailing, &huge] {
        assert_eq!(kinds(&ask(&mut server, option::GO, bad)), [reply::ERR_INVALID], "{bad:?}");
    }
    assert_eq!(kinds(&ask(&mut server, option::INFO, &good)), [reply::INFO, reply::INFO, reply::ACK]);
}

#[test]
fn must_04_unknown_options_are_consumed_and_unsupported() {
    let config = ServerConfig { extended: false, ..ServerConfig::default() };
    let mut server = greeted_with(config, BOTH_FLAGS);
    for number in [0, option::STARTTLS + 1000, 4, u32::MAX] {
        assert_eq!(kinds(&ask(&mut server, number, &[7; 1000])), [reply::ERR_UNSUP]);
    }
    assert_eq!(kinds(&ask(&mut server, option::STARTTLS, &[])), [reply::ERR_UNSUP]);
    assert_eq!(kinds(&ask(&mut server, option::EXTENDED_HEADERS, &[])), [reply::ERR_UNSUP]);
    assert_eq!(kinds(&ask(&mut server, option::GO, &go_data("", &[]))), [reply::INFO, reply::ACK]);
}

#[test]
fn must_05_list_names_every_export_and_takes_no_data() {
    let mut server = greeted();
    let replies = ask(&mut server, option::LIST, &[]);
    let names: Vec<ServerEntry> =
        replies[..5].iter().map(|(_, body)| ServerEntry::decode(body).unwrap()).collect();
    assert_eq!(names[0], ServerEntry { name: "first".to_owned(), description: "about first".to_owned() });
    assert_eq!(names[2], ServerEntry { name: "plain".to_owned(), description: String::new() });
    let mut wanted = vec![reply::SERVER; 5];
    wanted.push(reply::ACK);
    assert_eq!(kinds(&replies), wanted);
}

#[test]
fn must_05_data_where_none_belongs_is_invalid() {
    let mut server = greeted_with(ServerConfig { extended: true, ..ServerConfig::default() }, BOTH_FLAGS);
    for number in [option::LIST, option::STRUCTURED_REPLY, option::EXTENDED_HEADERS, option::STARTTLS] {
        assert_eq!(kinds(&ask(&mut server, number, b"x")), [reply::ERR_INVALID], "option {number}");
    }
    assert_eq!(server.session.style(), HeaderStyle::Simple);
}

#[test]
fn must_05_abort_is_acknowledged_even_with_data() {
    for data in [&b""[..], b"goodbye"] {
        let mut server = greeted();
        assert_eq!(kinds(&ask(&mut server, option::ABORT, data)), [reply::ACK]);
        assert_eq!(server.closed, Some(CloseReason::Aborted));
        server.feed(b"bytes after the end are dropped");
    }
}

#[test]
fn must_05_abort_is_acknowledged_even_with_more_data_than_is_buffered() {
    let mut server = greeted();
    assert_eq!(kinds(&ask(&mut server, option::ABORT, &vec![0; 1 << 20])), [reply::ACK]);
    assert_eq!(server.closed, Some(CloseReason::Aborted));
}

#[test]
fn must_08_contexts_need_structured_replies() {
    let mut server = greeted();
    for number in [option::SET_META_CONTEXT, option::LIST_META_CONTEXT] {
        let data = meta_data("first", &["base:allocation"]);
        assert_eq!(kinds(&ask(&mut server, number, &data)), [reply::ERR_INVALID]);
    }
}

fn contexts(server: &mut crate::disk::Server, number: u32, queries: &[&str]) -> Vec<(u32, String)> {
    let replies = ask(server, number, &meta_data("first", queries));
    let (last, contexts) = replies.split_last().unwrap();
    assert_eq!(last.0, reply::ACK);
    contexts
        .iter()
        .map(|(kind, body)| {
            assert_eq!(*kind, reply::META_CONTEXT);
            let context = MetaContextReply::decode(body).unwrap();
            (context.id, context.name)
        })
        .collect()
}

fn structured() -> crate::disk::Server {
    let mut server = greeted();
    assert_eq!(kinds(&ask(&mut server, option::STRUCTURED_REPLY, &[])), [reply::ACK]);
    server
}

#[test]
fn must_08_a_namespace_is_a_wildcard_in_list_and_nothing_in_set() {
    let mut server = structured();
    let (base, mark) = ("base:allocation".to_owned(), "x-test:mark".to_owned());
    let list = option::LIST_META_CONTEXT;
    assert_eq!(contexts(&mut server, list, &[]), [(0, base.clone()), (0, mark.clone())]);
    assert_eq!(contexts(&mut server, list, &["base:"]), [(0, base.clone())]);
    assert_eq!(contexts(&mut server, list, &["x-test:mark", "q:"]), [(0, mark.clone())]);
    assert_eq!(contexts(&mut server, list, &["", ":", "base", "base:alloc", "x-"]), []);
    let set = option::SET_META_CONTEXT;
    assert_eq!(contexts(&mut server, set, &["base:"]), []);
    assert_eq!(contexts(&mut server, set, &[]), []);
    assert_eq!(contexts(&mut server, set, &["nosuch:thing", "x-test:mark"]), [(2, mark)]);
    assert_eq!(contexts(&mut server, set, &["base:nosuch", "x-test:", "no colon", ":", ""]), []);
    assert_eq!(contexts(&mut server, set, &["base:allocation", "base:allocation"]), [(1, base)]);
}

#[test]
fn must_08_set_replaces_the_earlier_set_even_when_it_fails() {
    let good = meta_data("first", &["base:allocation"]);
    let bad = [
        (meta_data("nosuch", &["base:allocation"]), reply::ERR_UNKNOWN),
        (vec![1], reply::ERR_INVALID),
        (vec![0; 1 << 20], reply::ERR_TOO_BIG),
    ];
    for (data, error) in bad {
        let mut server = structured();
        ask(&mut server, option::SET_META_CONTEXT, &good);
        assert_eq!(kinds(&ask(&mut server, option::SET_META_CONTEXT, &data)), [error]);
        ask(&mut server, option::GO, &go_data("first", &[]));
        assert!(server.session.contexts().is_empty());
    }
}

#[test]
fn must_08_contexts_count_only_for_the_same_export() {
    for (export, count) in [("first", 1), ("frozen", 0), ("", 0)] {
        let mut server = structured();
        ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &["base:allocation"]));
        ask(&mut server, option::GO, &go_data(export, &[]));
        assert_eq!(server.session.contexts().len(), count, "{export}");
    }
}

#[test]
fn must_08_query_lengths_past_the_end_are_invalid() {
    let mut server = structured();
    let good = meta_data("first", &["base:allocation"]);
    let mut long_query = good.clone();
    long_query[16] = 0xff;
    let mut more_queries = good.clone();
    more_queries[12] = 2;
    let mut trailing = good.clone();
    trailing.push(0);
    let too_many = meta_data("first", &[""; 257]);
    for bad in [&good[..8], &good[..good.len() - 1], &too_many, &long_query, &more_queries, &trailing] {
        assert_eq!(kinds(&ask(&mut server, option::SET_META_CONTEXT, bad)), [reply::ERR_INVALID]);
        assert_eq!(kinds(&ask(&mut server, option::LIST_META_CONTEXT, bad)), [reply::ERR_INVALID]);
    }
}

#[test]
fn must_09_strings_are_utf8_without_nul_and_at_most_4096_bytes() {
    let mut server = greeted();
    let longest = "x".repeat(4096);
    assert_eq!(kinds(&ask(&mut server, option::GO, &go_data(&longest, &[]))), [reply::ERR_UNKNOWN]);
    for name in ["x".repeat(4097), "a\0b".to_owned()] {
        assert_eq!(kinds(&ask(&mut server, option::GO, &go_data(&name, &[]))), [reply::ERR_INVALID]);
    }
    let mut not_utf8 = go_data("ab", &[]);
    not_utf8[4] = 0xff;
    assert_eq!(kinds(&ask(&mut server, option::GO, &not_utf8)), [reply::ERR_INVALID]);
    for name in [vec![b'x'; 4097], vec![b'x'; 100_000], vec![0xff], vec![0]] {
        let mut server = greeted();
        ask_raw(&mut server, option::EXPORT_NAME, &name);
        assert!(server.closed.is_some());
    }
}

#[test]
fn must_08_a_later_set_replaces_an_earlier_one() {
    let mut server = structured();
    ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &["base:allocation", "x-test:mark"]));
    ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &["x-test:mark"]));
    ask(&mut server, option::GO, &go_data("first", &[]));
    assert_eq!(server.session.contexts(), [(2, "x-test:mark".to_owned())]);
    let mut server = structured();
    ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &["base:allocation"]));
    ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &[]));
    ask(&mut server, option::GO, &go_data("first", &[]));
    assert!(server.session.contexts().is_empty(), "zero queries select nothing");
}

#[test]
fn must_08_at_most_16_contexts_are_served() {
    let mut server = structured();
    server.exports[0].contexts = (0..20).map(|number| format!("x-test:{number}")).collect();
    let ids = |list: Vec<(u32, String)>| list.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    let names: Vec<String> = server.exports[0].contexts.clone();
    let queries: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(ids(contexts(&mut server, option::SET_META_CONTEXT, &queries)), (1..=16).collect::<Vec<_>>());
    assert_eq!(contexts(&mut server, option::LIST_META_CONTEXT, &[]).len(), 16);
}

#[test]
fn must_09_too_long_options_are_drained_and_refused() {
    let mut server = greeted();
    assert_eq!(kinds(&ask(&mut server, option::GO, &vec![0; 1 << 20])), [reply::ERR_TOO_BIG]);
    assert_eq!(kinds(&ask(&mut server, 4711, &vec![0; (64 << 10) + 1])), [reply::ERR_TOO_BIG]);
    assert!(server.session.buffered_bytes() == 0);
    assert_eq!(kinds(&ask(&mut server, option::LIST, &[])).len(), 6);
    let mut header = Vec::new();
    OptionHeader { option: option::GO, length: u32::MAX }.encode(&mut header);
    server.feed(&header);
    assert!(matches!(server.closed, Some(CloseReason::Limit(_))));
}

#[test]
fn must_10_block_sizes_are_told_when_asked() {
    let mut server = greeted();
    let replies = ask(&mut server, option::INFO, &go_data("aligned", &[info::BLOCK_SIZE]));
    let wanted = InfoReply::BlockSize { min: 512, preferred: 4096, max: 1 << 20 };
    assert_eq!(InfoReply::decode(&replies[1].1), Ok(wanted));
}

#[test]
fn must_11_only_what_the_export_does_is_advertised() {
    let mut server = structured();
    let replies = ask(&mut server, option::INFO, &go_data("plain", &[]));
    let flags = tx_flag::HAS_FLAGS | tx_flag::SEND_DF;
    assert_eq!(InfoReply::decode(&replies[0].1), Ok(InfoReply::Export { size_bytes: SIZE, flags }));
}

#[test]
fn must_23_extended_headers_exclude_older_ways() {
    let config = ServerConfig { extended: true, ..ServerConfig::default() };
    let mut server = greeted_with(config, BOTH_FLAGS);
    assert_eq!(kinds(&ask(&mut server, option::EXTENDED_HEADERS, &[])), [reply::ACK]);
    assert_eq!(kinds(&ask(&mut server, option::STRUCTURED_REPLY, &[])), [reply::ERR_EXT_HEADER_REQD]);
    ask_raw(&mut server, option::EXPORT_NAME, b"first");
    assert!(matches!(server.closed, Some(CloseReason::Rule(_))));
}

#[test]
fn options_are_counted() {
    let limits = ServerLimits { options: 3, ..ServerLimits::default() };
    let mut server = greeted_with(ServerConfig { limits, ..ServerConfig::default() }, BOTH_FLAGS);
    for _ in 0..3 {
        assert_eq!(ask(&mut server, option::LIST, &[]).len(), 6);
    }
    assert!(ask(&mut server, option::LIST, &[]).is_empty());
    assert!(matches!(server.closed, Some(CloseReason::Limit(_))));
}

#[test]
fn must_21_a_stopping_server_says_so() {
    let mut server = greeted();
    server.session.begin_shutdown();
    assert_eq!(kinds(&ask(&mut server, option::GO, &go_data("", &[]))), [reply::ERR_SHUTDOWN]);
    assert_eq!(kinds(&ask(&mut server, option::ABORT, &[])), [reply::ACK]);
}

#[test]
fn pipelined_options_are_answered_in_order() {
    let mut server = greeted();
    let mut message = Vec::new();
    OptionHeader::encode_with(4711, b"xyz", &mut message);
    OptionHeader::encode_with(option::STRUCTURED_REPLY, &[], &mut message);
    OptionHeader::encode_with(option::GO, &go_data("first", &[]), &mut message);
    message.extend(crate::raw::request(HeaderStyle::Structured, 3, 0, 0, 0));
    server.feed(&message);
    let sent = server.sent();
    assert_eq!(OptionReplyHeader::decode(&sent).unwrap().option, 4711);
    assert_eq!(server.log, ["attached 1", "Flush 0 0"]);
    assert_eq!(attached("first", HeaderStyle::Structured).session.contexts().len(), 2);
}
