//! Fair shares: service of volumes while one of them floods the daemon. Judged by counts of requests in the same
//! window.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{MIB, World};

const VOLUMES: usize = 8;
/// Connections of the volume that floods; the others have one each.
const FLOOD: usize = 16;
/// Requests in flight per connection: more than the daemon starts between two visits of a client.
const DEPTH: u64 = 64;
/// Requests of all volumes in the window.
const WINDOW: u64 = 20_000;

/// Submits a request that is expensive for the daemon and cheap for the client: a lookup of every extent of a MiB.
fn ask(client: &mut NbdClient) {
    client.submit(NbdRequest::Prefetch { offset: 0, len_bytes: MIB }).expect("a request is sent");
}

/// Requests that were answered, by volume.
#[derive(Debug, Default)]
struct Answered {
    all: AtomicU64,
    by_volume: [AtomicU64; VOLUMES],
}

impl Answered {
    /// Counts an answer; returns `true` while the window is open.
    fn count(&self, volume: usize) -> bool {
        let is_open = self.all.fetch_add(1, Ordering::Relaxed) < WINDOW;
        self.by_volume[volume].fetch_add(u64::from(is_open), Ordering::Relaxed);
        is_open
    }
}

#[test]
fn the_worst_of_eight_volumes_gets_at_least_half_of_its_share_while_one_floods() {
    let mut world = World::new(32, 1);
    world.volumes = (0..VOLUMES).map(|volume| (format!("v{volume}"), MIB, String::new())).collect();
    let daemon = world.start();
    let connections: Vec<usize> = (0..VOLUMES).chain([0; FLOOD - 1]).collect();
    let (answered, start) = (Arc::new(Answered::default()), Arc::new(Barrier::new(connections.len())));
    let client = |volume: &usize| {
        let (volume, mut client) = (*volume, world.connect(&format!("v{volume}")));
        let (answered, start) = (Arc::clone(&answered), Arc::clone(&start));
        std::thread::spawn(move || {
            start.wait();
            (0..DEPTH).for_each(|_| ask(&mut client));
            loop {
                client.wait().expect("an answer").result.expect("a request");
                if !answered.count(volume) {
                    return;
                }
                ask(&mut client);
            }
        })
    };
    let clients: Vec<_> = connections.iter().map(client).collect();
    clients.into_iter().for_each(|client| client.join().expect("a client"));
    let counts: Vec<u64> = answered.by_volume.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let (worst, share) = (counts.iter().min().expect("there are volumes"), WINDOW / 8);
    assert!(*worst >= share / 2, "the worst got {worst} of {share}: {counts:?}");
    assert_eq!(daemon.terminate().code(), Some(0));
}
