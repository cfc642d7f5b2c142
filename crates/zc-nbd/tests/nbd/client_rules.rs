//! Replies that a client must reject, as raw bytes.

use zc_nbd::client::{ClientConfig, ClientError, ClientEvent, ClientSession, RequestError};
use zc_nbd::proto::{chunk, command_flag, limits, option, reply, tx_flag};
use zc_nbd::wire::{
    BlockStatus, ChunkHeader, ErrorChunk, Greeting, HeaderStyle, HoleChunk, InfoReply, MetaContextReply,
    OptionHeader, OptionReplyHeader, SimpleReply, StatusExtent,
};
use zc_nbd::{ErrorCode, Need};

const ALL: u16 = 0x0fed | tx_flag::SEND_DF;

pub(crate) struct Talk {
    pub(crate) client: ClientSession,
    pub(crate) out: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(config: ClientConfig) -> Self {
        Self { client: ClientSession::new(config), out: Vec::new() }
    }

    pub(crate) fn feed(&mut self, mut input: &[u8]) -> Result<Option<ClientEvent>, ClientError> {
        self.client.next_event(&mut input, &mut self.out)
    }

    pub(crate) fn reply(
        &mut self,
        number: u32,
        kind: u32,
        data: &[u8],
    ) -> Result<Option<ClientEvent>, ClientError> {
        let mut bytes = Vec::new();
        OptionReplyHeader::encode_with(number, kind, data, &mut bytes);
        self.feed(&bytes)
    }

    /// The last option of the client.
    pub(crate) fn asked(&mut self) -> u32 {
        let option = OptionHeader::decode(&self.out).unwrap().option;
        self.out.clear();
        option
    }
}

pub(crate) fn greet(config: ClientConfig, flags: u16) -> Talk {
    let mut talk = Talk::new(config);
    let mut bytes = Vec::new();
    Greeting { flags }.encode(&mut bytes);
    assert_eq!(talk.feed(&bytes), Ok(None));
    assert_eq!(talk.out[..4], u32::from(flags & 3).to_be_bytes());
    talk.out.drain(..4);
    talk
}

fn info(info: &InfoReply) -> Vec<u8> {
    let mut data = Vec::new();
    info.encode(&mut data);
    data
}

/// An attached client of an export of 1 MiB with everything offered and one context with id 5.
pub(crate) fn attached(style: HeaderStyle) -> Talk {
    let config = ClientConfig {
        structured: style != HeaderStyle::Simple,
        extended: style == HeaderStyle::Extended,
        contexts: vec!["base:allocation".to_owned()],
        in_flight: 4,
        ..ClientConfig::default()
    };
    let mut talk = greet(config, 3);
    if style != HeaderStyle::Simple {
        let asked = talk.asked();
        talk.reply(asked, reply::ACK, &[]).unwrap();
        assert_eq!(talk.asked(), option::SET_META_CONTEXT);
        let mut data = Vec::new();
        MetaContextReply { id: 5, name: "base:allocation".to_owned() }.encode(&mut data);
        talk.reply(option::SET_META_CONTEXT, reply::META_CONTEXT, &data).unwrap();
        talk.reply(option::SET_META_CONTEXT, reply::ACK, &[]).unwrap();
    }
    assert_eq!(talk.asked(), option::GO);
    let export = info(&InfoReply::Export { size_bytes: 1 << 20, flags: ALL });
    talk.reply(option::GO, reply::INFO, &export).unwrap();
    assert_eq!(talk.reply(option::GO, reply::ACK, &[]), Ok(Some(ClientEvent::Ready)));
    talk
}

