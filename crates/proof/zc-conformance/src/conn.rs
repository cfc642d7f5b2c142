//! One connection to the server under test: blocking, with a deadline on every read, and a record of the last bytes.
//!
//! Invariants: no wait exceeds the deadline; a server's data never determines the size of an allocation; the last
//! bytes of both directions are kept, bounded, as the evidence of a failure.
//!
//! It does not judge. It distinguishes a reply from a closed connection and from a time-out. Once TLS runs, the
//! recorded bytes are the plain ones.

use crate::stop::{Check, Stop};
use crate::tls;
use crate::uri::Address;
use crate::wire::{hex, opt};
use rustls::{ClientConnection, SupportedProtocolVersion};
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of one direction that are kept between two changes of direction.
const KEPT_BYTES: usize = 64;

/// Changes of direction that are kept.
const KEPT_TURNS: usize = 6;

/// Bytes that are read in one go.
const READ_BYTES: usize = 1 << 16;

/// The sender of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Client,
    Server,
}

#[derive(Debug)]
struct Turn {
    from: From,
    head: Vec<u8>,
    total: usize,
}

/// The last bytes of both directions.
#[derive(Debug, Default)]
pub(crate) struct Trace(Vec<Turn>);

impl Trace {
    fn add(&mut self, from: From, bytes: &[u8]) {
        if self.0.last().is_none_or(|turn| turn.from != from) {
            if self.0.len() == KEPT_TURNS {
                self.0.remove(0);
            }
            self.0.push(Turn { from, head: Vec::new(), total: 0 });
        }
        if let Some(turn) = self.0.last_mut() {
            let room = KEPT_BYTES - turn.head.len();
            turn.head.extend(&bytes[..bytes.len().min(room)]);
            turn.total += bytes.len();
        }
    }

    /// Lines of hexadecimal bytes, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |turn: &Turn| {
            let who = if turn.from == From::Client { "C" } else { "S" };
            let bytes =
                if turn.total == 0 { "(closed)".to_owned() } else { hex(&turn.head, turn.total, KEPT_BYTES) };
            format!("{who}: {bytes}")
        };
        self.0.iter().map(line).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn open(address: &Address, deadline: Duration) -> std::io::Result<Self> {
        match address {
            Address::Tcp(host, port) => {
                let mut last = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, deadline) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_read_timeout(Some(deadline))?;
                            stream.set_write_timeout(Some(deadline))?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into()))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(deadline))?;
                stream.set_write_timeout(Some(deadline))?;
                Ok(Self::Unix(stream))
            }
        }
    }

    fn close_write(&self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    stream: Stream,
    /// Once STARTTLS was accepted.
    tls: Option<Box<ClientConnection>>,
    asked_who: Arc<AtomicBool>,
    trace: Rc<RefCell<Trace>>,
    deadline: Duration,
}

impl Conn {
    /// Connects.
    pub(crate) fn open(
        address: &Address,
        deadline: Duration,
        trace: &Rc<RefCell<Trace>>,
    ) -> Result<Self, Stop> {
        let stream = Stream::open(address, deadline)
            .map_err(|error| Stop::Unreachable(format!("cannot connect to {address:?}: {error}")))?;
        Ok(Self { stream, tls: None, asked_who: Arc::default(), trace: Rc::clone(trace), deadline })
    }

    /// Performs STARTTLS and the handshake; later bytes are inside TLS.
    pub(crate) fn start_tls(&mut self, versions: &[&'static SupportedProtocolVersion]) -> Check {
        self.option(opt::STARTTLS, &[])?.acked("STARTTLS")?;
        let client = tls::client(versions, &self.asked_who);
        let mut client = Box::new(client.map_err(|error| Stop::Unreachable(error.to_string()))?);
        while client.is_handshaking() {
            client.complete_io(&mut self.stream).map_err(|error| match error.kind() {
                kind if timed_out(kind) => {
                    Stop::Fail(format!("the TLS handshake did not end in {:?}", self.deadline))
                }
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    Stop::Closed("in the TLS handshake".to_owned())
                }
                _ => Stop::Fail(format!("the TLS handshake failed: {error}")),
            })?;
        }
        self.tls = Some(client);
        Ok(())
    }

    /// Returns `true` if the server requested a certificate, which the suite lacks.
    pub(crate) fn was_asked_who(&self) -> bool {
        self.asked_who.load(Ordering::Relaxed)
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.trace.borrow_mut().add(From::Client, bytes);
        let sent = match &mut self.tls {
            Some(tls) => {
                let mut inside = rustls::Stream::new(tls.as_mut(), &mut self.stream);
                inside.write_all(bytes).and_then(|()| inside.flush())
            }
            None => self.stream.write_all(bytes),
        };
        sent.map_err(|error| {
            if timed_out(error.kind()) {
                Stop::Fail(format!("the server took no bytes for {:?}", self.deadline))
            } else {
                Stop::Closed(format!("while it was sent {} bytes", bytes.len()))
            }
        })
    }

    /// Receives `count` bytes, named `what` in messages.
    pub(crate) fn recv(&mut self, count: usize, what: &str) -> Result<Vec<u8>, Stop> {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; count.min(READ_BYTES)];
        while bytes.len() < count {
            let want = (count - bytes.len()).min(READ_BYTES);
            let got = self.read(&mut buffer[..want], what)?;
            if got == 0 {
                let have = bytes.len();
                return Err(Stop::Closed(format!("after {have} of the {count} bytes of {what}")));
            }
            bytes.extend(&buffer[..got]);
        }
        Ok(bytes)
    }

    /// The server closes the connection without another byte. A reset counts as closed.
    pub(crate) fn expect_closed(&mut self, after: &str) -> Result<(), Stop> {
        let mut buffer = [0; KEPT_BYTES];
        match self.read(&mut buffer, "the end of the connection") {
            Ok(0) => Ok(()),
            Ok(_) => {
                Err(Stop::Fail(format!("the server answered instead of closing the connection {after}")))
            }
            Err(Stop::Fail(_)) => Err(Stop::Fail(format!("the connection stayed open {after}"))),
            Err(other) => Err(other),
        }
    }

    /// Everything up to the end of the connection or `max` bytes.
    pub(crate) fn recv_to_end(&mut self, max: usize) -> Result<Vec<u8>, Stop> {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        while bytes.len() < max {
            let want = (max - bytes.len()).min(READ_BYTES);
            let got = self.read(&mut buffer[..want], "the end of the connection")?;
            if got == 0 {
                break;
            }
            bytes.extend(&buffer[..got]);
        }
        Ok(bytes)
    }

    /// Shuts down the sending direction.
    pub(crate) fn close_write(&mut self) -> Result<(), Stop> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // A server that is gone needs no farewell.
            tls.write_tls(&mut self.stream).ok();
        }
        self.stream.close_write().map_err(|_| Stop::Closed("before its client did".to_owned()))
    }

    fn read(&mut self, buffer: &mut [u8], what: &str) -> Result<usize, Stop> {
        loop {
            let got = match &mut self.tls {
                Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read(buffer),
                None => self.stream.read(buffer),
            };
            match got {
                Ok(got) => {
                    self.trace.borrow_mut().add(From::Server, &buffer[..got]);
                    return Ok(got);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if timed_out(error.kind()) => {
                    return Err(Stop::Fail(format!("no answer in {:?}, waiting for {what}", self.deadline)));
                }
                // TLS calls an end without a farewell unexpected.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) =>
                {
                    return Ok(0);
                }
                Err(error) => return Err(Stop::Closed(format!("({error}), waiting for {what}"))),
            }
        }
    }
}

fn timed_out(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
