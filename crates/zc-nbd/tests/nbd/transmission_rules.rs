//! The numbered rules of the transmission phase, against raw bytes, in every header style.

use crate::disk::{SIZE, Server};
use crate::raw::{Reply, attached, code, replies, request};
use zc_nbd::proto::{chunk, command, command_flag};
use zc_nbd::server::{
    CloseReason, Command, ExportFlags, ExportInfo, HoleForm, ReadFailure, Request, ServerConfig, ServerEvent,
    ServerLimits, ServerSession,
};
use zc_nbd::wire::{BlockStatus, HeaderStyle, HoleChunk, StatusExtent};
use zc_nbd::{ErrorCode, Need};

const STYLES: [HeaderStyle; 3] = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended];
const RANGED: [u16; 5] =
    [command::READ, command::WRITE, command::TRIM, command::WRITE_ZEROES, command::CACHE];

/// A request with its payload, if it is a WRITE.
fn whole(style: HeaderStyle, number: u16, flags: u16, offset: u64, length: u64) -> Vec<u8> {
    let extended_write = style == HeaderStyle::Extended && number == command::WRITE;
    let flags = if extended_write { flags | command_flag::PAYLOAD_LEN } else { flags };
    let mut bytes = request(style, number, flags, offset, length);
    if number == command::WRITE {
        bytes.resize(bytes.len() + usize::try_from(length).unwrap(), 0xab);
    }
    bytes
}

fn attempt(
    server: &mut Server,
    style: HeaderStyle,
    number: u16,
    flags: u16,
    offset: u64,
    length: u64,
) -> u32 {
    code(server, style, &whole(style, number, flags, offset, length), offset)
}

#[test]
fn must_12_a_read_never_gets_a_simple_reply_once_structured() {
    for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
        let mut server = attached("first", style);
        for message in [
            whole(style, command::READ, 0, SIZE, 1),
            whole(style, command::READ, 1 << 15, 0, 1),
            whole(style, command::READ, 0, 0, 0),
            whole(style, command::READ, 0, 0, 4096),
        ] {
            server.feed(&message);
            let sent = server.sent();
            let offset = u64::from_be_bytes(message[16..24].try_into().unwrap());
            let list = replies(style, &sent, offset);
            assert!(!list.iter().any(|reply| matches!(reply, Reply::Simple(_))), "{list:?}");
        }
    }
}

#[test]
fn must_12_extended_headers_have_no_simple_replies_and_echo_the_offset() {
    let style = HeaderStyle::Extended;
    let mut server = attached("first", style);
    for number in [command::WRITE, command::TRIM, command::WRITE_ZEROES, command::CACHE] {
        server.feed(&whole(style, number, 0, 512, 512));
        let list = replies(style, &server.sent(), 512);
        assert_eq!(list, [Reply::Chunk { kind: chunk::NONE, done: true, body: Vec::new() }]);
    }
}

#[test]
fn must_13_a_simple_error_carries_no_payload() {
    let mut server = attached("first", HeaderStyle::Simple);
    server.fail = Some(ErrorCode::Io);
    server.feed(&whole(HeaderStyle::Simple, command::READ, 0, 0, 4096));
    assert_eq!(server.sent().len(), 16);
}

/// A session with one READ of 8192 bytes at 4096 in the driver's hands.
fn one_read(style: HeaderStyle, flags: u16) -> (ServerSession, Request, Vec<u8>) {
    let mut server = attached("first", style);
    let mut out = Vec::new();
    let bytes = whole(style, command::READ, flags, 4096, 8192);
    let exports: &[ExportInfo] = &server.exports;
    let event = server.session.next_event(&mut bytes.as_slice(), exports, &mut out);
    let Some(ServerEvent::Request(request)) = event else { panic!("{event:?}") };
    (server.session, request, out)
}

