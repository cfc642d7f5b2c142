//! Who is at the other end of a connection.
//!
//! Job: the client's IP address, or the user behind a Unix socket, as the kernel tells it.
//!
//! What it does not do: authenticate. An address can be forged by whoever owns the network.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{getpeername, sockopt::socket_peercred};

/// A client, for bounds per client and for rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// By TCP, from this address; addresses of IPv4 are told as such.
    Ip(IpAddr),
    /// By a Unix socket, from a process of this user.
    User(u32),
    /// The kernel does not tell: gone already, or another kind of socket.
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
