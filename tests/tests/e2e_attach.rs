//! Programs that put themselves between us and others: a file system on a FUSE file, proxies, clients that negotiate
//! options.
//!
//! Each is a server or a mount of its own, started here and ended by its id.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use rand::RngExt as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use zc_tests::{
    BlockKind, Companion, DataGen, MIB, Mount, Rng, Word, World, bounded, python_nbd, read_file,
    require_tool, rng, run_ok, same, seed_from_env,
};

/// A volume as a file.
#[derive(Debug)]
struct Fuse {
    file: PathBuf,
    server: Option<Companion>,
}

impl Fuse {
    fn start(world: &World, name: &str) -> Self {
        let file = world.path(&format!("{name}.volume"));
        std::fs::write(&file, "").expect("cannot make the mount point");
        let mut ready = Word::new(world.path(&format!("{name}.pid")));
        let mut command = Command::new(require_tool("nbdfuse"));
        command.arg("--pidfile").arg(ready.path()).arg(&file).arg(world.uri("disk"));
        let server = Some(Companion::start(&mut command));
        ready.wait("nbdfuse");
        Self { file, server }
    }

    /// Unmounts: it flushes and ends.
    fn end(mut self) {
        run_ok(bounded("fusermount3").arg("-u").arg(&self.file));
        let server = self.server.take().expect("it runs");
        assert!(server.wait().success());
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        if self.server.is_some() {
            Command::new("fusermount3").args(["-u", "-z"]).arg(&self.file).status().ok();
        }
    }
}

/// Files and their contents, by path below the mount point.
type Files = BTreeMap<String, Vec<u8>>;

/// Makes, overwrites in part, renames and removes files.
fn change_files(root: &Path, files: &mut Files, random: &mut Rng, rounds: u64) {
    let data = DataGen::new(50, 512);
    for round in 0..rounds {
        let name = format!("{}/{}", random.random_range(0..6), random.random_range(0..30));
        let path = root.join(&name);
        std::fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("cannot make a folder");
        match random.random_range(0..10) {
            0 if files.remove(&name).is_some() => std::fs::remove_file(&path).expect("cannot remove a file"),
            1 if files.contains_key(&name) => {
                let new = format!("{name}-{round}");
                std::fs::rename(&path, root.join(&new)).expect("cannot rename a file");
                let content = files.remove(&name).expect("it is there");
                files.insert(new, content);
            }
            _ => {
                let blocks = random.random_range(0..300);
                let kind = if round % 3 == 0 { BlockKind::Incompressible } else { BlockKind::Compressible };
                let block = |block| data.block(kind, round % 20 * 1000 + block);
                let content: Vec<u8> = (0..blocks).flat_map(block).collect();
                std::fs::write(&path, &content).expect("cannot write a file");
                files.insert(name, content);
            }
        }
    }
}

fn files_are(root: &Path, files: &Files) {
    for (name, content) in files {
        same(&read_file(&root.join(name)), content, name);
    }
}

fn is_clean(file: &Path) {
    run_ok(bounded("e2fsck").args(["-f", "-n"]).arg(file));
}

