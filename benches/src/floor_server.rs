//! Lower bound of a server's cost: `bench floor-server SOCKET`, in a process of its own.
//!
//! Job: one thread with one io_uring receives NBD requests, reads or writes a file with direct I/O, and sends the
//! replies. With a file it serves three exports: `raw` does only that. `plus` adds one CRC-32C and one copy of a
//! request's bytes, as each cache with checksums does. `null` answers without the file. Without a file it serves an
//! export without a name, and answers from a buffer of noise with the daemon's own session machine: the difference to
//! the daemon is the cost of its cache.
//!
//! Invariants: no byte is copied needlessly. Data and header of a READ's reply are in one buffer and sent in one
//! piece. All replies of a turn are sent in one call per connection. With many reads in flight a turn waits for half
//! of them, as in the daemon: without that, the floor is higher.
//!
//! It does not check addresses, flush, or bound unsent replies. It serves the benchmarks' own client.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_io::{
    AlignedBuf, BlockFile, BufPool, Completion, Gather, Memory, OpenOptions, Operation, PAGE_BYTES, Ring,
    RingOptions, Segment, SharedBuf, SharedFd, Target,
};
use zc_nbd::Need;
use zc_nbd::proto::command;
use zc_nbd::proto::limits::PAYLOAD_BYTES_MAX;
use zc_nbd::server::{
    BlockSizes, Command, ExportFlags, ExportInfo, Request, ServerConfig, ServerEvent, ServerSession,
};
use zc_nbd::wire::{HeaderStyle, RequestHeader, SimpleReply};

use crate::harness::replies::Replies;

/// Requests and payloads of one receive, in bytes.
const RECEIVE_BYTES: usize = 256 << 10;
/// Longest READ of the null export, in bytes.
const NOISE_BYTES: usize = 1 << 20;
/// Memory for requests, in bytes.
const POOL_BYTES: usize = 256 << 20;
/// Reads under way from which on a turn waits for several, the most it waits for, and how long in microseconds.
const GATHER_READS_MIN: usize = 8;
const GATHER_MAX: usize = 16;
const GATHER_TIME_US: u32 = 100;
/// Longest delay by a client that does not read.
const STUCK: Duration = Duration::from_millis(10);

/// Serve the least that a server can do
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Unix socket to serve on
    socket: PathBuf,
    /// File whose bytes are served
    #[arg(long)]
    file: Option<PathBuf>,
    /// Size of the export without a file
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    size: u64,
    /// Time to poll for requests before sleeping
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    poll_max: u32,
    /// Address to serve on, too
    #[arg(long)]
    tcp: Option<SocketAddr>,
}

/// Work for a request; the number is the export's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Raw,
    Plus,
    Null,
    /// The daemon's session machine answers all by itself.
    Session,
}

impl Work {
    const ALL: [(&str, Self); 4] =
        [("raw", Self::Raw), ("plus", Self::Plus), ("null", Self::Null), ("", Self::Session)];

    fn of(token: u64) -> Option<Self> {
        Some(Self::ALL.get(usize_from_u64(token))?.1)
    }
}

/// Operation of a completion. A number identifies a connection or a request.
#[derive(Debug, Clone, Copy)]
enum Token {
    Accept(u64),
    Receive(u64),
    Send(u64),
    Device(u64),
}

impl Token {
    const fn pack(self) -> u64 {
        match self {
            Self::Accept(number) => number << 2,
            Self::Receive(number) => number << 2 | 1,
            Self::Send(number) => number << 2 | 2,
            Self::Device(number) => number << 2 | 3,
        }
    }

    const fn unpack(user: u64) -> Self {
        let number = user >> 2;
        match user & 3 {
            0 => Self::Accept(number),
            1 => Self::Receive(number),
            2 => Self::Send(number),
            _ => Self::Device(number),
        }
    }
}

/// Next input of a connection.
enum Incoming {
    /// A request's header.
    Header,
    /// Payload of a WRITE; `filled` bytes of it have arrived.
    Payload { header: RequestHeader, buf: AlignedBuf, filled: usize },
    /// The rest of a payload, which goes straight into its buffer. The receive buffer rests.
    Rest { header: RequestHeader, resting: AlignedBuf },
}

