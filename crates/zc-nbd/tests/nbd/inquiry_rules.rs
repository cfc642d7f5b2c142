//! Questions to a server about its exports: against the server of the tests and against raw bytes.

use crate::disk::{FIRST_FLAGS, SIZE, Server};
use zc_nbd::Need;
use zc_nbd::client::{ClientError, ClientTls, Inquiry, InquiryEvent};
use zc_nbd::proto::{limits, option, reply, tx_flag};
use zc_nbd::server::{Access, ServerConfig, TlsMode};
use zc_nbd::wire::{Greeting, InfoReply, MetaContextReply, OptionHeader, OptionReplyHeader};

/// An inquiry and a server, joined by streams that are cut into pieces.
struct Pair {
    server: Server,
    inquiry: Inquiry,
    up: Vec<u8>,
    piece: usize,
}

impl Pair {
    fn new(config: ServerConfig, tls: ClientTls, piece: usize) -> Self {
        Self { server: Server::new(config), inquiry: Inquiry::new(tls), up: Vec::new(), piece }
    }

    /// The next event.
    fn wait(&mut self) -> InquiryEvent {
        for _ in 0..20 {
            let up = std::mem::take(&mut self.up);
            self.server.feed(&up);
            let down = self.server.sent();
            let mut event = None;
            for mut piece in down.chunks(self.piece) {
                let got = self.inquiry.next_event(&mut piece, &mut self.up).unwrap();
                assert!(piece.is_empty() && (got.is_none() || event.is_none()));
                event = event.or(got);
            }
            if self.inquiry.tls_due() && self.server.session.tls_due() {
                self.server.session.tls_started();
                self.inquiry.tls_started(&mut self.up);
            }
            if let Some(event) = event {
                return event;
            }
        }
        panic!("no event comes; the inquiry needs {:?}", self.inquiry.need());
    }
}

#[test]
fn questions_are_answered_in_every_mode() {
    for (structured, extended) in [(true, true), (true, false), (false, false)] {
        for (mode, piece) in [(TlsMode::Off, 7), (TlsMode::Allowed, 1), (TlsMode::Required, 1000)] {
            let config = ServerConfig { tls: mode, structured, extended, ..ServerConfig::default() };
            let mut pair = Pair::new(config, ClientTls::Preferred, piece);
            pair.server.access = vec![("frozen", Access::OverTls)];
            answers(&mut pair, structured, mode != TlsMode::Off);
        }
    }
}

