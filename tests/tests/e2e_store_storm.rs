//! A storm over a store: writes, snapshots, clones of clones, deletions in any order, volumes that come and go, a pool
//! near its end, kills. Every sector of every image is judged.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::BTreeMap;

use rand::RngExt as _;
use zc_tests::{Daemon, MIB, World, program, rng, seed_from_env};

const SECTOR: usize = 512;
/// Sectors of an image.
const SECTORS: usize = 4096;
/// Most sectors of a write.
const WRITE_SECTORS: usize = 1024;
const ROUNDS: usize = 4;
const OPERATIONS: usize = 60;
/// Images at once.
const IMAGES: usize = 14;

/// Possible contents of each sector. A write that the store refused may have been done in part.
type Image = Vec<Vec<u32>>;

struct Storm {
    world: World,
    rng: zc_tests::Rng,
    /// Volumes and snapshots by name; served ones are in `served`.
    images: BTreeMap<String, (bool, Image)>,
    served: Vec<String>,
    next: u32,
    refused: u32,
}

/// The bytes of a sector, which do not compress; 0 is never written.
fn sector(tag: u32) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if tag == 0 {
        return bytes;
    }
    let mut word = u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for field in bytes.chunks_exact_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        field.copy_from_slice(&(word ^ word >> 29).to_le_bytes());
    }
    bytes[..4].copy_from_slice(&tag.to_le_bytes());
    bytes
}

fn judge(name: &str, bytes: &[u8], image: &Image) {
    for (number, (found, possible)) in bytes.chunks(SECTOR).zip(image).enumerate() {
        let is_one = possible.iter().any(|tag| found == sector(*tag));
        assert!(is_one, "{name}: sector {number} has {:02x?}, and may be {possible:?}", &found[..8]);
    }
    let rest = &bytes[bytes.len().min(SECTOR * SECTORS)..];
    assert!(rest.iter().all(|byte| *byte == 0), "{name}: what is behind the end is zero");
}

impl Storm {
    fn new() -> Self {
        let seed = seed_from_env(52);
        let mut world = World::new(32, 1);
        world.add_store("176 MiB");
        world.volumes.clear();
        world.add_thin("disk", 2, "");
        world.add_thin("back", 2, "mode = \"write-back\"\n");
        let empty = || (false, vec![vec![0]; SECTORS]);
        let served = vec!["disk".to_owned(), "back".to_owned()];
        let images = served.iter().map(|name| (name.clone(), empty())).collect();
        Self { world, rng: rng(seed), images, served, next: 0, refused: 0 }
    }

    /// Runs `zcctl store` at the daemon; returns `true` on success.
    fn order(&self, arguments: &[&str]) -> bool {
        let mut all = vec!["store", arguments[0], "tank"];
        all.extend(&arguments[1..]);
        let output = self.world.zcctl_output(&all);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_excused = said.contains("no space left") || said.contains("cannot be written to the store");
        assert!(output.status.success() || is_excused, "{all:?}: {said}");
        output.status.success()
    }

    fn pick(&mut self, may_be: impl Fn(&str, bool) -> bool) -> Option<String> {
        let names: Vec<String> = self
            .images
            .iter()
            .filter(|(name, (is_snapshot, _))| may_be(name, *is_snapshot))
            .map(|(name, _)| name.clone())
            .collect();
        if names.is_empty() { None } else { Some(names[self.rng.random_range(0..names.len())].clone()) }
    }

    fn write(&mut self) {
        let name = self.served[self.rng.random_range(0..self.served.len())].clone();
        let count = self.rng.random_range(1..=WRITE_SECTORS);
        let first = self.rng.random_range(0..=SECTORS - count);
        let tags: Vec<u32> = (0..u32::try_from(count).expect("few")).map(|at| self.next + 1 + at).collect();
        self.next += u32::try_from(count).expect("few");
        let bytes: Vec<u8> = tags.iter().flat_map(|tag| sector(*tag)).collect();
        let mut client = self.world.connect(&name);
        let at = u64::try_from(first * SECTOR).expect("small");
        let written = client.write(at, &bytes).and_then(|()| client.flush());
        self.refused += u32::from(written.is_err());
        let (_, image) = self.images.get_mut(&name).expect("it is served");
        for (possible, tag) in image[first..first + count].iter_mut().zip(tags) {
            if written.is_ok() {
                possible.clear();
            }
            possible.push(tag);
        }
    }