struct Conn {
    fd: SharedFd,
    /// Until the client has chosen its export.
    session: Option<ServerSession>,
    work: Work,
    /// Bytes of an unfinished header at the front of the receive buffer.
    kept: usize,
    incoming: Incoming,
    /// The WRITE whose payload is arriving for the session.
    write: Option<Request>,
    replies: Replies,
}

/// Something to do for the bytes of a connection.
enum Step {
    /// A request without payload, or with all of it.
    Request(RequestHeader, Option<AlignedBuf>),
    /// More has to be received first.
    Wait,
    /// The client leaves.
    Leave,
}

impl Conn {
    fn new(socket: OwnedFd, work: Work) -> Self {
        let mut replies = Replies::default();
        let by_session = work == Work::Session;
        let config = ServerConfig { structured: by_session, extended: by_session, ..ServerConfig::default() };
        let session = ServerSession::new(config, &mut replies.heads);
        Self {
            fd: SharedFd::new(socket),
            session: Some(session),
            work,
            kept: 0,
            incoming: Incoming::Header,
            write: None,
            replies,
        }
    }

    /// Answers everything in `bytes` by the session; false when the client leaves.
    fn answer(&mut self, mut bytes: &[u8], exports: &[ExportInfo], noise: &SharedBuf) -> bool {
        let Some(session) = &mut self.session else { return false };
        loop {
            session.take_payload(&mut bytes);
            if self.write.is_some() && matches!(session.need(), Need::Payload { bytes } if bytes > 0) {
                return true;
            }
            if let Some(request) = self.write.take() {
                session.reply_done(request, &mut self.replies.heads);
            }
            match session.next_event(&mut bytes, exports, &mut self.replies.heads) {
                None => return session.need() != Need::Nothing,
                Some(ServerEvent::Request(request)) if request.command() == Command::Read => {
                    let len_bytes = usize_from_u64(request.length());
                    session.reply_read(request, &mut self.replies.heads);
                    self.replies.push_data(noise.clone(), len_bytes);
                }
                Some(ServerEvent::Request(request)) => {
                    session.reply_done(request, &mut self.replies.heads);
                }
                Some(ServerEvent::WriteBegin(request)) => self.write = Some(request),
                Some(ServerEvent::Attached { .. } | ServerEvent::Refused { .. }) => {}
                Some(ServerEvent::Disconnect | ServerEvent::Closed(_)) => return false,
            }
        }
    }

    /// Continues the handshake.
    fn shake_hands(&mut self, bytes: &mut &[u8], exports: &[ExportInfo]) -> Step {
        let Some(session) = &mut self.session else { return Step::Wait };
        while let Some(event) = session.next_event(bytes, exports, &mut self.replies.heads) {
            match event {
                ServerEvent::Attached { token } => {
                    self.work = Work::of(token).unwrap_or(Work::Null);
                    self.session = None;
                    break;
                }
                ServerEvent::Refused { .. } => {}
                _ => return Step::Leave,
            }
        }
        Step::Wait
    }

    /// The next thing to do for `bytes`.
    fn step(&mut self, bytes: &mut &[u8], pool: &BufPool) -> anyhow::Result<Step> {
        if let Incoming::Payload { header, mut buf, mut filled } =
            std::mem::replace(&mut self.incoming, Incoming::Header)
        {
            let (now, later) = bytes.split_at(bytes.len().min(buf.len() - filled));
            buf[filled..filled + now.len()].copy_from_slice(now);
            filled += now.len();
            *bytes = later;
            if filled == buf.len() {
                return Ok(Step::Request(header, Some(buf)));
            }
            self.incoming = Incoming::Payload { header, buf, filled };
            return Ok(Step::Wait);
        }
        let Some((head, rest)) = bytes.split_at_checked(HeaderStyle::Simple.request_bytes()) else {
            return Ok(Step::Wait);
        };
        let header = RequestHeader::decode(HeaderStyle::Simple, head)?;
        *bytes = rest;
        ensure!(header.length <= u64::from(PAYLOAD_BYTES_MAX), "a request of {} bytes", header.length);
        if header.command == command::WRITE {
            let buf = pool.get(usize_from_u64(header.length)).context("no memory for a WRITE")?;
            self.incoming = Incoming::Payload { header, buf, filled: 0 };
            return self.step(bytes, pool);
        }
        Ok(if header.command == command::DISC { Step::Leave } else { Step::Request(header, None) })
    }

