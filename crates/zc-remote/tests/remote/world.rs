//! A remote origin and a simulated server, joined by two byte streams, a clock, and a model of what must hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_nbd::client::ClientTls;
use zc_remote::{Effect, Failure, Remote, Request, RequestId, Settings, Sink};

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

pub(crate) struct World {
    pub(crate) remote: Remote,
    pub(crate) server: Server,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) now_ms: u64,
    /// The server takes connections.
    pub(crate) listens: bool,
    wants_connection: bool,
    up: Vec<u8>,
    down: Vec<u8>,
    pub(crate) reads: Reads,
    pub(crate) done: BTreeMap<RequestId, Result<(), Failure>>,
    pub(crate) ups: usize,
    pub(crate) downs: Vec<String>,
    pub(crate) silences: usize,
    pub(crate) answers: usize,
    pub(crate) stopped: bool,
}

pub(crate) fn settings(seed: u64, outage_max_ms: Option<u64>) -> Settings {
    Settings { export: "disk".to_owned(), tls: ClientTls::Never, writable: true, outage_max_ms, seed }
}

impl World {
    pub(crate) fn new(server: Server, settings: Settings) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(settings.seed);
        let mut world = Self {
            remote: Remote::new(settings, 0),
            server,
            rng,
            now_ms: 0,
            listens: true,
            wants_connection: false,
            up: Vec::new(),
            down: Vec::new(),
            reads: Reads::default(),
            done: BTreeMap::new(),
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
            for bytes in self.remote.take_output() {
                self.up.extend_from_slice(&bytes);
            }
            let Some(effect) = self.remote.next_effect() else { return };
            match effect {
                Effect::Connect => self.wants_connection = true,
                Effect::StartTls => panic!("no TLS here"),
                Effect::HangUp => {}
                Effect::Silent => self.silences += 1,
                Effect::Answering => self.answers += 1,
                Effect::Close => self.cut_streams(),
                Effect::Done { request, result } => {
                    assert!(self.done.insert(request, result).is_none(), "answered twice");
                }
                Effect::Up(_) => self.ups += 1,
                Effect::Down(why) => self.downs.push(why),
                Effect::Stopped => self.stopped = true,
            }
        }
    }

    /// The client has closed: the server carries out what it has, or does not.
    fn cut_streams(&mut self) {
        self.up.clear();
        self.down.clear();
        self.server.drop_connection(&mut self.rng);
        self.wants_connection = false;
    }

    /// The connection is broken; the client is told.
    pub(crate) fn broken(&mut self, why: &str) {
        self.up.clear();
        self.down.clear();
        self.remote.closed(why);
        self.collect();
    }

    pub(crate) fn crash(&mut self) {
        let was_connected = self.server.is_connected();
        self.server.crash(&mut self.rng);
        if was_connected {
            self.broken("reset");
        }
    }

    pub(crate) fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.remote.tick(self.now_ms);
        self.collect();
    }

    /// Connects if that is wanted. Returns `true` if something happened.
    pub(crate) fn connect(&mut self) -> bool {
        if !std::mem::take(&mut self.wants_connection) {
            return false;
        }
        if self.listens {
            self.server.connect();
            self.remote.connected();
        } else {
            self.remote.closed("connection refused");
        }
        self.collect();
        true
    }

    /// Moves up to so many bytes to the server.
    pub(crate) fn move_up(&mut self, most: usize) -> bool {
        let piece: Vec<u8> = self.up.drain(..most.min(self.up.len())).collect();
        if !self.server.feed(&piece) {
            self.server.drop_connection(&mut self.rng);
            self.broken("closed by the server");
        }
        !piece.is_empty()
    }

    /// Moves up to so many bytes to the client.
    pub(crate) fn move_down(&mut self, most: usize) -> bool {
        let sent = self.server.sent();
        self.down.extend_from_slice(&sent);
        let piece: Vec<u8> = self.down.drain(..most.min(self.down.len())).collect();
        if !piece.is_empty() {
            self.remote.received(&piece, &mut self.reads);
            self.collect();
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
