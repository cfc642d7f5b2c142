//! The region map (write-intent bitmap): regions that may differ from the cache (`FORMAT.md`, section 6).
//!
//! Job: encode and decode a copy. Invariant: one checksum over the whole copy, so a mix of old and new blocks fails.
//! It does not decide on marks, or on the consequences of a corrupt copy for trust.

use zc_core::{JournalSeq, RegionKey, VolumeId, limits, usize_from_u32};

use crate::FormatError;
use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};

/// Size of one copy.
pub const REGION_MAP_BYTES: u64 = 16 << 10;
const BYTES: usize = 16 << 10;
const MAGIC: u32 = u32::from_le_bytes(*b"zcRm");
const REGION_BITS: u32 = 48;
const _: () = assert!(48 + limits::ACTIVE_REGIONS_MAX as usize * 8 <= BYTES);

/// A region map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegionMap {
    /// Sequence number; the newest valid map is used.
    pub sequence: u64,
    /// Session that wrote it.
    pub session: u64,
    /// Block up to which the journal must be replayable for unmarked regions to be trusted.
    pub journal_required: JournalSeq,
    /// The marked regions, at most [`limits::ACTIVE_REGIONS_MAX`].
    pub regions: Vec<RegionKey>,
}

impl RegionMap {
    /// Encodes copy 0 or 1.
    ///
    /// # Panics
    /// When there are too many regions, or a region's number does not fit 48 bits.
    #[must_use]
    pub fn encode(&self, copy: usize, salt: Salt) -> Vec<u8> {
        let count = u32::try_from(self.regions.len()).unwrap_or(u32::MAX);
        assert!(count <= limits::ACTIVE_REGIONS_MAX, "{count} regions in one map");
        let mut bytes = vec![0; BYTES];
        let mut w = Writer::new(&mut bytes);
        w.u32(0)
            .u32(MAGIC)
            .u64(self.sequence)
            .u64(self.session)
            .u64(self.journal_required.0)
            .u32(count)
            .u32(0);
        w.u64(0);
        for key in &self.regions {
            assert!(key.region < 1 << REGION_BITS, "region number {}", key.region);
            w.u64(u64::from(key.volume.0) << REGION_BITS | key.region);
        }
        Binding::copy(BlockType::RegionMap, copy, salt).seal(&mut bytes);
        bytes
    }

    /// Decodes copy 0 or 1.
    ///
    /// # Errors
    /// When it is torn, corrupt or from another place.
    pub fn decode(bytes: &[u8], copy: usize, salt: Salt) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BYTES).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        if r.u32()? != MAGIC {
            return Err(FormatError::Magic);
        }
        Binding::copy(BlockType::RegionMap, copy, salt).check(bytes)?;
        let (sequence, session, journal_required) = (r.u64()?, r.u64()?, JournalSeq(r.u64()?));
        let (count, _, _) = (r.u32()?, r.u32()?, r.u64()?);
        if count > limits::ACTIVE_REGIONS_MAX {
            return Err(FormatError::Field("region count"));
        }
        let mut regions = Vec::with_capacity(usize_from_u32(count));
        for _ in 0..count {
            let word = r.u64()?;
            let volume = u16::try_from(word >> REGION_BITS).unwrap_or(u16::MAX);
            if volume >= limits::VOLUMES_MAX {
                return Err(FormatError::Field("region"));
            }
            regions.push(RegionKey { volume: VolumeId(volume), region: word & ((1 << REGION_BITS) - 1) });
        }
        Ok(Self { sequence, session, journal_required, regions })
    }
}
