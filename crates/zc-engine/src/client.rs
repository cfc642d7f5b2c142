//! A small blocking NBD client, for `quickstart`, tools and tests.
//!
//! Job: connect over TCP or a Unix socket, keep several requests in flight ([`NbdClient::submit`],
//! [`NbdClient::wait`]), or one at a time with the plain functions.
//!
//! Invariants: each submitted request is reported once by [`NbdClient::wait`], in whatever order the server answers. A
//! request that fails on the server is a result; a broken connection or protocol is an error that ends the client.
//!
//! It does not reconnect, or read while it writes. Keep less in flight than a server buffers for a client
//! that does not read (tens of MiB).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_nbd::Need;
use zc_nbd::client::{
    ClientConfig, ClientError, ClientEvent, ClientSession, RemoteError, RemoteExport, RequestError,
};
use zc_nbd::proto::command_flag;
use zc_nbd::uri::{Endpoint, NbdUri};

const INPUT_BYTES: usize = 64 << 10;

/// Reason for the end of a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdClientError {
    /// The socket failed or was closed.
    #[error("the NBD connection to {place} failed: {source}")]
    Io {
        /// The server.
        place: String,
        /// Cause.
        source: io::Error,
    },
    /// The server broke the protocol or refused.
    #[error(transparent)]
    Protocol(#[from] ClientError),
    /// The export does not support the request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The server reported an error for a request.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub enum NbdRequest<'a> {
    /// Read bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Length.
        len_bytes: u32,
    },
    /// Write bytes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
        /// Durable before the answer.
        fua: bool,
    },
    /// Make all answered writes durable.
    Flush,
    /// The range is not needed any more.
    Trim {
        /// First byte.
        offset: u64,
        /// Length.
        len_bytes: u64,
    },
    /// The range reads as zero.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Length.
        len_bytes: u64,
    },
    /// Prefetches the range.
    Prefetch {
        /// First byte.
        offset: u64,
        /// Length.
        len_bytes: u64,
    },
}

/// A finished request.
#[derive(Debug)]
pub struct NbdDone {
    /// As returned by [`NbdClient::submit`].
    pub cookie: u64,
    /// Bytes of a read; empty for other requests.
    pub result: Result<Vec<u8>, RemoteError>,
}

trait Stream: Read + Write + Send {
    /// Limits every read and write to this time.
    fn bound(&self, longest: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn bound(&self, longest: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(longest))?;
        self.set_write_timeout(Some(longest))
    }
}

impl Stream for TcpStream {
    fn bound(&self, longest: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(longest))?;
        self.set_write_timeout(Some(longest))
    }
}

/// Opens the socket of a server.
fn open(uri: &NbdUri) -> io::Result<Box<dyn Stream>> {
    if uri.tls {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this client has no TLS"));
    }
    Ok(match &uri.endpoint {
        Endpoint::Unix { socket } => Box::new(UnixStream::connect(socket)?),
        Endpoint::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port))?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    })
}

fn failed(uri: &NbdUri, source: io::Error) -> NbdClientError {
    NbdClientError::Io { place: uri.to_string(), source }
}

/// A connection to one export.
pub struct NbdClient {
    stream: Box<dyn Stream>,
    place: String,
    session: ClientSession,
    input: Vec<u8>,
    at: usize,
    end: usize,
    out: Vec<u8>,
    /// Reads in flight: first byte, and the data so far.
    reads: Map<u64, (u64, Vec<u8>)>,
    /// The read whose data is arriving, and the position in its data.
    filling: Option<(u64, usize)>,
    export: RemoteExport,
}

impl std::fmt::Debug for NbdClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NbdClient({}, {:?})", self.place, self.export)
    }
}

impl NbdClient {
    /// Connects to the export that a URI names.
    ///
    /// # Errors
    /// When the server cannot be reached or has no such export.
    pub fn connect(uri: &NbdUri) -> Result<Self, NbdClientError> {
        Self::over(uri, open(uri).map_err(|source| failed(uri, source))?)
    }

    /// As [`Self::connect`], with a time limit for each wait. Exceeding it fails the call with an I/O error
    /// (`WouldBlock`), which ends the client.
    ///
    /// # Errors
    /// As [`Self::connect`], or the time is zero.
    pub fn connect_within(uri: &NbdUri, longest: Duration) -> Result<Self, NbdClientError> {
        let bounded = open(uri).and_then(|stream| stream.bound(longest).map(|()| stream));
        Self::over(uri, bounded.map_err(|source| failed(uri, source))?)
    }

