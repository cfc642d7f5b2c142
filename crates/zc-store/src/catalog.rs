//! The catalog: volumes and snapshots, each a root of a map.
//!
//! Job: what a volume or snapshot is, and its record on media. Invariant: `shared_at` is never below the birth of a page
//! that another root can reach. What it does not do: change maps.

use zc_core::Codec;

use crate::ids::{PageNo, RootId};
use crate::limits;
use crate::media::batch::CatalogChange;
use crate::media::{MediaError, name_at, put_name, put_u16, put_u64, u16_at, u64_at};

/// Bytes of a record of the catalog.
pub(crate) const RECORD_BYTES: usize = 128;
/// Numbers of a map page.
pub(crate) const FANOUT: u64 = 504;
/// Contents are shared with what is stored already.
pub const FLAG_DEDUP: u64 = 1;

/// What a root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// A volume can be written.
    Volume,
    /// A snapshot never changes.
    Snapshot,
}

/// A volume or snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Which of the two.
    pub kind: RootKind,
    /// Codec of its new contents.
    pub codec: Codec,
    /// Binary logarithm of its chunk size.
    pub chunk_shift: u8,
    /// Levels of its map.
    pub(crate) height: u8,
    /// The volume of a snapshot, what a clone began as, or itself.
    pub source: RootId,
    /// Size in chunks.
    pub size_chunks: u64,
    pub(crate) page: PageNo,
    pub(crate) shared_at: u64,
    /// Bit 0: [`FLAG_DEDUP`].
    pub flags: u64,
    /// Counts changes of its contents and size, from another number for each root: an equal count in a store that was
    /// closed in order means equal contents.
    pub changes: u64,
    /// Name of the volume or snapshot.
    pub name: String,
}

impl Root {
    /// A new volume.
    pub(crate) fn create(change: &CatalogChange) -> Self {
        Self {
            kind: RootKind::Volume,
            codec: change.codec,
            chunk_shift: change.chunk_shift,
            height: levels(change.size_chunks),
            source: change.id,
            size_chunks: change.size_chunks,
            page: PageNo(0),
            shared_at: 0,
            flags: change.flags,
            changes: 0,
            name: change.name.clone(),
        }
    }

    /// Whether its contents are shared.
    #[must_use]
    pub const fn is_deduplicated(&self) -> bool {
        self.flags & FLAG_DEDUP != 0
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        out[..RECORD_BYTES].fill(0);
        out[0] = match self.kind {
            RootKind::Volume => 1,
            RootKind::Snapshot => 2,
        };
        out[1] = self.codec.media_code();
        out[2] = self.chunk_shift;
        out[3] = self.height;
        put_u16(out, 4, self.source.0);
        put_u64(out, 8, self.size_chunks);
        put_u64(out, 16, self.page.0);
        put_u64(out, 24, self.shared_at);
        put_u64(out, 32, self.flags);
        put_u64(out, 40, self.changes);
        put_name(out, 64, &self.name);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, MediaError> {
        let kind = match bytes[0] {
            0 => return Ok(None),
            1 => RootKind::Volume,
            2 => RootKind::Snapshot,
            _ => return Err(MediaError::Field("root kind")),
        };
        let root = Self {
            kind,
            codec: Codec::from_media_code(bytes[1]).ok_or(MediaError::Field("codec"))?,
            chunk_shift: bytes[2],
            height: bytes[3],
            source: RootId(u16_at(bytes, 4)),
            size_chunks: u64_at(bytes, 8),
            page: PageNo(u64_at(bytes, 16)),
            shared_at: u64_at(bytes, 24),
            flags: u64_at(bytes, 32),
            changes: u64_at(bytes, 40),
            name: name_at(bytes, 64)?,
        };
        if root.is_sane() { Ok(Some(root)) } else { Err(MediaError::Field("root")) }
    }

    /// Returns `true` if its sizes can be. A map may be higher than it needs to be: when it grew, the pool was full.
    fn is_sane(&self) -> bool {
        let shifts = limits::CHUNK_BYTES_MIN.ilog2()..=limits::CHUNK_BYTES_MAX.ilog2();
        shifts.contains(&u32::from(self.chunk_shift))
            && (1..=limits::VOLUME_CHUNKS_MAX).contains(&self.size_chunks)
            && (levels(self.size_chunks)..=levels(limits::VOLUME_CHUNKS_MAX)).contains(&self.height)
    }
}

/// Levels that a map of so many chunks needs.
pub(crate) fn levels(size_chunks: u64) -> u8 {
    let (mut levels, mut reach) = (1, FANOUT);
    while reach < size_chunks {
        levels += 1;
        reach *= FANOUT;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_as_high_as_their_size_needs() {
        let sizes = [1, 504, 505, 254_016, 254_017, limits::VOLUME_CHUNKS_MAX];
        assert_eq!(sizes.map(levels), [1, 1, 2, 2, 3, 4]);
    }

    #[test]
    fn a_root_is_what_was_put_and_an_impossible_one_is_refused() {
        let root = Root {
            kind: RootKind::Snapshot,
            codec: Codec::Lz4,
            chunk_shift: 13,
            height: 3,
            source: RootId(7),
            size_chunks: 300_000,
            page: PageNo(11),
            shared_at: 12,
            flags: FLAG_DEDUP,
            changes: 13,
            name: "monday".to_owned(),
        };
        let mut bytes = [0xff; RECORD_BYTES];
        root.encode(&mut bytes);
        assert_eq!(Root::decode(&bytes), Ok(Some(root)));
        let mut wrong = bytes;
        wrong[0] = 3;
        assert_eq!(Root::decode(&wrong), Err(MediaError::Field("root kind")));
        let mut wrong = bytes;
        wrong[64] = 0xff;
        assert_eq!(Root::decode(&wrong), Err(MediaError::Field("name")));
        assert_eq!(Root::decode(&[0; RECORD_BYTES]), Ok(None));
    }
}
