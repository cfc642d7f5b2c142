//! Bytes of the protocol as tests send and take them, where the client of this crate is too well-behaved.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use zc_nbd::proto::{option, reply};
use zc_nbd::wire::{ChunkHeader, GoRequest, HeaderStyle, MetaRequest, OptionHeader, OptionReplyHeader};

use crate::rig::Rig;

pub(crate) fn raw(rig: &Rig) -> UnixStream {
    UnixStream::connect(rig.path("nbd.sock")).unwrap()
}

/// Reads until the server closes.
pub(crate) fn read_to_end(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // Sent bytes that the server did not read before it closed.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    bytes
}

/// Takes the greeting and sends the client's flags: fixed newstyle without padding.
pub(crate) fn greet(stream: &mut UnixStream) {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
}

/// Chooses the default export by `EXPORT_NAME`.
pub(crate) fn choose(stream: &mut (impl Read + Write)) {
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    let mut export = [0; 10];
    stream.read_exact(&mut export).unwrap();
}

/// A connection that has completed the handshake.
pub(crate) fn attached(rig: &Rig) -> UnixStream {
    let mut stream = raw(rig);
    greet(&mut stream);
    choose(&mut stream);
    stream
}

/// A connection with structured replies that has chosen the volume and one metadata context of it.
pub(crate) fn attached_with(rig: &Rig, volume: &str, context: &str) -> UnixStream {
    let mut stream = raw(rig);
    greet(&mut stream);
    let mut meta = Vec::new();
    MetaRequest { export: volume.to_owned(), queries: vec![context.to_owned()] }.encode(&mut meta);
    let mut go = Vec::new();
    GoRequest { export: volume.to_owned(), infos: Vec::new() }.encode(&mut go);
    let asked =
        [(option::STRUCTURED_REPLY, Vec::new(), 0), (option::SET_META_CONTEXT, meta, 1), (option::GO, go, 1)];
    for (number, data, answers) in asked {
        let mut bytes = Vec::new();
        OptionHeader::encode_with(number, &data, &mut bytes);
        stream.write_all(&bytes).unwrap();
        for _ in 0..answers {
            assert_ne!(option_reply(&mut stream), reply::ACK);
        }
        assert_eq!(option_reply(&mut stream), reply::ACK);
    }
    stream
}

/// Takes a reply to an option; its type.
fn option_reply(stream: &mut UnixStream) -> u32 {
    let mut header = [0; OptionReplyHeader::BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = OptionReplyHeader::decode(&header).unwrap();
    let mut data = vec![0; zc_core::usize_from_u32(header.length)];
    stream.read_exact(&mut data).unwrap();
    header.reply
}

/// Sends `count` READs of `len_bytes` each from `offset`, contiguously.
pub(crate) fn ask_reads(stream: &mut UnixStream, count: u32, offset: u64, len_bytes: u32) {
    let reads = (0..count).map(|number| {
        let at = offset + u64::from(number) * u64::from(len_bytes);
        header(0, number.into(), at, len_bytes)
    });
    stream.write_all(&reads.collect::<Vec<_>>().concat()).unwrap();
}

/// Takes a structured reply of one chunk; its content.
pub(crate) fn chunk(stream: &mut UnixStream) -> Vec<u8> {
    let mut header = [0; 20];
    stream.read_exact(&mut header).unwrap();
    let header = ChunkHeader::decode(HeaderStyle::Structured, &header).unwrap();
    let mut data = vec![0; zc_core::usize_from_u64(header.length)];
    stream.read_exact(&mut data).unwrap();
    data
}

pub(crate) fn header(command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}