#[test]
fn must_13_a_read_that_fails_after_success_disconnects_only_when_it_must() {
    for (style, flags) in [(HeaderStyle::Simple, 0), (HeaderStyle::Structured, command_flag::DF)] {
        let (mut session, request, mut out) = one_read(style, flags);
        let mut reply = session.begin_read(request);
        session.read_data(&mut reply, 4096, &mut out);
        let failure = session.fail_read(reply, ErrorCode::Io, "rot", &mut out);
        assert_eq!((failure, session.need()), (ReadFailure::HardDisconnect, Need::Nothing));
    }
    let (mut session, request, mut out) = one_read(HeaderStyle::Structured, 0);
    let mut reply = session.begin_read(request);
    session.read_data(&mut reply, 4096, &mut out);
    out.extend_from_slice(&[1; 4096]);
    assert_eq!(session.fail_read(reply, ErrorCode::Io, "rot", &mut out), ReadFailure::Reported);
    let list = replies(HeaderStyle::Structured, &out, 4096);
    assert!(matches!(&list[0], Reply::Chunk { kind: chunk::OFFSET_DATA, done: false, .. }));
    assert_eq!(list[1], Reply::Error { code: 5, text: "rot".to_owned(), done: true });
    assert_eq!((session.need(), session.in_flight()), (Need::Input, 0));
}

#[test]
fn must_13_done_stands_on_the_last_chunk_only() {
    for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
        let (mut session, request, mut out) = one_read(style, 0);
        let mut reply = session.begin_read(request);
        assert_eq!(session.read_hole(&mut reply, 4096, &mut out), HoleForm::Chunk);
        session.read_data(&mut reply, 1, &mut out);
        out.push(9);
        session.read_data(&mut reply, 4095, &mut out);
        out.extend_from_slice(&[8; 4095]);
        session.end_read(reply);
        let list = replies(style, &out, 4096);
        let dones: Vec<bool> =
            list.iter().map(|reply| matches!(reply, Reply::Chunk { done: true, .. })).collect();
        assert_eq!(dones, [false, false, true]);
        let Reply::Chunk { kind: chunk::OFFSET_HOLE, body, .. } = &list[0] else { panic!("{list:?}") };
        assert_eq!(HoleChunk::decode(body), Ok(HoleChunk { offset: 4096, length: 4096 }));
        let Reply::Chunk { kind: chunk::OFFSET_DATA, body, .. } = &list[1] else { panic!("{list:?}") };
        assert_eq!(body[..], [0, 0, 0, 0, 0, 0, 0x20, 0, 9]);
    }
}

#[test]
fn must_14_df_gets_exactly_one_content_chunk() {
    for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
        let mut server = attached("first", style);
        server.disk[512..1024].fill(7);
        server.feed(&whole(style, command::READ, command_flag::DF, 0, 65536));
        let list = replies(style, &server.sent(), 0);
        let [Reply::Chunk { kind: chunk::OFFSET_DATA, done: true, body }] = list.as_slice() else {
            panic!("{list:?}")
        };
        assert_eq!(body.len(), 8 + 65536);
        assert_eq!(body[8..], server.disk[..65536]);
    }
}

#[test]
fn must_14_a_df_read_beyond_the_maximum_is_an_overflow() {
    let style = HeaderStyle::Structured;
    let mut server = attached("huge", style);
    let length = (32 << 20) + 1;
    assert_eq!(attempt(&mut server, style, command::READ, command_flag::DF, 0, length), 75);
    assert_eq!(attempt(&mut server, style, command::READ, 0, 0, length), 22);
}

#[test]
fn must_15_past_the_end_has_the_right_error() {
    for style in STYLES {
        let mut server = attached("first", style);
        for (offset, length) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 4096), (SIZE + 1, 0)]
        {
            for number in RANGED {
                let wanted = if matches!(number, command::WRITE | command::WRITE_ZEROES) { 28 } else { 22 };
                let got = attempt(&mut server, style, number, 0, offset, length);
                assert_eq!(got, wanted, "{style:?} command {number} at {offset}+{length}");
            }
        }
        assert!(server.log.is_empty(), "none of it reaches the driver");
    }
}

#[test]
fn must_15_a_read_only_export_refuses_writes() {
    for style in STYLES {
        let mut server = attached("frozen", style);
        for number in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(attempt(&mut server, style, number, 0, 0, 512), 1);
        }
        assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 0), 0);
    }
}

