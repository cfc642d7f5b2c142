//! Client and server against each other in memory, over all commands, header styles and ways to split the stream.

use crate::disk::{FIRST_FLAGS, SIZE, Server, status};
use proptest::prelude::*;
use zc_core::Map;
use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession, ClientTls, RemoteError, RequestError};
use zc_nbd::proto::{BASE_ALLOCATION, command_flag, tx_flag};
use zc_nbd::server::{CloseReason, ServerConfig, TlsMode};
use zc_nbd::wire::{HeaderStyle, StatusExtent};
use zc_nbd::{ErrorCode, Need};

/// A client and a server joined by two byte streams that are cut into pieces of `piece` bytes.
struct Pair {
    server: Server,
    client: ClientSession,
    to_server: Vec<u8>,
    piece: usize,
    ready: bool,
    listed: Vec<String>,
    /// The read whose data is arriving.
    filling: u64,
    /// Data of reads so far, by cookie: first byte in the export and bytes.
    reads: Map<u64, (u64, Vec<u8>)>,
    extents: Map<(u64, u32), Vec<StatusExtent>>,
    done: Map<u64, Result<(), RemoteError>>,
}

impl Pair {
    fn new(style: HeaderStyle, export: &str, piece: usize) -> Self {
        let extended = style == HeaderStyle::Extended;
        let config = ClientConfig {
            export: export.to_owned(),
            structured: style != HeaderStyle::Simple,
            extended,
            contexts: vec![BASE_ALLOCATION.to_owned(), "x-test:mark".to_owned(), "no:such".to_owned()],
            ..ClientConfig::default()
        };
        let mut pair = Self::with(ServerConfig { extended, ..ServerConfig::default() }, config, piece);
        pair.run();
        assert!(pair.ready, "{:?}", pair.server.closed);
        assert_eq!(pair.client.style(), style);
        assert_eq!(pair.server.session.style(), style);
        pair
    }

    fn with(server: ServerConfig, client: ClientConfig, piece: usize) -> Self {
        Self {
            server: Server::new(server),
            client: ClientSession::new(client),
            to_server: Vec::new(),
            piece,
            ready: false,
            listed: Vec::new(),
            filling: 0,
            reads: Map::default(),
            extents: Map::default(),
            done: Map::default(),
        }
    }

    /// Moves bytes both ways until nothing moves any more.
    fn run(&mut self) {
        loop {
            let up = std::mem::take(&mut self.to_server);
            for piece in up.chunks(self.piece) {
                self.server.feed(piece);
            }
            let down = self.server.sent();
            for piece in down.chunks(self.piece) {
                self.client_feed(piece);
            }
            if self.client.tls_due() && self.server.session.tls_due() {
                self.server.session.tls_started();
                self.client.tls_started(&mut self.to_server);
            }
            if up.is_empty() && down.is_empty() && self.to_server.is_empty() {
                return;
            }
        }
    }

    fn client_feed(&mut self, mut input: &[u8]) {
        loop {
            if matches!(self.client.need(), Need::Payload { .. }) {
                let taken = self.client.take_payload(&mut input);
                self.reads.get_mut(&self.filling).unwrap().1.extend_from_slice(taken);
            }
            match self.client.next_event(&mut input, &mut self.to_server).unwrap() {
                None => return,
                Some(ClientEvent::Ready) => self.ready = true,
                Some(ClientEvent::Listed(list)) => {
                    self.listed = list.into_iter().map(|entry| entry.name).collect();
                }
                Some(ClientEvent::ReadData { cookie, offset, .. }) => {
                    self.expect_next(cookie, offset);
                    self.filling = cookie;
                }
                Some(ClientEvent::ReadHole { cookie, offset, length }) => {
                    self.expect_next(cookie, offset);
                    let zeroes = vec![0; usize::try_from(length).unwrap()];
                    self.reads.get_mut(&cookie).unwrap().1.extend_from_slice(&zeroes);
                }
                Some(ClientEvent::BlockStatus { cookie, context, extents }) => {
                    self.extents.insert((cookie, context), extents);
                }
                Some(ClientEvent::Done { cookie, result }) => {
                    assert!(self.done.insert(cookie, result).is_none(), "done twice");
                }
            }
        }
    }

