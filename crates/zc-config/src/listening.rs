//! Conflicts between listening addresses.
//!
//! Job: report each address that another key or entry uses already, wildcards included. Invariant: the accepted
//! addresses can be bound by one process, unless another process holds them.
//!
//! It does not bind sockets.

use std::net::{IpAddr, SocketAddr};

use crate::section::{Listening, ParseState};

/// Reports addresses that overlap with an earlier one.
pub(crate) fn check(sheet: &mut ParseState) {
    let mut mistakes = Vec::new();
    for (number, Listening { at, key, address }) in sheet.listening.iter().enumerate() {
        let earlier = &sheet.listening[..number];
        if let Some(other) = earlier.iter().find(|other| overlap(other.address, *address)) {
            let both = if has_both(other.address) || has_both(*address) { BOTH } else { "" };
            let what = if *address == other.address && *key == other.key {
                format!("{address} is listed twice")
            } else {
                format!(
                    "{address} is in use already by {}, {}{both}; remove one of them",
                    other.key, other.address
                )
            };
            mistakes.push((*at, format!("{key}: {what}")));
        }
    }
    for (at, text) in mistakes {
        sheet.mistake(at, text);
    }
}

/// Explanation for messages about the IPv6 wildcard.
const BOTH: &str = " ([::] includes all IPv4 addresses)";

fn has_both(address: SocketAddr) -> bool {
    address.ip() == IpAddr::from([0_u8; 16])
}

/// Returns `true` if the kernel refuses to listen on both. The daemon opens IPv6 wildcards for IPv4, too.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let same_family = a.is_ipv4() == b.is_ipv4();
    // Port 0 means any free port, a different one each time.
    one.port() != 0
        && one.port() == other.port()
        && (a == b
            || (same_family && (a.is_unspecified() || b.is_unspecified()))
            || has_both(one)
            || has_both(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_take_what_they_stand_for() {
        let cases = [
            ("[::]:1", "0.0.0.0:1", true),
            ("127.0.0.1:1", "[::]:1", true),
            ("[::1]:1", "[::]:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
            ("[::ffff:0.0.0.0]:1", "127.0.0.1:1", true),
            ("[::1]:1", "127.0.0.1:1", false),
            ("[::1]:1", "0.0.0.0:1", false),
            ("127.0.0.2:1", "127.0.0.1:1", false),
            ("[::]:1", "[::]:2", false),
            ("[::]:0", "[::]:0", false),
        ];
        for (one, other, expected) in cases {
            let (a, b) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!((overlap(a, b), overlap(b, a)), (expected, expected), "{one} and {other}");
        }
    }
}