#[test]
fn a_file_system_on_a_fuse_file_outlives_remounts_and_a_restart() {
    let mut world = World::new(24, 64);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    let mut random = rng(seed_from_env(70));
    let mut files = Files::new();
    let mut daemon = world.start();
    let fuse = Fuse::start(&world, "first");
    run_ok(bounded("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&fuse.file));
    fuse.end();
    for round in 0..3 {
        let fuse = Fuse::start(&world, &format!("round-{round}"));
        let volume = fuse.file.display().to_string();
        let mount = Mount::new(&["-o", "loop", &volume], world.path("mounted"));
        files_are(mount.path(), &files);
        change_files(mount.path(), &mut files, &mut random, 120);
        files_are(mount.path(), &files);
        mount.unmount();
        is_clean(&fuse.file);
        fuse.end();
        is_clean(&world.origin("disk"));
        assert_eq!(daemon.terminate().code(), Some(0));
        daemon = world.start();
    }
    // The origin alone is the file system after the cache is removed.
    assert_eq!(daemon.terminate().code(), Some(0));
    let origin = world.origin("disk").display().to_string();
    let mount = Mount::new(&["-o", "loop,ro", &origin], world.path("mounted"));
    files_are(mount.path(), &files);
    assert!(files.len() > 50, "only {} files are left", files.len());
}

/// Writes an image through the proxy at `uri` over four connections, changes it in place, reads it back through the
/// proxy and directly, and checks the origin.
fn through(world: &World, uri: &str, seed: u64) {
    let mut bytes = DataGen::new(seed, 8192).mixed(4096);
    let (image, back) = (world.path("image"), world.path("back"));
    std::fs::write(&image, &bytes).expect("cannot write the image");
    run_ok(bounded("nbdcopy").args(["--connections=4", "--flush"]).arg(&image).arg(uri));
    world.origin_is("disk", &bytes);
    let writes = "write -P 0x51 4095 70000\nwrite -z 1M 100k\nwrite -f -P 0x52 2M 4k\nflush\n\
        read -P 0x51 5000 60000\nread -P 0 1M 100k\nread -P 0x52 2M 4k\n";
    let mut qemu = bounded("qemu-io");
    writes.lines().for_each(|line| {
        qemu.args(["-c", line]);
    });
    let said = run_ok(qemu.args(["-f", "raw", uri])).stdout;
    assert!(!String::from_utf8_lossy(&said).contains("failed"), "{}", String::from_utf8_lossy(&said));
    bytes[4095..74_095].fill(0x51);
    bytes[1 << 20..(1 << 20) + 102_400].fill(0);
    bytes[2 << 20..(2 << 20) + 4096].fill(0x52);
    for from in [uri, &world.uri("disk"), uri] {
        run_ok(bounded("nbdcopy").args(["--connections=4", from]).arg(&back));
        same(&read_file(&back), &bytes, &format!("what was read from {from}"));
    }
    run_ok(bounded("qemu-img").args(["compare", "-f", "raw", "-F", "raw", uri, &world.uri("disk")]));
    world.origin_is("disk", &bytes);
}

#[test]
fn qemu_nbd_exports_us_again() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let socket = world.path("proxy.sock");
    let arguments = ["-f", "raw", "-t", "-e", "8", "-x", "again", "--discard=unmap", &world.uri("disk")];
    let proxy = Companion::serve(&socket, &require_tool("qemu-nbd"), &arguments);
    through(&world, &format!("nbd+unix:///again?socket={}", socket.display()), 3);
    drop(proxy);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn nbdkit_with_filters_exports_us_again() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let upstream = format!("uri={}", world.uri("disk"));
    // Small and rounded requests, flushes for the client's FUA, read-ahead.
    let filters: [&[&str]; 3] = [
        &["--filter=blocksize", "nbd", &upstream, "minblock=4K", "maxdata=32K", "maxlen=1M"],
        &["--filter=fua", "--filter=readahead", "nbd", &upstream, "fuamode=emulate"],
        &["--filter=cow", "nbd", &upstream, "shared=true"],
    ];
    for (number, arguments) in filters.iter().enumerate() {
        let socket = world.path(&format!("proxy-{number}.sock"));
        let proxy = Companion::serve(&socket, &require_tool("nbdkit"), &[&["-f"], *arguments].concat());
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        if number < 2 {
            through(&world, &uri, 10 + u64::try_from(number).expect("small"));
        } else {
            // Writes to a copy-on-write proxy stay there.
            let before = read_file(&world.origin("disk"));
            run_ok(bounded("qemu-io").args(["-f", "raw", "-c", "write -P 0x99 0 8M", &uri]));
            run_ok(bounded("qemu-io").args(["-f", "raw", "-c", "read -P 0x99 0 8M", &uri]));
            same(&read_file(&world.origin("disk")), &before, "the origin under a copy-on-write proxy");
        }
        drop(proxy);
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn nbddump_shows_what_is_there() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(8190, b"on a border").expect("write");
    client.write(32 * MIB - 5, b"end.\n").expect("write");
    let output = run_ok(bounded("nbddump").arg(world.uri("disk"))).stdout;
    let text = String::from_utf8(output).expect("nbddump writes text");
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace() && *c != '|').collect();
    for part in ["0000001ff0:", "6f6e", "206120626f72646572", "1fffff0:", "656e642e0a"] {
        assert!(squeezed.contains(part), "no {part} in {text}");
    }
    assert!(text.lines().count() < 12, "runs of zeros are one line: {text}");
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn qemu_img_bench_keeps_many_requests_in_flight() {
    let world = World::new(16, 32);
    let daemon = world.start();
    let uri = world.uri("disk");
    for more in [&["-w", "--pattern=77"][..], &["-w", "--pattern=77", "--flush-interval=64"], &[], &["-U"]] {
        let mut bench = bounded("qemu-img");
        bench.args(["bench", "-f", "raw", "-c", "1000", "-d", "32", "-s", "12k", "-S", "20k", "-o", "4k"]);
        let said = run_ok(bench.args(more).arg(&uri)).stdout;
        assert!(String::from_utf8_lossy(&said).contains("Run completed"), "{more:?}");
    }
    let origin = read_file(&world.origin("disk"));
    assert!(origin[4096..16_384].iter().all(|byte| *byte == 77), "the first request of each run");
    assert!(origin[..4096].iter().all(|byte| *byte == 0), "nothing was written before it");
    assert!(world.counter("flushes") >= 15 && world.counter("writes") >= 2000);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn libnbd_negotiates_in_every_order_and_sends_what_no_library_would() {
    let mut world = World::new(16, 32);
    world.volumes.push(("frozen".to_owned(), 4 * MIB, "nbd.read_only = true\n".to_owned()));
    let daemon = world.start();
    let mut python = python_nbd();
    python.args(["-c", include_str!("clients/options.py")]).arg(world.path("nbd.sock"));
    let output = run_ok(python.args(["disk", "frozen"]));
    assert_eq!(output.stdout, b"all of it\n");
    assert_eq!(daemon.terminate().code(), Some(0));
}
