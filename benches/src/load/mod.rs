//! The load generator: one thread, a few connections, with a given number of requests in flight on each.
//!
//! Job: drive any NBD server in the same way ([`run`]), or replay many machines at once ([`Replay`]), and report the
//! number of answered requests and their latencies. All requests that a turn's replies allow are sent in one call; all
//! replies that have arrived are received in one call. One connection blocks in the receive, several in `poll`.
//!
//! Invariants: a request's latency is measured from before its bytes are passed to the socket until its last reply
//! byte was received. An error reply ends the run: the speed of errors is of no interest.
//!
//! It does not verify read data (the tests do), or open more than a handful of connections.

mod link;
mod payload;
mod replay;

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::u64_from_usize;

use crate::clock::now_ns;
use link::Link;
pub(crate) use payload::{Content, Payloads};
pub(crate) use replay::{Pace, Replay, Replayed, Step};

/// Address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address<'a> {
    /// On a Unix socket.
    Unix(&'a Path),
    /// On TCP.
    Tcp(SocketAddr),
    /// On TCP with TLS; the server has the certificate in this file. One connection only.
    Tls(SocketAddr, &'a Path),
}

impl<'a> From<&'a Path> for Address<'a> {
    fn from(path: &'a Path) -> Self {
        Self::Unix(path)
    }
}

/// Operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// READ.
    Read,
    /// WRITE with these contents.
    Write(Content),
}

/// Order of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Anywhere, aligned to the request's length.
    Random,
    /// One after the other; each connection has its own part of the export.
    Sequential,
}

/// Durability of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Nothing.
    None,
    /// Each is sent with FUA.
    Fua,
    /// Each is followed by a FLUSH; both together count as one request. For one request in flight.
    Flush,
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) op: Op,
    pub(crate) order: Order,
    pub(crate) block_bytes: u32,
    /// Requests in flight on each connection.
    pub(crate) depth: u32,
    pub(crate) connections: u32,
    pub(crate) time_ns: u64,
    pub(crate) durability: Durability,
    /// In sequential order, end after going over the export once.
    pub(crate) once: bool,
    pub(crate) seed: u64,
}

impl Load {
    /// A load of one connection.
    pub(crate) const fn new(op: Op, order: Order, block_kib: u32, depth: u32) -> Self {
        Self {
            op,
            order,
            block_bytes: block_kib << 10,
            depth,
            connections: 1,
            time_ns: 0,
            durability: Durability::None,
            once: false,
            seed: 0,
        }
    }
}

/// Result of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    /// From the first request to the last answer, in nanoseconds.
    pub(crate) elapsed_ns: u64,
    pub(crate) latency: Histogram<u64>,
}

impl Outcome {
    /// Requests answered per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / (self.elapsed_ns.max(1) as f64)
    }
}

/// An empty histogram of nanoseconds up to 100 s.
pub(crate) fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, 100_000_000_000, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constant and legal: {error}"),
    }
}

/// Addresses of one connection.
struct Addresses {
    order: Order,
    rng: Pcg64Mcg,
    first_block: u64,
    blocks: u64,
    next: u64,
    once: bool,
}

impl Addresses {
    fn next(&mut self) -> Option<u64> {
        let at = match self.order {
            Order::Random => self.rng.random_range(0..self.blocks),
            Order::Sequential if self.once && self.next >= self.blocks => return None,
            Order::Sequential => self.next % self.blocks,
        };
        self.next += 1;
        Some(self.first_block + at)
    }
}

struct Driver {
    load: Load,
    links: Vec<Link>,
    addresses: Vec<Addresses>,
    payloads: Payloads,
    end_ns: u64,
    latency: Histogram<u64>,
}

impl Driver {
    /// Sends requests up to the connection's queue depth.
    fn refill(&mut self, index: usize, now_ns: u64) -> anyhow::Result<()> {
        let link = &mut self.links[index];
        // A FLUSH that is due is sent after the end, too: it belongs to a request that began before.
        link.flush_if_due()?;
        while link.in_flight() < self.load.depth && now_ns < self.end_ns {
            let Some(block) = self.addresses[index].next() else { break };
            let offset = block * u64::from(self.load.block_bytes);
            match self.load.op {
                Op::Read => link.read(offset, self.load.block_bytes, now_ns)?,
                Op::Write(content) => {
                    let payload = self.payloads.take(content, self.load.block_bytes);
                    link.write(offset, payload, self.load.durability, now_ns)?;
                }
            }
        }
        link.send(self.payloads.bytes())
    }

    fn take(&mut self, index: usize) -> anyhow::Result<()> {
        self.links[index].receive(&mut self.latency)?;
        self.refill(index, now_ns())
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        if self.links.len() == 1 {
            return self.take(0);
        }
        let ready = link::ready(self.links.iter(), None)?;
        for (index, ready) in ready.into_iter().enumerate() {
            if ready && self.links[index].in_flight() > 0 {
                self.take(index)?;
            }
        }
        Ok(())
    }
}

/// Runs a load against the export named `export` of a server.
pub(crate) fn run<'a>(server: impl Into<Address<'a>>, export: &str, load: Load) -> anyhow::Result<Outcome> {
    let server = server.into();
    ensure!(load.connections > 0 && load.depth > 0, "a load needs connections and requests");
    ensure!(load.durability != Durability::Flush || load.depth == 1, "a flush covers writes that have ended");
    let links: Vec<Link> =
        (0..load.connections).map(|_| Link::connect(server, export)).collect::<Result<_, _>>()?;
    let size_bytes = links.iter().map(Link::size_bytes).min().unwrap_or(0);
    let share = size_bytes / u64::from(load.block_bytes) / u64::from(load.connections);
    if share == 0 {
        bail!("the export of {size_bytes} bytes is too small for this load");
    }
    let addresses = (0..u64_from_usize(links.len()))
        .map(|link| {
            let (first_block, blocks) = match load.order {
                Order::Sequential => (link * share, share),
                Order::Random => (0, share * u64::from(load.connections)),
            };
            let rng = Pcg64Mcg::seed_from_u64(load.seed.wrapping_mul(1000).wrapping_add(link));
            Addresses { order: load.order, rng, first_block, blocks, next: 0, once: load.once }
        })
        .collect();
    let payloads = match load.op {
        Op::Read => Payloads::none(),
        Op::Write(content) => Payloads::new(content, load.seed),
    };
    let start_ns = now_ns();
    let end_ns = start_ns.saturating_add(load.time_ns);
    let mut driver = Driver { load, links, addresses, payloads, end_ns, latency: histogram() };
    for index in 0..driver.links.len() {
        driver.refill(index, start_ns)?;
    }
    while driver.links.iter().any(|link| link.in_flight() > 0) {
        driver.turn()?;
    }
    let elapsed_ns = now_ns() - start_ns;
    driver.links.into_iter().try_for_each(Link::close)?;
    Ok(Outcome { requests: driver.latency.len(), elapsed_ns, latency: driver.latency })
}
