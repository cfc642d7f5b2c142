//! A virtual machine on a volume, as documented: the daemon may be restarted under it.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::io::{BufRead, BufReader, Write};
use std::process::Command;

use zc_tests::{Companion, World, require_tool};

const BOOK: &str = include_str!("../../docs/src/devices.md");

/// Returns the book's argument of `-drive`, with the socket of this world.
fn drive(world: &World) -> String {
    let line =
        BOOK.lines().find(|line| line.starts_with("qemu-system-x86_64 -drive '")).expect("the book has it");
    let option = line.split('\'').nth(1).expect("it is quoted");
    let socket = world.path("nbd.sock").display().to_string();
    let here = option.replace("/run/zcached/nbd.sock", &socket).replace(":///vm?", ":///disk?");
    assert!(here.contains(&socket) && here.contains("/disk?"), "{here}");
    here
}

/// Returns the results of QEMU's monitor for a write, and for a read after a restart of the daemon.
fn across_a_restart(world: &World, drive: &str) -> [String; 2] {
    let daemon = world.start();
    let mut command = Command::new(require_tool("qemu-system-x86_64"));
    // The machine has the disk, and does not run.
    command.args(["-nodefaults", "-display", "none", "-S", "-monitor", "stdio", "-drive", drive]);
    let (machine, mut monitor, log) = Companion::converse(&mut command);
    let mut lines = BufReader::new(log).lines().map(|line| line.expect("the monitor speaks text"));
    let mut ask = |what: &str| {
        writeln!(monitor, "qemu-io virtio0 \"{what}\"").expect("the monitor listens");
        let is_answer =
            |line: &String| ["bytes at offset", "failed", "rror"].iter().any(|end| line.contains(end));
        lines.find(is_answer).expect("the monitor answers")
    };
    let wrote = ask("write -P 0xa1 0 64k");
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    let read = ask("read -P 0xa1 0 64k");
    drop(machine);
    assert_eq!(daemon.terminate().code(), Some(0));
    [wrote, read]
}

#[test]
fn a_machine_goes_on_after_a_restart_with_what_the_book_says() {
    let world = World::new(16, 32);
    let drive = drive(&world);
    let [wrote, read] = across_a_restart(&world, &drive);
    assert!(wrote.contains("wrote 65536/65536"), "{wrote}");
    assert!(read.contains("read 65536/65536"), "{read}");
    // The reason for the delay.
    let (without, _) = drive.split_once(",file.reconnect-delay=").expect("the book has it");
    let [wrote, read] = across_a_restart(&world, without);
    assert!(wrote.contains("wrote 65536/65536"), "{wrote}");
    assert!(read.contains("failed"), "{read}");
}