#[test]
fn must_15_unknown_commands_and_flags_are_invalid() {
    for style in STYLES {
        let mut server = attached("first", style);
        for number in [8, 9, 4711, u16::MAX] {
            assert_eq!(attempt(&mut server, style, number, 0, 0, 512), 22);
        }
        for number in RANGED {
            for bit in 6..16 {
                assert_eq!(attempt(&mut server, style, number, 1 << bit, 0, 512), 22);
            }
        }
        assert_eq!(attempt(&mut server, style, command::TRIM, command_flag::NO_HOLE, 0, 512), 22);
        assert_eq!(attempt(&mut server, style, command::WRITE, command_flag::DF, 0, 512), 22);
        assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 512), 22);
    }
    let style = HeaderStyle::Simple;
    let mut server = attached("first", style);
    assert_eq!(attempt(&mut server, style, command::READ, command_flag::DF, 0, 512), 22);
    assert_eq!(attempt(&mut server, style, command::WRITE, command_flag::PAYLOAD_LEN, 0, 512), 22);
    assert_eq!(attempt(&mut server, style, command::TRIM, command_flag::PAYLOAD_LEN, 0, 512), 22);
    assert_eq!(attempt(&mut server, style, command::BLOCK_STATUS, 0, 0, 512), 22);
}

#[test]
fn must_11_what_is_not_advertised_is_refused() {
    for style in STYLES {
        let mut server = attached("plain", style);
        for number in [command::TRIM, command::WRITE_ZEROES, command::CACHE, command::BLOCK_STATUS] {
            assert_eq!(attempt(&mut server, style, number, 0, 0, 512), 22);
        }
        assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 0), 22);
        assert_eq!(attempt(&mut server, style, command::WRITE, command_flag::FUA, 0, 512), 22);
        assert_eq!(attempt(&mut server, style, command::WRITE, 0, 0, 512), 0);
    }
}

#[test]
fn must_16_a_refused_writes_payload_is_consumed() {
    for style in STYLES {
        let mut server = attached("frozen", style);
        let mut message = whole(style, command::WRITE, 0, 0, 5000);
        message.extend(whole(style, command::FLUSH, 0, 0, 0));
        for piece in message.chunks(997) {
            server.feed(piece);
        }
        assert_eq!(replies(style, &server.sent(), 0).len(), 2);
        assert_eq!(server.log, ["Flush 0 0"]);
    }
}

#[test]
fn must_16_the_driver_may_refuse_a_payload_half_way() {
    let style = HeaderStyle::Structured;
    let mut server = attached("first", style);
    let exports = server.exports.clone();
    let message = [whole(style, command::WRITE, 0, 0, 5000), whole(style, command::FLUSH, 0, 0, 0)].concat();
    let (first, second) = message.split_at(1000);
    let (mut input, mut out) = (first, Vec::new());
    let event = server.session.next_event(&mut input, exports.as_slice(), &mut out);
    let Some(ServerEvent::WriteBegin(request)) = event else { panic!("{event:?}") };
    assert_eq!(server.session.take_payload(&mut input).len(), 1000 - 28);
    assert_eq!(server.session.need(), Need::Payload { bytes: 5000 - 972 });
    server.session.refuse_payload(request, ErrorCode::NoSpc, "no buffer");
    server.feed(second);
    let list = replies(style, &server.sent(), 0);
    assert_eq!(list[0], Reply::Error { code: 28, text: "no buffer".to_owned(), done: true });
    assert_eq!((list.len(), server.session.in_flight()), (2, 0));
}

#[test]
fn must_16_oversize_payloads_do_not_desynchronise() {
    let length = (1 << 20) + 512;
    for style in [HeaderStyle::Simple, HeaderStyle::Structured] {
        let mut server = attached("aligned", style);
        assert_eq!(attempt(&mut server, style, command::WRITE, 0, 0, length), 22);
        assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 0), 0);
    }
    let style = HeaderStyle::Extended;
    let mut server = attached("aligned", style);
    server.feed(&whole(style, command::WRITE, 0, 0, length));
    assert!(matches!(server.closed, Some(CloseReason::Limit(_))));
}

