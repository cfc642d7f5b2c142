//! Changes of the catalog: volumes, snapshots, clones, rollback.
//!
//! Job: check a change and carry it out. Invariant: whoever gets a root that another has, both copy from then on: their
//! `shared_at` becomes the epoch, and the epoch goes up. Each costs one record, whatever the size. What it does not do:
//! log.

use crate::catalog::{Root, RootKind};
use crate::ids::{PageNo, RootId};
use crate::limits;
use crate::media::batch::{CatalogChange, CatalogOp};
use crate::pager::Missing;
use crate::seam::StoreError;
use crate::survey::Frozen;
use crate::trees::Trees;

impl Trees {
    /// Whether the change is possible now.
    pub(crate) fn check_catalog(&self, change: &CatalogChange) -> Result<(), StoreError> {
        let target = self.root(change.id);
        let is_volume = |root: &Root| root.kind == RootKind::Volume;
        match change.op {
            CatalogOp::Create => {
                self.check_new(change)?;
                let shifts = limits::CHUNK_BYTES_MIN.ilog2()..=limits::CHUNK_BYTES_MAX.ilog2();
                let sizes = 1..=limits::VOLUME_CHUNKS_MAX;
                let shift = u32::from(change.chunk_shift);
                let sane = shifts.contains(&shift)
                    && 1 << shift <= limits::request_bytes_max(self.segments.segment_bytes())
                    && sizes.contains(&change.size_chunks);
                if sane { Ok(()) } else { Err(StoreError::Invalid) }
            }
            CatalogOp::Snapshot => {
                self.check_new(change)?;
                let source = self.root(change.source).ok_or(StoreError::NoSuchRoot)?;
                if is_volume(source) { Ok(()) } else { Err(StoreError::Invalid) }
            }
            CatalogOp::Clone => {
                self.check_new(change)?;
                self.root(change.source).map(|_| ()).ok_or(StoreError::NoSuchRoot)
            }
            CatalogOp::Rollback => {
                let (target, source) = (target, self.root(change.source));
                let (Some(target), Some(source)) = (target, source) else {
                    return Err(StoreError::NoSuchRoot);
                };
                let fits =
                    is_volume(target) && !is_volume(source) && target.chunk_shift == source.chunk_shift;
                if fits { Ok(()) } else { Err(StoreError::Invalid) }
            }
            CatalogOp::Grow => {
                let target = target.ok_or(StoreError::NoSuchRoot)?;
                let sizes = target.size_chunks..=limits::VOLUME_CHUNKS_MAX;
                let fits = is_volume(target) && sizes.contains(&change.size_chunks);
                if fits { Ok(()) } else { Err(StoreError::Invalid) }
            }
            CatalogOp::Delete => target.map(|_| ()).ok_or(StoreError::NoSuchRoot),
        }
    }

    fn check_new(&self, change: &CatalogChange) -> Result<(), StoreError> {
        if change.id.0 >= limits::ROOTS_MAX {
            return Err(StoreError::Limit);
        }
        let named = !change.name.is_empty() && change.name.len() <= limits::NAME_BYTES_MAX;
        let is_taken = self.roots.iter().any(|(id, root)| *id == change.id || root.name == change.name);
        if named && !is_taken { Ok(()) } else { Err(StoreError::Invalid) }
    }

    /// Carries out a change that was checked.
    pub(crate) fn change_catalog(&mut self, change: &CatalogChange) -> Result<(), Missing> {
        match change.op {
            CatalogOp::Create => {
                let changes = first_count(self.next_epoch());
                self.put_root(change.id, Root { changes, ..Root::create(change) });
            }
            CatalogOp::Snapshot => self.share(change.source, change.id, RootKind::Snapshot, &change.name),
            CatalogOp::Clone => self.share(change.source, change.id, RootKind::Volume, &change.name),
            CatalogOp::Rollback => {
                let Some(source) = self.root(change.source).cloned() else { return Ok(()) };
                let epoch = self.next_epoch();
                let root = self.root_mut(change.id);
                (root.page, root.height, root.size_chunks) = (source.page, source.height, source.size_chunks);
                root.shared_at = epoch;
                self.refer_root(source.page);
                self.count_change(change.id);
            }
            CatalogOp::Grow => {
                self.fit_height(change.id, change.size_chunks)?;
                self.root_mut(change.id).size_chunks = change.size_chunks;
                self.count_change(change.id);
            }
            CatalogOp::Delete => {
                self.roots.remove(&change.id);
                self.changed_roots.insert(change.id);
            }
        }
        Ok(())
    }

    /// All roots as they are now: from now on every volume copies the pages that it has, as after a snapshot.
    pub(crate) fn freeze(&mut self) -> Vec<Frozen> {
        let epoch = self.next_epoch();
        let frozen = |(id, root): (&RootId, &Root)| Frozen {
            id: *id,
            is_volume: root.kind == RootKind::Volume,
            page: root.page,
            height: root.height,
            chunk_shift: root.chunk_shift,
            size_chunks: root.size_chunks,
        };
        let roots: Vec<Frozen> = self.roots.iter().map(frozen).collect();
        for root in &roots {
            if root.is_volume {
                self.root_mut(root.id).shared_at = epoch;
            }
            self.refer_root(root.page);
        }
        roots
    }

    fn share(&mut self, source: RootId, id: RootId, kind: RootKind, name: &str) {
        let Some(mut root) = self.root(source).cloned() else { return };
        let epoch = self.next_epoch();
        self.root_mut(source).shared_at = epoch;
        root.kind = kind;
        root.source = source;
        root.shared_at = epoch;
        root.changes = first_count(epoch);
        name.clone_into(&mut root.name);
        self.put_root(id, root);
    }

    fn put_root(&mut self, id: RootId, root: Root) {
        self.refer_root(root.page);
        self.roots.insert(id, root);
        self.changed_roots.insert(id);
    }

    /// A root gets this page: it is marked, as any number that is put anywhere.
    fn refer_root(&mut self, page: PageNo) {
        self.with_mark(|mark| mark.page(page));
    }

    /// The epoch that ends now.
    fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch - 1
    }
}

/// Where the count of a new root begins: never where that of another root is, which may have had its number. Multiples
/// of an odd number are far apart (Fibonacci hashing).
const fn first_count(epoch: u64) -> u64 {
    epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