    fn over(uri: &NbdUri, stream: Box<dyn Stream>) -> Result<Self, NbdClientError> {
        let place = uri.to_string();
        let session =
            ClientSession::new(ClientConfig { export: uri.export.clone(), ..ClientConfig::default() });
        let mut client = Self {
            stream,
            place,
            session,
            input: vec![0; INPUT_BYTES],
            at: 0,
            end: 0,
            out: Vec::new(),
            reads: Map::default(),
            filling: None,
            export: RemoteExport {
                size_bytes: 0,
                flags: 0,
                min_bytes: 1,
                preferred_bytes: 4096,
                max_bytes: 0,
                name: None,
                description: None,
            },
        };
        while client.next_event()? != Some(ClientEvent::Ready) {}
        if let Some(export) = client.session.export() {
            client.export = export.clone();
        }
        Ok(client)
    }

    /// Size of the export in bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.export.size_bytes
    }

    /// Returns the server's description of the export.
    #[must_use]
    pub const fn export(&self) -> &RemoteExport {
        &self.export
    }

    /// Requests without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    fn failed(&self, source: io::Error) -> NbdClientError {
        NbdClientError::Io { place: self.place.clone(), source }
    }

    fn send_out(&mut self) -> Result<(), NbdClientError> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(|source| self.failed(source))
    }

    /// Returns the next event, waiting for bytes as needed. `None`: bytes arrived, but no event yet.
    fn next_event(&mut self) -> Result<Option<ClientEvent>, NbdClientError> {
        let mut bytes = &self.input[self.at..self.end];
        let event = self.session.next_event(&mut bytes, &mut self.out)?;
        self.at = self.end - bytes.len();
        if !self.out.is_empty() {
            self.send_out()?;
        }
        if event.is_some() {
            return Ok(event);
        }
        match self.session.need() {
            Need::Payload { bytes } => self.take_data(bytes)?,
            Need::Nothing => return Err(self.failed(io::ErrorKind::ConnectionAborted.into())),
            Need::Input | Need::Replies => {
                let got = self.stream.read(&mut self.input).map_err(|source| self.failed(source))?;
                if got == 0 {
                    return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
                }
                (self.at, self.end) = (0, got);
            }
        }
        Ok(None)
    }

    /// Receives read data: buffered bytes first, then directly from the socket.
    fn take_data(&mut self, bytes: u64) -> Result<(), NbdClientError> {
        let Some((cookie, at)) = self.filling else { unreachable!("read data follows its header") };
        let Some((_, data)) = self.reads.get_mut(&cookie) else { unreachable!("read data is for a read") };
        let mut input = &self.input[self.at..self.end];
        let taken = self.session.take_payload(&mut input);
        let mut done = taken.len();
        data[at..at + done].copy_from_slice(taken);
        self.at = self.end - input.len();
        if done == 0 {
            let wanted = usize_from_u64(bytes);
            done = wanted;
            let read = self.stream.read_exact(&mut data[at..at + wanted]);
            self.session.payload_received(bytes);
            read.map_err(|source| self.failed(source))?;
        }
        self.filling = Some((cookie, at + done));
        Ok(())
    }

    /// Sends a request and returns its cookie.
    ///
    /// # Errors
    /// If the export does not support the request, or the connection fails.
    pub fn submit(&mut self, request: NbdRequest<'_>) -> Result<u64, NbdClientError> {
        let (session, out) = (&mut self.session, &mut self.out);
        let cookie = match request {
            NbdRequest::Read { offset, len_bytes } => {
                let cookie = session.read(offset, len_bytes, 0, out)?;
                self.reads.insert(cookie, (offset, vec![0; zc_core::usize_from_u32(len_bytes)]));
                cookie
            }
            NbdRequest::Write { offset, data, fua } => {
                let flags = if fua { command_flag::FUA } else { 0 };
                let len = u32::try_from(data.len()).map_err(|_| RequestError::TooLong)?;
                let cookie = session.write(offset, len, flags, out)?;
                self.out.extend_from_slice(data);
                cookie
            }
            NbdRequest::Flush => session.flush(out)?,
            NbdRequest::Trim { offset, len_bytes } => session.trim(offset, len_bytes, 0, out)?,
            NbdRequest::WriteZeroes { offset, len_bytes } => {
                session.write_zeroes(offset, len_bytes, 0, out)?
            }
            NbdRequest::Prefetch { offset, len_bytes } => session.cache(offset, len_bytes, out)?,
        };
        self.send_out()?;
        Ok(cookie)
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// When the connection or the protocol breaks.
    pub fn wait(&mut self) -> Result<NbdDone, NbdClientError> {
        loop {
            match self.next_event()? {
                Some(ClientEvent::ReadData { cookie, offset, .. }) => {
                    let first = self.reads.get(&cookie).map_or(offset, |(first, _)| *first);
                    self.filling = Some((cookie, usize_from_u64(offset - first)));
                }
                Some(ClientEvent::ReadHole { cookie, offset, length }) => {
                    if let Some((first, data)) = self.reads.get_mut(&cookie) {
                        let at = usize_from_u64(offset - *first);
                        data[at..at + usize_from_u64(length)].fill(0);
                    }
                }
                Some(ClientEvent::Done { cookie, result }) => {
                    let data = self.reads.remove(&cookie).map(|(_, data)| data).unwrap_or_default();
                    return Ok(NbdDone { cookie, result: result.map(|()| data) });
                }
                Some(ClientEvent::Ready | ClientEvent::Listed(_) | ClientEvent::BlockStatus { .. })
                | None => {}
            }
        }
    }

    fn one(&mut self, request: NbdRequest<'_>) -> Result<Vec<u8>, NbdClientError> {
        let cookie = self.submit(request)?;
        loop {
            let done = self.wait()?;
            if done.cookie == cookie {
                return Ok(done.result?);
            }
        }
    }

    /// Reads bytes (earlier replies to submitted requests are dropped, as by all plain functions), in requests of the
    /// server's maximum size.
    ///
    /// # Errors
    /// When the server reports an error or the connection breaks.
    pub fn read(&mut self, offset: u64, len_bytes: usize) -> Result<Vec<u8>, NbdClientError> {
        let mut all = Vec::with_capacity(len_bytes);
        while all.len() < len_bytes {
            let left = u32::try_from(len_bytes - all.len()).unwrap_or(u32::MAX);
            let request = NbdRequest::Read {
                offset: offset + u64_from_usize(all.len()),
                len_bytes: left.min(self.export.max_bytes.max(1)),
            };
            all.append(&mut self.one(request)?);
        }
        Ok(all)
    }

    /// Writes bytes, in requests of the server's maximum size.
    ///
    /// # Errors
    /// When the server reports an error or the connection breaks.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), NbdClientError> {
        let mut at = offset;
        for data in data.chunks(zc_core::usize_from_u32(self.export.max_bytes.max(1))) {
            self.one(NbdRequest::Write { offset: at, data, fua: false })?;
            at += u64_from_usize(data.len());
        }
        Ok(())
    }

    /// Makes writes durable.
    ///
    /// # Errors
    /// When the server reports an error or the connection breaks.
    pub fn flush(&mut self) -> Result<(), NbdClientError> {
        self.one(NbdRequest::Flush).map(drop)
    }

    /// Discards a range.
    ///
    /// # Errors
    /// When the server reports an error or the connection breaks.
    pub fn trim(&mut self, offset: u64, len_bytes: u64) -> Result<(), NbdClientError> {
        self.one(NbdRequest::Trim { offset, len_bytes }).map(drop)
    }

    /// Zeroes a range.
    ///
    /// # Errors
    /// When the server reports an error or the connection breaks.
    pub fn write_zeroes(&mut self, offset: u64, len_bytes: u64) -> Result<(), NbdClientError> {
        self.one(NbdRequest::WriteZeroes { offset, len_bytes }).map(drop)
    }

    /// Disconnects and waits until the server has closed the connection.
    ///
    /// # Errors
    /// When the connection is broken already.
    pub fn disconnect(mut self) -> Result<(), NbdClientError> {
        self.session.disconnect(&mut self.out)?;
        self.send_out()?;
        while self.stream.read(&mut self.input).map_err(|source| self.failed(source))? > 0 {}
        Ok(())
    }
}