    fn trim(&mut self) {
        let name = self.served[self.rng.random_range(0..self.served.len())].clone();
        let count = self.rng.random_range(1..=2 * WRITE_SECTORS);
        let first = self.rng.random_range(0..=SECTORS - count);
        let at = u64::try_from(first * SECTOR).expect("small");
        let mut client = self.world.connect(&name);
        let done = client.write_zeroes(at, u64::try_from(count * SECTOR).expect("small"));
        let (_, image) = self.images.get_mut(&name).expect("it is served");
        for possible in &mut image[first..first + count] {
            if done.is_ok() {
                possible.clear();
            }
            possible.push(0);
        }
    }

    /// A snapshot of a volume, or a clone of anything.
    fn derive(&mut self) {
        self.next += 1;
        let is_snapshot = self.rng.random_bool(0.5);
        let Some(from) = self.pick(|_, of_snapshot| !(is_snapshot && of_snapshot)) else { return };
        let number = self.next;
        let name = if is_snapshot {
            format!("{}@{number}", from.split('@').next().unwrap_or(&from))
        } else {
            format!("clone{number}")
        };
        if self.order(&[if is_snapshot { "snapshot" } else { "clone" }, &from, &name]) {
            let (_, image) = self.images[&from].clone();
            self.images.insert(name, (is_snapshot, image));
        }
    }

    fn delete(&mut self) {
        let served = self.served.clone();
        let Some(name) = self.pick(|name, _| !served.iter().any(|of| of == name)) else { return };
        let command = if self.images[&name].0 { "delete-snapshot" } else { "delete-volume" };
        if self.order(&[command, &name, "--yes"]) {
            self.images.remove(&name);
        }
    }

    /// A clone is served from now on.
    fn add(&mut self) {
        let served = self.served.clone();
        let Some(name) = self.pick(|name, is_snapshot| !is_snapshot && !served.iter().any(|of| of == name))
        else {
            return;
        };
        let origin = format!("store:tank/{name}");
        let output = self.world.zcctl_output(&["volume", "add", &name, "--origin", &origin]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.served.push(name);
    }

    fn remove(&mut self) {
        if self.served.len() > 2 {
            let name = self.served.remove(self.rng.random_range(2..self.served.len()));
            let output = self.world.zcctl_output(&["volume", "remove", &name]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn operation(&mut self) {
        match self.rng.random_range(0..100) {
            0..50 => self.write(),
            50..56 => self.trim(),
            56..76 if self.images.len() < IMAGES => self.derive(),
            56..88 => self.delete(),
            88..94 if self.served.len() < 5 => self.add(),
            _ => self.remove(),
        }
    }

    fn served_are_right(&self) {
        for name in &self.served {
            let bytes = self.world.connect(name).read(0, SECTORS * SECTOR).expect("read");
            judge(name, &bytes, &self.images[name].1);
        }
    }

    /// All images, by the store alone.
    fn all_are_right(&self) {
        let pool = self.world.path("pool");
        let run = |arguments: &[&str], name: &str| {
            let image = self.world.path("exported");
            let mut zcctl = std::process::Command::new(program("zcctl"));
            zcctl.args(arguments).arg(&pool);
            if !name.is_empty() {
                zcctl.arg(name).arg(&image);
            }
            let output = zcctl.output().expect("zcctl");
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        };
        for (name, (_, image)) in &self.images {
            run(&["store", "export"], name);
            let bytes = std::fs::read(self.world.path("exported")).expect("the image");
            std::fs::remove_file(self.world.path("exported")).expect("the image");
            judge(name, &bytes, image);
        }
        run(&["store", "scrub"], "");
    }

    fn start(&self) -> Daemon {
        Daemon::start(&self.world.path("zcached.toml"))
    }
}

#[test]
fn every_sector_of_every_image_outlives_a_storm() {
    let mut storm = Storm::new();
    let mut daemon = storm.world.start();
    for round in 0..ROUNDS {
        for _ in 0..OPERATIONS {
            storm.operation();
        }
        daemon.kill9();
        daemon = storm.start();
        storm.served_are_right();
        if round % 2 == 1 {
            let stopped = storm.world.zcctl_output(&["stop", "--flush"]);
            assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
            assert_eq!(daemon.wait().code(), Some(0));
            storm.all_are_right();
            daemon = storm.start();
            storm.served_are_right();
        }
        println!(
            "round {round}: {} images, {} served, {} MiB written, {} refused",
            storm.images.len(),
            storm.served.len(),
            u64::from(storm.next) * 512 / MIB,
            storm.refused
        );
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}