pub(crate) fn chunk(
    style: HeaderStyle,
    kind: u16,
    done: bool,
    cookie: u64,
    offset: u64,
    body: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = u64::try_from(body.len()).unwrap();
    ChunkHeader { flags: u16::from(done), kind, cookie, offset, length }.encode(style, &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

fn data(offset: u64, length: usize) -> Vec<u8> {
    let mut body = offset.to_be_bytes().to_vec();
    body.resize(8 + length, 0xcd);
    body
}

/// Feeds everything, taking payload, until the first error or the end; returns the events.
pub(crate) fn drain(talk: &mut Talk, bytes: &[u8]) -> Result<Vec<ClientEvent>, ClientError> {
    let mut input = bytes;
    let mut events = Vec::new();
    loop {
        talk.client.take_payload(&mut input);
        match talk.client.next_event(&mut input, &mut talk.out)? {
            Some(event) => events.push(event),
            None => return Ok(events),
        }
    }
}

fn broken(style: HeaderStyle, bytes: &[u8]) -> String {
    let mut talk = attached(style);
    assert_eq!(talk.client.read(0, 4096, 0, &mut talk.out), Ok(1));
    let error = drain(&mut talk, bytes).unwrap_err();
    assert_eq!(talk.client.need(), Need::Nothing, "an error ends the session");
    assert_eq!(talk.client.read(0, 1, 0, &mut talk.out), Err(RequestError::NotReady));
    error.to_string()
}

#[test]
fn oldstyle_and_foreign_servers_are_refused() {
    let mut talk = Talk::new(ClientConfig::default());
    assert!(matches!(talk.feed(b"SSH-2.0-OpenSSH_9.2p1 Debian"), Err(ClientError::Wire(_))));
    let mut oldstyle = b"NBDMAGIC".to_vec();
    oldstyle.extend_from_slice(&0x0000_4202_8186_1253_u64.to_be_bytes());
    oldstyle.extend_from_slice(&[0; 152]);
    let mut talk = Talk::new(ClientConfig::default());
    assert!(matches!(talk.feed(&oldstyle), Err(ClientError::Wire(_))));
}

#[test]
fn a_server_without_fixed_newstyle_is_asked_by_export_name() {
    for (flags, padding) in [(0, 124), (2, 0)] {
        let mut talk = greet(ClientConfig { export: "x".to_owned(), ..ClientConfig::default() }, flags);
        assert_eq!(talk.asked(), option::EXPORT_NAME);
        let mut bytes = 4096_u64.to_be_bytes().to_vec();
        bytes.extend_from_slice(&ALL.to_be_bytes());
        bytes.resize(10 + padding, 0);
        assert_eq!(talk.feed(&bytes), Ok(Some(ClientEvent::Ready)));
        assert_eq!(talk.client.export().unwrap().size_bytes, 4096);
        assert_eq!(talk.client.export().unwrap().max_bytes, limits::PAYLOAD_BYTES_MAX);
    }
}

#[test]
fn go_falls_back_to_export_name_only_when_unsupported() {
    for (error, falls_back) in
        [(reply::ERR_UNSUP, true), (reply::ERR_UNKNOWN, false), (reply::ERR_TLS_REQD, false)]
    {
        let mut talk =
            greet(ClientConfig { structured: false, extended: false, ..ClientConfig::default() }, 3);
        assert_eq!(talk.asked(), option::GO);
        let got = talk.reply(option::GO, error, b"because");
        if falls_back {
            assert_eq!(got, Ok(None));
            assert_eq!(talk.asked(), option::EXPORT_NAME);
        } else {
            assert_eq!(got.unwrap_err().to_string(), "the NBD server refuses the export: because");
        }
    }
}

#[test]
fn handshake_replies_that_do_not_fit_end_the_session() {
    let config = || ClientConfig { structured: false, extended: false, ..ClientConfig::default() };
    let cases: [(u32, u32, &[u8]); 6] = [
        (option::LIST, reply::ACK, &[]),
        (option::GO, reply::ACK, &[]),
        (option::GO, reply::SERVER, &[0; 4]),
        (option::GO, 4711, &[]),
        (option::GO, reply::INFO, &[0]),
        (option::GO, reply::INFO, &[0, 0, 1, 2, 3]),
    ];
    for (number, kind, body) in cases {
        let mut talk = greet(config(), 3);
        assert!(talk.reply(number, kind, body).is_err(), "{number} {kind} {body:?}");
    }
    let export = info(&InfoReply::Export { size_bytes: 1 << 20, flags: ALL });
    let mut talk = greet(config(), 3);
    assert!(talk.reply(option::INFO, reply::INFO, &export).is_err(), "an answer to another option");
    let mut talk = greet(config(), 3);
    let other = info(&InfoReply::Other(99));
    let replies = (0..=limits::OPTION_REPLIES_MAX).map(|_| talk.reply(option::GO, reply::INFO, &other));
    assert_eq!(replies.filter(Result::is_err).count(), 1, "endless replies");
    let mut talk = greet(config(), 3);
    let mut bytes = Vec::new();
    OptionReplyHeader { option: option::GO, reply: reply::INFO, length: u32::MAX }.encode(&mut bytes);
    assert!(talk.feed(&bytes).is_err(), "a long reply is refused before it is buffered");
    let mut talk = greet(config(), 3);
    talk.reply(option::GO, reply::INFO, &export).unwrap();
    let sizes = info(&InfoReply::BlockSize { min: 0, preferred: 0, max: 0 });
    talk.reply(option::GO, reply::INFO, &sizes).unwrap();
    assert!(matches!(talk.reply(option::GO, reply::ACK, &[]), Err(ClientError::Rule(_))));
}

#[test]
fn unasked_or_repeated_contexts_are_refused() {
    for names in [&["other:thing"][..], &["base:allocation", "base:allocation"]] {
        let contexts = vec!["base:allocation".to_owned()];
        let config = ClientConfig { contexts, extended: false, ..ClientConfig::default() };
        let mut talk = greet(config, 3);
        talk.reply(option::STRUCTURED_REPLY, reply::ACK, &[]).unwrap();
        let mut last = Ok(None);
        for (id, name) in (1..).zip(names) {
            let mut body = Vec::new();
            MetaContextReply { id, name: (*name).to_owned() }.encode(&mut body);
            last = talk.reply(option::SET_META_CONTEXT, reply::META_CONTEXT, &body);
        }
        assert!(matches!(last, Err(ClientError::Rule(_))));
    }
}

#[test]
fn replies_in_a_form_that_was_not_negotiated_are_refused() {
    let mut simple = Vec::new();
    SimpleReply { error: 0, cookie: 1 }.encode(&mut simple);
    let structured = chunk(HeaderStyle::Structured, chunk::NONE, true, 1, 0, &[]);
    let extended = chunk(HeaderStyle::Extended, chunk::NONE, true, 1, 0, &[]);
    assert!(broken(HeaderStyle::Simple, &structured).contains("magic"));
    assert!(broken(HeaderStyle::Simple, &extended).contains("magic"));
    assert!(broken(HeaderStyle::Structured, &extended).contains("magic"));
    assert!(broken(HeaderStyle::Structured, &simple).contains("simple reply"));
    assert!(broken(HeaderStyle::Extended, &simple).contains("magic"));
    let wrong_offset = chunk(HeaderStyle::Extended, chunk::ERROR, true, 1, 9, &[0, 0, 0, 5, 0, 0]);
    assert!(broken(HeaderStyle::Extended, &wrong_offset).contains("offset"));
}

#[test]
fn replies_without_a_request_are_refused() {
    let mut simple = Vec::new();
    SimpleReply { error: 5, cookie: 2 }.encode(&mut simple);
    for style in [HeaderStyle::Simple, HeaderStyle::Structured] {
        assert!(broken(style, &simple).contains("no request"));
    }
    let structured = chunk(HeaderStyle::Structured, chunk::NONE, true, 2, 0, &[]);
    assert!(broken(HeaderStyle::Structured, &structured).contains("no request"));
}

#[test]
fn must_14_chunks_that_do_not_fit_the_read_are_refused() {
    let style = HeaderStyle::Structured;
    let one = |kind, done, body: &[u8]| chunk(style, kind, done, 1, 0, body);
    let mut hole = Vec::new();
    HoleChunk { offset: 4000, length: 97 }.encode(&mut hole);
    let twice =
        [one(chunk::OFFSET_DATA, false, &data(0, 10)), one(chunk::OFFSET_DATA, true, &data(9, 10))].concat();
    let cases = [
        (one(chunk::OFFSET_DATA, false, &data(1, 4096)), "outside"),
        (one(chunk::OFFSET_DATA, false, &data(u64::MAX, 2)), "outside"),
        (one(chunk::OFFSET_DATA, false, &data(0, 4097)), "length"),
        (one(chunk::OFFSET_DATA, false, &data(0, 0)), "length"),
        (one(chunk::OFFSET_HOLE, false, &hole), "outside"),
        (one(chunk::OFFSET_HOLE, false, &[0; 12]), "hole"),
        (one(chunk::OFFSET_HOLE, false, &[0; 13]), "length"),
        (twice, "overlap"),
        (one(chunk::NONE, true, &[]), "before all its data"),
        (one(chunk::OFFSET_DATA, true, &data(0, 4095)), "before all its data"),
        (one(chunk::NONE, false, &[]), "flags"),
        (one(chunk::NONE, true, &[0]), "length"),
        (one(chunk::BLOCK_STATUS, true, &[0; 12]), "type"),
        (one(77, true, &[]), "type"),
        (one(chunk::ERROR, true, &[0; 6]), "success"),
        (one(chunk::ERROR, true, &[0, 0, 0, 5, 0, 9]), "early"),
    ];
    for (bytes, reason) in cases {
        let error = broken(style, &bytes);
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let mut endless = Vec::new();
    ChunkHeader { flags: 0, kind: chunk::ERROR, cookie: 1, offset: 0, length: u64::from(u32::MAX) }
        .encode(style, &mut endless);
    assert!(broken(style, &endless).contains("length"));
}

#[test]
fn must_14_df_reads_get_one_content_chunk() {
    let style = HeaderStyle::Structured;
    let mut talk = attached(style);
    talk.client.read(0, 100, command_flag::DF, &mut talk.out).unwrap();
    let bytes = [
        chunk(style, chunk::OFFSET_DATA, false, 1, 0, &data(0, 50)),
        chunk(style, chunk::OFFSET_DATA, true, 1, 0, &data(50, 50)),
    ];
    assert!(matches!(drain(&mut talk, &bytes.concat()), Err(ClientError::Rule(_))));
}

#[test]
fn an_error_chunk_fails_the_read_whatever_data_came() {
    let style = HeaderStyle::Structured;
    for (kind, offset) in [(chunk::ERROR, None), (chunk::ERROR_OFFSET, Some(9)), (0x8123, None)] {
        let mut talk = attached(style);
        talk.client.read(0, 100, 0, &mut talk.out).unwrap();
        let mut body = Vec::new();
        ErrorChunk { error: 5, message: "bad disk".to_owned(), offset }.encode(&mut body);
        if kind == 0x8123 {
            body.extend_from_slice(b"more that only newer clients know");
        }
        let bytes = [
            chunk(style, chunk::OFFSET_DATA, false, 1, 0, &data(0, 100)),
            chunk(style, kind, false, 1, 0, &body),
            chunk(style, chunk::NONE, true, 1, 0, &[]),
        ];
        let events = drain(&mut talk, &bytes.concat()).unwrap();
        let Some(ClientEvent::Done { cookie: 1, result: Err(error) }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!((error.code, error.message.as_str()), (ErrorCode::Io, "bad disk"));
        assert_eq!(error.to_string(), "the NBD server reports: I/O error: bad disk");
    }
}

#[test]
fn must_19_block_status_names_each_context_once() {
    let style = HeaderStyle::Structured;
    let body = |context, extents: &[u64]| {
        let extents = extents.iter().map(|&length| StatusExtent { length, flags: 0 }).collect();
        let mut body = Vec::new();
        BlockStatus { context, extents }.encode(style, &mut body);
        body
    };
    let good = chunk(style, chunk::BLOCK_STATUS, false, 1, 0, &body(5, &[512, 1 << 30]));
    let mut simple = Vec::new();
    SimpleReply { error: 0, cookie: 1 }.encode(&mut simple);
    let cases = [
        chunk(style, chunk::BLOCK_STATUS, true, 1, 0, &body(6, &[512])),
        chunk(style, chunk::BLOCK_STATUS, true, 1, 0, &body(5, &[])),
        chunk(style, chunk::BLOCK_STATUS, true, 1, 0, &body(5, &[0])),
        chunk(style, chunk::NONE, true, 1, 0, &[]),
        [good.clone(), good.clone()].concat(),
        chunk(style, chunk::BLOCK_STATUS_EXT, true, 1, 0, &body(5, &[512])),
        [good.clone(), simple].concat(),
        chunk(style, chunk::OFFSET_DATA, true, 1, 0, &data(0, 512)),
    ];
    for bytes in cases {
        let mut talk = attached(style);
        talk.client.block_status(0, 4096, 0, &mut talk.out).unwrap();
        assert!(drain(&mut talk, &bytes).is_err(), "{bytes:?}");
    }
    let mut talk = attached(style);
    talk.client.block_status(0, 4096, 0, &mut talk.out).unwrap();
    let bytes = [good, chunk(style, chunk::NONE, true, 1, 0, &[])].concat();
    let events = drain(&mut talk, &bytes).unwrap();
    assert_eq!(events[1], ClientEvent::Done { cookie: 1, result: Ok(()) });
}

#[test]
fn must_19_extents_that_do_not_fit_the_request_are_refused() {
    for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
        let kind = if style == HeaderStyle::Extended { chunk::BLOCK_STATUS_EXT } else { chunk::BLOCK_STATUS };
        let answer = |flags, lengths: &[u64]| {
            let mut talk = attached(style);
            talk.client.block_status(512, 4096, flags, &mut talk.out).unwrap();
            let extents = lengths.iter().map(|&length| StatusExtent { length, flags: 0 }).collect();
            let mut body = Vec::new();
            BlockStatus { context: 5, extents }.encode(style, &mut body);
            drain(&mut talk, &chunk(style, kind, true, 1, 512, &body))
        };
        let most = u64::from(u32::MAX);
        for good in [&[512][..], &[4095, most], &[most]] {
            assert_eq!(answer(0, good).unwrap().len(), 2, "{good:?}");
        }
        for bad in [&[4096, 512][..], &[most, most, 1]] {
            answer(0, bad).unwrap_err();
        }
        answer(command_flag::REQ_ONE, &[512, 512]).unwrap_err();
        let events = answer(command_flag::REQ_ONE, &[5000]).unwrap();
        let extents = vec![StatusExtent { length: 4096, flags: 0 }];
        assert_eq!(events[0], ClientEvent::BlockStatus { cookie: 1, context: 5, extents });
    }
}

#[test]
fn unknown_reply_flags_are_ignored() {
    let style = HeaderStyle::Structured;
    let mut talk = attached(style);
    talk.client.read(0, 10, 0, &mut talk.out).unwrap();
    let mut bytes = Vec::new();
    let header = ChunkHeader { flags: 0x8003, kind: chunk::OFFSET_DATA, cookie: 1, offset: 0, length: 18 };
    header.encode(style, &mut bytes);
    bytes.extend(data(0, 10));
    let events = drain(&mut talk, &bytes).unwrap();
    assert_eq!(events[1], ClientEvent::Done { cookie: 1, result: Ok(()) });
}

#[test]
fn must_21_a_client_sends_nothing_more_to_a_stopping_server() {
    for style in [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended] {
        let mut talk = attached(style);
        talk.client.read(0, 10, 0, &mut talk.out).unwrap();
        talk.client.flush(&mut talk.out).unwrap();
        let mut bytes = Vec::new();
        if style == HeaderStyle::Simple {
            SimpleReply { error: 108, cookie: 1 }.encode(&mut bytes);
        } else {
            bytes = chunk(style, chunk::ERROR, true, 1, 0, &[0, 0, 0, 108, 0, 0]);
        }
        drain(&mut talk, &bytes).unwrap();
        assert!(talk.client.server_is_stopping());
        assert_eq!(talk.client.read(0, 10, 0, &mut talk.out), Err(RequestError::Stopping));
        assert_eq!(talk.client.in_flight(), 1, "the flush may still be answered");
        assert_eq!(talk.client.disconnect(&mut talk.out), Ok(()));
    }
}

#[test]
fn nothing_is_sent_that_the_server_did_not_offer() {
    let mut talk = attached(HeaderStyle::Structured);
    let (client, out) = (&mut talk.client, &mut talk.out);
    out.clear();
    assert_eq!(client.read(1 << 20, 1, 0, out), Err(RequestError::Range));
    assert_eq!(client.read(u64::MAX, 1, 0, out), Err(RequestError::Range));
    assert_eq!(client.read(0, 0, 0, out), Err(RequestError::Range));
    assert_eq!(client.trim(0, 4096, command_flag::NO_HOLE, out), Err(RequestError::NotOffered));
    assert_eq!(client.read(0, 512, 1 << 9, out), Err(RequestError::NotOffered));
    assert!(out.is_empty(), "refused requests leave nothing behind");
    for _ in 0..4 {
        client.flush(out).unwrap();
    }
    assert_eq!(client.flush(out), Err(RequestError::TooMany));
    let mut talk = greet(ClientConfig { structured: false, extended: false, ..ClientConfig::default() }, 3);
    let flags = tx_flag::HAS_FLAGS | tx_flag::READ_ONLY;
    let export = info(&InfoReply::Export { size_bytes: 1 << 40, flags });
    talk.reply(option::GO, reply::INFO, &export).unwrap();
    let sizes = info(&InfoReply::BlockSize { min: 512, preferred: 4096, max: u32::MAX });
    talk.reply(option::GO, reply::INFO, &sizes).unwrap();
    assert_eq!(talk.client.flush(&mut talk.out), Err(RequestError::NotReady));
    talk.reply(option::GO, reply::ACK, &[]).unwrap();
    let (client, out) = (&mut talk.client, &mut talk.out);
    assert_eq!(client.write(0, 512, 0, out), Err(RequestError::ReadOnly));
    assert_eq!(client.flush(out), Err(RequestError::NotOffered));
    assert_eq!(client.trim(0, 512, 0, out), Err(RequestError::NotOffered));
    assert_eq!(client.read(0, 512, command_flag::FUA, out), Err(RequestError::NotOffered));
    assert_eq!(client.read(0, 100, 0, out), Err(RequestError::Alignment));
    assert_eq!(client.read(1, 512, 0, out), Err(RequestError::Alignment));
    assert_eq!(client.read(0, (32 << 20) + 512, 0, out), Err(RequestError::TooLong));
    assert_eq!(client.read(0, 512, 0, out), Ok(1));
    assert_eq!(client.disconnect(out), Ok(()));
    assert_eq!(client.read(0, 512, 0, out), Err(RequestError::NotReady));
}
