//! Arbitrary bytes and arbitrary cuts: no panic, bounded buffers, the same events however the stream is cut.

use crate::disk::Server;
use crate::raw::{BOTH_FLAGS, go_data, meta_data};
use proptest::prelude::*;
use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession};
use zc_nbd::proto::limits::{CHUNK_BODY_BYTES_MAX, OPTION_DATA_BYTES_DEFAULT};
use zc_nbd::server::ServerConfig;
use zc_nbd::wire::{Greeting, HeaderStyle, OptionHeader, RequestHeader};

/// A piece of a client's stream that is often, not always, well formed.
fn client_piece() -> impl Strategy<Value = Vec<u8>> {
    let option = (
        0_u32..13,
        prop_oneof![
            Just(Vec::new()),
            Just(go_data("first", &[1, 2, 3])),
            Just(meta_data("first", &["base:allocation"])),
            prop::collection::vec(any::<u8>(), 0..80),
        ],
    )
        .prop_map(|(number, data)| {
            let mut bytes = Vec::new();
            OptionHeader::encode_with(number, &data, &mut bytes);
            bytes
        });
    let offset = prop_oneof![0_u64..5000, (1_u64 << 20) - 3000..(1 << 20) + 3000, any::<u64>()];
    let length = prop_oneof![0_u64..3000, any::<u32>().prop_map(u64::from), any::<u64>()];
    let request = (any::<bool>(), 0_u16..10, prop_oneof![0_u16..64, any::<u16>()], offset, length).prop_map(
        |(extended, command, flags, offset, length)| {
            let style = if extended { HeaderStyle::Extended } else { HeaderStyle::Simple };
            let mut bytes = Vec::new();
            RequestHeader { flags, command, cookie: 77, offset, length }.encode(style, &mut bytes);
            bytes
        },
    );
    prop_oneof![3 => option, 3 => request, 1 => prop::collection::vec(any::<u8>(), 0..3000)]
}

fn client_stream() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(client_piece(), 0..20);
    (prop_oneof![9 => Just(BOTH_FLAGS), 1 => any::<u32>()], any::<bool>(), pieces).prop_map(
        |(flags, go, pieces)| {
            let mut bytes = flags.to_be_bytes().to_vec();
            if go {
                OptionHeader::encode_with(7, &go_data("first", &[]), &mut bytes);
            }
            bytes.extend(pieces.concat());
            bytes
        },
    )
}

fn run_server(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<String>, String, Vec<u8>) {
    let mut server = Server::new(ServerConfig { extended: true, ..ServerConfig::default() });
    let bound = usize::try_from(OPTION_DATA_BYTES_DEFAULT).unwrap() + OptionHeader::BYTES;
    let mut rest = stream;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at((*cuts.next().unwrap()).clamp(1, rest.len()));
        server.feed(piece);
        assert!(server.session.buffered_bytes() <= bound);
        rest = tail;
    }
    let end = format!("{:?} {:?} {}", server.closed, server.session.need(), server.session.in_flight());
    (server.out, server.log, end, server.disk)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_client_bytes_give_the_same_however_they_are_cut(
        stream in client_stream(),
        cuts in prop::collection::vec(1_usize..60, 1..8),
    ) {
        let whole = run_server(&stream, &[usize::MAX]);
        prop_assert_eq!(&run_server(&stream, &cuts), &whole);
        prop_assert_eq!(&run_server(&stream, &[1]), &whole);
    }

    #[test]
    fn random_bytes_never_panic_the_server(stream in prop::collection::vec(any::<u8>(), 0..5000)) {
        run_server(&stream, &[usize::MAX]);
    }

    #[test]
    fn any_server_bytes_give_the_same_however_they_are_cut(
        tail in server_stream(),
        style in 0_usize..3,
        cuts in prop::collection::vec(1_usize..60, 1..8),
    ) {
        let whole = run_client(&tail, style, &[usize::MAX]);
        prop_assert_eq!(&run_client(&tail, style, &cuts), &whole);
    }
}

/// A piece of a server's stream behind the handshake.
fn server_stream() -> impl Strategy<Value = Vec<u8>> {
    let simple = (0_u32..3, 1_u64..8).prop_map(|(error, cookie)| {
        let mut bytes = Vec::new();
        zc_nbd::wire::SimpleReply { error, cookie }.encode(&mut bytes);
        bytes
    });
    let kind = prop_oneof![0_u16..8, 0x8000_u16..0x8004];
    let chunk = (any::<bool>(), kind, 0_u16..2, 1_u64..8, prop::collection::vec(0_u8..6, 0..40)).prop_map(
        |(extended, kind, flags, cookie, body)| {
            let style = if extended { HeaderStyle::Extended } else { HeaderStyle::Structured };
            let length = u64::try_from(body.len()).unwrap();
            let mut bytes = Vec::new();
            zc_nbd::wire::ChunkHeader { flags, kind, cookie, offset: 0, length }.encode(style, &mut bytes);
            bytes.extend(body);
            bytes
        },
    );
    let junk = prop::collection::vec(any::<u8>(), 0..200);
    prop::collection::vec(prop_oneof![3 => simple, 4 => chunk, 1 => junk], 0..12)
        .prop_map(|list| list.concat())
}

/// Everything the client made of a stream: events, payload and how it ended.
fn run_client(tail: &[u8], style: usize, cuts: &[usize]) -> (Vec<String>, Vec<u8>) {
    let extended = style == 2;
    let mut server = Server::new(ServerConfig { extended, ..ServerConfig::default() });
    let config = ClientConfig {
        structured: style > 0,
        extended,
        contexts: vec!["base:allocation".to_owned()],
        ..ClientConfig::default()
    };
    let mut client = ClientSession::new(config);
    let mut up = Vec::new();
    while client.export().is_none() {
        let down = server.sent();
        let mut input = down.as_slice();
        while client.next_event(&mut input, &mut up).unwrap().is_some() {}
        server.feed(&std::mem::take(&mut up));
    }
    client.read(0, 4096, 0, &mut up).unwrap();
    client.flush(&mut up).unwrap();
    client.read(0, 16, 0, &mut up).unwrap();
    if style > 0 {
        client.block_status(0, 4096, 0, &mut up).unwrap();
    }
    let (mut events, mut payload) = (Vec::new(), Vec::new());
    let mut rest = tail;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at((*cuts.next().unwrap()).clamp(1, rest.len()));
        rest = tail;
        let mut input = piece;
        loop {
            payload.extend_from_slice(client.take_payload(&mut input));
            match client.next_event(&mut input, &mut up) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    assert!(!matches!(event, ClientEvent::Ready));
                    events.push(format!("{event:?}"));
                }
                Err(error) => {
                    events.push(error.to_string());
                    break;
                }
            }
        }
    }
    events.push(format!("{:?} {}", client.need(), client.in_flight()));
    (events, payload)
}

#[test]
fn a_hostile_greeting_is_refused_at_once() {
    let mut client = ClientSession::new(ClientConfig::default());
    let mut out = Vec::new();
    client.next_event(&mut &[0xff; Greeting::BYTES][..], &mut out).unwrap_err();
    assert_eq!(client.next_event(&mut &[0; 100][..], &mut out), Ok(None));
    assert!(out.is_empty());
    assert_eq!(CHUNK_BODY_BYTES_MAX, 8 + 16 * (1 << 20), "the cap fits the largest legal block status");
}