fn answers(pair: &mut Pair, structured: bool, secured: bool) {
    assert_eq!(pair.wait(), InquiryEvent::Idle);
    assert_eq!((pair.inquiry.is_secured(), pair.inquiry.need()), (secured, Need::Replies));
    pair.inquiry.list(&mut pair.up);
    let InquiryEvent::Exports(exports) = pair.wait() else { panic!() };
    assert_eq!(exports.len(), if secured { 5 } else { 4 });
    pair.inquiry.describe("", &mut pair.up);
    let InquiryEvent::Export(export) = pair.wait() else { panic!() };
    let df = if structured { 0 } else { tx_flag::SEND_DF };
    assert_eq!((export.size_bytes, export.flags), (SIZE, FIRST_FLAGS & !df));
    assert_eq!((export.name.as_deref(), export.max_bytes), (Some("first"), 32 << 20));
    pair.inquiry.list_contexts("first", &[], &mut pair.up);
    let all = pair.wait();
    pair.inquiry.list_contexts("first", &["x-test:".to_owned()], &mut pair.up);
    let some = pair.wait();
    if structured {
        let names =
            |names: &[&str]| InquiryEvent::Contexts(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!((all, some), (names(&["base:allocation", "x-test:mark"]), names(&["x-test:mark"])));
    } else {
        assert!(matches!(all, InquiryEvent::Refused { reply: reply::ERR_INVALID, .. }), "{all:?}");
    }
    pair.inquiry.leave(&mut pair.up);
    assert_eq!((pair.inquiry.need(), pair.inquiry.is_idle()), (Need::Nothing, false));
    pair.server.feed(&std::mem::take(&mut pair.up));
    assert_eq!(pair.server.closed, Some(zc_nbd::server::CloseReason::Aborted));
    assert!(pair.server.log.is_empty(), "nothing is attached");
}

#[test]
fn a_refused_question_leaves_the_session_usable() {
    let mut pair = Pair::new(ServerConfig::default(), ClientTls::Never, 100);
    pair.server.access = vec![("frozen", Access::Denied)];
    pair.wait();
    for (export, error) in [("nosuch", reply::ERR_UNKNOWN), ("frozen", reply::ERR_POLICY)] {
        pair.inquiry.describe(export, &mut pair.up);
        let InquiryEvent::Refused { reply, message } = pair.wait() else { panic!() };
        assert_eq!((reply, message.is_empty()), (error, false));
        pair.inquiry.list_contexts(export, &[], &mut pair.up);
        assert!(matches!(pair.wait(), InquiryEvent::Refused { reply, .. } if reply == error));
    }
    pair.inquiry.describe("plain", &mut pair.up);
    assert!(matches!(pair.wait(), InquiryEvent::Export(_)));
}

/// An inquiry that has sent option `number`, with its output cleared.
fn asking(number: u32) -> Inquiry {
    let mut inquiry = Inquiry::new(ClientTls::Never);
    let (mut bytes, mut out) = (Vec::new(), Vec::new());
    Greeting { flags: 3 }.encode(&mut bytes);
    OptionReplyHeader::encode_with(option::EXTENDED_HEADERS, reply::ERR_UNSUP, &[], &mut bytes);
    OptionReplyHeader::encode_with(option::STRUCTURED_REPLY, reply::ACK, &[], &mut bytes);
    assert_eq!(inquiry.next_event(&mut bytes.as_slice(), &mut out), Ok(Some(InquiryEvent::Idle)));
    match number {
        option::LIST => inquiry.list(&mut out),
        option::INFO => inquiry.describe("a", &mut out),
        _ => inquiry.list_contexts("a", &[], &mut out),
    }
    inquiry
}

fn give(
    inquiry: &mut Inquiry,
    number: u32,
    kind: u32,
    body: &[u8],
) -> Result<Option<InquiryEvent>, ClientError> {
    let mut bytes = Vec::new();
    OptionReplyHeader::encode_with(number, kind, body, &mut bytes);
    inquiry.next_event(&mut bytes.as_slice(), &mut Vec::new())
}

#[test]
fn an_inquiry_believes_only_fitting_replies() {
    let cases: [(u32, u32, u32, &[u8]); 7] = [
        (option::LIST, option::INFO, reply::ACK, &[]),
        (option::LIST, option::LIST, reply::INFO, &[0, 0]),
        (option::LIST, option::LIST, reply::SERVER, &[0, 0, 0, 9]),
        (option::INFO, option::INFO, reply::ACK, &[]),
        (option::INFO, option::INFO, reply::SERVER, &[0; 4]),
        (option::INFO, option::INFO, 99, &[]),
        (option::LIST_META_CONTEXT, option::LIST_META_CONTEXT, reply::META_CONTEXT, &[0; 3]),
    ];
    for (asked, number, kind, body) in cases {
        let mut inquiry = asking(asked);
        give(&mut inquiry, number, kind, body).unwrap_err();
        assert_eq!(inquiry.need(), Need::Nothing, "{asked} {number} {kind}");
    }
    let mut inquiry = asking(option::LIST);
    assert_eq!(
        give(&mut inquiry, option::LIST, reply::ACK, &[]),
        Ok(Some(InquiryEvent::Exports(Vec::new())))
    );
    assert!(give(&mut inquiry, option::LIST, reply::ACK, &[]).is_err(), "nothing was asked");
    let mut bytes = Vec::new();
    Greeting { flags: 2 }.encode(&mut bytes);
    Inquiry::new(ClientTls::Never).next_event(&mut bytes.as_slice(), &mut Vec::new()).unwrap_err();
}

#[test]
fn an_inquiry_reads_a_bounded_answer() {
    let mut body = Vec::new();
    MetaContextReply { id: 0, name: "x".repeat(4096) }.encode(&mut body);
    let mut inquiry = asking(option::LIST_META_CONTEXT);
    let length = u64::try_from(body.len()).unwrap();
    for _ in 0..limits::OPTION_REPLIES_BYTES_MAX / length {
        let got = give(&mut inquiry, option::LIST_META_CONTEXT, reply::META_CONTEXT, &body);
        assert_eq!(got, Ok(None));
    }
    give(&mut inquiry, option::LIST_META_CONTEXT, reply::META_CONTEXT, &body).unwrap_err();
}

#[test]
fn an_inquiry_tolerates_unknown_information() {
    let mut inquiry = asking(option::INFO);
    for info in [InfoReply::Other(77), InfoReply::Export { size_bytes: 5, flags: 0xffff }] {
        let mut body = Vec::new();
        info.encode(&mut body);
        assert_eq!(give(&mut inquiry, option::INFO, reply::INFO, &body), Ok(None));
    }
    let Ok(Some(InquiryEvent::Export(export))) = give(&mut inquiry, option::INFO, reply::ACK, &[]) else {
        panic!()
    };
    assert_eq!((export.size_bytes, export.name), (5, None));
}

#[test]
fn an_inquiry_that_is_over_says_goodbye() {
    let cases = [(ClientTls::Required, reply::ERR_UNSUP), (ClientTls::Preferred, reply::ERR_SHUTDOWN)];
    for (tls, error) in cases {
        let mut inquiry = Inquiry::new(tls);
        let (mut bytes, mut out) = (Vec::new(), Vec::new());
        Greeting { flags: 3 }.encode(&mut bytes);
        assert_eq!(inquiry.next_event(&mut bytes.as_slice(), &mut out), Ok(None));
        assert_eq!(OptionHeader::decode(&out[4..]).unwrap().option, option::STARTTLS);
        (bytes, out) = (Vec::new(), Vec::new());
        OptionReplyHeader::encode_with(option::STARTTLS, error, b"no", &mut bytes);
        let got = inquiry.next_event(&mut bytes.as_slice(), &mut out).unwrap_err();
        assert_eq!(got.to_string(), "the NBD server refuses to start TLS: no");
        assert_eq!(OptionHeader::decode(&out), Ok(OptionHeader { option: option::ABORT, length: 0 }));
        assert_eq!(inquiry.need(), Need::Nothing);
    }
    let mut inquiry = Inquiry::new(ClientTls::Required);
    let mut bytes = Vec::new();
    Greeting { flags: 3 }.encode(&mut bytes);
    OptionReplyHeader::encode_with(option::STARTTLS, reply::ACK, &[], &mut bytes);
    bytes.push(1);
    assert!(
        inquiry.next_event(&mut bytes.as_slice(), &mut Vec::new()).is_err(),
        "plain bytes behind STARTTLS"
    );
}
