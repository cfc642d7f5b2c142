//! STARTTLS and rights per export, against raw bytes: proto.md, "TLS support".

use crate::disk::Server;
use crate::raw::{BOTH_FLAGS, ask, go_data, greeted_with, kinds, meta_data, option_replies};
use zc_nbd::Need;
use zc_nbd::proto::{handshake_flag, option, reply};
use zc_nbd::server::{Access, CloseReason, ServerConfig, ServerLimits, TlsMode};
use zc_nbd::wire::{HeaderStyle, OptionHeader, ServerEntry};

const MODES: [TlsMode; 3] = [TlsMode::Off, TlsMode::Allowed, TlsMode::Required];

fn with_mode(tls: TlsMode) -> Server {
    greeted_with(ServerConfig { tls, extended: true, ..ServerConfig::default() }, BOTH_FLAGS)
}

/// Requests TLS and acts as the driver.
fn secure(server: &mut Server) {
    assert_eq!(kinds(&ask(server, option::STARTTLS, &[])), [reply::ACK]);
    assert!(server.session.tls_due());
    assert_eq!(server.session.need(), Need::Replies, "the session takes nothing before TLS is up");
    server.session.tls_started();
    assert!(server.session.is_secured() && !server.session.tls_due());
    assert_eq!(server.session.need(), Need::Input);
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    OptionHeader::encode_with(number, data, &mut message);
    message
}

/// Every option that names the export, with good data.
fn naming(export: &str) -> [(u32, Vec<u8>); 4] {
    [
        (option::INFO, go_data(export, &[])),
        (option::GO, go_data(export, &[])),
        (option::LIST_META_CONTEXT, meta_data(export, &[])),
        (option::SET_META_CONTEXT, meta_data(export, &["base:allocation"])),
    ]
}

#[test]
fn must_06_starttls_forgets_what_was_negotiated() {
    for number in [option::STRUCTURED_REPLY, option::EXTENDED_HEADERS] {
        let mut server = with_mode(TlsMode::Allowed);
        assert_eq!(kinds(&ask(&mut server, number, &[])), [reply::ACK]);
        let contexts = ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &["base:allocation"]));
        assert_eq!(kinds(&contexts), [reply::META_CONTEXT, reply::ACK]);
        secure(&mut server);
        assert_eq!(server.session.style(), HeaderStyle::Simple);
        let refused = ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &[]));
        assert_eq!(kinds(&refused), [reply::ERR_INVALID]);
        ask(&mut server, option::GO, &go_data("first", &[]));
        assert!(server.session.contexts().is_empty());
        assert_eq!(server.log, ["attached 1"]);
    }
}

#[test]
fn must_06_contexts_of_before_tls_do_not_come_back_with_structured_replies() {
    let mut server = with_mode(TlsMode::Allowed);
    ask(&mut server, option::STRUCTURED_REPLY, &[]);
    ask(&mut server, option::SET_META_CONTEXT, &meta_data("first", &["base:allocation"]));
    secure(&mut server);
    ask(&mut server, option::STRUCTURED_REPLY, &[]);
    ask(&mut server, option::GO, &go_data("first", &[]));
    assert!(server.session.contexts().is_empty());
}

#[test]
fn must_06_a_second_starttls_is_invalid() {
    for mode in [TlsMode::Allowed, TlsMode::Required] {
        let mut server = with_mode(mode);
        secure(&mut server);
        assert_eq!(kinds(&ask(&mut server, option::STARTTLS, &[])), [reply::ERR_INVALID]);
        assert!(!server.session.tls_due());
        assert_eq!(kinds(&ask(&mut server, option::GO, &go_data("", &[]))), [reply::INFO, reply::ACK]);
    }
}

#[test]
fn must_06_plain_bytes_behind_starttls_close_the_connection() {
    for mode in [TlsMode::Allowed, TlsMode::Required] {
        let injected = [option_bytes(option::STARTTLS, &[]), option_bytes(option::LIST, &[])].concat();
        let mut server = with_mode(mode);
        server.feed(&injected);
        assert!(matches!(server.closed, Some(CloseReason::Rule(_))), "in one piece");
        assert!(server.sent().is_empty(), "no ACK: the client would start TLS");
        let mut server = with_mode(mode);
        ask(&mut server, option::STARTTLS, &[]);
        server.feed(&[22]);
        assert!(matches!(server.closed, Some(CloseReason::Rule(_))), "fed in plain after the ACK");
        assert_eq!((server.session.need(), server.session.tls_due()), (Need::Nothing, false));
    }
}

