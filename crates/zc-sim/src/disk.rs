//! A simulated device with a volatile write cache: what was written since the last flush may be lost, in any subset and
//! torn at sector borders, when the power goes.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

/// Smallest piece that is written whole.
const PIECE: usize = 512;

/// The device.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    /// What a read sees.
    pub(crate) seen: Vec<u8>,
    durable: Vec<u8>,
    log: Vec<(usize, Vec<u8>)>,
    base: u64,
}

impl Disk {
    pub(crate) fn new(len: usize) -> Self {
        Self { seen: vec![0; len], durable: vec![0; len], log: Vec::new(), base: 0 }
    }

    pub(crate) fn write(&mut self, at: usize, data: &[u8]) {
        self.seen[at..at + data.len()].copy_from_slice(data);
        self.log.push((at, data.to_vec()));
    }

    /// Position in the order of writes: a flush issued now covers what was written before.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    pub(crate) fn flush(&mut self, position: u64) {
        let count = usize::try_from(position.saturating_sub(self.base)).unwrap_or(0).min(self.log.len());
        for (at, data) in self.log.drain(..count) {
            self.durable[at..at + data.len()].copy_from_slice(&data);
        }
        self.base += count as u64;
    }

    /// Damage that no write made: it is there now and after a power cut.
    pub(crate) fn damage(&mut self, at: usize, data: &[u8]) {
        self.seen[at..at + data.len()].copy_from_slice(data);
        self.durable[at..at + data.len()].copy_from_slice(data);
    }

    /// The power goes: each piece of each unflushed write is kept or lost.
    pub(crate) fn power_cut(&mut self, rng: &mut Pcg64Mcg) {
        let keep = [0.0, 0.5, 0.9, 1.0][rng.random_range(0..4)];
        let piece = if rng.random_bool(0.5) { PIECE } else { 4096 };
        for (at, data) in core::mem::take(&mut self.log) {
            for (index, chunk) in data.chunks(piece).enumerate() {
                if rng.random_bool(keep) {
                    let at = at + index * piece;
                    self.durable[at..at + chunk.len()].copy_from_slice(chunk);
                }
            }
        }
        self.base = 0;
        self.seen.clone_from(&self.durable);
    }
}
