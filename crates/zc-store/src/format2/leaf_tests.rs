//! Encodings of leaves: round trips, refusals, and the sizes that the design promises.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Deterministic numbers for the workloads.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Segment that is filled with frames.
#[derive(Clone, Copy)]
struct Open {
    name: Name,
    offset_units: u32,
}

impl Open {
    fn new(segment: u64) -> Self {
        Self { name: Name { pool: 0, segment, ordinal: 0 }, offset_units: 64 }
    }

    /// Appends a frame and returns its blocks.
    fn frame(&mut self, blocks: u8, units: u16) -> Vec<Cell> {
        let (first, offset_units) = (self.name, self.offset_units);
        self.name = first.later(u16::from(blocks)).unwrap();
        self.offset_units += u32::from(units);
        let cell = |index: u8| {
            let name = first.later(u16::from(index)).unwrap();
            Cell::Stored(Stored { name, offset_units, units, blocks, index })
        };
        (0..blocks).map(cell).collect()
    }
}

fn leaf_of(cells: impl IntoIterator<Item = Cell>) -> Leaf {
    let mut leaf = Leaf::default();
    cells.into_iter().take(BLOCKS).enumerate().for_each(|(block, cell)| leaf.set(block, Some(cell)));
    leaf
}

/// Bytes of a leaf, after a round trip.
fn bytes_of(leaf: &Leaf) -> usize {
    let bytes = leaf.encode();
    assert_eq!(Leaf::decode(&bytes).as_ref(), Ok(leaf));
    bytes.len()
}

/// MB for a GB of a volume, when each leaf takes so many bytes.
fn mb_per_gb(bytes: usize) -> f64 {
    let leaves = f64::from((1_u32 << 30) / (2 << 20));
    f64::from(u32::try_from(bytes).unwrap()) * leaves / 1e6
}

#[test]
fn a_sequential_leaf_takes_a_byte_for_each_frame() {
    let mut open = Open::new(1 << 19);
    let mut draw = Draw(1);
    let leaf = leaf_of((0..128).flat_map(|_| open.frame(4, 60 + u16::try_from(draw.below(192)).unwrap())));
    let bytes = bytes_of(&leaf);
    assert!((128..=140).contains(&bytes), "{bytes}");
    assert!(mb_per_gb(bytes) <= 0.072, "{bytes}");
}

#[test]
fn a_leaf_of_shuffled_files_takes_less_than_flaz() {
    let mut draw = Draw(2);
    let mut cells = Vec::new();
    while cells.len() < BLOCKS {
        let mut open = Open::new(1 + draw.below(1 << 19));
        open.name.ordinal = u16::try_from(draw.below(2000)).unwrap();
        open.offset_units += u32::try_from(draw.below(60_000)).unwrap();
        // Files of 40 KiB: two whole frames and a part.
        for blocks in [4, 4, 2] {
            cells.extend(open.frame(blocks, 30 * u16::from(blocks)));
        }
    }
    let bytes = bytes_of(&leaf_of(cells));
    assert!(mb_per_gb(bytes) <= 0.4, "{bytes}");
}

#[test]
fn a_leaf_of_random_blocks_takes_ten_bytes_for_each() {
    let mut draw = Draw(3);
    let cells = (0..BLOCKS).flat_map(|_| {
        let mut open = Open::new(1 + draw.below(1 << 20));
        open.name.ordinal = u16::try_from(draw.below(2000)).unwrap();
        open.offset_units += u32::try_from(draw.below(60_000)).unwrap();
        open.frame(1, 20 + u16::try_from(draw.below(40)).unwrap())
    });
    let bytes = bytes_of(&leaf_of(cells));
    assert!(bytes <= 11 * BLOCKS && mb_per_gb(bytes) <= 2.6, "{bytes}");
}

#[test]
fn an_empty_leaf_has_no_bytes() {
    assert_eq!(bytes_of(&Leaf::default()), 0);
}

