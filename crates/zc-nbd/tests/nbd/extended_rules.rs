//! Extended headers and block status with a payload: proto.md, branch `extension-ext-header`.

use crate::disk::{SIZE, Server};
use crate::raw::{
    BOTH_FLAGS, Reply, ask, attached, code, go_data, greeted_with, kinds, meta_data, replies, request,
};
use zc_nbd::proto::{BASE_ALLOCATION, chunk, command, command_flag, option, reply, tx_flag};
use zc_nbd::server::{CloseReason, ServerConfig};
use zc_nbd::wire::{BlockStatus, HeaderStyle, InfoReply, StatusFilter};

const STYLE: HeaderStyle = HeaderStyle::Extended;

/// A block status request with a payload of any shape.
fn with_payload(flags: u16, offset: u64, payload: &[u8]) -> Vec<u8> {
    let length = u64::try_from(payload.len()).unwrap();
    let mut bytes = request(STYLE, command::BLOCK_STATUS, flags | command_flag::PAYLOAD_LEN, offset, length);
    bytes.extend_from_slice(payload);
    bytes
}

fn filter(length: u64, contexts: &[u32]) -> Vec<u8> {
    let mut payload = Vec::new();
    StatusFilter { length, contexts: contexts.to_vec() }.encode(&mut payload);
    payload
}

/// The contexts answered, in order, and their extents.
fn statuses(server: &mut Server, message: &[u8], offset: u64) -> Vec<BlockStatus> {
    for piece in message.chunks(13) {
        server.feed(piece);
    }
    let chunks = replies(STYLE, &server.sent(), offset);
    let count = chunks.len();
    let parse = |(at, chunk): (usize, &Reply)| {
        let Reply::Chunk { kind: chunk::BLOCK_STATUS_EXT, done, body } = chunk else { panic!("{chunk:?}") };
        assert_eq!(*done, at + 1 == count, "DONE on the last chunk only");
        BlockStatus::decode(STYLE, body).unwrap()
    };
    chunks.iter().enumerate().map(parse).collect()
}

#[test]
fn must_23_payload_status_is_advertised_only_with_extended_headers_and_contexts() {
    for (extended, contexts, wanted) in
        [(true, true, true), (true, false, false), (false, true, false), (false, false, false)]
    {
        let mut server = greeted_with(ServerConfig::default(), BOTH_FLAGS);
        let headers = if extended { option::EXTENDED_HEADERS } else { option::STRUCTURED_REPLY };
        ask(&mut server, headers, &[]);
        if contexts {
            ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &[BASE_ALLOCATION]));
        }
        let mut offered = Vec::new();
        for number in [option::INFO, option::GO] {
            let replies = ask(&mut server, number, &go_data("first", &[]));
            let Ok(InfoReply::Export { flags, .. }) = InfoReply::decode(&replies[0].1) else { panic!() };
            offered.push(flags & tx_flag::BLOCK_STATUS_PAYLOAD != 0);
        }
        assert_eq!(offered, [wanted, wanted], "extended {extended}, contexts {contexts}");
    }
}

#[test]
fn must_23_payload_status_of_another_export_is_not_advertised() {
    let mut server = greeted_with(ServerConfig::default(), BOTH_FLAGS);
    ask(&mut server, option::EXTENDED_HEADERS, &[]);
    ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &[BASE_ALLOCATION]));
    let replies = ask(&mut server, option::GO, &go_data("huge", &[]));
    let Ok(InfoReply::Export { flags, .. }) = InfoReply::decode(&replies[0].1) else { panic!() };
    assert_eq!(flags & tx_flag::BLOCK_STATUS_PAYLOAD, 0);
}

#[test]
fn must_23_a_status_payload_chooses_contexts_and_length() {
    let mut server = attached("first", STYLE);
    server.disk[4096..4608].fill(1);
    let ids = |list: &[BlockStatus]| list.iter().map(|status| status.context).collect::<Vec<_>>();
    let sum = |status: &BlockStatus| status.extents.iter().map(|extent| extent.length).sum::<u64>();
    for (contexts, wanted) in [(&[1][..], &[1][..]), (&[2], &[2]), (&[2, 1], &[1, 2]), (&[1, 2], &[1, 2])] {
        let list = statuses(&mut server, &with_payload(0, 4096, &filter(8192, contexts)), 4096);
        assert_eq!(ids(&list), wanted);
        assert!(list.iter().all(|status| sum(status) == 8192), "the effect length counts: {list:?}");
    }
    let one = statuses(&mut server, &with_payload(command_flag::REQ_ONE, 4096, &filter(8192, &[1])), 4096);
    assert_eq!((one[0].extents.len(), one[0].extents[0].length), (1, 512));
    let all = statuses(&mut server, &request(STYLE, command::BLOCK_STATUS, 0, 0, SIZE), 0);
    assert_eq!(ids(&all), [1, 2]);
    assert_eq!(server.log.last().unwrap(), "BlockStatus 0 1048576");
}