    /// Answers without data.
    fn reply(&mut self, cookie: u64) {
        SimpleReply { error: 0, cookie }.encode(&mut self.replies.heads);
    }

    /// Returns the next receive: the rest of a payload, or anything.
    fn receive(&mut self, memory: AlignedBuf) -> Operation {
        let fd = SharedFd::clone(&self.fd);
        match std::mem::replace(&mut self.incoming, Incoming::Header) {
            Incoming::Payload { header, buf, filled } => {
                self.incoming = Incoming::Rest { header, resting: memory };
                let range = filled..buf.len();
                return Operation::Recv { fd, target: Target::new(buf, range), exact: true };
            }
            other => self.incoming = other,
        }
        let range = self.kept..memory.len();
        Operation::Recv { fd, target: Target::new(memory, range), exact: false }
    }
}

/// A request that the file works on.
#[derive(Debug, Clone, Copy)]
struct Job {
    conn: u64,
    cookie: u64,
}

struct Server {
    ring: Ring,
    listeners: Vec<SharedFd>,
    /// `None` for the export without a name.
    file: Option<SharedFd>,
    exports: Vec<ExportInfo>,
    pool: BufPool,
    noise: SharedBuf,
    conns: Map<u64, Conn>,
    next_conn: u64,
    jobs: Vec<Job>,
    free_jobs: Vec<usize>,
    reads: usize,
    to_send: Vec<u64>,
}

impl Server {
    fn submit(&mut self, operation: Operation, token: Token) -> anyhow::Result<()> {
        self.ring.submit(operation, token.pack()).map_err(|full| anyhow::anyhow!("{full}"))
    }

    fn start_job(&mut self, conn: u64, cookie: u64) -> Token {
        let job = Job { conn, cookie };
        let at = self.free_jobs.pop().unwrap_or(self.jobs.len());
        match self.jobs.get_mut(at) {
            Some(slot) => *slot = job,
            None => self.jobs.push(job),
        }
        Token::Device(u64_from_usize(at))
    }

    fn accept(&mut self, listener: u64) -> anyhow::Result<()> {
        let fd = SharedFd::clone(&self.listeners[usize_from_u64(listener)]);
        self.submit(Operation::Accept { fd }, Token::Accept(listener))
    }

    fn accepted(&mut self, socket: OwnedFd) -> anyhow::Result<()> {
        // A socket of Unix has no such option.
        let _unix = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
        self.next_conn += 1;
        let id = self.next_conn;
        let work = if self.file.is_some() { Work::Null } else { Work::Session };
        let mut conn = Conn::new(socket, work);
        let operation = conn.receive(AlignedBuf::new(RECEIVE_BYTES));
        self.conns.insert(id, conn);
        self.to_send.push(id);
        self.submit(operation, Token::Receive(id))
    }

