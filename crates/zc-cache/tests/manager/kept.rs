//! What reads of dirty data keep for an origin that stores contents as the cache does.

use zc_cache::config::VolumeConfig;
use zc_core::{DedupDomain, FingerprintKind};

use crate::world::{Shape, half, noise};
use crate::write_back::{E, Twin, write_back};

/// Destages whole extents and parts of them, some from memory and some from the device. What was kept of them.
fn kept(shape: Shape, recipes: bool) -> Vec<(bool, bool)> {
    let domain = shape.domains[0];
    let mut t = Twin::new(shape);
    t.world.configure(VolumeConfig { recipes, domain, ..write_back() });
    // Two whole extents, then half of one, then one whose second half is written over.
    t.write(0, &noise(1, 20 << 10));
    t.write(6 * E, &half(2, 8 << 10));
    t.flush();
    t.write(6 * E + E / 2, &noise(3, 4 << 10));
    // Content that is stored already is shared, and its fingerprint is known there.
    t.write(9 * E, &noise(1, 8 << 10));
    t.flush();
    t.clean();
    // More than a unit has: what was written first is on the device alone.
    for extent in 20..60 {
        t.write(extent * E, &noise(extent, 8 << 10));
    }
    t.flush();
    t.clean();
    assert!(t.world.origins[&crate::world::V] == t.twin);
    t.world.kept
}

#[test]
fn whole_extents_are_kept_with_a_fingerprint_that_is_told_in_memory_and_proved_on_the_device() {
    let kept = kept(Shape::default(), true);
    assert_eq!(kept.len(), 4 + 40, "what is whole in its epoch: not the half");
    assert!(kept.iter().all(|(proved, printed)| proved != printed), "each has one fingerprint");
    assert!(kept.iter().any(|(proved, _)| *proved) && kept.iter().any(|(_, printed)| *printed));
}

#[test]
fn nothing_is_kept_for_an_origin_that_knows_no_contents() {
    assert_eq!(kept(Shape::default(), false), []);
}

#[test]
fn fingerprints_of_another_kind_or_with_a_key_are_not_told() {
    let keyed = Shape { domains: [DedupDomain::keyed([7; 32]); 2], ..Shape::default() };
    for shape in [keyed, Shape { kind: FingerprintKind::Sha1, ..Shape::default() }] {
        assert!(kept(shape, true).iter().all(|(_, printed)| !printed));
    }
}
