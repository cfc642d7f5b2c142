//! Facts for clients about cache and origin: block status, holes, prefetch, fast zeros.

use std::os::unix::fs::FileExt;

use zc_tests::{MIB, World, bounded, python_nbd, run_ok};

/// A world whose origin has a MiB of data, a MiB of allocated zeros and a hole.
fn sparse_world() -> World {
    let world = World::new(16, 32);
    // Nowhere zero.
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| u8::try_from((at >> 7) % 251).unwrap_or(0) | 1).collect();
    let file =
        std::fs::File::create(world.origin("disk")).unwrap_or_else(|error| panic!("no origin: {error}"));
    let zeros = vec![0; data.len()];
    let written = file.write_all_at(&data, 0).and_then(|()| file.write_all_at(&zeros, MIB));
    let sized = written.and_then(|()| file.set_len(32 * MIB));
    assert!(sized.is_ok(), "cannot fill the origin: {sized:?}");
    world
}

fn tool(name: &str, arguments: &[&str]) -> String {
    let output = run_ok(bounded(name).args(arguments));
    String::from_utf8(output.stdout).unwrap_or_else(|_| panic!("{name} writes text"))
}

/// Offset, length and type of each line of `nbdinfo --map`.
fn lines(map: &str) -> Vec<(u64, u64, u64)> {
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or(u64::MAX);
    map.lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            (number(words.next()), number(words.next()), number(words.next()))
        })
        .collect()
}

#[test]
fn libnbd_learns_what_cache_and_origin_know() {
    let world = sparse_world();
    let daemon = world.start();
    let mut python = python_nbd();
    python.args(["-c", include_str!("clients/cache_aware.py"), &world.uri("disk")]);
    assert_eq!(run_ok(&mut python).stdout, b"all of it\n");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn nbdinfo_and_qemu_img_map_an_export() {
    let world = sparse_world();
    let daemon = world.start();
    let uri = world.uri("disk");
    assert_eq!(lines(&tool("nbdinfo", &["--map", &uri])), [(0, 2 * MIB, 0), (2 * MIB, 30 * MIB, 3)]);
    let residency = || lines(&tool("nbdinfo", &["--map=x-zcached:residency", &uri]));
    assert_eq!(residency(), [(0, 32 * MIB, 0)]);
    let mut client = world.connect("disk");
    client.write(8 * MIB, &vec![9; 1 << 20]).unwrap();
    assert_eq!(residency(), [(0, 8 * MIB, 0), (8 * MIB, MIB, 1), (9 * MIB, 23 * MIB, 0)]);
    let expected = [(0, 2 * MIB, 0), (2 * MIB, 6 * MIB, 3), (8 * MIB, MIB, 0), (9 * MIB, 23 * MIB, 3)];
    assert_eq!(lines(&tool("nbdinfo", &["--map", &uri])), expected);
    let map = tool(
        "qemu-img",
        &["map", "--output=json", "--image-opts", &{
            let socket = world.path("nbd.sock");
            format!("driver=nbd,export=disk,server.type=unix,server.path={}", socket.display())
        }],
    );
    let map: serde_json::Value = serde_json::from_str(&map).unwrap_or_else(|error| panic!("{error}: {map}"));
    let part =
        |part: &serde_json::Value| (part["start"].as_u64(), part["length"].as_u64(), part["zero"].as_bool());
    let parts: Vec<_> = map.as_array().map(|parts| parts.iter().map(part).collect()).unwrap_or_default();
    let expected = [
        (Some(0), Some(2 * MIB), Some(false)),
        (Some(2 * MIB), Some(6 * MIB), Some(true)),
        (Some(8 * MIB), Some(MIB), Some(false)),
        (Some(9 * MIB), Some(23 * MIB), Some(true)),
    ];
    assert_eq!(parts, expected, "{map}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn acknowledged_data_that_the_origin_lacks_is_no_hole_and_is_copied() {
    let mut world = sparse_world();
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    let daemon = world.start();
    let uri = world.uri("disk");
    let mut client = world.connect("disk");
    client.write(8 * MIB, &vec![9; 1 << 20]).unwrap();
    client.write(31 * MIB + 7, &[8; 700]).unwrap();
    client.flush().unwrap();
    let hole = |at: u64| std::fs::File::open(world.origin("disk")).is_ok_and(|origin| is_hole(&origin, at));
    let tail = 31 * MIB;
    let expected = [
        (0, 2 * MIB, 0),
        (2 * MIB, 6 * MIB, 3),
        (8 * MIB, MIB, 0),
        (9 * MIB, 22 * MIB, 3),
        (tail, 1024, 0),
        (tail + 1024, MIB - 1024, 3),
    ];
    assert_eq!(lines(&tool("nbdinfo", &["--map", &uri])), expected);
    let copy = world.path("copy").display().to_string();
    tool("nbdcopy", &[&uri, &copy]);
    assert!(hole(8 * MIB) && hole(tail), "nothing of it is on the origin yet");
    let mut image = std::fs::read(world.origin("disk")).unwrap();
    image[8 << 20..9 << 20].fill(9);
    image[(31 << 20) + 7..][..700].fill(8);
    assert!(std::fs::read(&copy).unwrap() == image, "the copy has what was acknowledged");
    let mut python = python_nbd();
    python.args(["-c", include_str!("clients/odd_status.py"), &uri]);
    assert_eq!(run_ok(&mut python).stdout, b"all of it\n");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Returns `true` if a file has a hole at a place.
fn is_hole(file: &std::fs::File, at: u64) -> bool {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)).map_or(true, |data| data > at)
}
