//! A server's bytes into a client session with requests in flight: no panic, the same end however they are cut.
//!
//! The first input byte chooses where to cut and what to negotiate; the rest is the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zc_nbd::Need;
use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession};
use zc_nbd::proto::BASE_ALLOCATION;

fuzz_target!(|data: &[u8]| {
    let Some((choice, stream)) = data.split_first() else { return };
    let whole = run(stream, *choice, usize::MAX);
    assert_eq!(run(stream, *choice, usize::from(*choice >> 3) + 1), whole);
});

/// Every event, the payload, what was sent, and how it ended.
fn run(stream: &[u8], choice: u8, piece: usize) -> (Vec<String>, Vec<u8>, Vec<u8>, Need) {
    let mut client = ClientSession::new(ClientConfig {
        list: choice & 4 != 0,
        structured: choice & 1 != 0,
        extended: choice & 2 != 0,
        contexts: vec![BASE_ALLOCATION.to_owned()],
        ..ClientConfig::default()
    });
    let (mut events, mut payload, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for mut input in stream.chunks(piece) {
        loop {
            payload.extend_from_slice(client.take_payload(&mut input));
            match client.next_event(&mut input, &mut out) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if event == ClientEvent::Ready {
                        ask(&mut client, &mut out);
                    }
                    events.push(format!("{event:?}"));
                }
                Err(error) => {
                    events.push(error.to_string());
                    break;
                }
            }
        }
    }
    (events, payload, out, client.need())
}

/// Cookies 1 to 4, as far as the export allows.
fn ask(client: &mut ClientSession, out: &mut Vec<u8>) {
    let sent = [
        client.read(0, 64, 0, out),
        client.flush(out),
        client.block_status(0, 64, 0, out),
        client.read(16, 16, 4, out),
    ];
    assert!(client.in_flight() == sent.iter().filter(|sent| sent.is_ok()).count());
}
