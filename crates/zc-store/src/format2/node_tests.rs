//! Encodings of inner nodes and of the page table: sizes, refusals, round trips.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const UUID: [u8; 16] = *b"0123456789abcdef";

fn spot() -> impl Strategy<Value = Spot> {
    let segment = prop_oneof![1_u64..4, 1_u64..SEGMENTS_MAX];
    (segment, 0_u32..UNITS_MAX - 256, 1..=NODE_BYTES_MAX, any::<u32>()).prop_map(
        |(segment, offset_units, bytes, crc)| {
            // A segment has one slot.
            let [a, b, c, d, ..] = segment.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let slot = u32::from_le_bytes([a, b, c, d]);
            Spot { segment, slot, offset_units, bytes, crc }
        },
    )
}

fn page_node() -> impl Strategy<Value = PageNode> {
    let record = (prop::option::of(spot()), prop::option::of(spot()), prop::option::of(spot()));
    let record = record.prop_map(|(base, delta, recipes)| NodeRecord { base, delta, recipes });
    btree_map(0_u16..512, record, 0..40).prop_map(|records| {
        let mut node = PageNode::default();
        records.into_iter().for_each(|(position, record)| node.set(position, record));
        node
    })
}

fn inner_node() -> impl Strategy<Value = InnerNode> {
    let children = btree_map(0_u16..512, prop_oneof![1..NODES_MAX, 1_u64..600], 0..60);
    children.prop_map(|children| {
        let mut node = InnerNode::default();
        children.into_iter().for_each(|(position, number)| node.set(position, number));
        node
    })
}

#[test]
fn nodes_that_were_written_together_take_few_bytes() {
    let mut inner = InnerNode::default();
    (0..512).for_each(|position| inner.set(position, 1_000_000 + u64::from(position)));
    assert!(inner.encode().len() <= 7, "{:?}", inner.encode());
    let mut page = PageNode::default();
    for position in 0..512_u16 {
        let spot = Spot {
            segment: 1 << 19,
            slot: 7,
            offset_units: 64 + 3 * u32::from(position),
            bytes: 140,
            crc: 0xffff_ffff,
        };
        page.set(position, NodeRecord { base: Some(spot), ..NodeRecord::default() });
    }
    let bytes = page.encode().len();
    assert!(bytes <= 9 * 512 + 8, "{bytes}");
}

#[test]
fn an_empty_node_has_no_bytes() {
    assert_eq!((PageNode::default().encode(), InnerNode::default().encode()), (vec![], vec![]));
}

#[test]
fn removed_children_are_those_of_the_range() {
    let mut inner = InnerNode::default();
    (0..512).for_each(|position| inner.set(position, 5 + u64::from(position)));
    inner.remove(1, 510);
    assert_eq!(inner.children().collect::<Vec<_>>(), [(0, 5), (511, 516)]);
    inner.remove(0, 511);
    assert!(inner.is_empty());
}

#[test]
fn inner_nodes_out_of_bounds_are_refused() {
    let encoded = |gap: u64, more: u64, number: u64| {
        let mut out = Vec::new();
        [gap, more].into_iter().for_each(|value| varint::put(&mut out, value));
        varint::put_difference(&mut out, 1, number);
        InnerNode::decode(&out).map(drop)
    };
    assert_eq!(encoded(511, 0, 1), Ok(()));
    assert_eq!(encoded(512, 0, 1), Err(NodeError::Field("position")));
    assert_eq!(encoded(u64::MAX, 0, 1), Err(NodeError::Field("position")));
    assert_eq!(encoded(1, 511, 1), Err(NodeError::Field("run of children")));
    assert_eq!(encoded(1, u64::MAX, 1), Err(NodeError::Field("run of children")));
    assert_eq!(encoded(0, 0, 0), Err(NodeError::Field("number of a node")));
    assert_eq!(encoded(0, 1, NODES_MAX - 1), Err(NodeError::Field("number of a node")));
    assert_eq!(encoded(0, 0, NODES_MAX - 1), Ok(()));
}

#[test]
fn places_out_of_bounds_are_refused() {
    let encoded = |segment: u64, offset: u64, bytes: u64| {
        let mut out = vec![1];
        varint::put_difference(&mut out, 0, segment);
        varint::put_difference(&mut out, 0, 3);
        [offset, bytes].into_iter().for_each(|value| varint::put(&mut out, value));
        out.extend([0; 4]);
        PageNode::decode(&out).map(drop)
    };
    let last = u64::from(UNITS_MAX) - 1;
    assert_eq!(encoded(1, last, 64), Ok(()));
    assert_eq!(encoded(1, last, 65), Err(NodeError::Field("place")));
    assert_eq!(encoded(1, u64::from(u32::MAX), 1), Err(NodeError::Field("place")));
    assert_eq!(encoded(1, 1 << 32, 1), Err(NodeError::Field("place")));
    assert_eq!(encoded(SEGMENTS_MAX, 0, 1), Err(NodeError::Field("place")));
    assert_eq!(encoded(1, 0, 0), Err(NodeError::Field("place")));
    assert_eq!(encoded(1, 0, u64::from(NODE_BYTES_MAX) + 1), Err(NodeError::Field("place")));
    assert_eq!(PageNode::decode(&[0]), Err(NodeError::Field("record")));
    assert_eq!(PageNode::decode(&[1, 2]), Err(NodeError::Truncated));
}

proptest! {
    #[test]
    fn nodes_round_trip(page in page_node(), inner in inner_node()) {
        prop_assert_eq!(PageNode::decode(&page.encode()), Ok(page));
        prop_assert_eq!(InnerNode::decode(&inner.encode()), Ok(inner));
    }

    #[test]
    fn decoded_bytes_round_trip(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(node) = PageNode::decode(&bytes) {
            prop_assert_eq!(PageNode::decode(&node.encode()), Ok(node));
        }
        if let Ok(node) = InnerNode::decode(&bytes) {
            prop_assert_eq!(InnerNode::decode(&node.encode()), Ok(node));
        }
    }

    #[test]
    fn a_changed_byte_or_length_fails_the_check_of_its_place(page in page_node(), at: prop::sample::Index, by in 1_u8..) {
        let mut bytes = page.encode();
        let spot = Spot::of(&UUID, (7, 1), 64, &bytes);
        prop_assert_eq!(spot.verify(&UUID, &bytes), Ok(()));
        prop_assert!(bytes.is_empty() || spot.verify(&[0; 16], &bytes).is_err());
        bytes.push(0);
        prop_assert_eq!(spot.verify(&UUID, &bytes), Err(NodeError::Checksum));
        bytes.pop();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            prop_assert_eq!(spot.verify(&UUID, &bytes), Err(NodeError::Checksum));
        }
    }
}