    /// Executes a request.
    fn request(
        &mut self,
        id: u64,
        work: Work,
        header: RequestHeader,
        buf: Option<AlignedBuf>,
    ) -> anyhow::Result<()> {
        let RequestHeader { cookie, offset, .. } = header;
        let len_bytes = usize_from_u64(header.length);
        match (buf, work) {
            (None, Work::Null) => {
                let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
                conn.reply(cookie);
                conn.replies.push_data(self.noise.clone(), len_bytes);
                Ok(())
            }
            (None, _) => {
                let buf = self.pool.get(PAGE_BYTES + len_bytes).context("no memory for a READ")?;
                let target = Target::new(buf, PAGE_BYTES..PAGE_BYTES + len_bytes);
                let fd = SharedFd::clone(self.file.as_ref().context("there is no file")?);
                let token = self.start_job(id, cookie);
                self.reads += 1;
                self.submit(Operation::Read { fd, offset, target }, token)
            }
            (Some(_), Work::Null) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.reply(cookie);
                }
                Ok(())
            }
            (Some(buf), _) => {
                let buf = if work == Work::Plus { check_and_copy(&self.pool, &buf, 0)? } else { buf };
                let file = self.file.as_ref().context("there is no file")?;
                let operation = Operation::write(file, offset, buf);
                let token = self.start_job(id, cookie);
                self.submit(operation, token)
            }
        }
    }

    /// Processes everything in `memory`, then receives more. Returns `false` when the client disconnects.
    fn received(&mut self, id: u64, memory: AlignedBuf, count: usize) -> anyhow::Result<bool> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(false) };
        if conn.work == Work::Session {
            let stays = conn.answer(&memory[..count], &self.exports, &self.noise);
            let operation = conn.receive(memory);
            self.to_send.push(id);
            return if stays { self.submit(operation, Token::Receive(id)).map(|()| true) } else { Ok(false) };
        }
        let end = conn.kept + count;
        conn.kept = 0;
        let mut memory = memory;
        let mut bytes = &memory[..end];
        if conn.session.is_some() && matches!(conn.shake_hands(&mut bytes, &self.exports), Step::Leave) {
            return Ok(false);
        }
        while let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.session.is_none()) {
            let work = conn.work;
            match conn.step(&mut bytes, &self.pool)? {
                Step::Request(header, buf) => self.request(id, work, header, buf)?,
                Step::Wait => break,
                Step::Leave => return Ok(false),
            }
        }
        let left = bytes.len();
        memory.copy_within(end - left..end, 0);
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(false) };
        conn.kept = left;
        let operation = conn.receive(memory);
        self.to_send.push(id);
        self.submit(operation, Token::Receive(id))?;
        Ok(true)
    }

    /// The rest of a payload has come straight into its buffer.
    fn payload_received(&mut self, id: u64, buf: AlignedBuf) -> anyhow::Result<bool> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(false) };
        let Incoming::Rest { header, resting } = std::mem::replace(&mut conn.incoming, Incoming::Header)
        else {
            bail!("a payload came that no connection waits for");
        };
        let work = conn.work;
        self.request(id, work, header, Some(buf))?;
        self.received(id, resting, 0)
    }

    fn receive_ended(&mut self, id: u64, completion: Completion) -> anyhow::Result<()> {
        let Some(Memory::Buf(memory)) = completion.operation.into_target().map(Target::into_memory) else {
            bail!("receives go into buffers");
        };
        let count = completion.result.unwrap_or(0);
        let is_payload =
            self.conns.get(&id).is_some_and(|conn| matches!(conn.incoming, Incoming::Rest { .. }));
        let stays = match (count, is_payload) {
            (0, _) => false,
            (_, true) => self.payload_received(id, memory)?,
            (_, false) => self.received(id, memory, count)?,
        };
        if !stays {
            self.conns.remove(&id);
        }
        Ok(())
    }

    fn device_ended(&mut self, at: usize, completion: Completion) -> anyhow::Result<()> {
        let Job { conn: id, cookie } = self.jobs[at];
        self.free_jobs.push(at);
        completion.result.context("the file fails")?;
        let read = completion.operation.into_target();
        self.reads -= usize::from(read.is_some());
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        self.to_send.push(id);
        let Some(target) = read else {
            conn.reply(cookie);
            return Ok(());
        };
        let Memory::Buf(mut buf) = target.into_memory() else { bail!("reads go into buffers") };
        if conn.work == Work::Plus {
            buf = check_and_copy(&self.pool, &buf, PAGE_BYTES)?;
        }
        let mut head = Vec::with_capacity(SimpleReply::BYTES);
        SimpleReply { error: 0, cookie }.encode(&mut head);
        buf[PAGE_BYTES - SimpleReply::BYTES..PAGE_BYTES].copy_from_slice(&head);
        let range = PAGE_BYTES - SimpleReply::BYTES..buf.len();
        conn.replies.push(Segment::new(buf.into_shared(), range));
        Ok(())
    }

    fn completed(&mut self, completion: Completion) -> anyhow::Result<()> {
        match Token::unpack(completion.user) {
            Token::Accept(listener) => {
                self.accept(listener)?;
                completion.accepted.map_or(Ok(()), |socket| self.accepted(socket))
            }
            Token::Receive(id) => self.receive_ended(id, completion),
            Token::Send(id) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.replies.sent();
                    self.to_send.push(id);
                }
                Ok(())
            }
            Token::Device(at) => self.device_ended(usize_from_u64(at), completion),
        }
    }

    fn run(mut self) -> anyhow::Result<()> {
        for listener in 0..u64_from_usize(self.listeners.len()) {
            self.accept(listener)?;
        }
        let mut completions = Vec::new();
        let mut to_send = Vec::new();
        let mut quick_sends = 0;
        loop {
            let gather = (self.reads >= GATHER_READS_MIN).then(|| Gather {
                count: quick_sends + (self.reads / 2).min(GATHER_MAX),
                time_us: GATHER_TIME_US,
            });
            // Small sends end while they are submitted: waiting for one result would return with theirs.
            self.ring.submit_and_gather(1 + quick_sends, gather, Some(STUCK), &mut completions)?;
            quick_sends = 0;
            for completion in completions.drain(..) {
                self.completed(completion)?;
            }
            std::mem::swap(&mut self.to_send, &mut to_send);
            for id in to_send.drain(..) {
                if let Some((operation, is_quick)) =
                    self.conns.get_mut(&id).and_then(|conn| conn.replies.send(&conn.fd))
                {
                    quick_sends += usize::from(is_quick);
                    self.submit(operation, Token::Send(id))?;
                }
            }
        }
    }
}

