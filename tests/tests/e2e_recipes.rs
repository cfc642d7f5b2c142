//! The recipes of the book, line by line: files stand for the devices, and the test for systemd.
//!
//! Lines that mount, unmount or attach are left to the virtual machine's tests, which have block devices.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::process::Command;

use zc_tests::{Daemon, DataGen, MIB, World, program, read_file, run_ok, same};

/// The pages that have recipes.
const BOOK: [&str; 2] =
    [include_str!("../../docs/src/recipes.md"), include_str!("../../docs/src/operations.md")];
/// Most lines of a recipe.
const LINES_MAX: usize = 10;
const VOLUME_MIB: u64 = 16;

/// The commands of a recipe.
fn recipe(name: &str) -> Vec<&'static str> {
    let begins = format!("```sh recipe={name}\n");
    let found = BOOK.iter().find_map(|page| page.split_once(&begins));
    let (_, rest) = found.expect("the book has this recipe");
    let (commands, _) = rest.split_once("```").expect("it ends");
    let commands: Vec<&str> = commands.lines().collect();
    assert!(!commands.is_empty() && commands.len() <= LINES_MAX, "{name}: {commands:?}");
    commands
}

/// A machine with the volume `vm`, an SSD and a new one.
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) daemon: Option<Daemon>,
}

impl Machine {
    /// As it is before the recipe; the daemon does not run.
    fn new(mode: &str) -> (Self, Vec<u8>) {
        let mut world = World::new(32, VOLUME_MIB);
        "vm".clone_into(&mut world.volumes[0].0);
        world.volumes[0].2 = format!("mode = \"{mode}\"\nmax_dirty_age = \"24 h\"\n");
        if mode == "write-back" {
            world.cache.push_str("destage_idle = \"1 h\"\n");
        }
        world.cache_path = "SSD".into();
        for device in ["SSD", "NEW-SSD"] {
            let file = File::create(world.path(device)).expect("cannot make a device");
            file.set_len(32 * MIB).expect("cannot size a device");
        }
        let bytes = DataGen::new(9, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
        std::fs::write(world.origin("vm"), &bytes).expect("cannot write the disk");
        let _path = world.configure();
        (Self { world, daemon: None }, bytes)
    }

    /// A machine with a daemon that serves.
    fn serving(mode: &str) -> (Self, Vec<u8>) {
        let (mut machine, bytes) = Self::new(mode);
        machine.systemctl("start");
        (machine, bytes)
    }

    pub(crate) fn systemctl(&mut self, verb: &str) {
        if verb == "restart" || verb == "stop" {
            let ended = self.daemon.take().expect("the daemon runs").terminate();
            assert_eq!(ended.code(), Some(0));
        }
        if verb == "restart" || verb == "start" {
            assert!(self.daemon.is_none(), "the daemon runs already");
            self.daemon = Some(Daemon::start(&self.world.path("zcached.toml")));
        }
    }

    /// Executes one line like an operator.
    pub(crate) fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["mount" | "umount" | "mkfs.ext4", ..] | ["systemctl", "disable", ..] => {}
            ["zcctl", "ublk", "probe"] | ["systemctl", "enable", "--now", "zcached-events"] => {}
            // The target of an attached block device is served.
            ["zcctl", "attach", ..] if self.daemon.is_none() => self.systemctl("start"),
            ["zcctl", "attach", ..] => {}
            ["systemctl", "enable", "--now", _] => self.systemctl("start"),
            ["systemctl", verb, "zcached"] => self.systemctl(verb),
            _ => {
                let folder = self.world.path("");
                let here = format!("{}/", folder.display().to_string().trim_end_matches('/'));
                let mut line = line.replace("nbd://HOST/vm", &format!("'{}'", self.world.uri("vm")));
                for place in
                    ["/etc/zcached/", "/etc/", "/dev/disk/by-id/", "/var/lib/zcached/", "/var/lib/", "/srv/"]
                {
                    line = line.replace(place, &here);
                }
                line = line.replace(" PATH", &format!(" {}", self.world.cache_file().display()));
                line = line.replace(" FILE", &format!(" {here}zcached.toml"));
                let programs = program("zcctl").parent().expect("a folder").display().to_string();
                let path = std::env::var("PATH").unwrap_or_default();
                let mut shell = Command::new("sh");
                shell.args(["-ec", &line]).current_dir(&folder);
                shell.env("PATH", format!("{programs}:{path}"));
                shell.env("ZCACHED_SOCKET", self.world.path("control.sock"));
                run_ok(&mut shell);
                if words.starts_with(&["zcctl", "stop"]) {
                    assert_eq!(self.daemon.take().expect("the daemon runs").wait().code(), Some(0));
                }
            }
        }
    }

    fn follow(&mut self, name: &str) {
        recipe(name).into_iter().for_each(|line| self.line(line));
    }

    /// The volume has these bytes.
    fn serves(&self, bytes: &[u8]) {
        same(&self.world.connect("vm").read(0, bytes.len()).expect("read"), bytes, "the volume");
    }

    /// Writes over the first of them, and flushes.
    fn write(&self, bytes: &mut [u8]) {
        bytes[..65536].fill(0x6b);
        let mut client = self.world.connect("vm");
        client.write(0, &bytes[..65536]).expect("write");
        client.flush().expect("flush");
    }
}

