//! The client of a connection.
//!
//! Job: the client's IP address, or the user behind a Unix socket, according to the kernel; and the [`Source`] under
//! which it is counted.
//!
//! It does not authenticate. The owner of the network can forge an address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{getpeername, sockopt::socket_peercred};

/// A client, for bounds per client and for rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// TCP, with this address; mapped IPv4 addresses are converted.
    Ip(IpAddr),
    /// By a Unix socket, from a process of this user.
    User(u32),
    /// Not reported by the kernel: disconnected already, or another kind of socket.
    Unknown,
}

impl Peer {
    pub(crate) fn of(socket: &OwnedFd, is_tcp: bool) -> Self {
        if !is_tcp {
            return socket_peercred(socket).map_or(Self::Unknown, |who| Self::User(who.uid.as_raw()));
        }
        let address =
            getpeername(socket).ok().flatten().and_then(|address| SocketAddr::try_from(address).ok());
        address.map_or(Self::Unknown, |address| Self::Ip(address.ip().to_canonical()))
    }
}

/// Unit of the bounds per client: a peer, with IPv6 addresses truncated to the prefix that one site owns completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source(Peer);

impl Source {
    /// Returns the source that the client belongs to.
    pub fn of(peer: Peer, ipv6_prefix_bits: u8) -> Self {
        let Peer::Ip(IpAddr::V6(address)) = peer else { return Self(peer) };
        let dropped = 128_u32.saturating_sub(ipv6_prefix_bits.into());
        let mask = u128::MAX.checked_shl(dropped).unwrap_or(0);
        Self(Peer::Ip(Ipv6Addr::from_bits(address.to_bits() & mask).into()))
    }

    /// Returns `true` if it is an address, which its owner can choose, instead of a user authenticated by the kernel.
    pub(crate) const fn is_address(self) -> bool {
        !matches!(self.0, Peer::User(_))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_one_source_whichever_of_its_addresses_it_takes() {
        let of = |text: &str, bits| Source::of(Peer::Ip(text.parse().unwrap()), bits);
        assert_eq!(of("2001:db8:1:2::1", 64), of("2001:db8:1:2:ffff::9", 64));
        assert_ne!(of("2001:db8:1:2::1", 64), of("2001:db8:1:3::1", 64));
        assert_eq!(of("2001:db8:1:2::1", 48), of("2001:db8:1:3::1", 48));
        assert_ne!(of("2001:db8::1", 128), of("2001:db8::2", 128));
        assert_ne!(of("192.0.2.1", 64), of("192.0.2.2", 64), "an address of IPv4 is one");
        assert_ne!(Source::of(Peer::User(1), 64), Source::of(Peer::User(2), 64));
    }

    #[test]
    fn the_kernel_tells_who_connects() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(Peer::of(&OwnedFd::from(server), true).to_string(), "127.0.0.1");
        drop(client);
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(Peer::of(&OwnedFd::from(one), false), Peer::User(uid));
    }
}