#[test]
fn must_10_an_enforced_minimum_block_is_checked() {
    let style = HeaderStyle::Structured;
    let mut server = attached("aligned", style);
    assert_eq!(attempt(&mut server, style, command::TRIM, 0, 1, 512), 22);
    assert_eq!(attempt(&mut server, style, command::TRIM, 0, 512, 100), 22);
    assert_eq!(attempt(&mut server, style, command::TRIM, 0, 512, 1024), 0);
}

#[test]
fn must_17_fua_is_accepted_on_every_command() {
    for style in STYLES {
        let mut server = attached("first", style);
        let fua = command_flag::FUA;
        for number in RANGED {
            server.feed(&whole(style, number, fua, 0, 512));
            server.sent();
        }
        server.feed(&whole(style, command::FLUSH, fua, 0, 0));
        assert_eq!(server.log.len(), 6);
        assert!(server.log.iter().all(|line| line.ends_with(" fua")), "{:?}", server.log);
    }
}

#[test]
fn must_17_a_flush_error_reaches_the_client() {
    for style in STYLES {
        let mut server = attached("first", style);
        server.fail = Some(ErrorCode::Io);
        assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 0), 5);
    }
}

#[test]
fn must_18_zeroes_and_trims_of_4_gib_are_legal() {
    for style in STYLES {
        let mut server = attached("huge", style);
        let most = u64::from(u32::MAX);
        assert_eq!(attempt(&mut server, style, command::TRIM, 0, 0, most), 0);
        let flags = command_flag::FAST_ZERO | command_flag::NO_HOLE;
        assert_eq!(attempt(&mut server, style, command::WRITE_ZEROES, flags, 512, most), 0);
        assert_eq!(server.log, ["Trim 0 4294967295", "WriteZeroes 512 4294967295 no_hole,fast_zero"]);
    }
    let style = HeaderStyle::Extended;
    let mut server = attached("huge", style);
    assert_eq!(attempt(&mut server, style, command::TRIM, 0, 0, 1 << 40), 0);
}

#[test]
fn must_18_fast_zero_may_fail_with_enotsup() {
    let style = HeaderStyle::Structured;
    let mut server = attached("first", style);
    server.fail = Some(ErrorCode::NotSup);
    assert_eq!(attempt(&mut server, style, command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512), 95);
}

#[test]
fn must_18_fast_zero_is_refused_where_it_is_not_offered() {
    for style in STYLES {
        let mut server = greeted_with_flags(style, |flags| flags.fast_zero = false);
        assert_eq!(attempt(&mut server, style, command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512), 22);
        assert_eq!(attempt(&mut server, style, command::WRITE_ZEROES, command_flag::NO_HOLE, 0, 512), 0);
        let mut server = greeted_with_flags(style, |flags| flags.fua = false);
        assert_eq!(attempt(&mut server, style, command::WRITE, command_flag::FUA, 0, 512), 22);
    }
}

/// "first" attached, with some of its flags changed.
fn greeted_with_flags(style: HeaderStyle, change: impl Fn(&mut ExportFlags)) -> Server {
    let mut server = crate::raw::greeted();
    change(&mut server.exports[0].flags);
    crate::raw::attach(&mut server, "first", style);
    server
}