/// One CRC-32C over the bytes from `start` on, and one copy of them into another buffer.
fn check_and_copy(pool: &BufPool, buf: &AlignedBuf, start: usize) -> anyhow::Result<AlignedBuf> {
    std::hint::black_box(zc_core::crc32c(&buf[start..]));
    let mut copy = pool.get(buf.len()).context("no memory for a copy")?;
    copy[start..].copy_from_slice(&buf[start..]);
    Ok(copy)
}

fn exports(works: &[Work], size_bytes: u64) -> anyhow::Result<Vec<ExportInfo>> {
    let least_bytes = if works.contains(&Work::Session) { 1 } else { 512 };
    let blocks = BlockSizes::new(least_bytes, 4096, u32::try_from(NOISE_BYTES)?)
        .context("the block sizes are legal")?;
    let export = |((name, _), token): (&(&str, Work), u64)| ExportInfo {
        name: (*name).to_owned(),
        description: String::new(),
        size_bytes,
        flags: ExportFlags { multi_conn: true, ..ExportFlags::default() },
        blocks,
        contexts: Vec::new(),
        token,
    };
    Ok(Work::ALL.iter().zip(0..).filter(|((_, work), _)| works.contains(work)).map(export).collect())
}

pub(crate) fn serve(args: &Args) -> anyhow::Result<()> {
    let (file, exports) = match &args.file {
        None => {
            let size_bytes = args.size.max(u64_from_usize(NOISE_BYTES));
            (None, exports(&[Work::Session], size_bytes)?)
        }
        Some(path) => {
            let file = BlockFile::open(path, OpenOptions { direct: true, write: true, create_len: None })?;
            ensure!(file.is_direct(), "{} has no direct I/O", path.display());
            let exports = exports(&[Work::Raw, Work::Plus, Work::Null], file.len_bytes())?;
            (Some(SharedFd::clone(file.fd())), exports)
        }
    };
    let unix = UnixListener::bind(&args.socket)
        .with_context(|| format!("cannot listen on {}", args.socket.display()))?;
    let mut listeners = vec![SharedFd::new(unix)];
    if let Some(address) = args.tcp {
        let tcp = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        listeners.push(SharedFd::new(tcp));
    }
    let server = Server {
        ring: Ring::new(RingOptions { poll_max_us: args.poll_max, ..RingOptions::default() })?,
        listeners,
        file,
        exports,
        pool: BufPool::new(POOL_BYTES),
        noise: AlignedBuf::from(crate::data::noise(NOISE_BYTES, 1).as_slice()).into_shared(),
        conns: Map::default(),
        next_conn: 0,
        jobs: Vec::new(),
        free_jobs: Vec::new(),
        reads: 0,
        to_send: Vec::new(),
    };
    server.run()
}