    /// This server answers in order, so each piece follows the one before.
    fn expect_next(&mut self, cookie: u64, offset: u64) {
        let read = self.reads.entry(cookie).or_insert((offset, Vec::new()));
        assert_eq!(read.0 + u64::try_from(read.1.len()).unwrap(), offset);
    }

    fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> u64 {
        let length = u32::try_from(data.len()).unwrap();
        let cookie = self.client.write(offset, length, flags, &mut self.to_server).unwrap();
        self.to_server.extend_from_slice(data);
        cookie
    }

    fn read(&mut self, offset: u64, length: u32, flags: u16) -> Vec<u8> {
        let cookie = self.client.read(offset, length, flags, &mut self.to_server).unwrap();
        self.run();
        assert_eq!(self.done[&cookie], Ok(()));
        self.reads[&cookie].1.clone()
    }
}

const STYLES: [HeaderStyle; 3] = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended];

#[test]
fn every_command_works_in_every_style() {
    for style in STYLES {
        for piece in [1, 7, 1000, 1 << 20] {
            every_command(style, piece);
        }
    }
}

fn every_command(style: HeaderStyle, piece: usize) {
    let mut pair = Pair::new(style, "", piece);
    let export = pair.client.export().unwrap();
    let flags = match style {
        HeaderStyle::Simple => FIRST_FLAGS & !tx_flag::SEND_DF,
        HeaderStyle::Structured => FIRST_FLAGS,
        HeaderStyle::Extended => FIRST_FLAGS | tx_flag::BLOCK_STATUS_PAYLOAD,
    };
    assert_eq!((export.size_bytes, export.flags), (SIZE, flags));
    assert_eq!(export.name.as_deref(), Some("first"));
    assert_eq!(export.description.as_deref(), Some("about first"));
    assert_eq!((export.min_bytes, export.preferred_bytes, export.max_bytes), (1, 4096, 32 << 20));
    let data: Vec<u8> = (1..=200).cycle().take(5000).collect();
    pair.write(1000, &data, command_flag::FUA);
    assert_eq!(pair.read(1000, 5000, 0), data);
    let mut wider = vec![0; 1000];
    wider.extend_from_slice(&data);
    wider.resize(8192, 0);
    assert_eq!(pair.read(0, 8192, 0), wider);
    if style != HeaderStyle::Simple {
        assert_eq!(pair.read(0, 8192, command_flag::DF), wider);
    }
    let out = &mut pair.to_server;
    let cookies = [
        pair.client.flush(out).unwrap(),
        pair.client.trim(4096, 512, command_flag::FUA, out).unwrap(),
        pair.client.cache(0, 4096, out).unwrap(),
        pair.client.write_zeroes(2048, 512, command_flag::NO_HOLE | command_flag::FAST_ZERO, out).unwrap(),
    ];
    pair.run();
    assert!(cookies.iter().all(|cookie| pair.done[cookie] == Ok(())));
    wider[4096..4608].fill(0);
    wider[2048..2560].fill(0);
    assert_eq!(pair.read(0, 8192, 0), wider);
    block_status(&mut pair, style, &wider);
    pair.client.disconnect(&mut pair.to_server).unwrap();
    pair.run();
    assert_eq!(pair.server.log.last().unwrap(), "disconnect");
    assert_eq!((pair.client.in_flight(), pair.server.session.in_flight()), (0, 0));
    assert_eq!(pair.server.session.need(), Need::Nothing);
}

