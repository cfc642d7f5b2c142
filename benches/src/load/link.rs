//! One connection of the load generator.
//!
//! Invariants: requests allocate nothing once the connection has warmed up, apart from the session's allocations.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use zc_core::Map;
use zc_nbd::client::{ClientConfig as NbdConfig, ClientEvent, ClientSession, ClientTls};
use zc_nbd::proto::command_flag;

use super::{Address, Durability};
use crate::clock::now_ns;

/// Replies taken in one receive, in bytes.
const INPUT_BYTES: usize = 512 << 10;

/// A socket of some kind.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn connect(server: Address<'_>) -> anyhow::Result<Self> {
        match server {
            Address::Unix(path) => UnixStream::connect(path)
                .map(Self::Unix)
                .with_context(|| format!("cannot connect to {}", path.display())),
            Address::Tcp(address) | Address::Tls(address, _) => {
                let stream =
                    TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Wraps the socket in TLS.
    fn secured(self, certificate: &Path) -> anyhow::Result<Self> {
        let Self::Tcp(socket) = self else { bail!("TLS is for TCP") };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate)?)?;
        let config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(Ipv4Addr::LOCALHOST);
        let connection = ClientConnection::new(config.into(), name)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tls(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    /// Sends encrypted bytes.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
        }
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tls(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
            Self::Tcp(stream) => stream.write_vectored(slices),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tls(stream) => stream.sock.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Link {
    socket: Stream,
    session: ClientSession,
    input: Vec<u8>,
    /// Headers to send.
    out: Vec<u8>,
    /// For each WRITE in `out`: where its header ends, and where its payload lies.
    payloads: Vec<(usize, Range<usize>)>,
    /// When each request in flight began.
    started: Map<u64, u64>,
    /// When the write began that a FLUSH has to follow, once it has ended.
    unflushed: Option<u64>,
    size_bytes: u64,
}

impl Link {
    pub(super) fn connect(server: Address<'_>, export: &str) -> anyhow::Result<Self> {
        let socket = Stream::connect(server)?;
        let (tls, certificate) = match server {
            Address::Tls(_, certificate) => (ClientTls::Required, Some(certificate)),
            _ => (ClientTls::Never, None),
        };
        let config = NbdConfig {
            export: export.to_owned(),
            tls,
            extended: false,
            in_flight: 1 << 16,
            ..NbdConfig::default()
        };
        let mut link = Self {
            socket,
            session: ClientSession::new(config),
            input: vec![0; INPUT_BYTES],
            out: Vec::new(),
            payloads: Vec::new(),
            started: Map::default(),
            unflushed: None,
            size_bytes: 0,
        };
        if let Some(certificate) = certificate {
            link.shake_hands()?;
            link.socket = link.socket.secured(certificate)?;
            link.session.tls_started(&mut link.out);
            link.send(&[])?;
        }
        link.shake_hands()?;
        Ok(link)
    }

    /// Negotiates until TLS is due, or the export is there.
    fn shake_hands(&mut self) -> anyhow::Result<()> {
        loop {
            let count = self.socket.read(&mut self.input)?;
            if count == 0 {
                bail!("the server closed the connection during the handshake");
            }
            let mut bytes = &self.input[..count];
            let event = self.session.next_event(&mut bytes, &mut self.out)?;
            self.send(&[])?;
            if self.session.tls_due() {
                return Ok(());
            }
            if event.is_some() {
                let Some(export) = self.session.export() else { bail!("the server offers no export") };
                self.size_bytes = export.size_bytes;
                return Ok(());
            }
        }
    }

    pub(super) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn in_flight(&self) -> u32 {
        u32::try_from(self.started.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn read(&mut self, offset: u64, len_bytes: u32, now_ns: u64) -> anyhow::Result<()> {
        let cookie = self.session.read(offset, len_bytes, 0, &mut self.out)?;
        self.started.insert(cookie, now_ns);
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        offset: u64,
        payload: Range<usize>,
        durability: Durability,
        now_ns: u64,
    ) -> anyhow::Result<()> {
        let len_bytes = u32::try_from(payload.len())?;
        let flags = if durability == Durability::Fua { command_flag::FUA } else { 0 };
        let cookie = self.session.write(offset, len_bytes, flags, &mut self.out)?;
        self.started.insert(cookie, now_ns);
        self.unflushed = (durability == Durability::Flush).then_some(now_ns);
        self.payloads.push((self.out.len(), payload));
        Ok(())
    }

    /// Sends the FLUSH for the last write, if that has ended.
    pub(super) fn flush_if_due(&mut self) -> anyhow::Result<()> {
        if self.started.is_empty()
            && let Some(began_ns) = self.unflushed.take()
        {
            let cookie = self.session.flush(&mut self.out)?;
            self.started.insert(cookie, began_ns);
        }
        Ok(())
    }

    /// Sends everything in one go; payloads lie in `bytes`.
    pub(super) fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut slices = Vec::with_capacity(2 * self.payloads.len() + 1);
        let mut at = 0;
        for (end, payload) in self.payloads.drain(..) {
            slices.push(IoSlice::new(&self.out[at..end]));
            slices.push(IoSlice::new(&bytes[payload]));
            at = end;
        }
        slices.push(IoSlice::new(&self.out[at..]));
        let mut left = slices.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let sent = self.socket.write(left).context("cannot send to the server")?;
            IoSlice::advance_slices(&mut left, sent);
        }
        self.out.clear();
        self.socket.flush().context("cannot send to the server")
    }

    /// Waits for bytes and takes all replies in them.
    pub(super) fn receive(&mut self, latency: &mut Histogram<u64>) -> anyhow::Result<()> {
        let count = self.socket.read(&mut self.input).context("cannot receive from the server")?;
        if count == 0 {
            bail!("the server closed the connection");
        }
        let now_ns = now_ns();
        let mut bytes = &self.input[..count];
        loop {
            self.session.take_payload(&mut bytes);
            match self.session.next_event(&mut bytes, &mut self.out)? {
                None => return Ok(()),
                Some(ClientEvent::Done { cookie, result }) => {
                    result?;
                    let Some(started) = self.started.remove(&cookie) else { bail!("an unknown reply") };
                    // A write that a FLUSH follows has not ended yet.
                    if self.unflushed.is_none() {
                        latency.saturating_record(now_ns.saturating_sub(started).max(1));
                    }
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn close(mut self) -> anyhow::Result<()> {
        self.session.disconnect(&mut self.out)?;
        self.send(&[])
    }
}

/// Waits until bytes have come on one of the links, or the time is over: which have some. An interruption ends the wait.
pub(super) fn ready<'a>(
    links: impl Iterator<Item = &'a Link>,
    timeout: Option<&Timespec>,
) -> anyhow::Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> =
        links.map(|link| PollFd::from_borrowed_fd(link.socket.as_fd(), PollFlags::IN)).collect();
    match poll(&mut fds, timeout) {
        Ok(_) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; fds.len()]),
        Err(errno) => Err(io::Error::from(errno)).context("poll"),
    }
}
