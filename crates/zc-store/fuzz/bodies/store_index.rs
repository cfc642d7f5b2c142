//! Decodes arbitrary bytes as numbers of variable length, nodes and superblocks: no panic; decoded values
//! encode and decode to the same, and a delta applied to a base encodes.

use zc_store::format2::catalog::{CatalogChange, CatalogLeaf};
use zc_store::format2::leaf::Leaf;
use zc_store::format2::node::{InnerNode, PageNode};
use zc_store::format2::recipes::RecipeLeaf;
use zc_store::format2::segments::SegmentLeaf;
use zc_store::format2::superblock::Superblock;
use zc_store::format2::varint;

pub(crate) fn run(data: &[u8]) {
    number(data);
    stable(data, Leaf::encode, Leaf::decode);
    stable(data, InnerNode::encode, InnerNode::decode);
    stable(data, PageNode::encode, PageNode::decode);
    stable(data, SegmentLeaf::encode, SegmentLeaf::decode);
    stable(data, RecipeLeaf::encode, RecipeLeaf::decode);
    stable(data, CatalogLeaf::encode, CatalogLeaf::decode);
    stable(data, CatalogChange::encode, CatalogChange::decode);
    // Short inputs represent blocks that end in zeros.
    let mut block = data.to_vec();
    block.resize(block.len().max(4096), 0);
    stable(&block, |superblock: &Superblock| superblock.encode(1), |bytes| Superblock::decode(bytes, 1));
    let (base, delta) = data.split_at(data.len() / 2);
    if let (Ok(mut base), Ok(delta)) = (Leaf::decode(base), Leaf::decode(delta)) {
        base.apply(&delta);
        assert_eq!(Leaf::decode(&base.encode()), Ok(base));
    }
}

fn number(data: &[u8]) {
    let mut left = data;
    let Some(value) = varint::take(&mut left) else { return };
    let mut bytes = Vec::new();
    varint::put(&mut bytes, value);
    assert!(bytes.len() <= data.len() - left.len(), "{value} has a shorter encoding");
    assert_eq!(varint::take(&mut &bytes[..]), Some(value));
    let Some(to) = varint::take_difference(&mut left, value) else { return };
    let mut bytes = Vec::new();
    varint::put_difference(&mut bytes, value, to);
    assert_eq!(varint::take_difference(&mut &bytes[..], value), Some(to));
}

fn stable<T: PartialEq + core::fmt::Debug, E: PartialEq + core::fmt::Debug>(
    bytes: &[u8],
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, E>,
) {
    if let Ok(value) = decode(bytes) {
        assert_eq!(decode(&encode(&value)), Ok(value));
    }
}