#[test]
fn must_15_errors_of_other_commands_do_not_go_out() {
    let fast = command_flag::FAST_ZERO;
    let cases = [
        (command::WRITE_ZEROES, fast, ErrorCode::NotSup, 95),
        (command::WRITE_ZEROES, 0, ErrorCode::NotSup, 5),
        (command::READ, 0, ErrorCode::NotSup, 5),
        (command::READ, 0, ErrorCode::Overflow, 75),
        (command::WRITE, 0, ErrorCode::Overflow, 5),
        (command::WRITE, 0, ErrorCode::NoMem, 5),
        (command::WRITE, 0, ErrorCode::NoSpc, 28),
        (command::TRIM, 0, ErrorCode::Shutdown, 108),
        (command::CACHE, 0, ErrorCode::Perm, 1),
    ];
    for style in STYLES {
        for (number, flags, error, wanted) in cases {
            let mut server = attached("first", style);
            server.fail = Some(error);
            assert_eq!(attempt(&mut server, style, number, flags, 0, 512), wanted, "{number} {error:?}");
        }
    }
    let (mut session, request, mut out) = one_read(HeaderStyle::Structured, 0);
    let reply = session.begin_read(request);
    assert_eq!(session.fail_read(reply, ErrorCode::NoMem, "rot", &mut out), ReadFailure::Reported);
    let wanted = Reply::Error { code: 5, text: "rot".to_owned(), done: true };
    assert_eq!(replies(HeaderStyle::Structured, &out, 4096), [wanted]);
}

fn block_status(flags: u16, length: u64, extents: &[(u64, u64)]) -> Vec<BlockStatus> {
    let style = HeaderStyle::Structured;
    let mut server = attached("first", style);
    let exports = server.exports.clone();
    let message = whole(style, command::BLOCK_STATUS, flags, 512, length);
    let mut out = Vec::new();
    let event = server.session.next_event(&mut message.as_slice(), exports.as_slice(), &mut out);
    let Some(ServerEvent::Request(request)) = event else { panic!("{event:?}") };
    assert_eq!(request.command(), Command::BlockStatus);
    let list: Vec<StatusExtent> =
        extents.iter().map(|&(length, flags)| StatusExtent { length, flags }).collect();
    server.session.reply_block_status(request, |_| list.clone(), &mut out);
    let chunks = replies(style, &out, 512);
    let dones: Vec<bool> =
        chunks.iter().map(|chunk| matches!(chunk, Reply::Chunk { done: true, .. })).collect();
    assert_eq!(dones, [false, true], "one chunk per context, DONE on the last");
    chunks
        .iter()
        .map(|chunk| {
            let Reply::Chunk { kind: chunk::BLOCK_STATUS, body, .. } = chunk else { panic!("{chunk:?}") };
            BlockStatus::decode(style, body).unwrap()
        })
        .collect()
}

#[test]
fn must_19_one_chunk_per_context_with_tidy_extents() {
    let ragged = [(512, 3), (0, 7), (512, 3), (1024, 0), (512, 3), (1 << 40, 3)];
    let status = block_status(0, 4096, &ragged);
    assert_eq!(status.iter().map(|status| status.context).collect::<Vec<_>>(), [1, 2]);
    let extent = |length, flags| StatusExtent { length, flags };
    assert_eq!(status[0].extents, [extent(1024, 3), extent(1024, 0), extent(2048, 3)]);
    let one = block_status(command_flag::REQ_ONE, 4096, &ragged);
    assert_eq!(one[0].extents, [extent(1024, 3)]);
    let one_long = block_status(command_flag::REQ_ONE, 4096, &[(1 << 40, 3)]);
    assert_eq!(one_long[0].extents, [extent(4096, 3)]);
    assert_eq!(block_status(0, 4096, &[])[0].extents, [extent(4096, 0)]);
    let many: Vec<(u64, u64)> = (0..200_000).map(|index| (1, index % 2)).collect();
    assert_eq!(block_status(0, 200_000, &many)[0].extents.len(), 1 << 16);
    assert_eq!(block_status(0, 512, &[(512, 1 << 40 | 1)])[0].extents, [extent(512, 1)]);
}

#[test]
fn must_20_zero_length_commands_do_not_disconnect() {
    for style in STYLES {
        let mut server = attached("first", style);
        for number in RANGED {
            for offset in [0, 512, SIZE] {
                assert_eq!(attempt(&mut server, style, number, 0, offset, 0), 0);
            }
        }
        assert_eq!(attempt(&mut server, style, command::BLOCK_STATUS, 0, 0, 0), 22);
        assert_eq!((server.closed, server.session.in_flight()), (None, 0));
    }
}

