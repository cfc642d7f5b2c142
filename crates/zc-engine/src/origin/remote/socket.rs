//! Sockets to NBD servers.
//!
//! Job: resolve and connect on a thread of its own, which may take long, and send and receive without blocking, in
//! plain text or with TLS (`tls`).
//!
//! Out of scope: the protocol, and the choice of the moment in which TLS begins.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;
use zc_config::OriginTls;
use zc_nbd::uri::{Endpoint, NbdUri};

use crate::limits::{
    REMOTE_CONNECT_MS, REMOTE_KEEPALIVE_IDLE, REMOTE_KEEPALIVE_INTERVAL, REMOTE_KEEPALIVE_PROBES,
    REMOTE_UNACKED_MS,
};
use crate::origin::remote::tls::{TlsLayer, TlsSettings};

/// A connected socket that does not block.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// Settings of the TLS that the session requests; `None`: the connection is in plain text.
    tls: Option<TlsSettings>,
    layer: Option<TlsLayer>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects, after the files of TLS were read. Blocks, for a name as long as the resolver takes, and for each address
    /// [`REMOTE_CONNECT_MS`].
    pub(crate) fn connect(uri: &NbdUri, tls: &OriginTls) -> io::Result<Self> {
        let tls = uri.tls.then(|| TlsSettings::load(uri, tls)).transpose().map_err(io::Error::other)?;
        let stream = Stream::connect(&uri.endpoint).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                format!(
                    "{error}; the sandbox lets the daemon connect to the ports of the origins it started with, so an \
                     origin on another port needs a restart"
                ),
            ),
            _ => error,
        });
        let stream =
            stream.map_err(|error| io::Error::new(error.kind(), format!("cannot connect: {error}")))?;
        Ok(Self { stream, tls, layer: None })
    }

    /// Begins TLS: from now on everything is encrypted.
    pub(crate) fn start_tls(&mut self) -> io::Result<()> {
        let settings = self.tls.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        self.layer = Some(settings.layer()?);
        Ok(())
    }

    /// Receives bytes that have arrived. Returns `None` if there are none now.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        later(match &mut self.layer {
            Some(layer) => layer.receive(&mut self.stream, into),
            None => self.stream.read(into),
        })
    }

    /// Returns `true` if more was received than [`Self::receive`] has returned, so that the kernel does not report it.
    pub(crate) fn has_input(&self) -> bool {
        self.layer.as_ref().is_some_and(TlsLayer::has_input)
    }

    /// Sends as many bytes as the kernel accepts. Returns `None` if it accepts none now.
    pub(crate) fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        later(match &mut self.layer {
            Some(layer) => layer.send(&mut self.stream, pieces),
            None if pieces.is_empty() => Ok(0),
            None => self.stream.write_vectored(pieces),
        })
    }

    /// Returns `true` if encrypted bytes wait to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.layer.as_ref().is_some_and(TlsLayer::has_output)
    }

    /// Closes the own half.
    pub(crate) fn hang_up(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.close(&mut self.stream);
        }
        let _broken_already = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl Stream {
    fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
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

    /// Enables keep-alive and a limit for unacknowledged data, which detect a dead peer with and without traffic.
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
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(pieces),
            Self::Unix(stream) => stream.write_vectored(pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
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
