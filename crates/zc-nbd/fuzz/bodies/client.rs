//! Feeds a server's bytes to a client session with requests in flight: no panic, bounds kept, read data only inside
//! its request and only once, and the same outcome for any split of the stream.
//!
//! The first input byte selects the options to negotiate or an inquiry, the second the split; the rest is the stream.

use zc_nbd::Need;
use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession, ClientTls, Inquiry};
use zc_nbd::proto::{BASE_ALLOCATION, command_flag, limits};

/// Bytes of all reads of [`ask`].
const READ_BYTES: u64 = 64 + 16;

pub(crate) fn run(data: &[u8]) {
    let [choice, cut, stream @ ..] = data else { return };
    if choice & 32 != 0 {
        return inquire(*choice, stream, usize::from(*cut).max(1));
    }
    let whole = Run::of(*choice, stream, usize::MAX);
    // Chunk boundaries decide whether plain bytes follow the reply to STARTTLS.
    if choice & 8 == 0 {
        assert_eq!(Run::of(*choice, stream, usize::from(*cut).max(1)).record, whole.record);
    }
}

/// Outcome of a stream: events, payload, output, final state.
type Record = (Vec<String>, Vec<u8>, Vec<u8>, Option<Need>);

struct Run {
    client: ClientSession,
    record: Record,
    read_bytes: u64,
}

impl Run {
    fn of(choice: u8, stream: &[u8], piece: usize) -> Self {
        let tls = match choice & 24 {
            8 => ClientTls::Preferred,
            24 => ClientTls::Required,
            _ => ClientTls::Never,
        };
        let config = ClientConfig {
            list: choice & 4 != 0,
            tls,
            structured: choice & 1 != 0,
            extended: choice & 2 != 0,
            contexts: vec![BASE_ALLOCATION.to_owned(), "x-test:b".to_owned()],
            ..ClientConfig::default()
        };
        let client = ClientSession::new(config);
        let mut run = Self { client, record: Record::default(), read_bytes: 0 };
        for input in stream.chunks(piece) {
            run.feed(input);
        }
        run.record.3 = Some(run.client.need());
        run
    }

    fn feed(&mut self, mut input: &[u8]) {
        let most =
            usize::try_from(limits::CHUNK_BODY_BYTES_MAX.max(limits::OPTION_REPLY_BYTES_MAX)).unwrap_or(0);
        loop {
            let payload = self.client.take_payload(&mut input);
            self.record.1.extend_from_slice(payload);
            let event = self.client.next_event(&mut input, &mut self.record.2);
            assert!(self.client.buffered_bytes() <= most + 32);
            match event {
                Ok(None) if self.client.tls_due() => {
                    assert!(input.is_empty());
                    self.client.tls_started(&mut self.record.2);
                    return;
                }
                Ok(None) => return,
                Ok(Some(event)) => self.event(&event),
                Err(error) => {
                    self.record.0.push(error.to_string());
                    return;
                }
            }
        }
    }

    fn event(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::Ready => ask(&mut self.client, &mut self.record.2),
            ClientEvent::ReadData { offset, length, .. } | ClientEvent::ReadHole { offset, length, .. } => {
                self.read_bytes += length;
                assert!(self.read_bytes <= READ_BYTES, "data comes twice");
                assert!(offset + length <= 64, "data lies outside its request");
            }
            ClientEvent::BlockStatus { context, extents, .. } => {
                assert!(self.client.contexts().iter().any(|(id, _)| id == context) && !extents.is_empty());
            }
            ClientEvent::Listed(_) | ClientEvent::Done { .. } => {}
        }
        self.record.0.push(format!("{event:?}"));
    }
}

/// A session that sends one query after another.
fn inquire(choice: u8, stream: &[u8], piece: usize) {
    let tls = if choice & 8 == 0 { ClientTls::Never } else { ClientTls::Preferred };
    let mut inquiry = Inquiry::new(tls);
    let (mut out, mut asked) = (Vec::new(), 0);
    for mut input in stream.chunks(piece) {
        loop {
            let event = inquiry.next_event(&mut input, &mut out);
            let most = usize::try_from(limits::OPTION_REPLY_BYTES_MAX).unwrap_or(0);
            assert!(inquiry.buffered_bytes() <= most + 32);
            if event.is_err() || event == Ok(None) {
                if inquiry.tls_due() {
                    inquiry.tls_started(&mut out);
                }
                break;
            }
            assert!(inquiry.is_idle(), "an answer frees the session");
            asked += 1;
            match asked % 3 {
                0 => inquiry.list(&mut out),
                1 => inquiry.describe("a", &mut out),
                _ => inquiry.list_contexts("a", &["x-test:".to_owned()], &mut out),
            }
        }
    }
}

/// Cookies 1 to 6, as far as the export allows.
fn ask(client: &mut ClientSession, out: &mut Vec<u8>) {
    let filter: Vec<u32> = client.contexts().iter().take(1).map(|(id, _)| *id).collect();
    let sent = [
        client.read(0, 64, 0, out),
        client.flush(out),
        client.block_status(0, 64, 0, out),
        client.read(16, 16, command_flag::DF, out),
        client.block_status_of(&filter, 0, 64, command_flag::REQ_ONE, out),
        client.trim(0, 64, 0, out),
    ];
    assert!(client.in_flight() == sent.iter().filter(|sent| sent.is_ok()).count());
}
