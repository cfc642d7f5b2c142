//! The shipped file equals the defaults; printed configurations parse to the same; inheritance, reload and conflicts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use zc_config::{
    Admission, Compression, Config, LIVE, MaxRam, RegionSize, VolumeLimits, canonical_conflicts, diff_live,
};
use zc_core::units::SizeOrShare;
use zc_core::{Ack, Mode};

const SHIPPED: &str = include_str!("../../../configs/zcached.toml");

/// Minimal configuration, with the shipped file's examples.
const LEAST: &str = r#"
[cache]
path = "/var/lib/zcached/cache.img"
size = "10 GiB"
[[volume]]
name = "example"
origin = "/var/lib/zcached/example.img"
create_size = "20 GiB"
"#;

fn parse(text: &str) -> Config {
    Config::parse(text, "t.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn volumes(lines: &str) -> Config {
    parse(&format!("[cache]\npath = \"/c\"\n{lines}"))
}

#[test]
fn the_shipped_file_says_the_defaults() {
    assert_eq!(parse(SHIPPED), parse(LEAST));
}

#[test]
fn the_defaults_are_these() {
    let config = parse(LEAST);
    let cache = &config.cache;
    assert_eq!((cache.weu_bytes, cache.extent_bytes), (2 << 20, 8 << 10));
    assert_eq!((cache.compression, cache.compression_level), (Compression::Lz4, 0));
    assert_eq!((cache.dedup, cache.discard, cache.direct), (true, None, true));
    assert_eq!((cache.wait_max_ms, cache.required), (10_000, false));
    assert_eq!((cache.read_buffer_bytes, cache.staging_bytes), (4 << 20, 8 << 20));
    assert_eq!((cache.prefetch_max_bytes, cache.region_size), (128 << 10, RegionSize::Auto));
    let [volume] = &config.volumes[..] else { panic!("one volume") };
    assert_eq!((volume.mode, volume.admission), (Mode::WriteThrough, Admission::Always));
    assert_eq!((volume.ack, volume.max_dirty_age_ms), (None, 30_000));
    assert_eq!((cache.dirty_high_percent, cache.dirty_low_percent, cache.destage_writes), (50, 30, 16));
    assert_eq!((volume.direct, volume.nbd.export, volume.nbd.read_only), (None, true, false));
    assert_eq!(config.nbd.listen, vec!["127.0.0.1:10809".parse().unwrap()]);
    assert!(config.nbd.unix.is_empty());
    assert_eq!(config.log.level, "info");
}

/// Non-default values in unusual spellings.
const STRANGE: &str = r#"
        [cache]
        path = "/a \"quoted\" p\u00e4th\\with\nall"
        size = "5 %"
        region_size = 1048576
        reduce_cpus = "4-6, 0,5"
        shard_cpus = [3]
        compression = "zstd"
        compression_level = 0x7
        dirty_high = "80 %"
        dirty_low = "80 %"
        dirty_memory = "3 MiB"
        poll_max = "150 us"
        wait_max = "1 min"
        required = true
        destage_idle = "1 min"
        destage_writes = 3
        destage_rate = "20 MiB"
        dirty_scrub = "1 h"
        prove_hits = 7
        [[volume]]
        name = "two words"
        origin = "relative"
        direct = true
        mode = "write-back"
        ack = "durable"
        max_dirty_age = "90 s"
        on_cache_loss = "read-only"
        [volume.nbd]
        description = "tab\tand 'quotes'"
        allow = ["192.0.2.0/24", "2001:db8::1"]
        tls = true
        allow_certificates = ["db.example"]
        [volume.ublk]
        attach = true
        queues = 2
        queue_depth = 7
        request_max = "1 MiB"
        copy = "user"
        [volume.limits]
        iops = 500
        write_iops = 100
        iops_burst = 7
        read_bytes_per_s = "64 KiB"
        bytes_burst = 512
        [nbd]
        allow = ["127.0.0.1"]
        unix_mode = "660"
        unix_group = "disk"
        tls = "allowed"
        tls_certificate = "/tls/all.pem"
        tls_key = "/tls/all.pem"
        tls_client_ca = "/tls/ca.pem"
        tls_client_crl = "/tls/crl.pem"
        listen = ["[::1]:10809", "0.0.0.0:0"]
        unix = ["/run/a", "/run/b"]
        [log]
        level = "warn,zc_engine::shard=trace"
"#;

#[test]
fn the_effective_file_reads_back() {
    for text in [SHIPPED, LEAST, STRANGE] {
        let config = parse(text);
        assert_eq!(parse(&config.effective_toml()), config);
    }
    let config = parse(STRANGE);
    assert_eq!(config.cache.path, Path::new("/a \"quoted\" p\u{e4}th\\with\nall"));
    assert_eq!(config.cache.size, Some(SizeOrShare::Permyriad(500)));
    assert_eq!(config.cache.region_size, RegionSize::Bytes(1 << 20));
    assert_eq!(config.cache.reduce_cpus, vec![0, 4, 5, 6]);
    assert_eq!(config.cache.shard_cpus, vec![3]);
    assert_eq!(config.cache.compression_level, 7);
    assert_eq!((config.cache.wait_max_ms, config.cache.required), (60_000, true));
    assert_eq!((config.cache.dirty_high_percent, config.cache.dirty_low_percent), (80, 80));
    assert_eq!((config.cache.destage_bytes_per_s, config.cache.poll_max_us), (20 << 20, 150));
    assert_eq!((config.volumes[0].ack, config.volumes[0].max_dirty_age_ms), (Some(Ack::Durable), 90_000));
    let short = STRANGE.replace("size = \"5 %\"", "size = \"3G\"");
    assert_eq!(parse(&short).cache.size, Some(SizeOrShare::Bytes(3 << 30)));
    let listed = STRANGE.replace("\"4-6, 0,5\"", "[6, 0, 4, 5, 0]");
    assert_eq!(parse(&listed).cache.reduce_cpus, vec![0, 4, 5, 6]);
    assert_eq!(config.volumes[0].nbd.description, "tab\tand 'quotes'");
    let limits = VolumeLimits {
        iops: 500,
        write_iops: 100,
        iops_burst: Some(7),
        read_bytes_per_s: 64 << 10,
        bytes_burst: Some(512),
        ..VolumeLimits::default()
    };
    assert_eq!(config.volumes[0].limits, limits);
}

#[test]
fn the_address_of_the_numbers_reads_back() {
    let config = parse(&format!("{LEAST}[metrics]\nlisten = \"[::1]:10810\"\npage = \"127.0.0.1:1\"\n"));
    assert_eq!(config.metrics.listen, Some("[::1]:10810".parse().unwrap()));
    assert_eq!(config.metrics.page, Some("127.0.0.1:1".parse().unwrap()));
    assert_eq!(parse(&config.effective_toml()), config);
}

#[test]
fn what_may_surprise_is_noted() {
    let with = |cache: &str, volume: &str| {
        let text =
            format!("[cache]\npath = \"/c\"\n{cache}[[volume]]\nname = \"a\"\norigin = \"/1\"\n{volume}");
        parse(&text).notes()
    };
    let back = "mode = \"write-back\"\n";
    assert!(with("", "").is_empty() && with("", "ack = \"volatile\"\n").is_empty());
    assert!(with("", &format!("{back}ack = \"durable\"\n")).is_empty());
    let noted = |cache, volume: &str| with(cache, &format!("{back}{volume}")).concat();
    assert!(noted("", "").contains("volume \"a\"") && noted("", "").contains("(the default)"));
    assert!(noted("", "ack = \"volatile\"\n").contains("as configured"));
    assert!(noted("journal_path = \"/j\"\n", "").contains("persistent memory"));
    let coalesce = "ack = \"durable\"\ndestage = \"coalesce\"\n";
    assert!(with("", coalesce).is_empty() && noted("", coalesce).contains("must not be lost"));
    let night = |age: &str| {
        format!("ack = \"durable\"\nmax_dirty_age = \"{age}\"\ndestage_window = [\"06:00-22:00\"]\n")
    };
    assert!(with("", &night("1 s")).is_empty() && noted("", &night("16 h")).is_empty());
    let short = noted("", &night("15 h"));
    assert!(short.contains("leaves 8 h between two windows"), "{short}");
    let metrics = |ip: &str| format!("[metrics]\nlisten = \"{ip}:9\"\n");
    assert!(with("", &metrics("127.0.0.1")).is_empty() && with("", &metrics("[::1]")).is_empty());
    assert!(with("", &metrics("0.0.0.0")).concat().contains("without TLS"));
    assert!(
        with("", "[metrics]\npage = \"[::]:9\"\n")
            .concat()
            .contains("metrics.page: every program that reaches [::]:9")
    );
    let nowhere = "[nbd]\nlisten = []\n";
    assert!(
        with("", nowhere).concat().contains("volume \"a\": no client can access it until `zcctl attach a`")
    );
    assert!(with("", "nbd.export = false\n").concat().contains("nbd.export is false"));
    assert!(with("", &format!("ublk.attach = true\n{nowhere}")).is_empty());
    let learned = "learned_recipes = \"4 MiB\"\n";
    assert!(with(learned, "").is_empty());
    let weak = with(&format!("fingerprint = \"sha1\"\n{learned}"), "").concat();
    assert!(weak.contains("learned_recipes does nothing"), "{weak}");
}

#[test]
fn volumes_have_the_windows_of_the_cache_unless_they_have_their_own() {
    let windows = |cache: &str, volume: &str| {
        let text =
            format!("[cache]\npath = \"/c\"\n{cache}[[volume]]\nname = \"a\"\norigin = \"/1\"\n{volume}");
        let windows = parse(&text).volumes[0].destage_window.clone();
        windows.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let night = "destage_window = [\"22:00-06:00\", \"12:00-13:00\"]\n";
    assert_eq!(windows("", ""), Vec::<String>::new());
    assert_eq!(windows(night, ""), ["22:00-06:00", "12:00-13:00"]);
    assert_eq!(windows("", night), ["22:00-06:00", "12:00-13:00"]);
    assert_eq!(windows(night, "destage_window = []\n"), Vec::<String>::new());
}

#[test]
fn memory_is_chosen_unless_it_is_named() {
    let cache = |cache: &str| {
        parse(&format!("[cache]\npath = \"/c\"\n{cache}[[volume]]\nname = \"a\"\norigin = \"/1\"\n")).cache
    };
    assert_eq!(cache("").max_ram, MaxRam::Auto);
    assert_eq!(cache("max_ram = \"auto\"\n").max_ram, MaxRam::Auto);
    assert_eq!(cache("max_ram = \"256 MiB\"\n").max_ram, MaxRam::Bytes(256 << 20));
    let learned = |text: &str| cache(text).learned_recipes_bytes;
    assert_eq!(learned("max_ram = \"256 MiB\"\n"), None);
    assert_eq!(learned("max_ram = \"256 MiB\"\nlearned_recipes = 0\n"), Some(0));
    assert_eq!(learned("fingerprint = \"sha1\"\n"), Some(0), "of no use there");
}

#[test]
fn volumes_inherit_from_the_cache() {
    let config = parse(
        "[cache]\npath = \"/c\"\ncompression = \"zstd\"\ncompression_level = 9\ndedup = false\n\
         [[volume]]\nname = \"plain\"\norigin = \"/1\"\n\
         [[volume]]\nname = \"same\"\norigin = \"/2\"\ncompression = \"zstd\"\ndedup = true\n\
         [[volume]]\nname = \"level\"\norigin = \"/3\"\ncompression_level = 3\n\
         [[volume]]\nname = \"other\"\norigin = \"/4\"\ncompression = \"zlib\"\n\
         [[volume]]\nname = \"none\"\norigin = \"/5\"\ncompression = \"none\"\n",
    );
    let codecs: Vec<_> = config.volumes.iter().map(|v| (v.compression, v.compression_level)).collect();
    use Compression::{None, Zlib, Zstd};
    assert_eq!(codecs, vec![(Zstd, 9), (Zstd, 9), (Zstd, 3), (Zlib, 6), (None, 0)]);
    assert_eq!(
        config.volumes.iter().map(|v| v.dedup).collect::<Vec<_>>(),
        [false, true, false, false, false]
    );
}

#[test]
fn a_reload_names_every_change_and_what_is_live() {
    let old = parse(SHIPPED);
    let text = SHIPPED
        .replace("mode = \"write-through\"", "mode = \"write-around\"")
        .replace("weu_size = \"2 MiB\"", "weu_size = \"1 MiB\"")
        .replace("compression = \"lz4\"", "compression = \"zlib\"")
        .replace("size = \"10 GiB\"\n", "\n")
        .replace("level = \"info\"", "level = \"debug\"");
    let changes = diff_live(&old, &parse(&text));
    let said: Vec<_> = changes
        .iter()
        .map(|change| {
            let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            format!("{} {} {} {}", change.key, show(&change.before), show(&change.after), change.live)
        })
        .collect();
    let expected = [
        r#"cache.size "10 GiB" - false"#,
        r#"cache.weu_size "2 MiB" "1 MiB" false"#,
        r#"cache.compression "lz4" "zlib" true"#,
        "cache.compression_level - 6 true",
        r#"volume "example": mode "write-through" "write-around" true"#,
        r#"volume "example": compression "lz4" "zlib" true"#,
        r#"volume "example": compression_level - 6 true"#,
        r#"log.level "info" "debug" true"#,
    ];
    assert_eq!(said, expected);
    assert!(diff_live(&old, &old).is_empty());
}

#[test]
fn volumes_that_come_and_go_wait_for_a_restart() {
    let old =
        volumes("[[volume]]\nname = \"a\"\norigin = \"/a\"\n[[volume]]\nname = \"b\"\norigin = \"/b\"\n");
    let new =
        volumes("[[volume]]\nname = \"b\"\norigin = \"/b\"\n[[volume]]\nname = \"c\"\norigin = \"/c2\"\n");
    let changes: Vec<_> = diff_live(&old, &new).into_iter().map(|change| (change.key, change.live)).collect();
    assert_eq!(changes, vec![("volume \"c\"".to_owned(), false), ("volume \"a\"".to_owned(), false)]);
    let swapped =
        volumes("[[volume]]\nname = \"b\"\norigin = \"/b\"\n[[volume]]\nname = \"a\"\norigin = \"/a\"\n");
    assert!(diff_live(&old, &swapped).is_empty(), "their order means nothing");
}

/// A listed live key that no longer exists would be a false promise.
#[test]
fn live_keys_exist() {
    let text = LEAST.replace("size = \"10 GiB\"", "compression = \"zstd\"")
        + "[nbd]\ntls = \"required\"\ntls_certificate = \"/a\"\ntls_key = \"/b\"\ntls_client_ca = \"/a\"\n\
           tls_client_crl = \"/l\"\n\
           connections_per_client_max = 9\n";
    let optional =
        "ack = \"durable\"\noutage_max = \"1 s\"\nlimits.iops_burst = 1\nlimits.bytes_burst = 512\n";
    let text = text.replace("[[volume]]\n", &format!("[[volume]]\n{optional}"));
    let shown = parse(&text).effective_toml();
    for (section, key) in LIVE {
        let (_, body) = shown.split_once(&format!("[{section}]")).expect(section);
        let body = body.split("\n[").next().unwrap();
        assert!(body.contains(&format!("\n{key} = ")), "{section}.{key}");
    }
}

#[test]
fn places_are_remembered() {
    let config = parse(LEAST);
    assert_eq!(config.key_lines.of("cache.path"), "t.toml:3");
    assert_eq!(config.key_lines.of_volume("example", "origin"), "t.toml:7");
    assert_eq!(config.key_lines.of("cache.max_ram"), "t.toml");
}

#[test]
fn one_file_by_two_names_is_a_conflict() {
    let config = volumes(
        "[[volume]]\nname = \"a\"\norigin = \"/dev/sdb\"\n[[volume]]\nname = \"b\"\norigin = \"/dev/disk/x\"\n\
         [[volume]]\nname = \"c\"\norigin = \"/missing\"\n[control]\nsocket = \"/c-link\"\n",
    );
    let inodes: BTreeMap<&Path, u64> = [("/c", 1), ("/dev/sdb", 2), ("/dev/disk/x", 2), ("/c-link", 1)]
        .into_iter()
        .map(|(path, inode)| (Path::new(path), inode))
        .collect();
    fn same<T: PartialEq>(one: &T, other: &T) -> Option<&'static str> {
        (one == other).then_some("is the same file as")
    }
    let said: Vec<_> = canonical_conflicts(&config, |path| inodes.get(path).copied(), same)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        said,
        vec![
            "t.toml:8: volume \"b\": origin: /dev/disk/x is the same file as volume \"a\": origin, /dev/sdb",
            "t.toml:13: control.socket: /c-link is the same file as cache.path, /c",
        ]
    );
    assert!(canonical_conflicts(&config, |path| Some(PathBuf::from(path)), same).is_empty());
    assert!(canonical_conflicts(&config, |_| None::<u64>, same).is_empty());
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text in ".{0,400}") {
        if let Err(error) = Config::parse(&text, "t.toml") {
            prop_assert!(error.to_string().lines().all(|line| line.starts_with("t.toml:")));
        }
    }

    /// The shipped file with one range replaced: closer to real mistakes than noise.
    #[test]
    fn a_damaged_file_is_a_configuration_or_an_error(
        from in any::<prop::sample::Index>(),
        len in 0_usize..40,
        put in "[a-z0-9\"=\\[\\]{}. %\n-]{0,12}",
    ) {
        let chars: Vec<char> = SHIPPED.chars().collect();
        let from = from.index(chars.len());
        let rest = chars.iter().skip(from + len);
        let text: String = chars.iter().take(from).copied().chain(put.chars()).chain(rest.copied()).collect();
        match Config::parse(&text, "t.toml") {
            Ok(config) => prop_assert_eq!(parse(&config.effective_toml()), config),
            Err(error) => {
                let lines = text.lines().count() + 1;
                for message in error.to_string().lines() {
                    let line = message.split(':').nth(1).and_then(|line| line.parse().ok());
                    prop_assert!(line.is_some_and(|line: usize| (1..=lines).contains(&line)), "{}", message);
                }
            }
        }
    }

    /// Every list of CPUs is parsed sorted, without duplicates.
    #[test]
    fn cpu_lists_read_back(cpus in prop::collection::btree_set(0_u16..8192, 0..20)) {
        let list: Vec<_> = cpus.iter().rev().map(ToString::to_string).collect();
        let config = parse(&LEAST.replace(
            "size = \"10 GiB\"",
            &format!("reduce_cpus = \"{}\"", list.join(", ")),
        ));
        prop_assert_eq!(config.cache.reduce_cpus, cpus.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_origin_may_be_a_volume_of_a_store_that_there_is() {
    let text = "[[store]]\nname = \"tank\"\npath = \"/dev/pool\"\nclean_rate = \"5 MiB\"\ngather = \
        true\n[[volume]]\nname = \"a\"\norigin = \
                \"store:tank/db@mon\"\nmode = \"read-only\"\n[[volume]]\nname = \"b\"\norigin = \"./store:x/y\"\n";
    let config = volumes(text);
    let origin = config.volumes[0].in_store.as_ref().unwrap();
    assert_eq!((origin.store.as_str(), origin.volume.as_str()), ("tank", "db@mon"));
    assert_eq!(config.volumes[1].in_store, None);
    let [store] = &config.stores[..] else { panic!("one store") };
    assert_eq!((store.clean_bytes_per_s, store.page_cache_bytes), (5 << 20, 64 << 20));
    assert!(store.gather);
    assert_eq!(parse(&config.effective_toml()), config);
    let faster = volumes(&text.replace("5 MiB", "9 MiB"));
    let changes = diff_live(&config, &faster);
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].key.as_str(), changes[0].live), ("store \"tank\": clean_rate", false));
    let gone = volumes("[[volume]]\nname = \"b\"\norigin = \"./store:x/y\"\n");
    assert!(diff_live(&config, &gone).iter().any(|change| change.key == "store \"tank\": path"));
}