#[test]
fn must_21_disconnect_has_no_reply_and_lets_requests_finish() {
    for style in STYLES {
        let mut server = attached("first", style);
        let exports = server.exports.clone();
        let mut message = whole(style, command::READ, 0, 0, 512);
        message.extend(whole(style, command::DISC, 0, 0, 0));
        message.extend(b"nothing may follow");
        let (mut input, mut out) = (message.as_slice(), Vec::new());
        let Some(ServerEvent::Request(read)) =
            server.session.next_event(&mut input, exports.as_slice(), &mut out)
        else {
            panic!("no read")
        };
        let event = server.session.next_event(&mut input, exports.as_slice(), &mut out);
        assert_eq!(event, Some(ServerEvent::Disconnect));
        assert_eq!(server.session.next_event(&mut input, exports.as_slice(), &mut out), None);
        assert_eq!((server.session.need(), server.session.in_flight()), (Need::Nothing, 1));
        assert!(out.is_empty());
        server.session.reply_read(read, &mut out);
        assert!(!out.is_empty());
        assert_eq!(server.session.in_flight(), 0);
    }
}

#[test]
fn must_21_a_stopping_server_fails_new_requests() {
    for style in STYLES {
        let mut server = attached("first", style);
        server.session.begin_shutdown();
        for number in RANGED {
            assert_eq!(attempt(&mut server, style, number, 0, 0, 512), 108);
        }
    }
}

#[test]
fn must_21_a_stopping_server_finishes_what_is_in_flight() {
    for style in STYLES {
        let mut server = attached("first", style);
        let exports = server.exports.clone();
        let message = whole(style, command::WRITE, 0, 0, 512);
        let (head, payload) = message.split_at(message.len() - 100);
        let (mut input, mut out) = (head, Vec::new());
        let event = server.session.next_event(&mut input, exports.as_slice(), &mut out);
        let Some(ServerEvent::WriteBegin(request)) = event else { panic!("{event:?}") };
        server.session.take_payload(&mut input);
        server.session.begin_shutdown();
        assert_eq!(server.session.need(), Need::Payload { bytes: 100 });
        assert_eq!(server.session.take_payload(&mut { payload }).len(), 100);
        server.session.reply_done(request, &mut out);
        let done = replies(style, &out, 0);
        assert!(
            matches!(done[..], [Reply::Simple(0) | Reply::Chunk { kind: 0, done: true, .. }]),
            "{done:?}"
        );
        assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 0), 108);
    }
}

#[test]
fn must_22_a_payload_of_32_mib_is_no_attack() {
    for style in STYLES {
        let mut server = attached("huge", style);
        let exports = server.exports.clone();
        let flags = if style == HeaderStyle::Extended { command_flag::PAYLOAD_LEN } else { 0 };
        let message = request(style, command::WRITE, flags, 0, 32 << 20);
        let event = server.session.next_event(&mut message.as_slice(), exports.as_slice(), &mut Vec::new());
        assert!(matches!(event, Some(ServerEvent::WriteBegin(_))), "{event:?}");
        assert_eq!(server.session.need(), Need::Payload { bytes: 32 << 20 });
        let mut server = attached("huge", style);
        let message = request(style, command::READ, 0, 0, 32 << 20);
        let event = server.session.next_event(&mut message.as_slice(), exports.as_slice(), &mut Vec::new());
        assert!(matches!(event, Some(ServerEvent::Request(_))), "{event:?}");
    }
}

#[test]
fn must_22_cookies_may_repeat_and_replies_may_be_out_of_order() {
    let style = HeaderStyle::Structured;
    let mut server = attached("first", style);
    let exports = server.exports.clone();
    let message = [whole(style, command::TRIM, 0, 0, 512), whole(style, command::CACHE, 0, 0, 512)].concat();
    let (mut input, mut out) = (message.as_slice(), Vec::new());
    let mut requests = Vec::new();
    while let Some(ServerEvent::Request(request)) =
        server.session.next_event(&mut input, exports.as_slice(), &mut out)
    {
        requests.push(request);
    }
    assert!(requests.iter().all(|request| request.cookie() == 77));
    for request in requests.into_iter().rev() {
        server.session.reply_done(request, &mut out);
    }
    assert_eq!(replies(style, &out, 0), [Reply::Simple(0), Reply::Simple(0)]);
}

