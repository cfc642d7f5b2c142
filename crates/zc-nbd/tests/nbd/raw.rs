//! Raw messages for the rule tests: options and requests in, parsed replies out.

use crate::disk::Server;
use zc_nbd::proto::{handshake_flag, option, reply};
use zc_nbd::server::ServerConfig;
use zc_nbd::wire::{
    ChunkHeader, ErrorChunk, GoRequest, Greeting, HeaderStyle, OptionHeader, OptionReplyHeader,
    RequestHeader, SimpleReply,
};

pub(crate) const BOTH_FLAGS: u32 = (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES) as u32;

/// A server that has received the client's flags.
pub(crate) fn greeted_with(config: ServerConfig, flags: u32) -> Server {
    let mut server = Server::new(config);
    let greeting = Greeting::decode(&server.sent()).unwrap();
    assert_eq!(u32::from(greeting.flags), BOTH_FLAGS);
    server.feed(&flags.to_be_bytes());
    server
}

pub(crate) fn greeted() -> Server {
    greeted_with(ServerConfig::default(), BOTH_FLAGS)
}

/// Sends one option and parses everything that comes back.
pub(crate) fn ask(server: &mut Server, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut message = Vec::new();
    OptionHeader::encode_with(number, data, &mut message);
    server.feed(&message);
    option_replies(&server.sent(), number)
}

pub(crate) fn option_replies(mut bytes: &[u8], number: u32) -> Vec<(u32, Vec<u8>)> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let header = OptionReplyHeader::decode(bytes).unwrap();
        assert_eq!(header.option, number);
        let end = OptionReplyHeader::BYTES + usize::try_from(header.length).unwrap();
        list.push((header.reply, bytes[OptionReplyHeader::BYTES..end].to_vec()));
        bytes = &bytes[end..];
    }
    list
}

/// The types of the replies to one option.
pub(crate) fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

pub(crate) fn go_data(export: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    GoRequest { export: export.to_owned(), infos: infos.to_vec() }.encode(&mut data);
    data
}

/// A server with `export` attached in the given style and both contexts selected.
pub(crate) fn attached(export: &str, style: HeaderStyle) -> Server {
    let mut server = greeted();
    attach(&mut server, export, style);
    server
}

pub(crate) fn attach(server: &mut Server, export: &str, style: HeaderStyle) {
    match style {
        HeaderStyle::Simple => {}
        HeaderStyle::Structured => {
            assert_eq!(kinds(&ask(server, option::STRUCTURED_REPLY, &[])), [reply::ACK]);
        }
        HeaderStyle::Extended => {
            assert_eq!(kinds(&ask(server, option::EXTENDED_HEADERS, &[])), [reply::ACK]);
        }
    }
    if style != HeaderStyle::Simple {
        let data = meta_data(export, &["base:allocation", "x-test:mark"]);
        ask(server, option::SET_META_CONTEXT, &data);
    }
    let replies = ask(server, option::GO, &go_data(export, &[]));
    assert_eq!(kinds(&replies), [reply::INFO, reply::ACK]);
    server.log.clear();
}

pub(crate) fn meta_data(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    let queries = queries.iter().map(|&query| query.to_owned()).collect();
    zc_nbd::wire::MetaRequest { export: export.to_owned(), queries }.encode(&mut data);
    data
}

pub(crate) fn request(style: HeaderStyle, command: u16, flags: u16, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHeader { flags, command, cookie: 77, offset, length }.encode(style, &mut bytes);
    bytes
}

/// One parsed reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(u32),
    Chunk { kind: u16, done: bool, body: Vec<u8> },
    Error { code: u32, text: String, done: bool },
}

/// Parses replies without read data behind simple ones; all must answer cookie 77.
pub(crate) fn replies(style: HeaderStyle, mut bytes: &[u8], echoed_offset: u64) -> Vec<Reply> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        if let Ok(simple) = SimpleReply::decode(bytes) {
            assert_eq!(simple.cookie, 77);
            list.push(Reply::Simple(simple.error));
            bytes = &bytes[SimpleReply::BYTES..];
            continue;
        }
        let header = ChunkHeader::decode(style, bytes).unwrap();
        assert_eq!(header.cookie, 77);
        if style == HeaderStyle::Extended {
            assert_eq!(header.offset, echoed_offset);
        }
        let end = style.chunk_bytes() + usize::try_from(header.length).unwrap();
        let body = bytes[style.chunk_bytes()..end].to_vec();
        let done = header.flags == 1;
        bytes = &bytes[end..];
        if header.kind & 0x8000 != 0 {
            let error = ErrorChunk::decode(header.kind == 0x8002, &body).unwrap();
            list.push(Reply::Error { code: error.error, text: error.message, done });
        } else {
            list.push(Reply::Chunk { kind: header.kind, done, body });
        }
    }
    list
}

/// Sends a request (and payload) and returns the error number of the only reply, 0 for success.
pub(crate) fn code(server: &mut Server, style: HeaderStyle, message: &[u8], offset: u64) -> u32 {
    server.feed(message);
    match replies(style, &server.sent(), offset).as_slice() {
        [Reply::Simple(code)] => *code,
        [Reply::Error { code, text, done: true }] => {
            assert!(!text.is_empty(), "an error chunk has a text");
            *code
        }
        [Reply::Chunk { kind: 0, done: true, .. }] => 0,
        other => panic!("unexpected replies {other:?}"),
    }
}
