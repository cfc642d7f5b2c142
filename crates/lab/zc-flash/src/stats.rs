//! Statistics of a translation layer, and derived figures.

use crate::nand::Nand;

/// Counts since the device was new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pages the host wrote.
    pub host_writes: u64,
    /// Pages the host read.
    pub host_reads: u64,
    /// Pages the host trimmed that were there.
    pub trims: u64,
    /// Pages programmed to collect garbage, merge blocks or level wear.
    pub copies: u64,
    /// Pages read, by the host or to be copied.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erasures: u64,
    /// Fewest erasures of a block.
    pub least_worn: u32,
    /// Most erasures of a block.
    pub most_worn: u32,
    /// Busy time of the busiest plane, in microseconds.
    pub busiest_us: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Erasures that a block bears.
    pub endurance: u32,
}

impl Stats {
    /// Returns the statistics of this flash, without the host's counters.
    #[must_use]
    pub fn of(nand: &Nand) -> Self {
        let operations = nand.operations();
        let (least_worn, most_worn) = nand.wear();
        Self {
            reads: operations.reads,
            programs: operations.programs,
            erasures: operations.erasures,
            least_worn,
            most_worn,
            busiest_us: nand.busiest_us(),
            page_bytes: nand.geometry().page_bytes(),
            endurance: nand.latencies().endurance,
            ..Self::default()
        }
    }

    /// Pages programmed for each that the host wrote; 1 before anything was.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.host_writes == 0 { 1.0 } else { self.programs as f64 / self.host_writes as f64 }
    }

    /// Bytes that the host can write, at this rate, until the most worn block is worn out. None before any is worn.
    #[must_use]
    pub fn lifetime_bytes(&self) -> Option<u128> {
        let written = u128::from(self.host_writes) * u128::from(self.page_bytes);
        (written * u128::from(self.endurance)).checked_div(u128::from(self.most_worn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_and_lifetime_follow() {
        let stats = Stats {
            host_writes: 100,
            programs: 150,
            most_worn: 2,
            page_bytes: 4096,
            endurance: 5000,
            ..Stats::default()
        };
        assert!((stats.write_amplification() - 1.5).abs() < 1e-9);
        assert_eq!(stats.lifetime_bytes(), Some(1_024_000_000));
        assert_eq!(Stats::default().lifetime_bytes(), None);
        assert!((Stats::default().write_amplification() - 1.0).abs() < 1e-9);
    }
}
