//! Catalog: leaves of 16 roots, and changes of it as the log records them (`FORMAT-2.md`, section 5).
//!
//! Invariants: a decoded root has a known codec, levels that cover its size, and numbers within the format's bounds. It
//! does not decide which changes are allowed.

use std::collections::BTreeMap;

use super::bytes::{Cursor, NodeError};
use super::leaf::BLOCKS;
use super::node::{FANOUT, LEVELS_MAX, NODES_MAX};
use super::{FRAME_BLOCKS_MAX, varint};
use zc_core::{Codec, u64_from_usize};

/// Roots of a leaf.
pub const ROOTS: u32 = 16;
/// Contents are shared with what is stored already.
pub const FLAG_DEDUP: u64 = 1;
/// Upper bound of the bytes of a name.
pub const NAME_BYTES_MAX: usize = 64;
/// Upper bound of the size of a volume: 2^63 bytes.
pub const SIZE_BLOCKS_MAX: u64 = 1 << 51;

/// Kind of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// Can be written.
    Volume,
    /// Never changes.
    Snapshot,
}

/// Top of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Top {
    /// Number of the top node; 0 if the tree is empty.
    pub node: u64,
    /// Levels of inner nodes above the leaves.
    pub levels: u8,
}

/// Order mark of a volume: everything up to the run of this cache is in the log before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderMark {
    /// Identity of the cache.
    pub cache: [u8; 16],
    /// Number of the run.
    pub run: u64,
}

/// Volume or snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Kind of the root.
    pub kind: RootKind,
    /// Codec of new contents.
    pub codec: Codec,
    /// Blocks that are compressed together, 1 to 16.
    pub frame_blocks: u8,
    /// Last order mark.
    pub mark: Option<OrderMark>,
    /// Volume of a snapshot, source of a clone, or itself.
    pub source: u32,
    /// Size in blocks.
    pub size_blocks: u64,
    /// Top of the map.
    pub top: Top,
    /// Nodes with lower numbers may be reached from other roots.
    pub shared_from: u64,
    /// Bit 0: [`FLAG_DEDUP`].
    pub flags: u64,
    /// Count of changes of contents and size.
    pub changes: u64,
    /// Name, at most [`NAME_BYTES_MAX`] bytes.
    pub name: String,
}

/// Decoded leaf of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogLeaf(BTreeMap<u8, Root>);

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CatalogOp {
    /// A new, empty volume.
    Create = 1,
    /// A volume or snapshot goes.
    Delete = 2,
    /// A new snapshot of `source`.
    Snapshot = 3,
    /// A new volume with the contents of `source`.
    Clone = 4,
    /// The volume gets the contents of `source`.
    Rollback = 5,
    /// The volume gets another size.
    Resize = 6,
    /// The root gets another name.
    Rename = 7,
}

/// Change of volumes and snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogChange {
    /// Kind of the change.
    pub op: CatalogOp,
    /// Root that it concerns, or creates.
    pub id: u32,
    /// See [`CatalogOp`].
    pub source: u32,
    /// Codec of a new volume.
    pub codec: Codec,
    /// Blocks that a new volume compresses together.
    pub frame_blocks: u8,
    /// Size of a new or resized volume, in blocks.
    pub size_blocks: u64,
    /// Flags of a new volume.
    pub flags: u64,
    /// Name of a new or renamed root.
    pub name: String,
}

/// Returns the levels of inner nodes above the leaves of so many blocks.
#[must_use]
pub fn levels_of(blocks: u64) -> u8 {
    levels_above(blocks.div_ceil(u64_from_usize(BLOCKS)))
}

/// Returns the levels of inner nodes above so many leaves. A single leaf has one, so that its number is always found in
/// an inner node.
#[must_use]
pub fn levels_above(leaves: u64) -> u8 {
    let mut levels = 1;
    let mut below = leaves.div_ceil(FANOUT);
    while below > 1 {
        (levels, below) = (levels + 1, below.div_ceil(FANOUT));
    }
    levels
}

fn codec(code: u8) -> Result<Codec, NodeError> {
    Codec::from_media_code(code).ok_or(NodeError::Field("codec"))
}

fn name(bytes: &[u8]) -> Result<String, NodeError> {
    let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= NAME_BYTES_MAX);
    text.map(str::to_owned).ok_or(NodeError::Field("name"))
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    varint::put(out, u64_from_usize(name.len()));
    out.extend_from_slice(name.as_bytes());
}

impl Top {
    /// Returns `true` if the number and levels are within bounds.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.node < NODES_MAX && self.levels <= LEVELS_MAX && (self.node == 0 || self.levels > 0)
    }
}

impl Root {
    /// Returns `true` if contents are shared with what is stored already.
    #[must_use]
    pub const fn is_deduplicated(&self) -> bool {
        self.flags & FLAG_DEDUP != 0
    }

