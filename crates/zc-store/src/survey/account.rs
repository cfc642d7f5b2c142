//! Accounts: what each volume and snapshot uses, alone and with others.
//!
//! Job: count in two walks. The first finds what more than one root refers to; the second looks every chunk up once a
//! root and adds. Invariant: the sums are exact for the moment when they were asked for. Cost: two bits a chunk for the
//! first walk and two for the second, and a read of every map for every root, twice. What it does not do: guess.

use super::walk::{Frozen, Item, Walk};
use super::{Step, Surveyed};
use crate::ids::RootId;
use crate::limits::BLOCK_BYTES;
use crate::numbers::Bitmap;
use crate::pager::Missing;
use crate::stats::Space;
use crate::trees::Trees;

/// What a volume or snapshot uses. *Stored* bytes are compressed contents, each chunk counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootAccount {
    /// Which.
    pub root: RootId,
    /// Its size as clients see it.
    pub nominal_bytes: u64,
    /// Of these, bytes of chunks that hold something.
    pub used_bytes: u64,
    /// Stored bytes that it refers to.
    pub stored_bytes: u64,
    /// Of these, those that no other volume or snapshot refers to.
    pub unique_bytes: u64,
    /// Pages of its map.
    pub map_bytes: u64,
    /// Of these, those that are in no other map.
    pub unique_map_bytes: u64,
}

impl RootAccount {
    /// Stored bytes that other volumes or snapshots refer to as well.
    #[must_use]
    pub const fn shared_bytes(&self) -> u64 {
        self.stored_bytes - self.unique_bytes
    }

    /// What becomes free when it is deleted, after the cleaner's next round.
    #[must_use]
    pub const fn delete_frees_bytes(&self) -> u64 {
        self.unique_bytes + self.unique_map_bytes
    }
}

/// What the pool holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolAccount {
    /// Sizes of all volumes (not snapshots) as clients see them.
    pub nominal_bytes: u64,
    /// Used bytes of all volumes and snapshots.
    pub used_bytes: u64,
    /// Used bytes with each chunk counted once, before compression.
    pub raw_bytes: u64,
    /// Used bytes with each chunk counted once, after compression.
    pub stored_bytes: u64,
    /// Pages of all maps, each counted once.
    pub map_bytes: u64,
    /// Segments in use, but for contents and maps: what the cleaner may free, headers of batches, tables.
    pub dead_bytes: u64,
    /// Free segments.
    pub free_bytes: u64,
    /// All segments.
    pub total_bytes: u64,
}

/// The pool, and each volume and snapshot in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    /// The pool.
    pub pool: PoolAccount,
    /// By number.
    pub roots: Vec<RootAccount>,
}

/// Numbers of one kind that were come across.
#[derive(Debug, Default)]
struct Seen {
    once: Bitmap,
    /// By more than one root.
    shared: Bitmap,
    /// In the second walk.
    added: Bitmap,
}

impl Seen {
    /// A root refers to it; called once a root.
    fn meet(&mut self, number: u64) {
        if !self.once.insert(number) {
            self.shared.insert(number);
        }
    }
}

/// Accounts in progress.
#[derive(Debug)]
pub(super) struct Accounting {
    walk: Walk,
    is_second: bool,
    /// A chunk whose record is being read.
    held: Option<Item>,
    /// Chunks of the present root.
    mine: Bitmap,
    chunks: Seen,
    pages: Seen,
    accounts: Accounts,
}

impl Accounting {
    pub(super) fn new(roots: Vec<Frozen>, space: Space) -> Self {
        let account = |root: &Frozen| RootAccount {
            root: root.id,
            nominal_bytes: root.size_chunks << root.chunk_shift,
            used_bytes: 0,
            stored_bytes: 0,
            unique_bytes: 0,
            map_bytes: 0,
            unique_map_bytes: 0,
        };
        let volumes = roots.iter().filter(|root| root.is_volume);
        let pool = PoolAccount {
            nominal_bytes: volumes
                .map(|root| root.size_chunks << root.chunk_shift)
                .fold(0, u64::saturating_add),
            free_bytes: space.free_bytes,
            total_bytes: space.total_bytes,
            ..PoolAccount::default()
        };
        let accounts = Accounts { pool, roots: roots.iter().map(account).collect() };
        Self {
            walk: Walk::new(roots, 0),
            is_second: false,
            held: None,
            mine: Bitmap::default(),
            chunks: Seen::default(),
            pages: Seen::default(),
            accounts,
        }
    }

    pub(super) fn walk(&self) -> &Walk {
        &self.walk
    }

    pub(super) fn step(&mut self, trees: &mut Trees) -> Result<Step, Missing> {
        let item = match self.held {
            Some(item) => item,
            None => self.walk.next(trees)?,
        };
        self.held = Some(item);
        match item {
            Item::Root => self.mine = Bitmap::default(),
            Item::Page(root, page) => self.count_page(root, page.0),
            Item::Chunk(root, _, chunk) if self.is_second => self.add_chunk(trees, root, chunk)?,
            Item::Chunk(root, _, chunk) => {
                let bytes = 1 << self.walk.roots()[root].chunk_shift;
                self.accounts.roots[root].used_bytes += bytes;
                self.accounts.pool.used_bytes += bytes;
                if self.mine.insert(chunk.0) {
                    self.chunks.meet(chunk.0);
                }
            }
            Item::Lost(..) => {}
            Item::End if self.is_second => return Ok(Step::Done(Surveyed::Accounts(self.end()))),
            Item::End => {
                self.is_second = true;
                self.walk.rewind();
            }
        }
        self.held = None;
        Ok(Step::Again)
    }

    fn count_page(&mut self, root: usize, page: u64) {
        if !self.is_second {
            self.pages.meet(page);
            return;
        }
        let bytes = u64::from(BLOCK_BYTES);
        let account = &mut self.accounts.roots[root];
        account.map_bytes += bytes;
        if !self.pages.shared.has(page) {
            account.unique_map_bytes += bytes;
        }
        if self.pages.added.insert(page) {
            self.accounts.pool.map_bytes += bytes;
        }
    }

    fn add_chunk(
        &mut self,
        trees: &mut Trees,
        root: usize,
        chunk: crate::ids::ChunkNo,
    ) -> Result<(), Missing> {
        if self.mine.has(chunk.0) {
            return Ok(());
        }
        let stored = trees.stored(chunk)?;
        self.mine.insert(chunk.0);
        let Some(stored) = stored else { return Ok(()) };
        let bytes = u64::from(stored.stored_bytes);
        let account = &mut self.accounts.roots[root];
        account.stored_bytes += bytes;
        if !self.chunks.shared.has(chunk.0) {
            account.unique_bytes += bytes;
        }
        if self.chunks.added.insert(chunk.0) {
            self.accounts.pool.stored_bytes += bytes;
            self.accounts.pool.raw_bytes += u64::from(stored.raw_bytes);
        }
        Ok(())
    }

    fn end(&mut self) -> Accounts {
        let mut accounts = core::mem::take(&mut self.accounts);
        let pool = &mut accounts.pool;
        let occupied = pool.total_bytes - pool.free_bytes;
        // Contents in the open batch have their place, and segments that are left are free only when readers are gone.
        pool.dead_bytes = occupied.saturating_sub(pool.stored_bytes + pool.map_bytes);
        accounts
    }
}
