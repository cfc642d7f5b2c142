//! Pages of trees whose check failed: what cannot be read is passed over by changes, and is an error to readers.
//!
//! Job: remember such pages with the places at which they failed. Invariants: a page is lost only as long as what leads
//! to it names the place at which its check failed; a device that reports an error loses nothing, since it may be mended.
//! What it does not do: read pages, or choose what replaces one.

use std::collections::BTreeMap;

use crate::ids::Pointer;
use crate::limits;
use crate::media::page::PageKey;
use crate::pager::Missing;

/// In a map page: what was here cannot be read. It is an error until it is written over or discarded.
pub(crate) const LOST: u64 = u64::MAX;

/// The pages.
#[derive(Debug, Default)]
pub(crate) struct LostPages(BTreeMap<PageKey, Pointer>);

impl LostPages {
    /// The check of a page failed at this place. What does not fit is an error to changes, too.
    pub(crate) fn insert(&mut self, missing: Missing) {
        if self.0.len() < limits::LOST_PAGES_MAX {
            self.0.insert(missing.key, missing.pointer);
        }
    }

    /// The page could be read.
    pub(crate) fn remove(&mut self, key: PageKey) {
        if !self.0.is_empty() {
            self.0.remove(&key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if the check of the page failed.
    pub(crate) fn has_key(&self, key: PageKey) -> bool {
        self.0.contains_key(&key)
    }

    /// Returns `true` if it is known that the page cannot be read: its check failed there, or nothing says where it is.
    pub(crate) fn has(&self, missing: &Missing) -> bool {
        !missing.pointer.is_some() || self.0.get(&missing.key) == Some(&missing.pointer)
    }
}
