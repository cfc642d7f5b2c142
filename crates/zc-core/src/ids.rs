//! Newtypes for numbered things.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(/// A volume of a cache; at most [`crate::limits::VOLUMES_MAX`] exist, the number is stable on media.
    VolumeId(u16), "vol");
id!(/// Number of an extent in its volume: byte offset divided by the extent size.
    ExtentNo(u64), "ext");
id!(/// A slot of the cache device, which holds one unit.
    WeuSlot(u32), "slot");
id!(/// Number of units that a slot has held (Nitro 3.1). A location whose generation differs from its slot's is stale.
    Generation(u32), "gen");
id!(/// Position of a WEU in the order in which WEUs were opened; never reused, also not after a crash.
    WeuSeq(u64), "seq");
id!(/// Sequence number of a journal block; contiguous, never reused.
    JournalSeq(u64), "j");
id!(/// A client request, numbered by the driver.
    ReqId(u64), "req");
id!(/// A device or worker operation, numbered by the cache manager.
    OpId(u64), "op");
id!(/// A buffer that the driver holds on behalf of the cache manager.
    BufId(u64), "buf");

/// Address of an extent, the key of the file index (Nitro 3.1, with the volume for the file handle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentKey {
    /// The volume.
    pub volume: VolumeId,
    /// The extent within the volume.
    pub extent: ExtentNo,
}

/// Address of a region, the unit in which the region map tracks recent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey {
    /// The volume.
    pub volume: VolumeId,
    /// Byte offset in the volume divided by the volume's region size.
    pub region: u64,
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufSlice {
    /// The buffer.
    pub buf: BufId,
    /// First byte, in bytes from the start of the buffer.
    pub start_bytes: u32,
    /// Length in bytes.
    pub len_bytes: u32,
}

impl BufSlice {
    /// Returns the part of this slice that starts `skip_bytes` in and is `len_bytes` long.
    ///
    /// # Panics
    /// When the part does not lie inside the slice, which is a bug of the caller.
    #[must_use]
    pub const fn part(self, skip_bytes: u32, len_bytes: u32) -> Self {
        assert!(
            skip_bytes <= self.len_bytes && len_bytes <= self.len_bytes - skip_bytes,
            "slice part out of range"
        );
        Self { buf: self.buf, start_bytes: self.start_bytes + skip_bytes, len_bytes }
    }
}
