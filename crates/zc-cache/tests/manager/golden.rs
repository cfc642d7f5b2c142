//! Images of caches made by this format version, kept: every later build has to open them and find what was stored.
//!
//! `ZC_WRITE_GOLDEN=1` makes them anew. That is right only together with a new version or feature flag
//! (`zc-format/FORMAT.md`, section 3).

use std::path::PathBuf;

use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{Codec, FingerprintKind, Mode, usize_from_u64};
use zc_reduce::Reducer;

use crate::world::{Shape, V, W, World, half, volume};

const E: u64 = 8 << 10;
const CODEC: Codec = Codec::Zstd(19);

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn shape(kind: FingerprintKind) -> Shape {
    Shape { slots: 24, weu_bytes: 64 << 10, volume_bytes: 1 << 20, kind, ..Shape::default() }
}

fn write_back() -> VolumeConfig {
    VolumeConfig { mode: Mode::WriteBack, may_be_dirty: true, ..volume(V, 1 << 20) }
}

/// What was done to the cache in the image: clean extents, duplicates, zeros, voided ones; with `dirty` epochs, one of
/// them hidden in part by the next, and writes that no commit followed. Power was cut at the end.
fn act(world: &mut World, dirty: bool) {
    world.write(W, 0, &half(1, 6 * usize_from_u64(E)));
    world.write(W, 8 * E, &half(1, 6 * usize_from_u64(E)));
    world.write(W, 20 * E, &vec![0; usize_from_u64(E)]);
    world.write(W, E, &half(2, 512));
    world.tick(3000);
    world.tick(3000);
    if dirty {
        world.write(V, 0, &half(3, 3 * usize_from_u64(E)));
        flush(world);
        world.write(V, E + 1024, &half(4, 2048));
        world.write(V, 9 * E, &half(1, usize_from_u64(E)));
        flush(world);
        world.write(V, 5 * E, &half(5, 4096));
    }
}

fn flush(world: &mut World) {
    let req = world.submit(V, 0, 0, RequestKind::Flush);
    assert_eq!(world.replies.remove(&req).unwrap().0, Ok(()));
}

/// Volume V as it must read after the cut.
fn expected() -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut put = |at: u64, data: &[u8]| {
        let at = usize_from_u64(at);
        bytes[at..at + data.len()].copy_from_slice(data);
    };
    put(0, &half(3, 3 * usize_from_u64(E)));
    put(E + 1024, &half(4, 2048));
    put(9 * E, &half(1, usize_from_u64(E)));
    bytes
}

/// The world that an image leads to, with origins as they were.
fn open(name: &str, kind: FingerprintKind, dirty: bool) -> World {
    let mut world = World::new(shape(kind));
    if dirty {
        world.configure(write_back());
    }
    act(&mut world, dirty);
    let packed = path(name);
    if std::env::var_os("ZC_WRITE_GOLDEN").is_some() {
        let mut out = vec![0; world.device.0.len()];
        let len = Reducer::new().compress(CODEC, &world.device.0, &mut out).unwrap();
        std::fs::create_dir_all(packed.parent().unwrap()).unwrap();
        std::fs::write(&packed, &out[..len]).unwrap();
    }
    let stored = std::fs::read(&packed).unwrap();
    let mut image = vec![0; world.device.0.len()];
    Reducer::new().decompress(CODEC, &stored, &mut image).unwrap();
    world.device.0 = image;
    world.restart(false)
}

#[test]
fn an_image_of_a_write_through_cache_opens_with_everything_in_it() {
    for (name, kind) in [("blake3.img.zst", FingerprintKind::Blake3), ("sha1.img.zst", FingerprintKind::Sha1)]
    {
        let mut world = open(name, kind, false);
        world.origin_reads.clear();
        for extents in [0..6, 8..14, 20..21] {
            world.read(W, extents.start * E, (extents.end - extents.start) * E);
        }
        assert_eq!(world.origin_reads, vec![], "all of it is cached, or known to be zero");
        assert_eq!(world.stat("failed_hits"), 0);
        assert!(world.stat("extent_hits_device") >= 12 && world.stat("extent_hits_zero") >= 1);
        world.stop();
    }
}

#[test]
fn an_image_of_a_write_back_cache_opens_with_its_dirty_data() {
    let mut world = open("write-back.img.zst", FingerprintKind::Blake3, true);
    let state = world.manager.dirty(V).unwrap();
    assert_eq!((state.epochs, state.extents, state.fenced), (2, 4, false));
    let expected = expected();
    assert!(world.read_any(V, 0, 1 << 20) == expected);
    world.event(Event::Destage { volume: V });
    for _ in 0..20 {
        world.tick(50);
    }
    assert!(world.origins[&V] == expected);
    world.stop();
}
