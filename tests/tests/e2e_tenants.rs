//! Tenants of one cache: information of a client about volumes of others.

use zc_tests::{BlockKind, DataGen, MIB, World, bounded, rng, run_ok};

use rand::RngExt as _;

const EXTENT: u64 = 8 << 10;
const GUESSES: u64 = 64;

/// Two volumes in these domains.
fn world(victim: &str, guesser: &str) -> World {
    let domain = |name: &str| format!("dedup_domain = \"{name}\"\n");
    let mut world = World::new(16, 1);
    world.volumes =
        vec![("victim".to_owned(), MIB, domain(victim)), ("guesser".to_owned(), 64 * MIB, domain(guesser))];
    world
}

/// Blocks of 8 KiB that nothing else has.
fn blocks(seed: u64, first: u64, count: u64) -> Vec<u8> {
    let generator = DataGen::new(seed, 8 << 10);
    (first..first + count).flat_map(|number| generator.block(BlockKind::Incompressible, number)).collect()
}

/// Returns, for each of the guesser's first extents, `true` if its client sees it as cached.
fn cached(world: &World) -> Vec<bool> {
    let mut info = bounded("nbdinfo");
    info.args(["--map=x-zcached:residency", &world.uri("guesser")]);
    let map = String::from_utf8(run_ok(&mut info).stdout).unwrap_or_default();
    let mut cached = Vec::new();
    for line in map.lines() {
        let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [_, len_bytes, kind] = numbers[..] else { panic!("{map}") };
        cached.extend((0..len_bytes / EXTENT).map(|_| kind & 1 == 1));
    }
    cached.truncate(usize::try_from(GUESSES).unwrap_or(0));
    cached
}

/// The attack: guesses at the victim's data are written to the attacker's volume, then that volume is flooded while
/// the victim uses its data. A guess that is still cached was right. Returns the number of guesses that this
/// distinguishes.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn told_apart(world: &World) -> usize {
    let secrets = blocks(1, 0, GUESSES);
    let (mut victim, mut guesser) = (world.connect("victim"), world.connect("guesser"));
    victim.write(0, &secrets).unwrap();
    world.settled();
    let mut rng = rng(31);
    let right: Vec<bool> = (0..GUESSES).map(|_| rng.random_bool(0.5)).collect();
    let wrong = blocks(2, 0, GUESSES);
    for (number, right) in (0..GUESSES).zip(&right) {
        let from = if *right { &secrets } else { &wrong };
        let at = usize::try_from(number * EXTENT).unwrap_or(0);
        guesser.write(number * EXTENT, &from[at..at + (8 << 10)]).unwrap();
    }
    world.settled();
    assert_eq!(cached(world), vec![true; right.len()], "all guesses enter the cache");
    for round in 1..48 {
        guesser.write(round * MIB, &blocks(3, round * 128, 128)).unwrap();
        assert!(victim.read(0, 512 << 10).unwrap() == secrets, "the victim reads what it wrote");
        world.inserted();
    }
    cached(world).iter().zip(&right).filter(|(cached, right)| cached == right).count()
}

#[test]
fn guesses_at_another_domain_s_data_are_told_apart_by_chance_alone() {
    let world = world("one", "other");
    let daemon = world.start();
    let right = told_apart(&world);
    assert_eq!(world.counter("insert_duplicates"), 0, "nothing is shared over the border");
    // All 64 get one answer, and 33 of them happen to be wrong.
    assert!((22..=42).contains(&right), "{right} of {GUESSES} told apart");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// The statement of SECURITY.md about one domain is true: this is why there are several.
#[test]
fn guesses_at_data_of_one_s_own_domain_are_told_apart() {
    let world = world("one", "one");
    let daemon = world.start();
    assert_eq!(told_apart(&world), 64);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_volume_that_changes_its_domain_starts_cold_and_its_neighbour_does_not() {
    let mut world = world("one", "one");
    let daemon = world.start();
    let data = blocks(1, 0, GUESSES);
    for volume in ["victim", "guesser"] {
        world.connect(volume).write(0, &data).unwrap();
        world.settled();
    }
    assert_eq!(world.counter("insert_duplicates"), GUESSES);
    assert_eq!(daemon.terminate().code(), Some(0));

    world.volumes[1].2 = "dedup_domain = \"other\"\n".to_owned();
    let daemon = world.start();
    world.loaded();
    assert_eq!(cached(&world), vec![false; data.len() / (8 << 10)], "what was shared is not its own");
    let reason = world.status()["volumes"]
        .as_array()
        .and_then(|volumes| volumes.iter().find(|volume| volume["name"] == "guesser"))
        .map(|volume| volume["info"]["cold_reason"].to_string());
    let domain = world.status()["volumes"][1]["info"]["dedup_domain"].clone();
    assert_eq!(domain, "other");
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("dedup_domain")), "{reason:?}");
    assert!(world.connect("guesser").read(0, 512 << 10).unwrap() == data);
    world.settled();
    assert_eq!(world.counter("insert_duplicates"), 0, "it is stored again");
    let hits = world.counter("read_hits");
    assert!(world.connect("victim").read(0, 512 << 10).unwrap() == data);
    assert_eq!(world.counter("read_hits"), hits + 1, "the neighbour keeps its own");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn dirty_data_holds_a_volume_in_its_domain() {
    let mut world = world("one", "one");
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes[1].2.push_str("mode = \"write-back\"\nmax_dirty_age = \"1 d\"\n");
    let daemon = world.start();
    let mut client = world.connect("guesser");
    client.write(0, &blocks(1, 0, 4)).unwrap();
    client.flush().unwrap();
    drop(client);
    daemon.kill9();

    let lines = world.volumes[1].2.clone();
    world.volumes[1].2 = lines.replace("\"one\"", "\"other\"");
    let daemon = world.start();
    let absent = world.status()["absent"].clone();
    let why = absent[0]["why"].to_string();
    assert!(absent[0]["name"] == "guesser" && why.contains("its dedup_domain was"), "{absent}");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.volumes[1].2 = lines;
    let daemon = world.start();
    assert!(world.connect("guesser").read(0, 32 << 10).unwrap() == blocks(1, 0, 4));
    assert_eq!(daemon.terminate().code(), Some(0));
}