    fn is_valid(&self) -> bool {
        self.size_blocks <= SIZE_BLOCKS_MAX
            && (1..=FRAME_BLOCKS_MAX).contains(&self.frame_blocks)
            && self.top.is_valid()
            && (self.top.node == 0 || levels_of(self.size_blocks) <= self.top.levels)
            && self.shared_from < NODES_MAX
            && self.name.len() <= NAME_BYTES_MAX
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            RootKind::Volume => 1,
            RootKind::Snapshot => 2,
        };
        out.extend([kind, self.codec.media_code(), self.frame_blocks, u8::from(self.mark.is_some())]);
        let fields = [u64::from(self.source), self.size_blocks, u64::from(self.top.levels), self.top.node];
        let more = [self.shared_from, self.flags, self.changes];
        fields.into_iter().chain(more).for_each(|value| varint::put(out, value));
        if let Some(mark) = &self.mark {
            out.extend_from_slice(&mark.cache);
            varint::put(out, mark.run);
        }
        put_name(out, &self.name);
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, NodeError> {
        let [kind, code, frame_blocks, has_mark] = cursor.array()?;
        let kind = match kind {
            1 => RootKind::Volume,
            2 => RootKind::Snapshot,
            _ => return Err(NodeError::Field("kind of a root")),
        };
        let (source, size_blocks) = (cursor.short("source")?, cursor.number()?);
        let levels = u8::try_from(cursor.number()?).map_err(|_| NodeError::Field("levels"))?;
        let top = Top { levels, node: cursor.number()? };
        let (shared_from, flags, changes) = (cursor.number()?, cursor.number()?, cursor.number()?);
        let mark = match has_mark {
            0 => None,
            1 => Some(OrderMark { cache: cursor.array()?, run: cursor.number()? }),
            _ => return Err(NodeError::Field("order mark")),
        };
        let root = Self {
            kind,
            codec: codec(code)?,
            frame_blocks,
            mark,
            source,
            size_blocks,
            top,
            shared_from,
            flags,
            changes,
            name: name(cursor.counted()?)?,
        };
        if root.is_valid() { Ok(root) } else { Err(NodeError::Field("root")) }
    }
}

impl CatalogLeaf {
    /// Replaces a root.
    ///
    /// # Panics
    /// When the position is beyond the leaf, or the root out of the format's bounds.
    pub fn set(&mut self, position: u8, root: Root) {
        assert!(u32::from(position) < ROOTS, "position {position}");
        assert!(root.is_valid(), "no such root: {root:?}");
        self.0.insert(position, root);
    }

    /// Returns all roots by rising position.
    pub fn roots(&self) -> impl Iterator<Item = (u8, &Root)> {
        self.0.iter().map(|(position, root)| (*position, root))
    }

    /// Encodes the leaf. An empty one has no bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut out, mut next) = (Vec::new(), 0);
        for (position, root) in &self.0 {
            varint::put(&mut out, u64::from(*position - next));
            root.encode(&mut out);
            next = position + 1;
        }
        out
    }

    /// Decodes a leaf.
    ///
    /// # Errors
    /// When the bytes are none, or something in them is out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (mut cursor, mut leaf, mut next) = (Cursor(bytes), Self::default(), 0);
        while !cursor.is_empty() {
            let position = cursor.position(next, u64::from(ROOTS))?;
            let root = Root::decode(&mut cursor)?;
            leaf.0.insert(u8::try_from(position).unwrap_or(u8::MAX), root);
            next = position + 1;
        }
        Ok(leaf)
    }
}

impl CatalogOp {
    fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Create,
            Self::Delete,
            Self::Snapshot,
            Self::Clone,
            Self::Rollback,
            Self::Resize,
            Self::Rename,
        ];
        all.into_iter().find(|op| *op as u8 == code)
    }
}

impl CatalogChange {
    /// Encodes the change.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.op as u8, self.codec.media_code(), self.frame_blocks];
        let fields = [u64::from(self.id), u64::from(self.source), self.size_blocks, self.flags];
        fields.into_iter().for_each(|value| varint::put(&mut out, value));
        put_name(&mut out, &self.name);
        out
    }

    /// Decodes a change.
    ///
    /// # Errors
    /// When the bytes are none, or something in them is out of bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let mut cursor = Cursor(bytes);
        let [op, code, frame_blocks] = cursor.array()?;
        let op = CatalogOp::from_code(op).ok_or(NodeError::Field("change of the catalog"))?;
        let change = Self {
            op,
            codec: codec(code)?,
            frame_blocks,
            id: cursor.short("root")?,
            source: cursor.short("source")?,
            size_blocks: cursor.number()?,
            flags: cursor.number()?,
            name: name(cursor.counted()?)?,
        };
        let is_valid = change.size_blocks <= SIZE_BLOCKS_MAX
            && (1..=FRAME_BLOCKS_MAX).contains(&change.frame_blocks)
            && cursor.is_empty();
        if is_valid { Ok(change) } else { Err(NodeError::Field("change of the catalog")) }
    }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