#[test]
fn a_delta_replaces_and_discards_and_leaves_the_rest() {
    let mut open = Open::new(7);
    let mut base = leaf_of((0..2).flat_map(|_| open.frame(4, 100)));
    let before = base.clone();
    let mut delta = Leaf::default();
    let new = Open::new(8).frame(1, 9)[0];
    delta.set(1, Some(new));
    delta.set(2, Some(Cell::Hole));
    delta.set(500, Some(Cell::Zero));
    assert!(bytes_of(&delta) < 20);
    base.apply(&delta);
    assert_eq!((base.get(0), base.get(3)), (before.get(0), before.get(3)));
    assert_eq!((base.get(1), base.get(2), base.get(500)), (Some(new), None, Some(Cell::Zero)));
    assert_eq!(base.get(BLOCKS), None);
    bytes_of(&base);
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let encoded = |cells: Vec<Cell>| leaf_of(cells).encode();
    // One block: head, segment 1 as a difference, ordinal, offset, length.
    let single = encoded(Open::new(1).frame(1, 10));
    assert_eq!(single, [1 << 4 | 1 << 1, 2, 0, 64, 9]);
    let with = |at: usize, with: &[u8]| {
        let mut bytes = single.clone();
        bytes.splice(at..=at, with.iter().copied());
        Leaf::decode(&bytes)
    };
    assert_eq!(with(1, &[0]), Err(LeafError::Place), "segment 0");
    assert_eq!(with(2, &[0x80, 0x80, 4]), Err(LeafError::Place), "ordinal 65,536");
    assert_eq!(with(3, &[0x80, 0x80, 0x40]), Err(LeafError::Place), "behind the largest segment");
    assert_eq!(with(0, &[6 << 1 | 1 << 4]), Err(LeafError::Kind(6)));
    assert_eq!(with(0, &[1 << 1]), Err(LeafError::Run(0)));
    assert_eq!(with(4, &[OTHER_BLOCKS, 17, 9]), Err(LeafError::Place), "a frame of 17 blocks");
    assert_eq!(with(4, &[OTHER_BLOCKS, 4, OTHER_BLOCKS]), Err(LeafError::Place));
    for len in 1..single.len() {
        assert_eq!(Leaf::decode(&single[..len]), Err(LeafError::Truncated), "{len} bytes");
    }
    let lost = |blocks: u64| {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, blocks << 4 | 3 << 1);
        Leaf::decode(&bytes).map(drop)
    };
    assert_eq!((lost(512), lost(513)), (Ok(()), Err(LeafError::Run(513))));
}

#[derive(Debug, Clone)]
enum Piece {
    Skip(u16),
    Frames { segment: u64, pool: u8, ordinal: u16, offset: u32, frames: Vec<(u8, u16, [u8; 2])>, cut: u8 },
    Cells(Cell, u16),
}

fn piece() -> impl Strategy<Value = Piece> {
    let frames = vec((1..=FRAME_BLOCKS_MAX, 1..=LONG_UNITS_MAX, [0_u8..2, 0_u8..2]), 1..8);
    prop_oneof![
        (1_u16..40).prop_map(Piece::Skip),
        (1_u64..4, 0_u8..3, 0_u16..60_000, 0_u32..1 << 19, frames, 0_u8..4).prop_map(
            |(segment, pool, ordinal, offset, frames, cut)| Piece::Frames {
                segment,
                pool,
                ordinal,
                offset,
                frames,
                cut
            }
        ),
        (prop_oneof![Just(Cell::Lost), Just(Cell::Zero), Just(Cell::Hole)], 1_u16..40)
            .prop_map(|(cell, blocks)| Piece::Cells(cell, blocks)),
    ]
}

fn cells_of(pieces: &[Piece]) -> Vec<Option<Cell>> {
    let mut cells = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Skip(blocks) => cells.extend((0..*blocks).map(|_| None)),
            Piece::Cells(cell, blocks) => cells.extend((0..*blocks).map(|_| Some(*cell))),
            Piece::Frames { segment, pool, ordinal, offset, frames, cut } => {
                let name = Name { pool: *pool, segment: *segment, ordinal: *ordinal };
                let mut open = Open { name, offset_units: *offset };
                // Now and then the next frame has a later name, or lies further behind.
                let blocks = frames.iter().flat_map(|(blocks, units, [later, behind])| {
                    open.name.ordinal += u16::from(*later);
                    open.offset_units += u32::from(*behind);
                    open.frame(*blocks, *units)
                });
                // Begins within a frame, where the frame is that long.
                cells.extend(blocks.skip(usize::from(*cut)).map(Some));
            }
        }
    }
    cells.truncate(BLOCKS);
    cells
}

proptest! {
    #[test]
    fn leaves_round_trip(pieces in vec(piece(), 0..40)) {
        let mut leaf = Leaf::default();
        for (block, cell) in cells_of(&pieces).into_iter().enumerate() {
            leaf.set(block, cell);
        }
        prop_assert_eq!(Leaf::decode(&leaf.encode()), Ok(leaf));
    }

    #[test]
    fn whatever_decodes_encodes_to_the_same_leaf(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(leaf) = Leaf::decode(&bytes) {
            prop_assert_eq!(Leaf::decode(&leaf.encode()), Ok(leaf));
        }
    }

    #[test]
    fn a_changed_byte_never_panics(pieces in vec(piece(), 1..12), at: prop::sample::Index, to: u8) {
        let mut leaf = Leaf::default();
        for (block, cell) in cells_of(&pieces).into_iter().enumerate() {
            leaf.set(block, cell);
        }
        let mut bytes = leaf.encode();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(leaf) = Leaf::decode(&bytes) {
                prop_assert_eq!(Leaf::decode(&leaf.encode()), Ok(leaf));
            }
        }
    }
}
