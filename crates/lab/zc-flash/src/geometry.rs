//! Dimensions and latencies of flash chips.
//!
//! Blocks are numbered across lanes: consecutive blocks lie on different planes and chips, so that consecutive data is
//! written in parallel.

use crate::error::GeometryError;

/// Most pages of a device: page numbers have 32 bits, one of which means "none".
pub(crate) const PAGES_MAX: u64 = (1 << 32) - 2;

/// Dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    page_bytes: u32,
    pages_per_block: u32,
    blocks_per_plane: u32,
    planes_per_chip: u32,
    chips: u32,
}

impl Geometry {
    /// Flash of these dimensions.
    ///
    /// # Errors
    /// One is zero, or there are more pages than 32 bits number.
    pub fn new(
        page_bytes: u32,
        pages_per_block: u32,
        blocks_per_plane: u32,
        planes_per_chip: u32,
        chips: u32,
    ) -> Result<Self, GeometryError> {
        let all = [page_bytes, pages_per_block, blocks_per_plane, planes_per_chip, chips];
        let pages = all[1..].iter().try_fold(1_u64, |product, n| product.checked_mul(u64::from(*n)));
        if all.contains(&0) || pages.is_none_or(|pages| pages > PAGES_MAX) {
            return Err(GeometryError::Dimensions {
                chips,
                planes: planes_per_chip,
                blocks: blocks_per_plane,
                pages: pages_per_block,
                max: PAGES_MAX,
            });
        }
        Ok(Self { page_bytes, pages_per_block, blocks_per_plane, planes_per_chip, chips })
    }

    /// Bytes of a page, the unit of reading and programming.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Pages of a block, the unit of erasure.
    #[must_use]
    pub const fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        self.page_bytes as u64 * self.pages_per_block as u64
    }

    /// Blocks of the device.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks_per_plane * self.lanes()
    }

    /// Pages of the device.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }

    /// Planes that work side by side.
    #[must_use]
    pub const fn lanes(&self) -> u32 {
        self.planes_per_chip * self.chips
    }

    /// The plane that a block lies on.
    #[must_use]
    pub const fn lane_of(&self, block: u32) -> u32 {
        block % self.lanes()
    }

    /// The block that a page lies in.
    #[must_use]
    pub const fn block_of(&self, page: u32) -> u32 {
        page / self.pages_per_block
    }

    /// Returns the exposed blocks if this share of them is reserved (7 %, 25 %, as sold).
    #[must_use]
    pub fn exposed_blocks(&self, over_provisioning_permille: u32) -> u32 {
        let exposed = u64::from(self.blocks()) * 1000 / (1000 + u64::from(over_provisioning_permille));
        u32::try_from(exposed).unwrap_or(u32::MAX)
    }
}

/// Durations of a chip's operations, and its endurance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    /// Reading a page, in microseconds.
    pub read_us: u64,
    /// Programming a page, in microseconds.
    pub program_us: u64,
    /// Erasing a block, in microseconds.
    pub erase_us: u64,
    /// Erasures that a block bears.
    pub endurance: u32,
}

impl Latencies {
    /// The emulated SSD of "Compression and SSD: Where and How?" (section 4.1: 25 us to read, 250 us to write). Not
    /// from the paper: 2 ms to erase, 5,000 cycles.
    pub const WHERE_AND_HOW: Self =
        Self { read_us: 25, program_us: 250, erase_us: 2000, endurance: ENDURANCE_MLC };

    /// The flash of Nitro's simulator (section 5.4): 2 ms to erase a block of 128 KiB, 3.8 ms one of 2 MiB, on a line
    /// between. Not from the paper: 50 us to read and 900 us to program, usual for MLC of its time, 5,000 cycles.
    #[must_use]
    pub fn nitro(block_bytes: u64) -> Self {
        let (small, large) = (128 << 10, 2 << 20);
        let at = block_bytes.clamp(small, large) - small;
        Self {
            read_us: 50,
            program_us: 900,
            erase_us: 2000 + 1800 * at / (large - small),
            endurance: ENDURANCE_MLC,
        }
    }
}

/// Cycles of MLC flash of 34 nm (CaFTL, section I).
const ENDURANCE_MLC: u32 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_multiply() {
        let geometry = Geometry::new(4096, 64, 100, 2, 8).unwrap();
        assert_eq!((geometry.blocks(), geometry.pages(), geometry.lanes()), (1600, 102_400, 16));
        assert_eq!(geometry.block_bytes(), 262_144);
        assert_eq!(geometry.exposed_blocks(250), 1280);
        assert_eq!((geometry.lane_of(17), geometry.block_of(129)), (1, 2));
    }

    #[test]
    fn impossible_dimensions_are_told() {
        let error = Geometry::new(4096, 0, 1, 1, 1).unwrap_err();
        assert!(error.to_string().contains("of 0 pages"), "{error}");
        let error = Geometry::new(4096, 1 << 16, 1 << 16, 1, 1).unwrap_err();
        assert!(error.to_string().contains("at most 4294967294"), "{error}");
    }

    #[test]
    fn erasing_takes_what_nitro_says() {
        assert_eq!(Latencies::nitro(128 << 10).erase_us, 2000);
        assert_eq!(Latencies::nitro(2 << 20).erase_us, 3800);
        assert_eq!(Latencies::nitro(1 << 20).erase_us, 2840);
    }
}