#[test]
fn must_06_a_refused_starttls_leaves_the_next_option_alone() {
    let mut server = with_mode(TlsMode::Off);
    let both = [option_bytes(option::STARTTLS, &[]), option_bytes(option::STARTTLS, &[])].concat();
    server.feed(&both);
    let replies = option_replies(&server.sent(), option::STARTTLS);
    assert_eq!(kinds(&replies), [reply::ERR_UNSUP, reply::ERR_UNSUP]);
    assert_eq!(server.closed, None);
}

#[test]
fn must_06_starttls_takes_no_data() {
    for mode in MODES {
        for length in [1, 70_000] {
            let mut server = with_mode(mode);
            let replies = ask(&mut server, option::STARTTLS, &vec![0; length]);
            assert_eq!(kinds(&replies), [reply::ERR_INVALID], "{mode:?} {length}");
            assert!(!server.session.tls_due());
        }
    }
}

#[test]
#[should_panic(expected = "the client did not ask")]
fn a_driver_cannot_start_tls_unasked() {
    with_mode(TlsMode::Allowed).session.tls_started();
}

#[test]
fn must_07_without_tls_nothing_is_answered_with_tls_required() {
    let mut server = with_mode(TlsMode::Off);
    server.access = vec![("frozen", Access::OverTls)];
    ask(&mut server, option::STRUCTURED_REPLY, &[]);
    assert_eq!(kinds(&ask(&mut server, option::STARTTLS, &[])), [reply::ERR_UNSUP]);
    for (number, data) in naming("frozen") {
        assert_eq!(kinds(&ask(&mut server, number, &data)), [reply::ERR_POLICY], "option {number}");
    }
}

#[test]
fn must_07_required_tls_refuses_every_option_but_two() {
    let mut server = with_mode(TlsMode::Required);
    let mut options = naming("first").to_vec();
    options.extend(naming("nosuch"));
    let bare = [option::LIST, option::STRUCTURED_REPLY, option::EXTENDED_HEADERS, 4, 0, 4711, u32::MAX];
    options.extend(bare.map(|number| (number, Vec::new())));
    options.push((option::GO, b"malformed".to_vec()));
    options.push((option::LIST, vec![0; 70_000]));
    for (number, data) in options {
        assert_eq!(kinds(&ask(&mut server, number, &data)), [reply::ERR_TLS_REQD], "option {number}");
    }
    server.session.begin_shutdown();
    assert_eq!(kinds(&ask(&mut server, option::LIST, &[])), [reply::ERR_TLS_REQD]);
    assert_eq!(kinds(&ask(&mut server, option::ABORT, b"data")), [reply::ACK]);
    assert_eq!(server.closed, Some(CloseReason::Aborted));
}

#[test]
fn must_07_required_tls_serves_everything_once_started() {
    let mut server = with_mode(TlsMode::Required);
    secure(&mut server);
    assert_eq!(kinds(&ask(&mut server, 4711, &[])), [reply::ERR_UNSUP]);
    assert_eq!(ask(&mut server, option::LIST, &[]).len(), 6);
    assert_eq!(kinds(&ask(&mut server, option::GO, &go_data("", &[]))), [reply::INFO, reply::ACK]);
}

#[test]
fn must_07_required_tls_closes_on_an_export_name() {
    let mut server = with_mode(TlsMode::Required);
    server.feed(&option_bytes(option::EXPORT_NAME, b"first"));
    assert!(matches!(server.closed, Some(CloseReason::Rule(_))));
    assert!(server.sent().is_empty());
    let mut server = with_mode(TlsMode::Required);
    secure(&mut server);
    server.feed(&option_bytes(option::EXPORT_NAME, b"first"));
    assert_eq!(server.log, ["attached 1"]);
}

