//! Many machines at once, each with a connection and one request in flight, like booting machines.
//!
//! Job: replay prepared steps, with pauses between an answer and the machine's next request.
//!
//! Invariants: latency is measured from before the request is passed to the socket; pauses depend on the exponential
//! distribution and the seed alone, so that each server gets the same requests.
//! distribution and the seed alone, so every server is asked the same.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::event::Timespec;

use super::link::{self, Link};
use super::{Durability, histogram};
use crate::clock::now_ns;

/// A request of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) offset: u64,
    pub(crate) len_bytes: u32,
    /// Position of a write's bytes; `None` for a read.
    pub(crate) payload: Option<Range<usize>>,
}

/// Speed of machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Mean pause between an answer and the machine's next request, in nanoseconds; 0 for none.
    pub(crate) pause_ns: u64,
    /// Seed of the pauses.
    pub(crate) seed: u64,
}

/// Longest short read, reported separately: the daemon decodes it without another thread.
pub(crate) const SHORT_BYTES: u32 = 32 << 10;

/// Result of a replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Latencies of reads of up to [`SHORT_BYTES`] in nanoseconds.
    pub(crate) short_reads: Histogram<u64>,
    /// Latencies of longer reads in nanoseconds.
    pub(crate) long_reads: Histogram<u64>,
    /// Latencies of writes in nanoseconds.
    pub(crate) writes: Histogram<u64>,
    /// From the first request to the last answer, in nanoseconds.
    pub(crate) elapsed_ns: u64,
}

/// State of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its next request is due then.
    Pausing(u64),
    /// A read of up to [`SHORT_BYTES`] is under way.
    ReadingShort,
    /// A longer read is under way.
    ReadingLong,
    /// A write is under way.
    Writing,
    /// The machine has done its steps.
    Done,
}

/// Connections of all machines.
#[derive(Debug)]
pub(crate) struct Replay {
    links: Vec<Link>,
}

struct Run<'a> {
    links: &'a mut [Link],
    states: Vec<State>,
    left: Vec<std::slice::Iter<'a, Step>>,
    payloads: &'a [u8],
    pauses: Vec<Pcg64Mcg>,
    pause_ns: u64,
    done: Replayed,
}

impl Replay {
    /// Connects each machine to its export.
    pub(crate) fn connect<'a>(socket: &Path, exports: impl Iterator<Item = &'a str>) -> anyhow::Result<Self> {
        let links = exports
            .map(|export| Link::connect(socket.into(), export).with_context(|| format!("export {export}")));
        Ok(Self { links: links.collect::<Result<_, _>>()? })
    }

    /// Replays the steps of each machine; bytes of writes lie in `payloads`.
    pub(crate) fn run(&mut self, steps: &[&[Step]], payloads: &[u8], pace: Pace) -> anyhow::Result<Replayed> {
        ensure!(steps.len() == self.links.len(), "every machine has a connection");
        let start_ns = now_ns();
        let seeds =
            (0..).take(steps.len()).map(|machine: u64| pace.seed.wrapping_mul(1000).wrapping_add(machine));
        let mut run = Run {
            links: &mut self.links,
            states: vec![State::Done; steps.len()],
            left: steps.iter().map(|steps| steps.iter()).collect(),
            payloads,
            pauses: seeds.map(Pcg64Mcg::seed_from_u64).collect(),
            pause_ns: pace.pause_ns,
            done: Replayed {
                short_reads: histogram(),
                long_reads: histogram(),
                writes: histogram(),
                elapsed_ns: 0,
            },
        };
        // Machines begin one pause apart from nothing, so that they do not march in step.
        for machine in 0..run.states.len() {
            run.pause(machine, start_ns);
        }
        while run.turn()? {}
        let mut done = run.done;
        done.elapsed_ns = now_ns() - start_ns;
        Ok(done)
    }

    /// Disconnects.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        self.links.into_iter().try_for_each(Link::close)
    }
}

impl Run<'_> {
    fn pause(&mut self, machine: usize, now_ns: u64) {
        let draw: f64 = 1.0 - self.pauses[machine].random::<f64>();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, at most 40 means"
        )]
        let pause_ns = (-draw.ln() * self.pause_ns as f64) as u64;
        let more = !self.left[machine].as_slice().is_empty();
        self.states[machine] = if more { State::Pausing(now_ns + pause_ns) } else { State::Done };
    }

    /// Sends due requests. Returns the time of the next, if any is left.
    fn send_due(&mut self) -> anyhow::Result<Option<u64>> {
        let mut next_ns = None;
        for machine in 0..self.states.len() {
            let State::Pausing(due_ns) = self.states[machine] else { continue };
            let now = now_ns();
            if due_ns > now {
                next_ns = Some(next_ns.map_or(due_ns, |next: u64| next.min(due_ns)));
                continue;
            }
            let Some(step) = self.left[machine].next() else { continue };
            let link = &mut self.links[machine];
            self.states[machine] = match &step.payload {
                None => {
                    link.read(step.offset, step.len_bytes, now)?;
                    if step.len_bytes <= SHORT_BYTES { State::ReadingShort } else { State::ReadingLong }
                }
                Some(payload) => {
                    link.write(step.offset, payload.clone(), Durability::None, now)?;
                    State::Writing
                }
            };
            link.send(self.payloads)?;
        }
        Ok(next_ns)
    }

    /// Runs a turn; returns `true` if work is left.
    fn turn(&mut self) -> anyhow::Result<bool> {
        let next_ns = self.send_due()?;
        let busy: Vec<usize> = (0..self.states.len())
            .filter(|machine| !matches!(self.states[*machine], State::Pausing(_) | State::Done))
            .collect();
        if busy.is_empty() && next_ns.is_none() {
            return Ok(false);
        }
        for machine in self.wait(&busy, next_ns)? {
            let latency = match self.states[machine] {
                State::ReadingShort => &mut self.done.short_reads,
                State::ReadingLong => &mut self.done.long_reads,
                _ => &mut self.done.writes,
            };
            self.links[machine].receive(latency)?;
            if self.links[machine].in_flight() == 0 {
                self.pause(machine, now_ns());
            }
        }
        Ok(true)
    }

    /// Waits for answers until the next request is due: the machines that have one.
    fn wait(&self, busy: &[usize], next_ns: Option<u64>) -> anyhow::Result<Vec<usize>> {
        let timeout = next_ns.map(|next_ns| {
            let wait_ns = next_ns.saturating_sub(now_ns());
            let wait = std::time::Duration::from_nanos(wait_ns);
            Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        let ready = link::ready(busy.iter().map(|machine| &self.links[*machine]), timeout.as_ref())?;
        Ok(busy.iter().zip(ready).filter(|(_, ready)| *ready).map(|(machine, _)| *machine).collect())
    }
}