fn block_status(pair: &mut Pair, style: HeaderStyle, data: &[u8]) {
    let out = &mut pair.to_server;
    if style == HeaderStyle::Simple {
        assert_eq!(pair.client.block_status(0, 8192, 0, out), Err(RequestError::NotOffered));
        return;
    }
    assert_eq!(pair.client.contexts(), [(1, BASE_ALLOCATION.to_owned()), (2, "x-test:mark".to_owned())]);
    let all = pair.client.block_status(0, 8192, 0, out).unwrap();
    let one = pair.client.block_status(0, 8192, command_flag::REQ_ONE, out).unwrap();
    pair.run();
    assert_eq!(pair.extents[&(all, 1)], status(data));
    assert_eq!(pair.extents[&(one, 1)], status(data)[..1]);
    assert_eq!(pair.extents[&(all, 2)], [StatusExtent { length: 8192, flags: 0 }]);
    let out = &mut pair.to_server;
    let filtered = pair.client.block_status_of(&[2], 0, 8192, 0, out);
    if style != HeaderStyle::Extended {
        assert_eq!(filtered, Err(RequestError::NotOffered));
        return;
    }
    for wrong in [&[][..], &[3], &[0], &[1, 1]] {
        assert_eq!(pair.client.block_status_of(wrong, 0, 8192, 0, out), Err(RequestError::Context));
    }
    let both = pair.client.block_status_of(&[2, 1], 0, 8192, command_flag::REQ_ONE, out).unwrap();
    pair.run();
    let of = |pair: &Pair, cookie| {
        (pair.extents.get(&(cookie, 1)).cloned(), pair.extents.get(&(cookie, 2)).cloned())
    };
    let mark = Some(vec![StatusExtent { length: 8192, flags: 0 }]);
    assert_eq!(of(pair, filtered.unwrap()), (None, mark.clone()));
    assert_eq!(of(pair, both), (Some(status(data)[..1].to_vec()), mark));
}

#[test]
fn errors_reach_the_client_with_text_where_the_style_has_it() {
    for style in STYLES {
        let mut pair = Pair::new(style, "first", 11);
        pair.server.fail = Some(ErrorCode::Io);
        let out = &mut pair.to_server;
        let cookies = [
            pair.client.read(0, 512, 0, out).unwrap(),
            pair.client.flush(out).unwrap(),
            pair.client.trim(0, 512, 0, out).unwrap(),
        ];
        let write = pair.write(0, &[1; 512], 0);
        pair.run();
        let message = if style == HeaderStyle::Simple { "" } else { "told to fail" };
        for cookie in cookies.into_iter().chain([write]) {
            let wanted = RemoteError { code: ErrorCode::Io, message: message.to_owned() };
            assert_eq!(pair.done[&cookie], Err(wanted), "{style:?}");
        }
    }
}

#[test]
fn the_client_falls_back_when_the_server_lacks_options() {
    let server = ServerConfig { structured: false, extended: false, ..ServerConfig::default() };
    let client = ClientConfig {
        extended: true,
        contexts: vec![BASE_ALLOCATION.to_owned()],
        ..ClientConfig::default()
    };
    let mut pair = Pair::with(server, client, 100);
    pair.run();
    assert!(pair.ready);
    assert_eq!(pair.client.style(), HeaderStyle::Simple);
    assert_eq!(pair.read(0, 512, 0), vec![0; 512]);
}

