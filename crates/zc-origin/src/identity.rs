//! Comparison of an origin with the one that the cache was filled from.
//!
//! The origin carries no mark of ours, so its identity consists of inode, length and time of the last change. A block
//! device offers less: see [`crate::Landmark`], and the sample of extents that the engine compares.

use zc_io::{FileKind, Identity};

/// Similarity of an origin to the remembered one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Likeness {
    /// All comparable properties are equal.
    Same,
    /// This origin, but its contents may have changed since; clean cache contents must not be trusted. The reason
    /// continues "the origin ...".
    Changed(String),
    /// Another origin. The reason continues "the origin ...".
    Other(String),
}

/// Compares the remembered identity of an origin with the present one.
#[must_use]
pub fn compare(remembered: &Identity, present: &Identity) -> Likeness {
    if remembered.kind != present.kind {
        let kind = |kind| if kind == FileKind::Block { "block device" } else { "file" };
        return Likeness::Other(format!("was a {} and is a {}", kind(remembered.kind), kind(present.kind)));
    }
    if remembered.inode != present.inode {
        return Likeness::Other("is another file under the same name".to_owned());
    }
    let (before, now) = (remembered.len_bytes, present.len_bytes);
    if now < before {
        return Likeness::Changed(format!("has shrunk from {before} to {now} bytes, and the volume with it"));
    }
    if now > before {
        return Likeness::Changed(format!("has grown from {before} to {now} bytes"));
    }
    if remembered.mtime_ns != present.mtime_ns {
        return Likeness::Changed("was written since zcached last stopped cleanly".to_owned());
    }
    // Device numbers change between boots and are irrelevant if everything else is equal.
    Likeness::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity =
        Identity { kind: FileKind::Regular, dev: 1, inode: 2, len_bytes: 4096, mtime_ns: 5 };

    #[test]
    fn each_difference_has_its_meaning() {
        assert_eq!(compare(&FILE, &Identity { dev: 9, ..FILE }), Likeness::Same);
        assert!(matches!(compare(&FILE, &Identity { inode: 3, ..FILE }), Likeness::Other(_)));
        assert!(matches!(compare(&FILE, &Identity { kind: FileKind::Block, ..FILE }), Likeness::Other(_)));
        assert!(matches!(compare(&FILE, &Identity { mtime_ns: 6, ..FILE }), Likeness::Changed(_)));
        assert!(matches!(compare(&FILE, &Identity { len_bytes: 1, ..FILE }), Likeness::Changed(_)));
    }
}
