//! Content of removed volumes is erased from the cache device on request.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::BTreeSet;

use rand::Rng as _;
use zc_tests::{MIB, World, rng};

const BLOCK: usize = 4096;

/// Blocks that differ from all others, and that nothing compresses.
fn secret(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 512 * BLOCK];
    rng(seed).fill_bytes(&mut bytes);
    bytes
}

/// Number of blocks of `content` in the cache file.
fn held(world: &World, content: &[u8]) -> usize {
    let bytes = std::fs::read(world.cache_file()).expect("the cache is a file");
    let places: BTreeSet<&[u8]> = bytes.windows(16).step_by(16).collect();
    content.chunks(BLOCK).filter(|block| places.contains(&block[1024..1040])).count()
}

fn world() -> World {
    let mut world = World::new(64, 16);
    world.cache.push_str("compression = \"none\"\ndedup = false\n");
    for name in ["tenant", "other"] {
        world.volumes.push((name.to_owned(), 16 * MIB, String::new()));
    }
    world
}

#[test]
fn a_volume_that_is_removed_with_erase_leaves_nothing_in_the_cache() {
    let world = world();
    let daemon = world.start();
    let (old, new, kept) = (secret(1), secret(2), secret(3));
    for (volume, content) in [("tenant", &old), ("other", &kept), ("tenant", &new)] {
        let mut client = world.connect(volume);
        client.write(0, content).expect("write");
        client.flush().expect("flush");
        world.settled();
    }
    world.status_until("clients are gone", |status| status["connections"] == 0);
    assert!(held(&world, &old) > 256 && held(&world, &new) > 256, "both versions are on the device");
    let removed = world.zcctl_output(&["volume", "remove", "tenant"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert!(held(&world, &new) > 256, "a removal alone leaves it");
    let erased = world.zcctl_output(&["cache", "erase"]);
    let said = String::from_utf8_lossy(&erased.stdout).into_owned();
    assert!(erased.status.success() && said.contains("are erased"), "{said}");
    assert_eq!((held(&world, &old), held(&world, &new)), (0, 0));
    assert!(world.connect("other").read(0, kept.len()).expect("read") == kept);

    // In one command, and after a restart: the volume is on no list any more.
    world.status_until("clients are gone", |status| status["connections"] == 0);
    let removed = world.zcctl_output(&["volume", "remove", "other", "--erase"]);
    let said = String::from_utf8_lossy(&removed.stdout).into_owned();
    assert!(removed.status.success() && said.contains("are erased"), "{said}");
    assert_eq!(held(&world, &kept), 0);
    assert_eq!(daemon.terminate().code(), Some(0));
}
