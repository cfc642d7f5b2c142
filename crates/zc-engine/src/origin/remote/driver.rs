//! The thread of a remote origin.
//!
//! Job: own the core of an export ([`zc_remote::Remote`]) and its connections (`conn`): hand on requests and received
//! bytes, send the core's output, connect, and keep time. There is one thread for each export.
//!
//! Invariants: the thread blocks in `poll` alone. Names are resolved and connections made on helpers. Each request is
//! answered once, also when the thread ends.
//!
//! Out of scope: every decision about requests (`zc-remote`).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use zc_config::{OriginTls, VolumeConfig};
use zc_core::{ErrorKind, Map, usize_from_u32, usize_from_u64};
use zc_io::Target;
use zc_nbd::client::{ClientTls, RemoteExport};
use zc_nbd::proto::tx_flag;
use zc_nbd::uri::NbdUri;
use zc_remote::{ConnId, Effect, Failure, Remote, Request, RequestId, Settings, Sink, Snapshot, Status};

use crate::clock::Clock;
use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::{REMOTE_INPUT_BYTES, REMOTE_OPEN_MS};
use crate::origin::remote::conn::Conn;
use crate::origin::remote::socket::Socket;

/// The number 1 as an eventfd expects it, in native byte order.
const COUNTED: [u8; 8] =
    if cfg!(target_endian = "big") { [0, 0, 0, 0, 0, 0, 0, 1] } else { [1, 0, 0, 0, 0, 0, 0, 0] };

/// Receiver of an answer, with the memory of a read. Only a block status has states.
pub(super) type Done = Box<dyn FnOnce(Result<Status, Failure>, Option<Target>) + Send>;

/// State of a connection, for the status.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemoteState {
    pub(crate) snapshot: Snapshot,
    /// Duration of the outage so far; `None`: there is none.
    pub(crate) outage_ms: Option<u64>,
}

struct Incoming {
    request: Request,
    target: Option<Target>,
    done: Done,
}

#[derive(Default)]
struct Inbox {
    incoming: Vec<Incoming>,
    outage_max_ms: Option<Option<u64>>,
    is_stopping: bool,
    has_ended: bool,
}

/// State that the thread shares with those that use the export.
struct Shared {
    inbox: Mutex<Inbox>,
    state: Mutex<RemoteState>,
    export: Mutex<Option<RemoteExport>>,
    event: OwnedFd,
    /// The event was written and not read.
    is_woken: AtomicBool,
    is_changed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            // A full counter wakes as well.
            let _full = rustix::io::write(&self.event, &COUNTED);
        }
    }

    fn clear(&self) {
        let mut counter = [0; 8];
        let _empty = rustix::io::read(&self.event, &mut counter);
        self.is_woken.store(false, Ordering::SeqCst);
    }
}

/// An export with its thread, which ends when this is dropped. No thread waits for that.
pub(crate) struct OpenRemote {
    shared: Arc<Shared>,
    place: String,
    plain_place: String,
}

impl std::fmt::Debug for OpenRemote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenRemote({})", self.place)
    }
}

impl Drop for OpenRemote {
    fn drop(&mut self) {
        lock(&self.shared.inbox).is_stopping = true;
        self.shared.wake();
    }
}

