//! What the manager learns of contents, told to whoever records a volume.
//!
//! Job: a [`Note::Content`] for each extent whose content becomes known by hashing, and whose size by compression. For
//! volumes of which nobody wants to know, which is the rule, it costs a look at an empty list.
//!
//! Invariant: what is told is the extent's content in the order of requests: no write to it was submitted since the one
//! that brought it. What it does not do: tell what was known before (hits), or look for it.

use zc_core::{Codec, ExtentKey, VolumeId};

use crate::base::Base;
use crate::manager::CacheManager;
use crate::seam::{Action, Digest, Note};

impl Base {
    /// Whether somebody wants to know what the extent holds.
    pub(crate) fn tells(&self, key: ExtentKey) -> bool {
        !self.told.is_empty() && self.told.contains(&key.volume)
    }

    /// Tells it.
    pub(crate) fn tell(&mut self, key: ExtentKey, digest: Digest, stored: Option<(Codec, u32)>) {
        self.port.emit(Action::Note(Note::Content { key, digest, stored }));
    }
}

impl CacheManager {
    /// From now on tells what it learns of the volume's contents, or no longer.
    pub fn tell_contents(&mut self, volume: VolumeId, tell: bool) {
        self.core.base.told.retain(|other| *other != volume);
        if tell {
            self.core.base.told.push(volume);
        }
    }
}
