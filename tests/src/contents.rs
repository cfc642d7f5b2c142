//! A small cache that tests fill completely, and a volume's cached contents.
//!
//! Job: insert contents into the cache, and detect from the daemon's counters if a read needed the origin.
//!
//! Expected contents are for the test.

use core::ops::Range;

use serde_json::Value;
use zc_engine::NbdClient;

use crate::{BlockKind, DataGen, MIB, World};

/// Lines of a cache of 32 MiB in 64 units. They are full when they are written, also where the machine is slow.
const SMALL_CACHE: &str =
    "size = \"32 MiB\"\nweu_max_age = \"1 h\"\nweu_size = \"512 KiB\"\ncompression = \"none\"\n";

impl World {
    /// A folder with a cache of 32 MiB that is quickly full. Name, MiB and further lines of each volume.
    #[must_use]
    pub fn small(volumes: &[(&str, u64, &str)]) -> Self {
        let mut world = Self::new(32, 16);
        SMALL_CACHE.clone_into(&mut world.cache);
        let volume =
            |(name, mib, lines): &(&str, u64, &str)| ((*name).to_owned(), mib * MIB, (*lines).to_owned());
        world.volumes = volumes.iter().map(volume).collect();
        world
    }

    /// Writes contents that are nowhere else to these MiBs of a volume, and waits until all were offered to the cache.
    ///
    /// # Panics
    /// A write fails.
    pub fn fill(&self, client: &mut NbdClient, mibs: Range<u64>, seed: u64) {
        let contents = DataGen::new(seed, 1 << 20);
        for at in mibs {
            client.write(at * MIB, &contents.block(BlockKind::Incompressible, at)).expect("a write");
            self.inserted();
        }
    }

    /// Returns `true` if these MiBs of a volume are read without the origin.
    ///
    /// # Panics
    /// A read fails.
    #[must_use]
    pub fn is_cached(&self, client: &mut NbdClient, mibs: Range<u64>) -> bool {
        let before = missed(&self.stats());
        mibs.for_each(|at| drop(client.read(at * MIB, 1 << 20).expect("a read")));
        missed(&self.stats()) == before
    }

    /// Returns exit status and output of a command of `zcctl volume`.
    #[must_use]
    pub fn zcctl_volume(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.zcctl_output(&[&["volume"], arguments].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }
}

/// Extents in clients' reads that came from the origin, in parts.
fn missed(stats: &Value) -> u64 {
    let of = |name: &str| stats["extents"][name].as_u64().expect("a number");
    of("read") - of("hits")
}