impl OpenRemote {
    /// Connects to an export. Blocks until it can be used, or for [`REMOTE_OPEN_MS`].
    ///
    /// # Errors
    /// The first attempt fails, or there can be no thread.
    pub(crate) fn open(
        uri: &NbdUri,
        writable: bool,
        volume: &VolumeConfig,
    ) -> Result<Arc<Self>, EngineError> {
        let place = uri.to_string();
        let failed = |source| EngineError::io(format!("cannot use {place}"), source);
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            state: Mutex::default(),
            export: Mutex::default(),
            event,
            is_woken: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
        });
        let (opener, opened) = sync_channel(1);
        let settings = Settings {
            export: uri.export.clone(),
            tls: if uri.tls { ClientTls::Required } else { ClientTls::Never },
            writable,
            connections: usize_from_u32(volume.connections),
            outage_max_ms: volume.reach.remote_bound_ms(volume.mode),
            seed: uuid::Uuid::new_v4().as_u64_pair().0,
        };
        let server = (uri.clone(), volume.origin_tls.clone());
        let driver = Driver::new(server, settings, Arc::clone(&shared), opener);
        std::thread::Builder::new()
            .name("remote-origin".to_owned())
            .spawn(move || driver.run())
            .map_err(|source| EngineError::thread("a remote origin", source))?;
        let plain_place = NbdUri { tls: false, ..uri.clone() }.to_string();
        let open = Arc::new(Self { shared, place, plain_place });
        let why = match opened.recv_timeout(Duration::from_millis(REMOTE_OPEN_MS)) {
            Ok(Ok(())) => return Ok(open),
            Ok(Err(why)) => why,
            Err(_) => "the server does not answer".to_owned(),
        };
        Err(EngineError::refused(Refusal::RemoteOrigin { origin: open.place.clone(), why }))
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The URI as it is without TLS.
    pub(crate) fn plain_place(&self) -> &str {
        &self.plain_place
    }

    /// Size of the export, as last reported by the server.
    pub(crate) fn size_bytes(&self) -> u64 {
        lock(&self.shared.export).as_ref().map_or(0, |export| export.size_bytes)
    }

    /// Returns `true` if the server writes zeros by itself, and has not refused to do it fast.
    pub(crate) fn zeroes_fast(&self) -> bool {
        let is_offered = lock(&self.shared.export)
            .as_ref()
            .is_some_and(|export| export.offers(tx_flag::SEND_WRITE_ZEROES));
        is_offered && !lock(&self.shared.state).snapshot.zeroes_slowly
    }

    /// Returns `true` if no change was requested yet.
    pub(crate) fn is_unchanged(&self) -> bool {
        !self.shared.is_changed.load(Ordering::SeqCst)
    }

    pub(crate) fn state(&self) -> RemoteState {
        lock(&self.shared.state).clone()
    }

    /// Requests fail when an outage has lasted this long; `None`: they wait.
    pub(crate) fn set_outage_max(&self, outage_max_ms: Option<u64>) {
        lock(&self.shared.inbox).outage_max_ms = Some(outage_max_ms);
        self.shared.wake();
    }

    /// Begins a request. `target` is the memory of a read.
    pub(super) fn submit(&self, request: Request, target: Option<Target>, done: Done) {
        if request.changes() {
            self.shared.is_changed.store(true, Ordering::SeqCst);
        }
        let mut inbox = lock(&self.shared.inbox);
        if inbox.has_ended {
            drop(inbox);
            return done(Err(ended()), target);
        }
        inbox.incoming.push(Incoming { request, target, done });
        drop(inbox);
        self.shared.wake();
    }
}

fn ended() -> Failure {
    Failure { kind: ErrorKind::Shutdown, text: "the connection to the server has ended".to_owned() }
}

/// Memory of reads in flight.
#[derive(Default)]
struct Targets(Map<RequestId, Target>);

impl Targets {
    fn part(&mut self, request: RequestId, at: u64, len_bytes: usize) -> Option<&mut [u8]> {
        let at = usize_from_u64(at);
        self.0.get_mut(&request)?.bytes_mut().get_mut(at..at.checked_add(len_bytes)?)
    }
}

impl Sink for Targets {
    fn data(&mut self, request: RequestId, at: u64, bytes: &[u8]) {
        if let Some(part) = self.part(request, at, bytes.len()) {
            part.copy_from_slice(bytes);
        }
    }

    fn zeros(&mut self, request: RequestId, at: u64, len_bytes: u64) {
        if let Some(part) = self.part(request, at, usize_from_u64(len_bytes)) {
            part.fill(0);
        }
    }
}

