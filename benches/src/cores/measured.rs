//! What is asked, and what a run comes to.

use std::path::PathBuf;

use super::model::Times;
use crate::cpu::measured::Spread;
use crate::load::{Content, Durability, Load, Op, Order};
use crate::nbd::volumes::Volume;

/// Numbers of threads that are compared.
pub const THREADS: [u32; 2] = [1, 2];
/// Connections of every case: more than threads, as few clients have.
const CONNECTIONS: u32 = 4;
const NOISE: Volume = volume("noise", Content::Noise);
const HALVING: Volume = volume("halving", Content::Halving);
/// The volumes of each daemon.
pub const VOLUMES: [Volume; 2] = [NOISE, HALVING];

const fn volume(name: &'static str, content: Content) -> Volume {
    Volume { name, mode: "write-through", compression: "lz4", dedup: true, content }
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Name in tables.
    pub name: &'static str,
    /// Volume and export.
    pub volume: &'static str,
    block_bytes: u32,
    depth: u32,
}

/// All cases.
pub const CASES: [Case; 4] = [
    Case { name: "4k hits, noise, QD32", volume: NOISE.name, block_bytes: 4 << 10, depth: 32 },
    Case { name: "8k hits, noise, QD32", volume: NOISE.name, block_bytes: 8 << 10, depth: 32 },
    Case { name: "8k hits, LZ4, QD32", volume: HALVING.name, block_bytes: 8 << 10, depth: 32 },
    Case { name: "128k hits, noise, QD8", volume: NOISE.name, block_bytes: 128 << 10, depth: 8 },
];

/// How the run is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where files, sockets and logs go: on the SSD to be measured.
    pub dir: PathBuf,
    /// Length of one run in nanoseconds.
    pub time_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Size of each volume in bytes.
    pub size_bytes: u64,
}

/// What one short run came to, in microseconds for each hit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// What the daemon's process ran.
    pub cpu_us: f64,
    /// Time that passed in turns.
    pub turn_us: f64,
    /// Time that threads waited for another's turn to end.
    pub waited_us: f64,
    /// Hits per second.
    pub per_second: f64,
    /// Hits among reads.
    pub share: f64,
}

impl Sample {
    /// Hits per second that so many threads with a core each serve when a hit takes that time of one.
    fn capacity(&self, threads: u32) -> f64 {
        f64::from(threads) * 1e6 / (self.cpu_us + self.waited_us)
    }

    /// What the model is told.
    #[must_use]
    pub fn times(&self) -> Times {
        Times { alone_us: (self.cpu_us - self.turn_us).max(0.0), turn_us: self.turn_us }
    }
}

/// All runs of a case: for each number of threads, one for each round.
#[derive(Debug)]
pub struct Series {
    /// What was asked.
    pub case: Case,
    /// In the order of [`THREADS`].
    pub samples: [Vec<Sample>; THREADS.len()],
}

impl Series {
    /// The spread of a figure over rounds, for a number of threads by its place.
    #[must_use]
    pub fn spread(&self, place: usize, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples[place].iter().map(of).collect())
    }

    /// What the threads at a place serve beside one thread, within rounds.
    #[must_use]
    pub fn speed_up(&self, place: usize) -> Option<Spread> {
        let rounds = self.samples[0].iter().zip(&self.samples[place]);
        Spread::of(rounds.map(|(one, more)| more.capacity(THREADS[place]) / one.capacity(1)).collect())
    }
}

impl Case {
    /// What the load generator does for so long.
    #[must_use]
    pub const fn load(&self, time_ns: u64, seed: u64) -> Load {
        Load {
            op: Op::Read,
            order: Order::Random,
            block_bytes: self.block_bytes,
            depth: self.depth,
            connections: CONNECTIONS,
            time_ns,
            durability: Durability::None,
            once: false,
            seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_serves_less() {
        let one = Sample { cpu_us: 10.0, turn_us: 4.0, waited_us: 0.0, per_second: 0.0, share: 1.0 };
        let two = Sample { waited_us: 2.5, ..one };
        let case = CASES[0];
        let series = Series { case, samples: [vec![one, one], vec![one, two]] };
        let speed_up = series.speed_up(1).unwrap();
        assert_eq!((speed_up.least, speed_up.most), (1.6, 2.0));
        assert_eq!(one.times(), Times { alone_us: 6.0, turn_us: 4.0 });
    }
}
