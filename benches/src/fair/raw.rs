//! NBD as a client speaks it that does not behave: bytes on a socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Commands of the protocol.
pub const READ: u16 = 0;
/// See [`READ`].
pub const WRITE: u16 = 1;
/// See [`READ`].
pub const FLUSH: u16 = 3;
/// See [`READ`].
pub const CACHE: u16 = 5;
/// See [`READ`].
pub const ZEROES: u16 = 6;

/// No answer within this time counts as that time.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// A request's header; the cookie comes back with its reply.
#[must_use]
pub fn header(command: u16, cookie: u64, offset: u64, len_bytes: u32) -> Vec<u8> {
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
///
/// # Errors
/// There is no place, or no server.
pub fn attached(socket: &Path, export: &str) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    choose(&mut stream, export)?;
    Ok(stream)
}

/// The same by TCP: another source than those on the Unix socket.
///
/// # Errors
/// As [`attached`].
pub fn attached_by_tcp(address: &str, export: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    choose(&mut stream, export)?;
    Ok(stream)
}

/// One request without payload, and its reply.
///
/// # Errors
/// The connection ended.
pub fn ask(stream: &mut UnixStream, request: &[u8], reply_bytes: usize) -> std::io::Result<()> {
    stream.write_all(request)?;
    take(stream, 16 + reply_bytes)
}

/// Takes so many bytes of replies.
///
/// # Errors
/// The connection ended.
pub fn take(stream: &mut UnixStream, bytes: usize) -> std::io::Result<()> {
    let mut sink = vec![0; bytes.min(1 << 20)];
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(sink.len());
        stream.read_exact(&mut sink[..piece])?;
        left -= piece;
    }
    Ok(())
}
