//! Numbers of the store, each a type of its own.

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
    };
}

id!(/// A stored piece of content; 0 is none.
    ChunkNo(u64), "chunk");
id!(/// A page of a volume map; 0 is none.
    PageNo(u64), "page");
id!(/// A segment of the device.
    SegmentNo(u32), "seg");
id!(/// A volume or a snapshot.
    RootId(u16), "root");
id!(/// Position of a batch in the log: the session times 2^32, and a count.
    BatchSeq(u64), "batch");

impl BatchSeq {
    /// The number of the batch behind it.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Where something is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// The segment.
    pub segment: SegmentNo,
    /// Bytes from the segment's start; never 0, where a batch header is.
    pub offset_bytes: u32,
}

/// A place, and the checksum of what must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pointer {
    /// The place.
    pub place: Place,
    /// CRC of the page.
    pub crc: u32,
}

impl Pointer {
    /// Whether it points to anything.
    pub(crate) const fn is_some(&self) -> bool {
        self.place.offset_bytes != 0
    }

    /// Returns `true` if it points to a block behind the first of a segment.
    pub(crate) const fn is_inside(&self, segments: u32, segment_bytes: u32) -> bool {
        let Place { segment, offset_bytes } = self.place;
        let block = crate::limits::BLOCK_BYTES;
        segment.0 < segments
            && block <= offset_bytes
            && offset_bytes <= segment_bytes - block
            && offset_bytes.is_multiple_of(block)
    }
}
