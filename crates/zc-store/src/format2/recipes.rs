//! Leaves of recipes: the hash of each extent of 8 KiB of a map leaf (`FORMAT-2.md`, sections 5 and 7).
//!
//! Invariants: a leaf has at most 256 hashes. It does not decide which of them are still valid.

use super::bytes::{Cursor, NodeError};
use zc_core::Fingerprint;

/// Extents of a leaf: 2 MiB in pieces of 8 KiB.
pub const EXTENTS: usize = 256;
const BITMAP_BYTES: usize = EXTENTS / 8;

/// Decoded leaf of recipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeLeaf(Box<[Option<Fingerprint>]>);

impl Default for RecipeLeaf {
    fn default() -> Self {
        Self(vec![None; EXTENTS].into_boxed_slice())
    }
}

impl RecipeLeaf {
    /// Returns the hash of an extent; `None` where none is known, and beyond the leaf.
    #[must_use]
    pub fn get(&self, extent: usize) -> Option<Fingerprint> {
        self.0.get(extent).copied().flatten()
    }

    /// Replaces the hash of an extent.
    ///
    /// # Panics
    /// When the extent is beyond the leaf.
    pub fn set(&mut self, extent: usize, print: Option<Fingerprint>) {
        self.0[extent] = print;
    }

    /// Encodes the leaf: 8 KiB and 32 bytes with all hashes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; BITMAP_BYTES];
        for (extent, print) in self.0.iter().enumerate() {
            if let Some(print) = print {
                out[extent / 8] |= 1 << (extent % 8);
                out.extend_from_slice(&print.0);
            }
        }
        out
    }

    /// Decodes a leaf.
    ///
    /// # Errors
    /// When the bytes end within a hash, or more follow.
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (mut cursor, mut leaf) = (Cursor(bytes), Self::default());
        let bitmap: [u8; BITMAP_BYTES] = cursor.array()?;
        for extent in 0..EXTENTS {
            if bitmap[extent / 8] >> (extent % 8) & 1 == 1 {
                leaf.0[extent] = Some(Fingerprint(cursor.array()?));
            }
        }
        if cursor.is_empty() { Ok(leaf) } else { Err(NodeError::Field("length")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_leaf_is_one_read_and_a_cut_one_is_refused() {
        let mut leaf = RecipeLeaf::default();
        (0..EXTENTS).for_each(|extent| leaf.set(extent, Some(Fingerprint([7; 32]))));
        let mut bytes = leaf.encode();
        assert_eq!(bytes.len(), 8224);
        assert_eq!(RecipeLeaf::decode(&bytes[..8223]), Err(NodeError::Truncated));
        assert_eq!(RecipeLeaf::decode(&bytes[..31]), Err(NodeError::Truncated));
        assert_eq!(RecipeLeaf::decode(&bytes), Ok(leaf));
        bytes.push(0);
        assert_eq!(RecipeLeaf::decode(&bytes), Err(NodeError::Field("length")));
    }

    proptest! {
        #[test]
        fn leaves_round_trip(prints in prop::collection::btree_map(0..EXTENTS, any::<[u8; 32]>(), 0..20)) {
            let mut leaf = RecipeLeaf::default();
            prints.iter().for_each(|(extent, print)| leaf.set(*extent, Some(Fingerprint(*print))));
            prop_assert_eq!(RecipeLeaf::decode(&leaf.encode()), Ok(leaf.clone()));
            prop_assert_eq!(leaf.get(EXTENTS), None);
        }
    }
}