#[test]
fn a_disk_that_has_a_file_system() {
    let (mut machine, bytes) = Machine::new("write-through");
    machine.follow("existing");
    machine.serves(&bytes);
    machine.systemctl("stop");
    machine.world.origin_is("vm", &bytes);
}

#[test]
fn taking_zcached_away() {
    for mode in ["write-through", "write-back"] {
        let (mut machine, mut bytes) = Machine::serving(mode);
        machine.write(&mut bytes);
        assert_eq!(read_file(&machine.world.origin("vm")) == bytes, mode == "write-through", "dirty data");
        machine.follow("remove");
        machine.world.origin_is("vm", &bytes);
    }
}

#[test]
fn upgrading() {
    let (mut machine, mut bytes) = Machine::serving("write-back");
    machine.write(&mut bytes);
    machine.follow("upgrade");
    machine.serves(&bytes);
}

#[test]
fn a_new_ssd() {
    for mode in ["write-through", "write-back"] {
        let (mut machine, mut bytes) = Machine::serving(mode);
        machine.write(&mut bytes);
        machine.world.loaded();
        machine.follow("new-ssd");
        machine.serves(&bytes);
        let path = |machine: &Machine| machine.world.status()["cache"]["path"].as_str().map(str::to_owned);
        let new = Some(machine.world.path("NEW-SSD").display().to_string());
        assert_eq!(path(&machine), new);
        machine.systemctl("restart");
        machine.serves(&bytes);
        assert_eq!(path(&machine), new);
    }
}

#[test]
fn a_new_ssd_beside_a_journal_on_a_device_of_its_own() {
    let (mut machine, mut bytes) = Machine::new("write-back");
    let journal = machine.world.path("JOURNAL");
    File::create(&journal).and_then(|file| file.set_len(4 * MIB)).expect("cannot make a device");
    machine.world.cache.push_str(&format!("journal_path = \"{}\"\n", journal.display()));
    let _path = machine.world.configure();
    machine.line("zcctl format --journal /dev/disk/by-id/JOURNAL /dev/disk/by-id/SSD");
    machine.systemctl("start");
    machine.write(&mut bytes);
    machine.world.loaded();
    let new = machine.world.path("NEW-SSD").display().to_string();
    let refused = machine.world.zcctl_output(&["cache", "replace", &new]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("zcctl stop --flush"), "{said}");
    machine.follow("new-ssd-beside-journal");
    machine.serves(&bytes);
    assert_eq!(machine.world.status()["cache"]["path"].as_str(), Some(new.as_str()));
    machine.systemctl("stop");
    machine.world.origin_is("vm", &bytes);
}

#[test]
fn the_ssd_died() {
    let (mut machine, mut bytes) = Machine::serving("write-through");
    machine.write(&mut bytes);
    std::fs::remove_file(machine.world.path("SSD")).expect("it dies");
    machine.follow("dead-ssd");
    machine.serves(&bytes);
    assert_eq!(machine.world.status()["cache"]["healthy"], true);
}

#[test]
fn how_much_ssd() {
    let (mut machine, bytes) = Machine::serving("write-through");
    let commands = recipe("size");
    machine.line(commands[0]);
    machine.serves(&bytes);
    commands[1..].iter().for_each(|line| machine.line(line));
}

#[test]
fn warming_a_cold_cache() {
    let (mut machine, bytes) = Machine::serving("write-through");
    let commands = recipe("warm");
    machine.line(commands[0]);
    // Some of it is read, a part of that often.
    let hot = &bytes[4 << 20..6 << 20];
    for _ in 0..3 {
        same(&machine.world.connect("vm").read(4 << 20, hot.len()).expect("read"), hot, "the volume");
    }
    machine.line(commands[1]);
    machine.systemctl("stop");
    machine.line("zcctl format --force /dev/disk/by-id/SSD");
    machine.systemctl("start");
    commands[2..].iter().for_each(|line| machine.line(line));
    let warmed = machine.world.counter("warmed_extents");
    assert_eq!(warmed, (2 << 20) / 8192, "what the recording has, and no more");
    same(&machine.world.connect("vm").read(4 << 20, hot.len()).expect("read"), hot, "the volume");
    let stats = machine.world.stats();
    assert_eq!(stats["extents"]["read"], stats["extents"]["hits"], "the origin was read");
    assert_eq!(stats["manager"]["extent_misses"], 0);
}

#[test]
fn every_recipe_is_followed_here() {
    let written: usize = BOOK.iter().map(|page| page.matches("```sh recipe=").count()).sum();
    let here = include_str!("e2e_recipes.rs");
    assert_eq!(written, here.matches(".follow(\"").count() + here.matches("recipe(\"").count());
}
