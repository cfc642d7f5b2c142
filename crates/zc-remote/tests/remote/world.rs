//! A remote origin and a simulated server, joined by two byte streams, a clock, and a model of the promises.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_nbd::client::ClientTls;
use zc_remote::{ConnId, Effect, Failure, Remote, Request, RequestId, Settings, Sink, Status};

use crate::server::{SECTOR, Server};

/// Memory of reads in flight.
#[derive(Default)]
pub(crate) struct Reads(pub(crate) BTreeMap<RequestId, Vec<u8>>);

impl Sink for Reads {
    fn data(&mut self, request: RequestId, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        let read = self.0.get_mut(&request).expect("data is for a read in flight");
        read[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn zeros(&mut self, request: RequestId, at: u64, len_bytes: u64) {
        self.data(request, at, &vec![0; usize::try_from(len_bytes).unwrap()]);
    }
}

/// The two byte streams of a connection.
#[derive(Default, Clone)]
struct Line {
    wants_connection: bool,
    up: Vec<u8>,
    down: Vec<u8>,
    /// The server has gone: the client is notified behind the bytes that were sent before.
    is_dead: bool,
}

pub(crate) struct World {
    pub(crate) remote: Remote,
    pub(crate) server: Server,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) now_ms: u64,
    /// The server takes connections.
    pub(crate) listens: bool,
    lines: Vec<Line>,
    pub(crate) reads: Reads,
    pub(crate) done: BTreeMap<RequestId, Result<(), Failure>>,
    pub(crate) statuses: BTreeMap<RequestId, Status>,
    pub(crate) distrusts: usize,
    pub(crate) ups: usize,
    pub(crate) downs: Vec<String>,
    pub(crate) silences: usize,
    pub(crate) answers: usize,
    pub(crate) stopped: bool,
}

pub(crate) fn settings(seed: u64, outage_max_ms: Option<u64>) -> Settings {
    Settings {
        export: "disk".to_owned(),
        tls: ClientTls::Never,
        writable: true,
        connections: 1,
        outage_max_ms,
        seed,
    }
}

impl World {
    pub(crate) fn new(server: Server, settings: Settings) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(settings.seed);
        let lines = vec![Line::default(); settings.connections];
        let mut world = Self {
            remote: Remote::new(settings, 0),
            server,
            rng,
            now_ms: 0,
            listens: true,
            lines,
            reads: Reads::default(),
            done: BTreeMap::new(),
            statuses: BTreeMap::new(),
            distrusts: 0,
            ups: 0,
            downs: Vec::new(),
            silences: 0,
            answers: 0,
            stopped: false,
        };
        world.collect();
        world
    }

    /// A world in which the connection is up.
    pub(crate) fn connected(server: Server, settings: Settings) -> Self {
        let mut world = Self::new(server, settings);
        world.run();
        assert_eq!(world.ups, 1, "{:?}", world.downs);
        world
    }

    pub(crate) fn submit(&mut self, request: Request) -> RequestId {
        let len_bytes = if let Request::Read { len_bytes, .. } = &request { *len_bytes } else { 0 };
        let id = self.remote.submit(request);
        self.reads.0.insert(id, vec![0xee; usize::try_from(len_bytes).unwrap()]);
        self.collect();
        id
    }

    pub(crate) fn write(&mut self, sector: usize, byte: u8, fua: bool) -> RequestId {
        self.submit(Request::Write {
            offset: u64::try_from(sector * SECTOR).unwrap(),
            data: Bytes::from(vec![byte; SECTOR]),
            fua,
        })
    }

    pub(crate) fn read(&mut self, sector: usize) -> RequestId {
        self.submit(Request::Read { offset: u64::try_from(sector * SECTOR).unwrap(), len_bytes: 512 })
    }

    /// Takes effects and output.
    pub(crate) fn collect(&mut self) {
        loop {
            for (at, line) in self.lines.iter_mut().enumerate() {
                for bytes in self.remote.take_output(ConnId(at)) {
                    line.up.extend_from_slice(&bytes);
                }
            }
            let Some(effect) = self.remote.next_effect() else { return };
            match effect {
                Effect::Connect(ConnId(at)) => {
                    let is_alive =
                        |other: usize| self.server.is_connected(other) || self.lines[other].is_dead;
                    let before = (1..self.lines.len()).find(|other| at == 0 && is_alive(*other));
                    assert_eq!(before, None, "a connection of the set before is not known to be dead");
                    self.lines[at].wants_connection = true;
                }
                Effect::StartTls(_) => panic!("no TLS here"),
                Effect::HangUp(_) => {}
                Effect::Silent => self.silences += 1,
                Effect::Answering => self.answers += 1,
                Effect::Close(ConnId(at)) => self.cut_streams(at),
                Effect::Done { request, result } => {
                    assert!(self.done.insert(request, result).is_none(), "answered twice");
                }
                Effect::Zeros { request, at, len_bytes } => {
                    assert!(!self.done.contains_key(&request), "it is not done");
                    self.reads.zeros(request, at, len_bytes);
                }
                Effect::Status { request, status } => {
                    self.statuses.insert(request, status);
                }
                Effect::HolesDistrusted => self.distrusts += 1,
                Effect::Up(_) => self.ups += 1,
                Effect::Down(why) => self.downs.push(why),
                Effect::Stopped => self.stopped = true,
            }
        }
    }

