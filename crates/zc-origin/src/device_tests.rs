//! Origins on a real block device: a loop device over a file. That requires root; without it, outside of CI, the tests
//! are skipped with a message.

use std::path::{Path, PathBuf};
use std::process::Command;

use zc_core::ErrorKind;
use zc_io::AlignedBuf;

use crate::origin_tests::{dir, read, simple, write};
use crate::{Origin, OriginOptions, OriginRequest};

const WRITE: OriginOptions = OriginOptions { write: true, direct: None, create_len: None };
const LEN: u64 = 64 << 20;

/// A loop device; detached on drop.
struct Loop {
    device: PathBuf,
    image: PathBuf,
    _dir: tempfile::TempDir,
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Loop {
    fn new(sector_bytes: &str) -> Self {
        let dir = dir();
        let image = dir.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(LEN)).unwrap();
        let device = run("losetup", &["--find", "--show", "--sector-size", sector_bytes, text(&image)]);
        Self { device: device.into(), image, _dir: dir }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", text(&self.device)]);
    }
}

/// Returns `true` if loop devices can be created; in CI they must.
fn has_loop_devices() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    assert!(can || std::env::var_os("CI").is_none(), "CI must run as root on a machine with loop devices");
    if !can {
        println!("no root or no loop devices: nothing was tested");
    }
    can
}

#[test]
fn a_block_device_takes_every_request() {
    if !has_loop_devices() {
        return;
    }
    for (sector_bytes, direct_writes) in [("512", true), ("4096", false)] {
        let device = Loop::new(sector_bytes);
        let mut origin = Origin::open(&device.device, WRITE).unwrap();
        assert_eq!((origin.len_bytes(), origin.caps().direct_writes), (LEN, direct_writes));
        assert!(origin.caps().rotational.is_some());
        write(&mut origin, 0, &[9; 65_536], true).unwrap();
        write(&mut origin, 512, &[8; 512], false).unwrap();
        let zero = |offset, no_hole| OriginRequest::WriteZeroes { offset, len: 8192, no_hole, fua: true };
        simple(&mut origin, zero(4096, false)).0.unwrap();
        simple(&mut origin, zero(16_384 + 512, true)).0.unwrap();
        let (result, names) =
            simple(&mut origin, OriginRequest::Trim { offset: 32_768, len: 8192 + 512, fua: true });
        assert_eq!((result, names), (Ok(()), vec!["Discard".to_owned(), "Fsync".to_owned()]));
        assert!(origin.caps().can_trim);
        let bytes = read(&mut origin, 0, 65_536).unwrap();
        for (at, byte) in bytes.into_iter().enumerate() {
            let zeros = [4096..12_288, 16_896..25_088];
            let trimmed = 32_768..41_472;
            let expected = match at {
                at if zeros.iter().any(|range| range.contains(&at)) => 0,
                512..1024 => 8,
                _ => 9,
            };
            assert!(byte == expected || trimmed.contains(&at), "byte {at} is {byte}");
        }
        assert_eq!(write(&mut origin, LEN, &[0; 512], false), Err(ErrorKind::Invalid));
        assert_eq!(read(&mut origin, LEN - 512, 1024).unwrap(), [0; 1024]);
    }
}

#[test]
fn a_device_in_use_is_refused_and_the_text_says_by_whom() {
    if !has_loop_devices() {
        return;
    }
    let device = Loop::new("512");
    let refusal = |path: &Path| Origin::open(path, WRITE).unwrap_err().to_string();
    let behind = refusal(&device.image);
    assert!(behind.ends_with(&format!("it is attached to {}", device.device.display())), "{behind}");
    let open = Origin::open(&device.device, WRITE).unwrap();
    let twice = refusal(&device.device);
    assert!(twice.contains("in use"), "{twice}");
    drop(open);
    run("mkfs.ext4", &["-q", text(&device.device)]);
    let place = dir();
    run("mount", &[text(&device.device), text(place.path())]);
    let mounted = refusal(&device.device);
    run("umount", &[text(place.path())]);
    assert!(mounted.ends_with(&format!("it is mounted at {}", place.path().display())), "{mounted}");
    Origin::open(&device.device, WRITE).unwrap();
}

#[test]
fn discarding_from_a_thread_that_may_block_works_too() {
    if !has_loop_devices() {
        return;
    }
    let device = Loop::new("512");
    let options = zc_io::OpenOptions { direct: true, write: true, create_len: None };
    let file = zc_io::BlockFile::open(&device.device, options).unwrap();
    let mut bytes = AlignedBuf::new(8192);
    bytes.fill(1);
    file.write_blocking(4096, &bytes).unwrap();
    file.sync_blocking().unwrap();
    file.discard(4096, 4096).unwrap();
    assert_eq!(&*file.read_blocking(8192, 4096).unwrap(), [1; 4096]);
    assert_eq!((file.block_bytes(), file.identity().unwrap().len_bytes), (512, LEN));
}
