//! Frames: blocks that are compressed together, with the header that binds them to their name (`FORMAT-2.md`, section 4).
//!
//! Invariants: a frame that opens has the expected name and pool, and the bytes that were sealed. It does not compress.

use core::ops::Range;

use super::{BLOCK_BYTES, FRAME_BLOCKS_MAX, Name, checksum, has_checksum};
use zc_core::usize_from_u32;

/// Bytes of a frame's header.
pub const HEADER_BYTES: u32 = 16;
const HEADER: usize = usize_from_u32(HEADER_BYTES);

/// Contents of a frame's header, without its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Name of the first block. Its pool is not stored: the uuid stands for it.
    pub name: Name,
    /// Number of blocks.
    pub blocks: u8,
    /// Code of the compression.
    pub codec: u8,
    /// Bytes of the payload.
    pub stored_bytes: u32,
}

/// Reasons why bytes are not the expected frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes than the frame has.
    #[error("a frame is cut off")]
    Truncated,
    /// The checksum does not match: corruption, or a frame of another pool.
    #[error("a frame has a wrong checksum")]
    Checksum,
    /// Another frame lies there.
    #[error("another frame than {0:?} lies there")]
    Name(Name),
}

impl FrameHeader {
    /// Returns the largest payload of a frame of so many blocks.
    const fn stored_bytes_max(blocks: u8) -> u32 {
        blocks as u32 * BLOCK_BYTES
    }

    /// Writes the header of a payload that lies behind it in `frame`.
    ///
    /// # Panics
    /// When the payload does not lie in `frame`, or a number is out of the format's bounds.
    pub fn seal(&self, uuid: &[u8; 16], frame: &mut [u8]) {
        assert!((1..=FRAME_BLOCKS_MAX).contains(&self.blocks), "a frame of {} blocks", self.blocks);
        assert!(self.stored_bytes <= Self::stored_bytes_max(self.blocks), "larger than its blocks");
        let [s0, s1, s2, _] = self.stored_bytes.to_le_bytes();
        let [n0, n1, n2, n3, n4, ..] = self.name.segment.to_le_bytes();
        let [o0, o1] = self.name.ordinal.to_le_bytes();
        let fields = [s0, s1, s2, self.codec, n0, n1, n2, n3, n4, o0, o1, self.blocks];
        frame[4..HEADER].copy_from_slice(&fields);
        let end = HEADER + usize_from_u32(self.stored_bytes);
        let crc = checksum(uuid, &frame[4..end]);
        frame[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Verifies the frame at the front of `frame`, which may have more bytes behind it, and returns its header and
    /// the range of its payload.
    ///
    /// # Errors
    /// When it is corrupt, or another frame than that of `name`, its first block.
    pub fn open(uuid: &[u8; 16], name: Name, frame: &[u8]) -> Result<(Self, Range<usize>), FrameError> {
        let header: &[u8; HEADER] =
            frame.get(..HEADER).and_then(|bytes| bytes.try_into().ok()).ok_or(FrameError::Truncated)?;
        let [c0, c1, c2, c3, s0, s1, s2, codec, n0, n1, n2, n3, n4, o0, o1, blocks] = *header;
        let stored_bytes = u32::from_le_bytes([s0, s1, s2, 0]);
        if !(1..=FRAME_BLOCKS_MAX).contains(&blocks) || stored_bytes > Self::stored_bytes_max(blocks) {
            return Err(FrameError::Checksum);
        }
        let payload = HEADER..HEADER + usize_from_u32(stored_bytes);
        let covered = frame.get(4..payload.end).ok_or(FrameError::Truncated)?;
        if !has_checksum(uuid, covered, u32::from_le_bytes([c0, c1, c2, c3])) {
            return Err(FrameError::Checksum);
        }
        let segment = u64::from_le_bytes([n0, n1, n2, n3, n4, 0, 0, 0]);
        let found = Name { pool: name.pool, segment, ordinal: u16::from_le_bytes([o0, o1]) };
        if found != name {
            return Err(FrameError::Name(name));
        }
        Ok((Self { name, blocks, codec, stored_bytes }, payload))
    }

    /// Returns the bytes of the frame with its header.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        u64::from(HEADER_BYTES) + u64::from(self.stored_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";
    const NAME: Name = Name { pool: 0, segment: 0x01_0203_0405, ordinal: 0x0607 };

    fn sealed(blocks: u8, payload: &[u8]) -> Vec<u8> {
        let stored_bytes = u32::try_from(payload.len()).unwrap();
        let mut frame = vec![0; HEADER];
        frame.extend_from_slice(payload);
        FrameHeader { name: NAME, blocks, codec: 3, stored_bytes }.seal(&UUID, &mut frame);
        frame
    }

    #[test]
    fn the_header_has_the_documented_bytes() {
        let frame = sealed(4, b"payload");
        assert_eq!(frame[4..16], [7, 0, 0, 3, 5, 4, 3, 2, 1, 7, 6, 4]);
        let (header, payload) = FrameHeader::open(&UUID, NAME, &frame).unwrap();
        assert_eq!(
            (&frame[payload], header.blocks, header.codec, header.frame_bytes()),
            (&b"payload"[..], 4, 3, 23)
        );
    }

    #[test]
    fn another_name_pool_or_length_is_refused() {
        let frame = sealed(1, &[7; 4096]);
        let other = Name { ordinal: 1, ..NAME };
        assert_eq!(FrameHeader::open(&UUID, other, &frame), Err(FrameError::Name(other)));
        assert_eq!(FrameHeader::open(&[0; 16], NAME, &frame), Err(FrameError::Checksum));
        assert_eq!(FrameHeader::open(&UUID, NAME, &frame[..4111]), Err(FrameError::Truncated));
        assert_eq!(FrameHeader::open(&UUID, NAME, &frame[..15]), Err(FrameError::Truncated));
    }

    proptest! {
        #[test]
        fn every_changed_bit_is_detected(len in 0_usize..300, at: prop::sample::Index, bit in 0_u8..8) {
            let mut frame = sealed(2, &vec![5; len]);
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
            prop_assert!(FrameHeader::open(&UUID, NAME, &frame).is_err());
        }
    }
}
