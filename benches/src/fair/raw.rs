//! NBD as a client speaks it that does not behave: bytes on a socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) use zc_nbd::proto::command::{BLOCK_STATUS, CACHE, FLUSH, READ, WRITE, WRITE_ZEROES};

const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED: u32 = 8;
const OPTION_SET_CONTEXT: u32 = 10;

/// No answer within this time counts as that time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// A request's header; the cookie comes back with its reply.
pub(crate) fn header(command: u16, cookie: u64, offset: u64, len_bytes: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len_bytes.to_be_bytes());
    bytes
}

/// Takes the greeting; sends flags, and the option that chooses an export.
fn choose(stream: &mut (impl Read + Write), export: &str) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 18])?;
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(b"IHAVEOPT\0\0\0\x01");
    bytes.extend(u32::try_from(export.len()).unwrap_or(0).to_be_bytes());
    bytes.extend(export.as_bytes());
    stream.write_all(&bytes)?;
    stream.read_exact(&mut [0; 10])
}

/// A connection that has chosen its export.
pub(crate) fn attached(socket: &Path, export: &str) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    choose(&mut stream, export)?;
    Ok(stream)
}

/// An option of the handshake; replies to it are taken up to the last.
pub(crate) fn option(stream: &mut UnixStream, number: u32, data: &[u8]) -> std::io::Result<()> {
    let len_bytes = u32::try_from(data.len()).unwrap_or(0);
    stream.write_all(&[&b"IHAVEOPT"[..], &number.to_be_bytes(), &len_bytes.to_be_bytes(), data].concat())?;
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut rest = Read::take(&mut *stream, u64::from(word(16)));
        std::io::copy(&mut rest, &mut std::io::sink())?;
        // ACK, or an error.
        if word(12) == 1 || word(12) >> 31 == 1 {
            return Ok(());
        }
    }
}

/// A connection that has taken the greeting and sent its flags.
pub(crate) fn greeted(socket: &Path) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&3_u32.to_be_bytes())?;
    Ok(stream)
}

/// A connection that has chosen its export and `base:allocation`.
pub(crate) fn attached_for_status(socket: &Path, export: &str) -> std::io::Result<UnixStream> {
    let text =
        |text: &str| [&u32::try_from(text.len()).unwrap_or(0).to_be_bytes()[..], text.as_bytes()].concat();
    let mut stream = greeted(socket)?;
    option(&mut stream, OPTION_STRUCTURED, &[])?;
    let contexts = [text(export), 1_u32.to_be_bytes().to_vec(), text("base:allocation")].concat();
    option(&mut stream, OPTION_SET_CONTEXT, &contexts)?;
    option(&mut stream, OPTION_GO, &[text(export), vec![0; 2]].concat())?;
    Ok(stream)
}

/// Takes the chunks of one structured reply.
pub(crate) fn take_structured(stream: &mut UnixStream) -> std::io::Result<()> {
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let is_error = head[6] & 0x80 != 0;
        let len_bytes = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
        take(stream, zc_core::usize_from_u32(len_bytes))?;
        if is_error {
            return Err(std::io::Error::other("the server failed a request"));
        }
        if head[5] & 1 == 1 {
            return Ok(());
        }
    }
}

/// Chooses an export by TCP. The daemon counts this connection to another source than those on the Unix socket.
pub(crate) fn attached_by_tcp(address: &str, export: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    choose(&mut stream, export)?;
    Ok(stream)
}

/// One request without payload, and its reply.
pub(crate) fn ask(stream: &mut UnixStream, request: &[u8], reply_bytes: usize) -> std::io::Result<()> {
    stream.write_all(request)?;
    take(stream, 16 + reply_bytes)
}

/// Receives `bytes` bytes of replies.
pub(crate) fn take(stream: &mut UnixStream, bytes: usize) -> std::io::Result<()> {
    let mut sink = vec![0; bytes.min(1 << 20)];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(sink.len());
        stream.read_exact(&mut sink[..piece])?;
        left -= piece;
    }
    Ok(())
}
