//! An NBD server of one disk in memory, for one client after the other.
//!
//! `cargo run -p zc-nbd --example ram_server` listens on 127.0.0.1:10809; `nbdinfo nbd://127.0.0.1/ram` asks it. The
//! session decodes requests and encodes reply headers; payload bytes go between socket and disk directly.

use std::io::{self, Read, Write};

use zc_core::usize_from_u64;
use zc_nbd::server::{
    BlockSizes, Command, ExportFlags, ExportInfo, Request, ServerConfig, ServerEvent, ServerSession,
};
use zc_nbd::{ErrorCode, Need};

fn export(size_bytes: usize) -> ExportInfo {
    ExportInfo {
        name: "ram".to_owned(),
        description: "disk in memory".to_owned(),
        size_bytes: zc_core::u64_from_usize(size_bytes),
        flags: ExportFlags { flush: true, ..ExportFlags::default() },
        blocks: BlockSizes::DEFAULT,
        contexts: Vec::new(),
        token: 0,
    }
}

/// The bytes of a request; the session has checked that it lies inside the export.
fn bytes_of<'a>(disk: &'a mut [u8], request: &Request) -> &'a mut [u8] {
    &mut disk[usize_from_u64(request.offset())..][..usize_from_u64(request.length())]
}

/// Serves a connection until the client leaves.
fn serve(mut stream: impl Read + Write, disk: &mut [u8]) -> io::Result<()> {
    let exports = [export(disk.len())];
    let mut out = Vec::new();
    let mut session = ServerSession::new(ServerConfig::default(), &mut out);
    let mut received = [0; 4096];
    loop {
        stream.write_all(&std::mem::take(&mut out))?;
        let count = match stream.read(&mut received)? {
            0 => return Ok(()),
            count => count,
        };
        let mut input = &received[..count];
        while let Some(event) = session.next_event(&mut input, exports.as_slice(), &mut out) {
            match event {
                ServerEvent::Request(request) => match request.command() {
                    Command::Read => {
                        let bytes = bytes_of(disk, &request).to_vec();
                        session.reply_read(request, &mut out);
                        out.extend_from_slice(&bytes);
                    }
                    Command::Flush => session.reply_done(request, &mut out),
                    _ => session.reply_error(request, ErrorCode::NotSup, "not supported", &mut out),
                },
                ServerEvent::WriteBegin(request) => {
                    let bytes = bytes_of(disk, &request);
                    let at_hand = session.take_payload(&mut input);
                    bytes[..at_hand.len()].copy_from_slice(at_hand);
                    if let Need::Payload { bytes: missing } = session.need() {
                        stream.read_exact(&mut bytes[at_hand.len()..])?;
                        session.payload_received(missing);
                    }
                    session.reply_done(request, &mut out);
                }
                ServerEvent::Disconnect | ServerEvent::Closed(_) => return stream.write_all(&out),
                ServerEvent::Attached { .. } | ServerEvent::Refused { .. } => {}
            }
        }
    }
}

fn main() -> io::Result<()> {
    let mut disk = vec![0; 64 << 20];
    let listener = std::net::TcpListener::bind("127.0.0.1:10809")?;
    listener.incoming().try_for_each(|stream| serve(stream?, &mut disk))
}

#[cfg(test)]
mod tests;
