//! Isolation of domains: requests of a volume reveal nothing about contents of another domain, even by their timing.

use zc_cache::config::{VolumeConfig, WriteBackConfig};
use zc_cache::seam::{Action, RequestKind};
use zc_core::{DedupDomain, Mode};

use crate::world::{Shape, V, W, World, noise, volume};

const EXTENT: usize = 8 << 10;
const EXTENTS: usize = 40;

/// All that is done, in its order, when W writes `data` after V has cached its own.
fn work(domains: [DedupDomain; 2], write_back: bool, data: &[u8]) -> Vec<core::mem::Discriminant<Action>> {
    let mut world = World::new(Shape { domains, ..Shape::default() });
    if write_back {
        let write_back = WriteBackConfig { max_dirty_age_ms: 100, ..WriteBackConfig::default() };
        let config = VolumeConfig { mode: Mode::WriteBack, write_back, ..volume(W, 4 << 20) };
        world.configure(config);
    }
    world.write(V, 0, &noise(1, EXTENT * EXTENTS));
    for _ in 0..20 {
        world.tick(50);
    }
    world.kinds.clear();
    for (number, extent) in (0..).zip(data.chunks(EXTENT)) {
        world.write(W, number * EXTENT as u64, extent);
    }
    world.submit(W, 0, 0, RequestKind::Flush);
    for _ in 0..20 {
        world.tick(50);
    }
    let read = world.read_any(W, 0, (EXTENT * EXTENTS) as u64);
    assert!(read == data, "W reads what it wrote");
    world.kinds
}

#[test]
fn a_guess_at_another_domain_s_content_makes_the_same_work_right_or_wrong() {
    let (right, wrong) = (noise(1, EXTENT * EXTENTS), noise(2, EXTENT * EXTENTS));
    let other = DedupDomain::keyed([7; 32]);
    for write_back in [false, true] {
        for domains in [[DedupDomain::COMMON, other], [other, DedupDomain::COMMON]] {
            let [right, wrong] = [&right, &wrong].map(|data| work(domains, write_back, data));
            assert!(right == wrong, "{} actions and {}", right.len(), wrong.len());
        }
        let [right, wrong] = [&right, &wrong].map(|data| work([other; 2], write_back, data));
        assert!(right != wrong, "within one domain a right guess is stored already");
    }
}