    /// Ends a connection that the client closed: the server carries out its pending requests, or does not.
    fn cut_streams(&mut self, at: usize) {
        self.lines[at] = Line::default();
        self.server.drop_connection(at, &mut self.rng);
    }

    /// A connection is broken; the client is notified.
    pub(crate) fn broken(&mut self, at: usize, why: &str) {
        self.lines[at] = Line::default();
        self.remote.closed(ConnId(at), why);
        self.collect();
    }

    /// The server loses one connection alone.
    pub(crate) fn drop_one(&mut self, at: usize) {
        if self.server.is_connected(at) {
            self.server.drop_connection(at, &mut self.rng);
            self.broken(at, "dropped");
        }
    }

    pub(crate) fn crash(&mut self) {
        let connected: Vec<usize> =
            (0..self.lines.len()).filter(|at| self.server.is_connected(*at)).collect();
        self.server.crash(&mut self.rng);
        for at in connected {
            self.broken(at, "reset");
        }
    }

    /// As [`Self::crash`]; the client is notified of each connection later.
    pub(crate) fn crash_unnoticed(&mut self) {
        for at in 0..self.lines.len() {
            if self.server.is_connected(at) {
                let sent = self.server.sent(at);
                self.lines[at].down.extend_from_slice(&sent);
                self.lines[at].is_dead = true;
            }
        }
        self.server.crash(&mut self.rng);
    }

    pub(crate) fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.remote.tick(self.now_ms);
        self.collect();
    }

    /// Makes requested connections. Returns `true` if something happened.
    pub(crate) fn connect(&mut self) -> bool {
        let mut has_moved = false;
        for at in 0..self.lines.len() {
            if !std::mem::take(&mut self.lines[at].wants_connection) {
                continue;
            }
            has_moved = true;
            if self.listens {
                self.server.connect(at);
                self.remote.connected(ConnId(at));
            } else {
                self.remote.closed(ConnId(at), "connection refused");
            }
            self.collect();
        }
        has_moved
    }

    /// Moves up to so many bytes of each connection to the server.
    pub(crate) fn move_up(&mut self, most: usize) -> bool {
        let mut has_moved = false;
        for at in 0..self.lines.len() {
            has_moved |= self.move_up_one(at, most);
        }
        has_moved
    }

    /// Moves up to so many bytes of a connection to the server.
    pub(crate) fn move_up_one(&mut self, at: usize, most: usize) -> bool {
        let up = &mut self.lines[at].up;
        let piece: Vec<u8> = up.drain(..most.min(up.len())).collect();
        if !self.server.feed(at, &piece) {
            self.server.drop_connection(at, &mut self.rng);
            self.broken(at, "closed by the server");
        }
        !piece.is_empty()
    }

    /// Moves up to so many bytes of each connection to the client.
    pub(crate) fn move_down(&mut self, most: usize) -> bool {
        let mut has_moved = false;
        for at in 0..self.lines.len() {
            has_moved |= self.move_down_one(at, most);
        }
        has_moved
    }

    /// Moves up to so many bytes of a connection to the client.
    pub(crate) fn move_down_one(&mut self, at: usize, most: usize) -> bool {
        let sent = self.server.sent(at);
        let down = &mut self.lines[at].down;
        down.extend_from_slice(&sent);
        let piece: Vec<u8> = down.drain(..most.min(down.len())).collect();
        if !piece.is_empty() {
            self.remote.received(ConnId(at), &piece, &mut self.reads);
            self.collect();
        } else if self.lines[at].is_dead {
            self.broken(at, "reset");
            return true;
        }
        !piece.is_empty()
    }

    /// Moves everything until nothing moves, without the clock.
    pub(crate) fn run(&mut self) {
        loop {
            let moved = self.connect() | self.move_up(usize::MAX);
            let executed = self.server.pending() + self.server.finished() > 0;
            self.server.execute_all();
            if !(moved | executed | self.move_down(usize::MAX)) {
                return;
            }
        }
    }

    /// As [`Self::run`], with time for reconnects.
    pub(crate) fn heal(&mut self) {
        self.listens = true;
        for _ in 0..20 {
            self.run();
            if self.remote.snapshot().is_up {
                return;
            }
            self.tick(1000);
        }
        panic!("the connection does not come up: {:?}", self.downs);
    }

    pub(crate) fn succeeded(&self, request: RequestId) {
        assert_eq!(self.done.get(&request), Some(&Ok(())));
    }

    pub(crate) fn random(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound)
    }
}
