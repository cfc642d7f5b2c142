//! Recovery of the medium at a restart: the rules of `zc-cache/src/startup/tail.rs`, and the checks.

use crate::device::{Device, Record, Set, Written, bit};
use crate::loss::Loss;
use crate::{SHARER, VOLUMES};

/// Valid epochs by volume, and known contents of the origins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub(crate) committed: [Vec<u8>; VOLUMES],
    pub(crate) clean: [u8; VOLUMES],
}

impl Found {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Committed { volume, version } => {
                let at = usize::from(volume);
                let known = self.committed[at].last().copied().unwrap_or(0).max(self.clean[at]);
                if version > known {
                    self.committed[at].push(version);
                }
            }
            Record::Clean { volume, version } => {
                let at = usize::from(volume);
                self.clean[at] = self.clean[at].max(version);
                self.committed[at].retain(|committed| *committed > version);
            }
        }
    }
}

/// Knowledge of commits before they are read.
#[derive(Debug, Default)]
struct Known {
    clean: [u8; VOLUMES],
    /// Last commit of a volume with a later one.
    followed: [u8; VOLUMES],
    dropped: [bool; VOLUMES],
}

impl Known {
    fn foresee(&mut self, records: &[Record]) {
        for record in records {
            match *record {
                Record::Clean { volume, version } => {
                    let clean = &mut self.clean[usize::from(volume)];
                    *clean = version.max(*clean);
                }
                Record::Committed { volume, version } => {
                    let followed = &mut self.followed[usize::from(volume)];
                    *followed = (version - 1).max(*followed);
                }
            }
        }
    }

    /// Returns `true` if a commit without proof is accepted.
    fn counts(&mut self, present: Set, volume: u8, version: u8) -> bool {
        let at = usize::from(volume);
        let known = version <= self.clean[at].max(self.followed[at]);
        let complete = known || !self.dropped[at] && present & bit(volume, version) != 0;
        self.dropped[at] |= !complete;
        complete
    }
}

/// Bodies that can be read after a crash; `shared` are in the clean unit.
pub(crate) fn present(device: &Device, shared: Set) -> Set {
    let in_clean_unit = if device.clean_unit == Some(Written::Durable) { shared } else { 0 };
    device.durable | in_clean_unit
}

/// Reads checkpoint, journal and chain of a `device` after a crash.
pub(crate) fn restart(device: &Device, present: Set) -> Result<Found, Loss> {
    let mut found = Found { committed: device.checkpoint.committed.clone(), clean: device.checkpoint.clean };
    let start = device.checkpoint.journal_start.max(device.first);
    let skipped = usize::from(start - device.first).min(device.blocks.len());
    let blocks = &device.blocks[skipped..];
    let end = start + crate::device::small(blocks.len());
    // The last block names the unit with the chain: without one, no chain is found.
    let chain: Vec<_> =
        device.summaries.iter().filter(|summary| summary.next == end && !blocks.is_empty()).collect();
    let proofs = blocks.iter().map(|block| block.proved).chain(chain.iter().map(|summary| summary.proved));
    let proved = proofs.max().unwrap_or(0);
    if proved > end {
        return Err(Loss::Gap { block: end });
    }
    let mut known = Known::default();
    chain.iter().for_each(|summary| known.foresee(&summary.records));
    blocks.iter().for_each(|block| known.foresee(&block.records));
    let mut settle = |found: &mut Found, records: &[Record]| {
        for record in records {
            let counts = match *record {
                Record::Committed { volume, version } => known.counts(present, volume, version),
                Record::Clean { .. } => true,
            };
            if counts {
                found.apply(*record);
            }
        }
    };
    for (block, sequence) in blocks.iter().zip(start..) {
        if sequence < proved {
            block.records.iter().for_each(|record| found.apply(*record));
        } else {
            settle(&mut found, &block.records);
        }
    }
    if let Some((last, complete)) = chain.split_last() {
        // One is written when the commits of those before have ended.
        complete.iter().flat_map(|summary| &summary.records).for_each(|record| found.apply(*record));
        settle(&mut found, &last.records);
    }
    Ok(found)
}

/// The version that each volume holds, if all that counts can be read.
pub(crate) fn held(device: &Device, found: &Found, present: Set) -> Result<[u8; VOLUMES], Loss> {
    let mut held = device.origin;
    for volume in 0..=SHARER {
        let at = usize::from(volume);
        for version in &found.committed[at] {
            if present & bit(volume, *version) == 0 {
                return Err(Loss::Unreadable { volume, version: *version });
            }
            held[at] = *version;
        }
    }
    Ok(held)
}
