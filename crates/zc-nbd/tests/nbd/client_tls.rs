//! TLS and disconnects of a client, against raw bytes.

use crate::client_rules::{Talk, greet};
use zc_nbd::Need;
use zc_nbd::client::{ClientConfig, ClientError, ClientTls};
use zc_nbd::proto::{option, reply};
use zc_nbd::wire::{Greeting, OptionHeader};

fn wishing(tls: ClientTls) -> ClientConfig {
    ClientConfig { tls, ..ClientConfig::default() }
}

#[test]
fn must_06_a_client_asks_for_tls_before_anything_else() {
    for (tls, list) in [(ClientTls::Preferred, false), (ClientTls::Required, true)] {
        let mut talk = greet(ClientConfig { list, ..wishing(tls) }, 3);
        assert_eq!(talk.asked(), option::STARTTLS);
        assert!(!talk.client.tls_due());
        assert_eq!(talk.reply(option::STARTTLS, reply::ACK, &[]), Ok(None));
        assert!(talk.client.tls_due() && talk.out.is_empty());
        assert_eq!(talk.client.need(), Need::Replies);
        talk.client.tls_started(&mut talk.out);
        assert!(talk.client.is_secured() && !talk.client.tls_due());
        assert_eq!(talk.client.need(), Need::Input);
        assert_eq!(talk.asked(), if list { option::LIST } else { option::EXTENDED_HEADERS });
    }
    let mut talk = greet(wishing(ClientTls::Never), 3);
    assert_eq!(talk.asked(), option::EXTENDED_HEADERS);
}

#[test]
fn must_06_a_client_takes_no_plain_bytes_for_secured_ones() {
    for together in [true, false] {
        let mut talk = greet(wishing(ClientTls::Required), 3);
        let mut bytes = Vec::new();
        zc_nbd::wire::OptionReplyHeader::encode_with(option::STARTTLS, reply::ACK, &[], &mut bytes);
        if together {
            bytes.push(0);
        }
        let got = talk.feed(&bytes);
        if together {
            assert!(matches!(got, Err(ClientError::Rule(_))));
        } else {
            assert_eq!(got, Ok(None));
            assert!(matches!(talk.feed(&[0]), Err(ClientError::Rule(_))));
        }
        assert_eq!((talk.client.need(), talk.client.tls_due()), (Need::Nothing, false));
    }
}

#[test]
fn must_07_a_client_that_requires_tls_does_not_go_on_without() {
    for error in [reply::ERR_UNSUP, reply::ERR_POLICY, reply::ERR_INVALID, reply::ERR_PLATFORM] {
        let mut talk = greet(wishing(ClientTls::Required), 3);
        talk.asked();
        let got = talk.reply(option::STARTTLS, error, b"no").unwrap_err();
        assert_eq!(got.to_string(), "the NBD server refuses to start TLS: no");
        assert_eq!(talk.asked(), option::ABORT);
        let mut talk = greet(wishing(ClientTls::Preferred), 3);
        talk.asked();
        assert_eq!(talk.reply(option::STARTTLS, error, b"no"), Ok(None));
        assert_eq!(talk.asked(), option::EXTENDED_HEADERS);
        assert!(!talk.client.is_secured());
    }
    let mut bytes = Vec::new();
    Greeting { flags: 0 }.encode(&mut bytes);
    let mut talk = Talk::new(wishing(ClientTls::Required));
    assert!(matches!(talk.feed(&bytes), Err(ClientError::Rule(_))), "TLS needs fixed newstyle");
    let mut talk = greet(wishing(ClientTls::Preferred), 0);
    assert_eq!(talk.asked(), option::EXPORT_NAME);
}

#[test]
#[should_panic(expected = "the server did not agree")]
fn a_driver_cannot_start_tls_unasked() {
    let mut talk = greet(wishing(ClientTls::Required), 3);
    talk.client.tls_started(&mut talk.out);
}

#[test]
fn a_refused_client_says_goodbye() {
    let plain = ClientConfig { extended: false, structured: false, ..ClientConfig::default() };
    let listing = ClientConfig { list: true, ..plain.clone() };
    let cases = [
        (plain.clone(), option::GO, reply::ERR_UNKNOWN),
        (plain, option::GO, reply::ERR_TLS_REQD),
        (listing, option::LIST, reply::ERR_POLICY),
        (ClientConfig::default(), option::EXTENDED_HEADERS, reply::ERR_SHUTDOWN),
        (wishing(ClientTls::Preferred), option::STARTTLS, reply::ERR_SHUTDOWN),
    ];
    for (config, number, error) in cases {
        let mut talk = greet(config, 3);
        assert_eq!(talk.asked(), number);
        assert!(matches!(talk.reply(number, error, &[]), Err(ClientError::Refused { .. })));
        assert_eq!(OptionHeader::decode(&talk.out), Ok(OptionHeader { option: option::ABORT, length: 0 }));
        assert_eq!((talk.out.len(), talk.client.need()), (OptionHeader::BYTES, Need::Nothing));
    }
}