#[test]
fn must_07_tls_needs_fixed_newstyle() {
    for flags in [0, u32::from(handshake_flag::NO_ZEROES)] {
        let mut server =
            greeted_with(ServerConfig { tls: TlsMode::Allowed, ..ServerConfig::default() }, flags);
        assert_eq!(kinds(&ask(&mut server, option::STARTTLS, &[])), [reply::ERR_UNSUP]);
        let server = greeted_with(ServerConfig { tls: TlsMode::Required, ..ServerConfig::default() }, flags);
        assert!(matches!(server.closed, Some(CloseReason::Rule(_))));
    }
}

#[test]
fn must_07_allowed_tls_requires_it_of_single_exports_only() {
    let mut server = with_mode(TlsMode::Allowed);
    server.access = vec![("frozen", Access::OverTls)];
    ask(&mut server, option::STRUCTURED_REPLY, &[]);
    for (number, data) in naming("frozen") {
        let only_info_and_go = matches!(number, option::INFO | option::GO);
        let wanted = if only_info_and_go { reply::ERR_TLS_REQD } else { reply::ERR_POLICY };
        assert_eq!(kinds(&ask(&mut server, number, &data)), [wanted], "option {number}");
    }
    assert_eq!(listed(&mut server), ["first", "plain", "aligned", "huge"]);
    assert_eq!(kinds(&ask(&mut server, option::INFO, &go_data("first", &[]))), [reply::INFO, reply::ACK]);
    secure(&mut server);
    assert_eq!(listed(&mut server), ["first", "frozen", "plain", "aligned", "huge"]);
    ask(&mut server, option::STRUCTURED_REPLY, &[]);
    for (number, data) in naming("frozen") {
        assert_eq!(ask(&mut server, number, &data).last().unwrap().0, reply::ACK, "option {number}");
        if number == option::GO {
            break;
        }
    }
    let refused = "refused \"frozen\": TLS must be started first";
    assert_eq!(server.log, [refused, refused, "attached 2"], "the driver hears of INFO and GO");
    let mut server = with_mode(TlsMode::Allowed);
    server.access = vec![("frozen", Access::OverTls)];
    server.feed(&option_bytes(option::EXPORT_NAME, b"frozen"));
    assert!(matches!(server.closed, Some(CloseReason::Rule(_))));
    assert!(server.sent().is_empty());
}

#[test]
fn exports_are_refused_or_hidden_per_client() {
    for mode in MODES {
        let mut server = with_mode(mode);
        if mode == TlsMode::Required {
            secure(&mut server);
        }
        server.access = vec![("frozen", Access::Denied), ("plain", Access::Hidden)];
        ask(&mut server, option::STRUCTURED_REPLY, &[]);
        assert_eq!(listed(&mut server), ["first", "aligned", "huge"]);
        for (export, wanted) in [("frozen", reply::ERR_POLICY), ("plain", reply::ERR_UNKNOWN)] {
            for (number, data) in naming(export) {
                assert_eq!(kinds(&ask(&mut server, number, &data)), [wanted], "{mode:?} {export} {number}");
            }
        }
        server.feed(&option_bytes(option::EXPORT_NAME, b"plain"));
        assert_eq!(server.closed, Some(CloseReason::UnknownExport("plain".to_owned())));
        let seen: Vec<&str> = server.log.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
        let wanted = ["refused \"frozen\"", "refused \"frozen\"", "refused \"plain\"", "refused \"plain\""];
        assert_eq!(seen, wanted, "the driver hears of INFO and GO");
    }
}

fn listed(server: &mut Server) -> Vec<String> {
    let replies = ask(server, option::LIST, &[]);
    let (last, entries) = replies.split_last().unwrap();
    assert_eq!(last.0, reply::ACK);
    entries.iter().map(|(_, body)| ServerEntry::decode(body).unwrap().name).collect()
}

#[test]
fn options_of_before_tls_count() {
    let limits = ServerLimits { options: 3, ..ServerLimits::default() };
    let config = ServerConfig { limits, tls: TlsMode::Allowed, ..ServerConfig::default() };
    let mut server = greeted_with(config, BOTH_FLAGS);
    ask(&mut server, option::LIST, &[]);
    secure(&mut server);
    ask(&mut server, option::LIST, &[]);
    assert_eq!(server.closed, None);
    ask(&mut server, option::LIST, &[]);
    assert!(matches!(server.closed, Some(CloseReason::Limit(_))));
}