struct Driver {
    uri: NbdUri,
    tls: OriginTls,
    remote: Remote,
    shared: Arc<Shared>,
    clock: Clock,
    /// Receiver of the first attempt's outcome.
    opener: Option<SyncSender<Result<(), String>>>,
    conns: Vec<Conn>,
    targets: Targets,
    waiting: Map<RequestId, Done>,
    /// States for a block status that is not done yet.
    status: Option<(RequestId, Status)>,
    input: Vec<u8>,
    has_stopped: bool,
    /// Reason of the outage that was logged.
    logged: Option<String>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut inbox = lock(&self.shared.inbox);
        inbox.has_ended = true;
        let incoming = std::mem::take(&mut inbox.incoming);
        drop(inbox);
        incoming.into_iter().for_each(|late| (late.done)(Err(ended()), late.target));
        for (request, done) in std::mem::take(&mut self.waiting) {
            done(Err(ended()), self.targets.0.remove(&request));
        }
    }
}

impl Driver {
    fn new(
        (uri, tls): (NbdUri, OriginTls),
        settings: Settings,
        shared: Arc<Shared>,
        opener: SyncSender<Result<(), String>>,
    ) -> Self {
        let clock = Clock::new();
        let conns = (0..settings.connections).map(|_| Conn::default()).collect();
        Self {
            uri,
            tls,
            remote: Remote::new(settings, clock.now_ms()),
            shared,
            clock,
            opener: Some(opener),
            conns,
            targets: Targets::default(),
            waiting: Map::default(),
            status: None,
            input: vec![0; REMOTE_INPUT_BYTES],
            has_stopped: false,
            logged: None,
        }
    }

    fn run(mut self) {
        while !self.has_stopped {
            self.remote.tick(self.clock.now_ms());
            self.take_inbox();
            self.take_connections();
            self.perform();
            self.report();
            if !self.has_stopped {
                self.wait();
            }
        }
    }

    fn take_inbox(&mut self) {
        let mut inbox = lock(&self.shared.inbox);
        let (incoming, is_stopping) = (std::mem::take(&mut inbox.incoming), inbox.is_stopping);
        let outage_max_ms = inbox.outage_max_ms.take();
        drop(inbox);
        if let Some(outage_max_ms) = outage_max_ms {
            self.remote.set_outage_max(outage_max_ms);
        }
        for Incoming { request, target, done } in incoming {
            let id = self.remote.submit(request);
            if let Some(target) = target {
                self.targets.0.insert(id, target);
            }
            self.waiting.insert(id, done);
        }
        if is_stopping {
            self.remote.stop();
        }
    }

    /// Carries out the core's effects.
    fn perform(&mut self) {
        loop {
            for (number, conn) in self.conns.iter_mut().enumerate() {
                conn.put(self.remote.take_output(ConnId(number)));
            }
            let Some(effect) = self.remote.next_effect() else { break };
            match effect {
                Effect::Connect(conn) => self.connect(conn),
                Effect::StartTls(conn) => self.start_tls(conn),
                Effect::Close(conn) => self.conns[conn.0].close(),
                Effect::HangUp(conn) => self.conns[conn.0].hang_up(),
                Effect::Zeros { request, at, len_bytes } => self.targets.zeros(request, at, len_bytes),
                Effect::Status { request, status } => self.status = Some((request, status)),
                Effect::Done { request, result } => {
                    let target = self.targets.0.remove(&request);
                    let status = self.status.take_if(|(of, _)| *of == request);
                    let status = status.map_or_else(Status::default, |(_, status)| status);
                    if let Some(done) = self.waiting.remove(&request) {
                        done(result.map(|()| status), target);
                    }
                }
                Effect::HolesDistrusted => tracing::warn!(
                    "{}: the server reports zeros where it has content; its holes are not used any more",
                    self.uri
                ),
                Effect::Up(export) => self.is_up(export),
                Effect::Down(why) => self.is_down(why),
                Effect::Silent => {
                    tracing::error!("{}: the server keeps the connection and does not answer", self.uri);
                }
                Effect::Answering => tracing::warn!("{}: the server answers again", self.uri),
                Effect::Stopped => self.has_stopped = true,
            }
        }
        self.conns.iter_mut().for_each(Conn::send);
    }

