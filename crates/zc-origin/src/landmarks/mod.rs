//! Landmarks: the ranges of an origin that every read-write mount changes.
//!
//! Job: find those ranges ([`survey`]), record a digest of each ([`Origin::landmarks`]), and detect later that one
//! differs ([`Origin::changed_landmark`]). A block device has no modification time. A program that mounted it while
//! zcached was stopped leaves traces here instead: in a superblock, a journal, a partition table, a label.
//!
//! Invariants: offsets from the medium are checked, and clipped to the origin. At most [`MAX_LANDMARKS`] ranges and
//! [`MAX_BYTES`] are read, for any content of the medium. Nothing is written.
//!
//! It does not detect a write that misses all landmarks, such as `dd` into the middle of a disk, or decide on the
//! consequence of a difference (the engine does).

mod survey;
#[cfg(test)]
mod survey_tests;

use zc_core::usize_from_u64;
use zc_io::IoError;

use crate::origin::Origin;
use survey::{Place, survey};

/// Most landmarks of one origin. A disk with 128 partitions of ext4 has 388.
pub const MAX_LANDMARKS: usize = 512;
/// Most bytes of one origin that are digested: [`MAX_LANDMARKS`] ranges of 128 KiB.
pub const MAX_BYTES: u64 = 64 << 20;

/// Reads a count of bytes at an offset.
pub type ReadAt<'a> = &'a mut dyn FnMut(u64, u64) -> Result<Vec<u8>, IoError>;

/// Digest of a range of an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landmark {
    /// Description of the range as part of a sentence: "the journal of ext4 in partition 2".
    pub name: String,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// First half of the BLAKE3 hash of its bytes.
    pub digest: [u8; 16],
}

impl Landmark {
    /// Finds and digests the landmarks of a medium of this length and block size.
    ///
    /// # Errors
    /// When the medium cannot be read.
    pub fn find(len_bytes: u64, block_bytes: u64, read: ReadAt<'_>) -> Result<Vec<Self>, IoError> {
        let places = survey(len_bytes, block_bytes, read)?;
        let digest = |Place { name, offset, len_bytes }| {
            let digest = digest(&read(offset, len_bytes)?);
            Ok(Self { name, offset, len_bytes, digest })
        };
        places.into_iter().map(digest).collect()
    }

    /// Returns the first landmark that differs on the medium.
    ///
    /// # Errors
    /// When the medium cannot be read, or ends before a landmark does.
    pub fn first_changed<'a>(landmarks: &'a [Self], read: ReadAt<'_>) -> Result<Option<&'a Self>, IoError> {
        for landmark in landmarks.iter().take(MAX_LANDMARKS) {
            if digest(&read(landmark.offset, landmark.len_bytes.min(MAX_BYTES))?) != landmark.digest {
                return Ok(Some(landmark));
            }
        }
        Ok(None)
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    blake3::Hasher::new().update(bytes).finalize_xof().fill(&mut digest);
    digest
}

impl Origin {
    /// Finds the landmarks and reads them. Blocks.
    ///
    /// # Errors
    /// When the origin cannot be read.
    pub fn landmarks(&self) -> Result<Vec<Landmark>, IoError> {
        let mut read =
            |offset, len_bytes| Ok(self.read_blocking(offset, usize_from_u64(len_bytes))?.to_vec());
        Landmark::find(self.len_bytes(), u64::from(self.block_bytes()), &mut read)
    }

    /// Returns the first landmark that differs. Blocks.
    ///
    /// # Errors
    /// When the origin cannot be read, or ends before a landmark does.
    pub fn changed_landmark<'a>(&self, landmarks: &'a [Landmark]) -> Result<Option<&'a Landmark>, IoError> {
        let mut read =
            |offset, len_bytes| Ok(self.read_blocking(offset, usize_from_u64(len_bytes))?.to_vec());
        Landmark::first_changed(landmarks, &mut read)
    }
}