#[test]
fn must_23_payloads_of_other_commands_are_drained() {
    let style = HeaderStyle::Extended;
    let mut server = attached("first", style);
    for number in [command::READ, command::TRIM, command::BLOCK_STATUS, 99] {
        let mut message = request(style, number, command_flag::PAYLOAD_LEN, 0, 600);
        message.extend_from_slice(&[0; 600]);
        assert_eq!(code(&mut server, style, &message, 0), 22);
    }
    assert_eq!(attempt(&mut server, style, command::FLUSH, 0, 0, 0), 0);
}

#[test]
fn must_23_an_extended_write_without_the_flag_still_has_its_payload() {
    let style = HeaderStyle::Extended;
    let mut server = attached("first", style);
    let mut message = request(style, command::WRITE, 0, 0, 512);
    message.extend_from_slice(&[7; 512]);
    assert_eq!(code(&mut server, style, &message, 0), 0);
    assert_eq!(server.disk[..512], [7; 512]);
}

/// A session with small limits and "first" attached without structured replies.
fn limited(limits: ServerLimits) -> (ServerSession, Vec<ExportInfo>) {
    let config = ServerConfig { limits, ..ServerConfig::default() };
    let mut server = crate::raw::greeted_with(config, crate::raw::BOTH_FLAGS);
    let mut message = Vec::new();
    zc_nbd::wire::OptionHeader::encode_with(1, b"first", &mut message);
    server.feed(&message);
    (server.session, server.exports)
}

#[test]
fn requests_in_flight_are_bounded_by_count_and_by_bytes() {
    let style = HeaderStyle::Simple;
    let by_count = ServerLimits { in_flight: 2, ..ServerLimits::default() };
    let by_bytes = ServerLimits { in_flight_bytes: 8191, ..ServerLimits::default() };
    for (limits, bound, cut) in [(by_count, 2, 0), (by_count, 2, 10), (by_bytes, 1, 0), (by_bytes, 1, 10)] {
        let (mut session, exports) = limited(limits);
        let stream = whole(style, command::READ, 0, 0, 4096).repeat(5);
        let (head, tail) = stream.split_at(cut);
        let mut out = Vec::new();
        assert_eq!(session.next_event(&mut &head[..], exports.as_slice(), &mut out), None);
        let (mut input, mut served, mut held) = (tail, 0, Vec::new());
        while served < 5 {
            match session.next_event(&mut input, exports.as_slice(), &mut out) {
                Some(ServerEvent::Request(request)) => {
                    held.push(request);
                    assert!(held.len() <= bound);
                }
                None => {
                    assert!(held.len() == bound || served + held.len() == 5);
                    assert!(session.buffered_bytes() <= 28);
                    if served + held.len() < 5 {
                        assert_eq!(session.need(), Need::Replies);
                    }
                    session.reply_error(held.remove(0), ErrorCode::Io, "", &mut out);
                    served += 1;
                }
                Some(event) => panic!("{event:?}"),
            }
        }
        assert_eq!((session.in_flight(), session.need(), input.len()), (0, Need::Input, 0));
    }
}

#[test]
fn unsent_output_pauses_the_session() {
    let limits = ServerLimits { output_bytes: 100, ..ServerLimits::default() };
    let (mut session, exports) = limited(limits);
    let stream = whole(HeaderStyle::Simple, 4711, 0, 0, 0).repeat(50);
    let (mut input, mut out, mut total) = (stream.as_slice(), Vec::new(), 0);
    while !input.is_empty() {
        assert_eq!(session.next_event(&mut input, exports.as_slice(), &mut out), None);
        assert!(out.len() < 100 + 16);
        assert_eq!(session.need() == Need::Replies, out.len() >= 100);
        total += out.len();
        out.clear();
    }
    assert_eq!(total, 50 * 16);
}