    fn start_tls(&mut self, conn: ConnId) {
        match self.conns[conn.0].socket.as_mut().map(Socket::start_tls) {
            Some(Ok(())) => self.remote.tls_started(conn),
            Some(Err(error)) => self.closed(conn, &error.to_string()),
            None => {}
        }
    }

    /// A connection is dead.
    fn closed(&mut self, conn: ConnId, why: &str) {
        self.conns[conn.0].close();
        self.remote.closed(conn, why);
    }

    fn is_up(&mut self, export: RemoteExport) {
        if self.logged.take().is_some() {
            tracing::warn!("{}: the server is back", self.uri);
        }
        *lock(&self.shared.export) = Some(export);
        if let Some(opener) = self.opener.take() {
            let _opener_left = opener.send(Ok(()));
        }
    }

    fn is_down(&mut self, why: String) {
        if let Some(opener) = self.opener.take() {
            let _opener_left = opener.send(Err(why));
            return;
        }
        if self.logged.as_ref() != Some(&why) {
            tracing::error!("{}: {why}; connecting again and again", self.uri);
            self.logged = Some(why);
        }
    }

    fn connect(&mut self, conn: ConnId) {
        let shared = Arc::clone(&self.shared);
        let begun = self.conns[conn.0].connect((&self.uri, &self.tls), move || shared.wake());
        if let Err(error) = begun {
            self.closed(conn, &error.to_string());
        }
    }

    /// Takes the outcomes of attempts to connect.
    fn take_connections(&mut self) {
        for number in 0..self.conns.len() {
            match self.conns[number].take_outcome() {
                None => {}
                Some(Ok(())) => self.remote.connected(ConnId(number)),
                Some(Err(error)) => self.closed(ConnId(number), &error.to_string()),
            }
        }
    }

    /// Waits for the socket, a wake-up or the time.
    fn wait(&mut self) {
        let now_ms = self.clock.now_ms();
        let left_ms = self.remote.next_tick_ms().map(|at| at.saturating_sub(now_ms).min(3_600_000));
        let timeout = left_ms.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(0),
            tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
        });
        let mut fds = vec![PollFd::new(&self.shared.event, PollFlags::IN)];
        let mut polled = Vec::with_capacity(self.conns.len());
        for (number, conn) in self.conns.iter().enumerate() {
            let Some(socket) = &conn.socket else { continue };
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, conn.is_sending());
            fds.push(PollFd::new(socket, wanted));
            polled.push(ConnId(number));
        }
        // An interrupted wait counts as one that ended early.
        let _interrupted = poll(&mut fds, timeout.as_ref());
        let is_woken = !fds[0].revents().is_empty();
        let is_readable = |fd: &PollFd<'_>| !(fd.revents() - PollFlags::OUT).is_empty();
        let readable: Vec<bool> = fds[1..].iter().map(is_readable).collect();
        drop(fds);
        if is_woken {
            self.shared.clear();
        }
        for conn in
            polled.into_iter().zip(readable).filter_map(|(conn, is_readable)| is_readable.then_some(conn))
        {
            self.receive(conn);
        }
    }

    fn receive(&mut self, conn: ConnId) {
        while let Some(socket) = &mut self.conns[conn.0].socket {
            match socket.receive(&mut self.input) {
                Ok(None) => return,
                Ok(Some(0)) => return self.closed(conn, "the server closed the connection"),
                Ok(Some(bytes)) => {
                    self.remote.received(conn, &self.input[..bytes], &mut self.targets);
                }
                Err(error) => return self.closed(conn, &error.to_string()),
            }
            if !socket.has_input() {
                return;
            }
        }
    }

    fn report(&self) {
        let snapshot = self.remote.snapshot();
        let outage_ms = snapshot.outage_since_ms.map(|since| self.clock.now_ms().saturating_sub(since));
        *lock(&self.shared.state) = RemoteState { snapshot, outage_ms };
    }
}