#[test]
fn must_23_a_bad_status_payload_is_consumed_and_invalid() {
    let seventeen: Vec<u32> = (1..=17).collect();
    let bad = [
        filter(512, &[3]),
        filter(512, &[0]),
        filter(512, &[u32::MAX]),
        filter(512, &[1, 1]),
        filter(512, &[1, 2, 3]),
        filter(512, &seventeen),
        filter(512, &[]),
        filter(512, &[1])[..11].to_vec(),
        filter(512, &[1])[..7].to_vec(),
        filter(0, &[1]),
        filter(SIZE + 1, &[1]),
        filter(u64::MAX, &[1]),
        vec![0; 1 << 20],
        Vec::new(),
    ];
    let mut server = attached("first", STYLE);
    for payload in &bad {
        let message = with_payload(0, 512, payload);
        let (most, last) = message.split_at(message.len() - 1);
        server.feed(most);
        assert!(server.session.buffered_bytes() <= 80, "{} bytes are not buffered", payload.len());
        assert_eq!(code(&mut server, STYLE, last, 512), 22, "{} bytes", payload.len());
    }
    assert!(server.log.is_empty(), "none of it reaches the driver");
    assert_eq!(statuses(&mut server, &with_payload(0, 0, &filter(512, &[1])), 0).len(), 1);
    assert_eq!(server.session.in_flight(), 0);
}

#[test]
fn must_23_a_status_payload_without_contexts_is_consumed_and_invalid() {
    for export in ["first", "plain"] {
        let mut server = greeted_with(ServerConfig::default(), BOTH_FLAGS);
        ask(&mut server, option::EXTENDED_HEADERS, &[]);
        ask(&mut server, option::GO, &go_data(export, &[]));
        assert_eq!(code(&mut server, STYLE, &with_payload(0, 0, &filter(512, &[1])), 0), 22);
        assert_eq!(server.session.need(), zc_nbd::Need::Input);
    }
}

#[test]
fn must_23_an_oversize_payload_of_any_command_disconnects() {
    for number in [command::READ, command::BLOCK_STATUS, command::TRIM, 99] {
        for length in [(32 << 20) + 1, u64::MAX] {
            let mut server = attached("first", STYLE);
            server.feed(&request(STYLE, number, command_flag::PAYLOAD_LEN, 0, length));
            assert!(matches!(server.closed, Some(CloseReason::Limit(_))), "command {number}");
        }
    }
}

#[test]
fn must_23_lengths_have_64_bits_where_there_is_no_payload() {
    let mut server = attached("huge", STYLE);
    let length = (1 << 40) - 512;
    for number in [command::TRIM, command::WRITE_ZEROES, command::CACHE] {
        assert_eq!(code(&mut server, STYLE, &request(STYLE, number, 0, 512, length), 512), 0);
    }
    assert_eq!(server.log[2], format!("Cache 512 {length}"));
    assert_eq!(code(&mut server, STYLE, &request(STYLE, command::READ, 0, 0, length), 0), 22);
}

#[test]
fn must_23_a_64_bit_extent_is_told_in_one_piece() {
    let mut server = attached("huge", STYLE);
    let exports = server.exports.clone();
    let message = request(STYLE, command::BLOCK_STATUS, 0, 0, 1 << 40);
    let mut out = Vec::new();
    let event = server.session.next_event(&mut message.as_slice(), exports.as_slice(), &mut out);
    let Some(zc_nbd::server::ServerEvent::Request(request)) = event else { panic!("{event:?}") };
    assert!(request.wants_context(1) && request.wants_context(2) && !request.wants_context(0));
    let all = zc_nbd::wire::StatusExtent { length: 1 << 40, flags: 1 << 32 | 3 };
    server.session.reply_block_status(request, |_| vec![all], &mut out);
    let chunks = replies(STYLE, &out, 0);
    let Reply::Chunk { kind: chunk::BLOCK_STATUS_EXT, body, .. } = &chunks[0] else { panic!("{chunks:?}") };
    let wanted = zc_nbd::wire::StatusExtent { length: 1 << 40, flags: 3 };
    assert_eq!(BlockStatus::decode(STYLE, body).unwrap().extents, [wanted], "the upper 32 bits stay zero");
}

#[test]
fn must_23_extended_headers_come_with_or_without_structured_replies_before() {
    for before in [false, true] {
        let mut server = greeted_with(ServerConfig::default(), BOTH_FLAGS);
        if before {
            assert_eq!(kinds(&ask(&mut server, option::STRUCTURED_REPLY, &[])), [reply::ACK]);
        }
        assert_eq!(kinds(&ask(&mut server, option::EXTENDED_HEADERS, b"x")), [reply::ERR_INVALID]);
        assert_eq!(kinds(&ask(&mut server, option::EXTENDED_HEADERS, &[])), [reply::ACK]);
        assert_eq!(
            kinds(&ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &[]))),
            [reply::ACK]
        );
        assert_eq!(server.session.style(), STYLE);
    }
}

#[test]
fn must_23_compact_requests_are_not_taken_any_more() {
    let mut server = attached("first", STYLE);
    server.feed(&request(HeaderStyle::Structured, command::READ, 0, 0, 512));
    server.feed(&[0; 4]);
    assert!(matches!(server.closed, Some(CloseReason::Wire(_))));
    let mut server = attached("first", HeaderStyle::Structured);
    server.feed(&request(STYLE, command::READ, 0, 0, 512)[..28]);
    assert!(matches!(server.closed, Some(CloseReason::Wire(_))));
}
