//! Clients of other projects: libnbd's tools and Python, qemu, fio.
//!
//! Each gets a daemon of its own with a small cache, uses all of it, and the resulting contents are compared.

use std::process::Command;
use zc_tests::{DataGen, MIB, World, bounded, python_nbd, read_file, require_tool, run_ok, same};

/// Runs a tool to its end and returns its standard output.
fn tool(name: &str, arguments: &[&str]) -> String {
    let output = run_ok(bounded(name).args(arguments));
    String::from_utf8(output.stdout).unwrap_or_else(|_| panic!("{name} writes text"))
}

fn image(world: &World, seed: u64) -> (String, Vec<u8>) {
    let bytes = DataGen::new(seed, 8192).mixed(4096);
    let path = world.path("image");
    std::fs::write(&path, &bytes).unwrap_or_else(|error| panic!("cannot write the image: {error}"));
    (path.display().to_string(), bytes)
}

#[test]
fn nbdinfo_lists_and_describes() {
    let mut world = World::new(16, 32);
    world.volumes.push(("frozen".to_owned(), 4 * MIB, "nbd.read_only = true\n".to_owned()));
    let daemon = world.start();
    let list = tool("nbdinfo", &["--list", "--json", &world.uri("")]);
    assert!(list.contains("\"disk\"") && list.contains("\"frozen\""), "{list}");
    let (disk, frozen) = (world.uri("disk"), world.uri("frozen"));
    assert_eq!(tool("nbdinfo", &["--size", &disk]).trim(), (32 * MIB).to_string());
    for can in ["write", "flush", "fua", "trim", "zero", "multi-conn", "cache"] {
        tool("nbdinfo", &["--can", can, &disk]);
    }
    tool("nbdinfo", &["--is", "readonly", &frozen]);
    let refused = Command::new(require_tool("nbdinfo")).args(["--is", "readonly", &disk]).status();
    assert!(refused.is_ok_and(|status| status.code() == Some(2)), "the disk is not read-only");
    let json = tool("nbdinfo", &["--json", &disk]);
    assert!(json.contains("\"export-size\": 33554432") && json.contains("\"structured\": true"), "{json}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn nbdcopy_copies_in_and_out_over_four_connections() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let (path, bytes) = image(&world, 1);
    let (uri, out) = (world.uri("disk"), world.path("out"));
    let back = out.display().to_string();
    tool("nbdcopy", &["--connections=4", "--flush", &path, &uri]);
    world.origin_is("disk", &bytes);
    for _ in 0..2 {
        tool("nbdcopy", &["--connections=4", &uri, &back]);
        same(&read_file(&out), &bytes, "what nbdcopy read");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let (path, bytes) = image(&world, 2);
    let uri = world.uri("disk");
    let back = world.path("back.qcow2").display().to_string();
    tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", &path, &uri]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path, &uri]);
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &back]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &path, &back]);
    let map = tool("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    assert!(map.contains("\"length\""), "{map}");
    world.origin_is("disk", &bytes);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn qemu_io_writes_patterns_zeroes_discards_and_flushes() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let mut qemu = bounded("qemu-io");
    qemu.args(["-f", "raw"]);
    let commands = [
        "write -P 0xa1 0 1M",
        "write -P 0xb2 4095 8195",
        "read -P 0xa1 0 4095",
        "read -P 0xb2 4095 8195",
        "read -P 0xa1 12290 1000",
        "write -f -P 0xc3 2M 64k",
        "write -z 512k 128k",
        "read -P 0 512k 128k",
        "read -P 0xa1 640k 4k",
        "aio_write -P 0xd4 3M 300k",
        "aio_read -P 0xc3 2M 64k",
        "aio_flush",
        "read -P 0xd4 3M 300k",
        "discard 3M 64k",
        "read -P 0xd4 3136k 64k",
        "flush",
        "write -z -u 5M 1M",
        "read -P 0 5M 1M",
    ];
    for command in commands {
        qemu.args(["-c", command]);
    }
    let output = run_ok(qemu.arg(world.uri("disk")));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("verification failed") && !text.contains("error"), "{text}");
    let origin = read_file(&world.origin("disk"));
    assert!(origin[4095..12290].iter().all(|byte| *byte == 0xb2), "the origin has the unaligned write");
    assert!(origin[524_288..655_360].iter().all(|byte| *byte == 0), "the origin has the zeroes");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn fio_verifies_what_it_wrote_over_four_connections() {
    let world = World::new(16, 64);
    let daemon = world.start();
    let uri = format!("--uri={}", world.uri("disk"));
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bsrange=4k-64k",
        "--ba=4k",
        "--numjobs=4",
        "--thread",
        "--size=16m",
        "--offset_increment=16m",
        "--io_size=24m",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
        "--randseed=7",
        "--dedupe_percentage=30",
        "--buffer_compress_percentage=50",
        "--verify_backlog=256",
        "--fsync=64",
    ];
    let mut fio = bounded("fio");
    let text = run_ok(fio.args(arguments).current_dir(world.path("")));
    let text = String::from_utf8_lossy(&text.stdout);
    assert_eq!(text.matches("err= 0").count(), 4, "{text}");
    assert!(world.counter("evictions") > 0, "the cache is smaller than what fio wrote");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn libnbd_in_python_uses_every_command_and_every_error() {
    let mut world = World::new(16, 32);
    world.volumes.push(("frozen".to_owned(), 4 * MIB, "nbd.read_only = true\n".to_owned()));
    let daemon = world.start();
    let mut python = python_nbd();
    python.args(["-c", include_str!("clients/libnbd.py")]);
    python.args([world.uri("disk"), world.uri("frozen"), world.uri("nothing")]);
    python.arg(world.origin("disk"));
    let output = run_ok(&mut python);
    assert_eq!(output.stdout, b"all of it\n");
    assert_eq!(daemon.terminate().code(), Some(0));
}