#[test]
fn client_and_server_agree_on_tls() {
    use ClientTls::{Never, Preferred, Required};
    let cases = [
        (TlsMode::Off, Preferred, Some(false)),
        (TlsMode::Allowed, Never, Some(false)),
        (TlsMode::Allowed, Preferred, Some(true)),
        (TlsMode::Allowed, Required, Some(true)),
        (TlsMode::Required, Preferred, Some(true)),
        (TlsMode::Required, Required, Some(true)),
    ];
    for (mode, wish, secured) in cases {
        for list in [false, true] {
            let server = ServerConfig { tls: mode, ..ServerConfig::default() };
            let contexts = vec![BASE_ALLOCATION.to_owned()];
            let client = ClientConfig { tls: wish, list, contexts, ..ClientConfig::default() };
            let mut pair = Pair::with(server, client, 5);
            pair.run();
            assert_eq!(pair.ready.then_some(pair.client.is_secured()), secured.filter(|_| !list));
            assert_eq!(pair.listed.len(), if list { 5 } else { 0 });
            assert_eq!(Some(pair.server.session.is_secured()), secured, "{mode:?} {wish:?}");
            assert_eq!(pair.client.contexts().len(), usize::from(!list));
        }
    }
}

#[test]
fn the_client_lists_exports_and_aborts() {
    let client = ClientConfig { list: true, ..ClientConfig::default() };
    let mut pair = Pair::with(ServerConfig::default(), client, 3);
    pair.run();
    assert_eq!(pair.listed, ["first", "frozen", "plain", "aligned", "huge"]);
    assert_eq!(pair.server.closed, Some(CloseReason::Aborted));
    assert_eq!(pair.client.need(), Need::Nothing);
}

#[derive(Debug, Clone)]
enum Op {
    Read(u64, u32, bool),
    Write(u64, u32, u8),
    Zero(u64, u32),
    Trim(u64, u32),
    Flush,
    Status(u64, u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let range = || (0_u64..8000, 1_u32..3000);
    let op = prop_oneof![
        (range(), any::<bool>()).prop_map(|(range, df)| Op::Read(range.0, range.1, df)),
        (range(), any::<u8>()).prop_map(|(range, byte)| Op::Write(range.0, range.1, byte)),
        range().prop_map(|range| Op::Zero(range.0, range.1)),
        range().prop_map(|range| Op::Trim(range.0, range.1)),
        Just(Op::Flush),
        range().prop_map(|range| Op::Status(range.0, range.1)),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Pipelined commands have the results of a model disk, for any split of the streams.
    #[test]
    fn pipelined_commands_agree_with_a_model(ops in ops(), style in 0_usize..3, piece in 1_usize..5000) {
        let mut pair = Pair::new(STYLES[style], "first", piece);
        let mut model = vec![0_u8; 16384];
        let mut wanted = Vec::new();
        for op in ops {
            let out = &mut pair.to_server;
            let span = |offset: u64, length: u32| {
                let start = usize::try_from(offset).unwrap();
                start..start + usize::try_from(length).unwrap()
            };
            match op {
                Op::Read(offset, length, df) => {
                    let flags = if df && style > 0 { command_flag::DF } else { 0 };
                    let cookie = pair.client.read(offset, length, flags, out).unwrap();
                    wanted.push((cookie, model[span(offset, length)].to_vec()));
                }
                Op::Write(offset, length, byte) => {
                    let data = vec![byte; usize::try_from(length).unwrap()];
                    pair.write(offset, &data, 0);
                    model[span(offset, length)].fill(byte);
                }
                Op::Zero(offset, length) => {
                    pair.client.write_zeroes(offset, length.into(), 0, out).unwrap();
                    model[span(offset, length)].fill(0);
                }
                Op::Trim(offset, length) => {
                    pair.client.trim(offset, length.into(), 0, out).unwrap();
                    model[span(offset, length)].fill(0);
                }
                Op::Flush => { pair.client.flush(out).unwrap(); }
                Op::Status(offset, length) if style > 0 => {
                    pair.client.block_status(offset, length.into(), 0, out).unwrap();
                }
                Op::Status(..) => {}
            }
        }
        pair.run();
        prop_assert!(pair.done.values().all(Result::is_ok));
        prop_assert_eq!(pair.client.in_flight(), 0);
        for (cookie, data) in wanted {
            prop_assert_eq!(&pair.reads[&cookie].1, &data);
        }
        prop_assert_eq!(&pair.server.disk[..model.len()], &model[..]);
    }
}
