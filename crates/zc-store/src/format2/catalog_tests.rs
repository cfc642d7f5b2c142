//! Encodings of the catalog: bounds, round trips.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn root() -> impl Strategy<Value = Root> {
    let kind = prop_oneof![Just(RootKind::Volume), Just(RootKind::Snapshot)];
    let mark = prop::option::of((any::<[u8; 16]>(), any::<u64>()));
    let numbers = (any::<u32>(), 1..=SIZE_BLOCKS_MAX, 0..NODES_MAX, 0..NODES_MAX, any::<u64>(), any::<u64>());
    (kind, 0_u8..4, 1_u8..=16, mark, numbers, "[a-z@0-9.-]{0,64}").prop_map(
        |(kind, code, frame_blocks, mark, numbers, name)| {
            let (source, size_blocks, node, shared_from, flags, changes) = numbers;
            Root {
                kind,
                codec: Codec::from_media_code(code).unwrap(),
                frame_blocks,
                mark: mark.map(|(cache, run)| OrderMark { cache, run }),
                source,
                size_blocks,
                top: Top { node, levels: levels_of(size_blocks) },
                shared_from,
                flags,
                changes,
                name,
            }
        },
    )
}

fn change() -> impl Strategy<Value = CatalogChange> {
    (1_u8..=7, root(), any::<u32>()).prop_map(|(op, root, id)| CatalogChange {
        op: CatalogOp::from_code(op).unwrap(),
        id,
        source: root.source,
        codec: root.codec,
        frame_blocks: root.frame_blocks,
        size_blocks: root.size_blocks,
        flags: root.flags,
        name: root.name,
    })
}

fn plain() -> Root {
    Root {
        kind: RootKind::Volume,
        codec: Codec::Lz4,
        frame_blocks: 4,
        mark: None,
        source: 5,
        size_blocks: 1 << 18,
        top: Top { node: 9, levels: 1 },
        shared_from: 1,
        flags: FLAG_DEDUP,
        changes: 3,
        name: "disk".to_owned(),
    }
}

#[test]
fn levels_cover_the_size() {
    for (blocks, levels) in
        [(0, 1), (1, 1), (512, 1), (513, 1), (1 << 18, 1), ((1 << 18) + 1, 2), (1 << 36, 3), (1 << 51, 5)]
    {
        assert_eq!(levels_of(blocks), levels, "{blocks} blocks");
    }
    assert!(levels_of(SIZE_BLOCKS_MAX) <= LEVELS_MAX);
}

#[test]
fn a_root_takes_few_bytes_and_a_wrong_one_is_refused() {
    let encoded = |change: &dyn Fn(&mut Root)| {
        let (mut out, mut root) = (vec![0], plain());
        change(&mut root);
        root.encode(&mut out);
        out
    };
    let decoded = |change: &dyn Fn(&mut Root)| CatalogLeaf::decode(&encoded(change)).map(drop);
    assert!(encoded(&|_| {}).len() <= 20, "{}", encoded(&|_| {}).len());
    assert_eq!(decoded(&|_| {}), Ok(()));
    let wrong = Err(NodeError::Field("root"));
    assert_eq!(decoded(&|root| root.size_blocks = (1 << 18) + 1), wrong, "too few levels");
    assert_eq!(decoded(&|root| root.size_blocks = SIZE_BLOCKS_MAX + 1), wrong);
    assert_eq!(decoded(&|root| root.frame_blocks = 0), wrong);
    assert_eq!(decoded(&|root| root.frame_blocks = 17), wrong);
    assert_eq!(decoded(&|root| root.top.levels = LEVELS_MAX + 1), wrong);
    assert_eq!(decoded(&|root| root.top.node = NODES_MAX), wrong);
    assert_eq!(decoded(&|root| root.shared_from = NODES_MAX), wrong);
    assert_eq!(decoded(&|root| root.name = "x".repeat(65)), Err(NodeError::Field("name")));
    assert_eq!(CatalogLeaf::decode(&[16]), Err(NodeError::Field("position")));
    assert_eq!(CatalogLeaf::decode(&[0, 3, 0, 1, 0]), Err(NodeError::Field("kind of a root")));
    let mut bytes = encoded(&|_| {});
    bytes[2] = 9;
    assert_eq!(CatalogLeaf::decode(&bytes), Err(NodeError::Field("codec")));
    let mut bytes = encoded(&|_| {});
    bytes.truncate(bytes.len() - 1);
    assert_eq!(CatalogLeaf::decode(&bytes), Err(NodeError::Truncated));
}

#[test]
fn a_change_with_bytes_behind_it_is_refused() {
    let change = CatalogChange {
        op: CatalogOp::Create,
        id: 7,
        source: 0,
        codec: Codec::Raw,
        frame_blocks: 1,
        size_blocks: 10,
        flags: 0,
        name: "a".to_owned(),
    };
    let mut bytes = change.encode();
    assert_eq!(CatalogChange::decode(&bytes), Ok(change));
    bytes.push(0);
    assert_eq!(CatalogChange::decode(&bytes), Err(NodeError::Field("change of the catalog")));
    bytes[0] = 8;
    assert_eq!(CatalogChange::decode(&bytes), Err(NodeError::Field("change of the catalog")));
}

proptest! {
    #[test]
    fn leaves_and_changes_round_trip(roots in btree_map(0_u8..16, root(), 0..17), change in change()) {
        let mut leaf = CatalogLeaf::default();
        roots.into_iter().for_each(|(position, root)| leaf.set(position, root));
        prop_assert_eq!(CatalogLeaf::decode(&leaf.encode()), Ok(leaf));
        prop_assert_eq!(CatalogChange::decode(&change.encode()), Ok(change));
    }

    #[test]
    fn decoded_bytes_round_trip(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(leaf) = CatalogLeaf::decode(&bytes) {
            prop_assert_eq!(CatalogLeaf::decode(&leaf.encode()), Ok(leaf));
        }
        if let Ok(change) = CatalogChange::decode(&bytes) {
            prop_assert_eq!(CatalogChange::decode(&change.encode()), Ok(change));
        }
    }
}
