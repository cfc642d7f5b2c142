//! Generations of a volume in a zcached store: the effect of daily snapshots on an array.

use zc_core::u64_from_usize;
use zc_replay::time::{Root, Store};
use zc_trace::Content;
use zc_trace::workload::Workload;

use crate::FigureError;

/// Blocks that change together: 64 KiB.
const RUN_BLOCKS: usize = 16;

/// A volume that changes from day to day.
#[derive(Debug)]
pub(crate) struct Generations {
    volume: Workload,
    root: Root,
    held: Vec<Content>,
}

impl Generations {
    /// A new volume of the store, with nothing on it.
    pub(crate) fn new(store: &mut Store, volume: Workload) -> Result<Self, FigureError> {
        Ok(Self { volume, root: store.volume(volume.blocks * 4096)?, held: Vec::new() })
    }

    /// The volume.
    pub(crate) const fn root(&self) -> Root {
        self.root
    }

    /// Writes the changes of a day, run by run.
    pub(crate) fn live(&mut self, store: &mut Store, day: u64) -> Result<(), FigureError> {
        let contents: Vec<Content> = self.volume.copy_of(day).filter_map(|line| line.content).collect();
        for (number, run) in contents.chunks(RUN_BLOCKS).enumerate() {
            let first = number * RUN_BLOCKS;
            if self.held.get(first..first + run.len()) != Some(run) {
                store.write(self.root, u64_from_usize(first), run)?;
            }
        }
        self.held = contents;
        Ok(())
    }
}

/// Returns the bytes of a volume and of all changes in `days` days, plus a tenth.
pub(crate) fn bytes_of(volume: &Workload, days: u64, changed: f64) -> u64 {
    let volume_bytes = volume.blocks * 4096;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a volume")]
    let changed_bytes = (volume_bytes as f64 * changed * days as f64 * 1.1) as u64;
    volume_bytes + changed_bytes
}
