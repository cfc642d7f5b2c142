//! Recently used WEU headers: full fingerprints, so that a hint of the fingerprint index can be proved (G7).
//!
//! The headers of the open WEU and of WEUs being written are always here; of the others a bounded number, least
//! recently used first to go. Streams of duplicates find their originals in few WEUs, so one header read of some
//! 30 KiB serves hundreds of them.

use zc_core::{Fingerprint, Generation, Map, WeuSlot};

/// Where an extent is stored in a WEU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) offset_units: u16,
    pub(crate) pages: u8,
}

#[derive(Debug)]
struct Header {
    generation: Generation,
    prints: Map<Fingerprint, Stored>,
    /// In memory because its WEU is.
    resident: bool,
    used: u64,
}

/// The headers.
#[derive(Debug)]
pub(crate) struct HeaderCache {
    headers: Map<WeuSlot, Header>,
    max: usize,
    clock: u64,
}

impl HeaderCache {
    pub(crate) fn new(max: usize) -> Self {
        Self { headers: Map::default(), max, clock: 0 }
    }

    /// Begins the header of a WEU that opens.
    pub(crate) fn open(&mut self, slot: WeuSlot, generation: Generation) {
        self.headers
            .insert(slot, Header { generation, prints: Map::default(), resident: true, used: self.clock });
    }

    /// Adds an extent to a WEU's header.
    pub(crate) fn add(&mut self, slot: WeuSlot, print: Fingerprint, stored: Stored) {
        if let Some(header) = self.headers.get_mut(&slot) {
            header.prints.entry(print).or_insert(stored);
        }
    }

    /// The WEU is on the device now: its header may go when it is not used.
    pub(crate) fn settle(&mut self, slot: WeuSlot) {
        if let Some(header) = self.headers.get_mut(&slot) {
            header.resident = false;
        }
        self.shrink();
    }

    /// Puts in a header that was read.
    pub(crate) fn load(&mut self, slot: WeuSlot, generation: Generation, prints: Map<Fingerprint, Stored>) {
        self.clock += 1;
        self.headers.insert(slot, Header { generation, prints, resident: false, used: self.clock });
        self.shrink();
    }

    /// Whether the header is here; if so, where it stores that content.
    pub(crate) fn find(
        &mut self,
        slot: WeuSlot,
        print: &Fingerprint,
    ) -> Option<Option<(Generation, Stored)>> {
        self.clock += 1;
        let clock = self.clock;
        let header = self.headers.get_mut(&slot)?;
        header.used = clock;
        Some(header.prints.get(print).map(|stored| (header.generation, *stored)))
    }

    #[cfg(feature = "canary")]
    /// The canary's careless lookup: two bytes of the fingerprint.
    pub(crate) fn find_short(&self, slot: WeuSlot, print: &Fingerprint) -> Option<(Generation, Stored)> {
        let header = self.headers.get(&slot)?;
        let mut hits: Vec<_> = header.prints.iter().filter(|(fp, _)| fp.0[0] == print.0[0]).collect();
        hits.sort_unstable_by_key(|(fp, _)| **fp);
        hits.first().map(|(_, stored)| (header.generation, **stored))
    }

    pub(crate) fn remove(&mut self, slot: WeuSlot) {
        self.headers.remove(&slot);
    }

    fn shrink(&mut self) {
        while self.headers.values().filter(|h| !h.resident).count() > self.max {
            let oldest =
                self.headers.iter().filter(|(_, h)| !h.resident).min_by_key(|(slot, h)| (h.used, **slot));
            let Some((slot, _)) = oldest else { return };
            let slot = *slot;
            self.headers.remove(&slot);
        }
    }

    /// Bytes of RAM held, about.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let per_entry = size_of::<(Fingerprint, Stored)>() + 1;
        let entries: usize =
            self.headers.values().map(|h| h.prints.capacity() * per_entry + size_of::<Header>()).sum();
        zc_core::u64_from_usize(entries)
    }
}
