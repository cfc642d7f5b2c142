//! Bytes of the protocol as tests send and take them, where the client of this crate is too well-behaved.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use crate::rig::Rig;

pub(crate) fn raw(rig: &Rig) -> UnixStream {
    UnixStream::connect(rig.path("nbd.sock")).unwrap()
}

/// Reads until the server closes.
pub(crate) fn read_to_end(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // What was sent and not read by the server before it closed.
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

/// A connection that is through with the handshake.
pub(crate) fn attached(rig: &Rig) -> UnixStream {
    let mut stream = raw(rig);
    greet(&mut stream);
    choose(&mut stream);
    stream
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
