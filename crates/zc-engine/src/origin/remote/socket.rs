//! Sockets to NBD servers.
//!
//! Job: resolve and connect on a thread of its own, which may take long, and send and receive without blocking.
//!
//! What it does not do: know the protocol.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;
use zc_nbd::uri::{Endpoint, NbdUri};

use crate::limits::{
    REMOTE_CONNECT_MS, REMOTE_KEEPALIVE_IDLE, REMOTE_KEEPALIVE_INTERVAL, REMOTE_KEEPALIVE_PROBES,
    REMOTE_UNACKED_MS,
};

/// A connected socket that does not block.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects. Blocks, for a name as long as the resolver takes, and for each address [`REMOTE_CONNECT_MS`].
    pub(crate) fn connect(uri: &NbdUri) -> io::Result<Self> {
        Self::try_connect(uri).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                format!(
                    "{error}; the sandbox lets the daemon connect to the ports of the origins it started with, so an \
                     origin on another port needs a restart"
                ),
            ),
            _ => error,
        })
    }

    fn try_connect(uri: &NbdUri) -> io::Result<Self> {
        match &uri.endpoint {
            Endpoint::Unix { socket } => {
                let stream = UnixStream::connect(socket)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Unix(stream))
            }
            Endpoint::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, Duration::from_millis(REMOTE_CONNECT_MS)) {
                        Ok(stream) => return Self::tcp(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// A dead peer is noticed by keep-alive while nothing is sent, and by data that is not acknowledged while something
    /// is.
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, REMOTE_KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, REMOTE_KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, REMOTE_KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&stream, REMOTE_UNACKED_MS)?;
        stream.set_nonblocking(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Receives what is there. `None`: nothing now.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        later(match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        })
    }

    /// Sends what the kernel takes. `None`: nothing now.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        later(match self {
            Self::Tcp(stream) => stream.write_vectored(pieces),
            Self::Unix(stream) => stream.write_vectored(pieces),
        })
    }

    /// Closes the own half.
    pub(crate) fn hang_up(&self) {
        let _broken_already = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

fn later(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
