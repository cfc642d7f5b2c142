//! libnbd and qemu of a newer Debian: extended headers, requests of more than 4 GiB, block status by payload.
//!
//! Run by `cargo xtask test --only newer-clients`, which unpacks them first; no part of a plain `cargo test`.

use std::process::Command;
use zc_tests::{DataGen, MIB, NewerClients, World, read_file, run_ok, same};

/// A disk with one extent, one TRIM and one WRITE_ZEROES longer than 32 bits allow.
const DISK_MIB: u64 = 6 << 10;

fn text(command: &mut Command) -> String {
    String::from_utf8(run_ok(command).stdout).unwrap_or_else(|_| panic!("{command:?} writes text"))
}

#[test]
fn nbdinfo_describes_with_extended_headers() {
    let clients = NewerClients::find();
    let world = World::new(16, DISK_MIB);
    let daemon = world.start();
    let uri = world.uri("disk");
    let info = |arguments: &[&str]| text(clients.tool("nbdinfo").args(arguments).arg(&uri));
    let all = info(&[]);
    assert!(all.contains("using extended packets"), "{all}");
    assert_eq!(info(&["--size"]).trim(), (DISK_MIB * MIB).to_string());
    let map = info(&["--map", "--totals"]);
    assert!(map.contains(&(DISK_MIB * MIB).to_string()) && map.contains("hole,zero"), "{map}");
    let map = info(&["--map=x-zcached:residency", "--json"]);
    assert!(map.contains("\"type\": 0"), "what no client read is only on the origin: {map}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn nbdcopy_copies_in_and_out() {
    let clients = NewerClients::find();
    let world = World::new(16, 32);
    let daemon = world.start();
    let bytes = DataGen::new(3, 8192).mixed(4096);
    let (image, back) = (world.path("image"), world.path("back"));
    std::fs::write(&image, &bytes).unwrap_or_else(|error| panic!("cannot write the image: {error}"));
    let copy = |from: &str, to: &str| {
        run_ok(clients.tool("nbdcopy").args(["--connections=4", "--flush", from, to]));
    };
    copy(&image.display().to_string(), &world.uri("disk"));
    world.origin_is("disk", &bytes);
    copy(&world.uri("disk"), &back.display().to_string());
    same(&read_file(&back), &bytes, "what nbdcopy read");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let clients = NewerClients::find();
    let mut world = World::new(16, 32);
    world.volumes.push(("large".to_owned(), DISK_MIB * MIB, String::new()));
    let daemon = world.start();
    let image = world.path("image");
    let bytes = DataGen::new(4, 8192).mixed(4096);
    std::fs::write(&image, &bytes).unwrap_or_else(|error| panic!("cannot write the image: {error}"));
    let (image, uri) = (image.display().to_string(), world.uri("disk"));
    let qemu = |arguments: &[&str]| text(clients.tool("qemu-img").args(arguments));
    qemu(&["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", &image, &uri]);
    qemu(&["compare", "-f", "raw", "-F", "raw", &image, &uri]);
    world.origin_is("disk", &bytes);
    let map = qemu(&["map", "--output=json", "-f", "raw", &world.uri("large")]);
    assert!(map.contains(&format!("\"length\": {}", DISK_MIB * MIB)), "one extent of 6 GiB: {map}");
    let mut io = clients.tool("qemu-io");
    for command in ["write -P 7 0 1M", "write -z -u 0 2047M", "read -P 0 0 2M", "discard 1G 2047M", "flush"] {
        io.args(["-c", command]);
    }
    let said = text(io.args(["-f", "raw", &world.uri("large")]));
    assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn libnbd_in_python_uses_64_bit_requests() {
    let clients = NewerClients::find();
    let world = World::new(16, DISK_MIB);
    let daemon = world.start();
    let mut python = clients.python();
    let output = run_ok(python.args(["-c", include_str!("clients/extended.py"), &world.uri("disk")]));
    assert_eq!(output.stdout, b"all of it\n");
    assert_eq!(daemon.terminate().code(), Some(0));
}
