//! A network link between two Unix sockets: a delay and a rate.
//!
//! Job: accept connections, connect each to the server, and pass its bytes on. A piece leaves when the link has sent
//! those before it at its rate, and arrives half the added round trip later. Each direction is a link of its own, shared
//! by all connections.
//!
//! Invariants: bytes in transit are bounded per connection and direction. More of them block the sender, as a full
//! socket buffer does.
//!
//! It does not drop or reorder anything.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use zc_core::u64_from_usize;

use crate::clock::{now_ns, pause};

/// Bytes that are received at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces in transit on a connection in a direction.
const PIECES_MAX: usize = 256;

/// Delay and rate of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed {
    /// Added round trip.
    pub(super) round_trip_ms: u64,
    pub(super) bytes_per_second: u64,
}

impl Speed {
    /// Returns the bandwidth-delay product in bytes.
    pub(super) const fn product_bytes(self) -> u64 {
        self.bytes_per_second * self.round_trip_ms / 1000
    }
}

/// One direction, shared by all connections.
#[derive(Debug, Default)]
struct Direction {
    /// Time at which it has sent everything so far.
    free_ns: Mutex<u64>,
    /// Bytes that it has sent.
    bytes: AtomicU64,
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) speed: Speed,
    up: Arc<Direction>,
    down: Arc<Direction>,
}

impl Link {
    /// Bytes that have crossed it, to the server and from it.
    pub(super) fn crossed_bytes(&self) -> (u64, u64) {
        (self.up.bytes.load(Ordering::Relaxed), self.down.bytes.load(Ordering::Relaxed))
    }
}

/// Starts a link that is reached at `socket` and leads to the server at `server`. Its threads end with the process.
pub(super) fn start(socket: &Path, server: &Path, speed: Speed) -> anyhow::Result<Link> {
    let listener = UnixListener::bind(socket).with_context(|| format!("no link at {}", socket.display()))?;
    let server: PathBuf = server.to_owned();
    let link = Link { speed, up: Arc::default(), down: Arc::default() };
    let (up, down) = (Arc::clone(&link.up), Arc::clone(&link.down));
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            // The client sees the end of its connection.
            let _refused = join(&client, &server, (&up, &down), speed);
        }
    });
    Ok(link)
}

fn join(
    client: &UnixStream,
    server: &Path,
    (up, down): (&Arc<Direction>, &Arc<Direction>),
    speed: Speed,
) -> std::io::Result<()> {
    let server = UnixStream::connect(server)?;
    pass(client.try_clone()?, server.try_clone()?, Arc::clone(up), speed);
    pass(server, client.try_clone()?, Arc::clone(down), speed);
    Ok(())
}

/// Passes on what comes `from` one end until it ends.
fn pass(mut from: UnixStream, mut to: UnixStream, direction: Arc<Direction>, speed: Speed) {
    let (sender, pieces): (SyncSender<(u64, Vec<u8>)>, Receiver<_>) = sync_channel(PIECES_MAX);
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            let arrives_ns = departure_ns(&direction, bytes, speed) + speed.round_trip_ms * 500_000;
            if sender.send((arrives_ns, buffer[..bytes].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for (arrives_ns, piece) in pieces {
            let left_ns = arrives_ns.saturating_sub(now_ns());
            if left_ns > 0 {
                pause(Duration::from_nanos(left_ns));
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _gone_already = to.shutdown(Shutdown::Write);
    });
}

/// Returns the time at which the link has sent these bytes.
fn departure_ns(direction: &Direction, bytes: usize, speed: Speed) -> u64 {
    direction.bytes.fetch_add(u64_from_usize(bytes), Ordering::Relaxed);
    let mut free_ns = direction.free_ns.lock().unwrap_or_else(PoisonError::into_inner);
    let takes_ns = u64_from_usize(bytes) * 1_000_000_000 / speed.bytes_per_second;
    *free_ns = (*free_ns).max(now_ns()) + takes_ns;
    *free_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_no_sooner_than_the_link_allows() {
        let dir = tempfile::tempdir().unwrap();
        let (near, far) = (dir.path().join("near"), dir.path().join("far"));
        let server = UnixListener::bind(&far).unwrap();
        let speed = Speed { round_trip_ms: 20, bytes_per_second: 10_000_000 };
        assert_eq!(speed.product_bytes(), 200_000);
        let link = start(&near, &far, speed).unwrap();
        let mut client = UnixStream::connect(&near).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        let sent: Vec<u8> = (0..400_000_u32).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
        let begun_ns = now_ns();
        let expected = sent.clone();
        let sender = std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).unwrap();
        // 400,000 bytes take 40 ms, and half a round trip 10 ms. More is always possible.
        assert!(now_ns() - begun_ns >= 50_000_000);
        assert_eq!(received, expected);
        assert_eq!(link.crossed_bytes(), (400_000, 0));
        sender.join().unwrap();
    }
}
