//! The floor of the protocol: an export without anything behind it, `null-server SOCKET SIZE_BYTES`.
//!
//! Job: answer READs from one buffer of noise and throw WRITEs away, with the session machine and the ring that the
//! daemon uses and the same shape of loop: one thread, all readable requests parsed in one go, replies gathered into
//! one send, one system call a turn. What the daemon takes longer than this is what its cache costs.
//!
//! What it does not do: bound what clients leave unsent. It serves the benchmarks' own client.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::{Context as _, bail};
use zc_bench::harness::replies::Replies;
use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_io::{AlignedBuf, Completion, Memory, Operation, Ring, RingOptions, SharedBuf, SharedFd, Target};
use zc_nbd::Need;
use zc_nbd::server::{
    BlockSizes, Command, ExportFlags, ExportInfo, ServerConfig, ServerEvent, ServerSession,
};

/// Requests and payloads of one receive, in bytes.
const RECEIVE_BYTES: usize = 256 << 10;
/// Longest READ: what the noise is long, in bytes.
const NOISE_BYTES: usize = 1 << 20;
/// How long a client that does not read may hold up others.
const STUCK: Duration = Duration::from_millis(10);
/// Tokens: `ACCEPT`, else connection number times two, plus one for sends.
const ACCEPT: u64 = u64::MAX;

struct Conn {
    fd: SharedFd,
    session: ServerSession,
    replies: Replies,
    /// The WRITE whose payload is arriving.
    write: Option<zc_nbd::server::Request>,
}

impl Conn {
    fn new(socket: OwnedFd) -> Self {
        let mut replies = Replies::default();
        let session = ServerSession::new(ServerConfig::default(), &mut replies.heads);
        Self { fd: SharedFd::new(socket), session, replies, write: None }
    }

    /// Answers everything in `bytes`; false when the client leaves.
    fn take(&mut self, mut bytes: &[u8], exports: &[ExportInfo], noise: &SharedBuf) -> bool {
        loop {
            self.session.take_payload(&mut bytes);
            if self.write.is_some() && matches!(self.session.need(), Need::Payload { bytes } if bytes > 0) {
                return true;
            }
            if let Some(request) = self.write.take() {
                self.session.reply_done(request, &mut self.replies.heads);
            }
            match self.session.next_event(&mut bytes, exports, &mut self.replies.heads) {
                None => return self.session.need() != Need::Nothing,
                Some(ServerEvent::Request(request)) if request.command() == Command::Read => {
                    let len = usize_from_u64(request.length());
                    self.session.reply_read(request, &mut self.replies.heads);
                    self.replies.push_data(noise.clone(), len);
                }
                Some(ServerEvent::Request(request)) => {
                    self.session.reply_done(request, &mut self.replies.heads);
                }
                Some(ServerEvent::WriteBegin(request)) => self.write = Some(request),
                Some(ServerEvent::Attached { .. } | ServerEvent::Refused { .. }) => {}
                Some(ServerEvent::Disconnect | ServerEvent::Closed(_)) => return false,
            }
        }
    }
}

struct Server {
    ring: Ring,
    listener: SharedFd,
    exports: [ExportInfo; 1],
    noise: SharedBuf,
    conns: Map<u64, Conn>,
    next: u64,
    to_send: Vec<u64>,
}

impl Server {
    fn submit(&mut self, operation: Operation, token: u64) -> anyhow::Result<()> {
        self.ring.submit(operation, token).map_err(|full| anyhow::anyhow!("{full}"))
    }

    fn receive(&mut self, id: u64, memory: AlignedBuf) -> anyhow::Result<()> {
        let Some(conn) = self.conns.get(&id) else { return Ok(()) };
        let fd = SharedFd::clone(&conn.fd);
        self.submit(Operation::Recv { fd, target: Target::whole(memory), exact: false }, id * 2)
    }

    fn accepted(&mut self, socket: OwnedFd) -> anyhow::Result<()> {
        self.next += 1;
        let id = self.next;
        self.conns.insert(id, Conn::new(socket));
        self.to_send.push(id);
        self.receive(id, AlignedBuf::new(RECEIVE_BYTES))
    }

    fn received(&mut self, id: u64, count: usize, operation: Operation) -> anyhow::Result<()> {
        let Some(Memory::Buf(memory)) = operation.into_target().map(Target::into_memory) else {
            bail!("receives go into buffers");
        };
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        if count == 0 || !conn.take(&memory[..count], &self.exports[..], &self.noise) {
            self.conns.remove(&id);
            return Ok(());
        }
        self.to_send.push(id);
        self.receive(id, memory)
    }

    fn completed(&mut self, completion: Completion) -> anyhow::Result<()> {
        let Completion { user, result, operation, accepted } = completion;
        if user == ACCEPT {
            let fd = SharedFd::clone(&self.listener);
            self.submit(Operation::Accept { fd }, ACCEPT)?;
            return accepted.map_or(Ok(()), |socket| self.accepted(socket));
        }
        let id = user / 2;
        if user.is_multiple_of(2) {
            return self.received(id, result.unwrap_or(0), operation);
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.replies.sent();
            self.to_send.push(id);
        }
        Ok(())
    }

    fn run(mut self) -> anyhow::Result<()> {
        let fd = SharedFd::clone(&self.listener);
        self.submit(Operation::Accept { fd }, ACCEPT)?;
        let mut completions = Vec::new();
        let mut quick_sends = 0;
        loop {
            // As in the daemon: small sends end while they are submitted, so waiting for one result would return with
            // theirs, and every request at queue depth 1 would take a second system call.
            self.ring.submit_and_wait(1 + quick_sends, Some(STUCK), &mut completions)?;
            quick_sends = 0;
            for completion in completions.drain(..) {
                self.completed(completion)?;
            }
            for id in std::mem::take(&mut self.to_send) {
                if let Some((operation, is_quick)) =
                    self.conns.get_mut(&id).and_then(|conn| conn.replies.send(&conn.fd))
                {
                    quick_sends += usize::from(is_quick);
                    self.submit(operation, id * 2 + 1)?;
                }
            }
        }
    }
}

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: null-server SOCKET SIZE_BYTES POLL_MAX_US";
    let path = args.next().context(usage)?;
    let size_bytes: u64 = args.next().context(usage)?.parse().context(usage)?;
    let poll_max_us: u32 = args.next().context(usage)?.parse().context(usage)?;
    let Some(blocks) = BlockSizes::new(1, 4096, u32::try_from(NOISE_BYTES)?) else {
        bail!("the block sizes are legal")
    };
    let export = ExportInfo {
        name: String::new(),
        description: String::new(),
        size_bytes: size_bytes.max(u64_from_usize(NOISE_BYTES)),
        flags: ExportFlags { multi_conn: true, ..ExportFlags::default() },
        blocks,
        contexts: Vec::new(),
        token: 1,
    };
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen on {path}"))?;
    let server = Server {
        ring: Ring::new(RingOptions { poll_max_us, ..RingOptions::default() })?,
        listener: SharedFd::new(listener),
        exports: [export],
        noise: AlignedBuf::from(zc_bench::data::noise(NOISE_BYTES, 1).as_slice()).into_shared(),
        conns: Map::default(),
        next: 0,
        to_send: Vec::new(),
    };
    server.run()
}
