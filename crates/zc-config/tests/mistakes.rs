//! Every mistake is one sentence with file, line and key, and all are reported at once.

use zc_config::{Config, ConfigError};

/// Returns a configuration with these lines in `[cache]`, from line 3 on.
fn in_cache(lines: &str) -> String {
    format!("[cache]\npath = \"/c\"\n{lines}\n[[volume]]\nname = \"v\"\norigin = \"/o\"\n")
}

/// Returns a configuration with these lines after a volume, from line 6 on.
fn in_volume(lines: &str) -> String {
    format!("[cache]\npath = \"/c\"\n[[volume]]\nname = \"v\"\norigin = \"/o\"\n{lines}\n")
}

/// Returns the messages of a refused file.
fn refusal(text: &str) -> String {
    match Config::parse(text, "t.toml") {
        Ok(_) => panic!("this was accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn shares_of_the_cache_that_are_too_much_are_named_with_their_line() {
    let two = |size: &str, first: &str, second: &str| {
        format!(
            "[cache]\npath = \"/c\"\nsize = \"{size}\"\n[[volume]]\nname = \"a\"\norigin = \"/a\"\n{first}\n\
             [[volume]]\nname = \"b\"\norigin = \"/b\"\n{second}\n"
        )
    };
    let cases = [
        (
            two("10 GiB", "reserve = \"50 %\"", "reserve = \"30.01 %\""),
            "t.toml:11: volume.reserve: 30.01 % makes 80.01 % of the cache with the reserves above it; all together \
             may be 80 %",
        ),
        (
            two("10 GiB", "reserve = \"5 GiB\"", "reserve = \"40 %\""),
            "t.toml:11: volume.reserve: 40 % makes 90 % of the cache with the reserves above it; all together may \
             be 80 %",
        ),
        (
            two("10 GiB", "reserve = \"2 GiB\"\nquota = \"1 GiB\"", ""),
            "t.toml:7: volume.reserve: 2 GiB is above the quota, which is 1 GiB",
        ),
        (
            two("10 GiB", "quota = \"10 %\"\nreserve = \"2 GiB\"", ""),
            "t.toml:8: volume.reserve: 2 GiB is above the quota, which is 10 %",
        ),
        (
            two("10 GiB", "quota = 4096", ""),
            "t.toml:7: volume.quota: 4 KiB is less than 64 KiB, two small units; \"0 B\" is none",
        ),
        (
            two("10 GiB", "", "priority = \"urgent\""),
            "t.toml:11: volume.priority: \"urgent\" is not one of low, normal, high",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(&text), message);
    }
    // Valid configurations, and those that only the daemon can check.
    for (size, first, second) in [
        ("10 GiB", "reserve = \"50 %\"", "reserve = \"3 GiB\""),
        ("50 %", "reserve = \"5 TiB\"", "reserve = \"40 %\""),
        ("10 GiB", "quota = \"0 B\"\nreserve = \"1 GiB\"", "priority = \"low\""),
    ] {
        let config = Config::parse(&two(size, first, second), "t.toml").unwrap();
        let mistake = config.reserves_mistake(1 << 40).unwrap_or_default();
        let is_wrong = first.contains("TiB");
        assert_eq!(mistake.starts_with("t.toml:7: volume.reserve: 5 TiB makes 500 %"), is_wrong, "{mistake}");
    }
}

#[test]
fn keys_of_remote_origins_that_do_not_fit_are_named_with_their_line() {
    let mistakes = |origin: &str, lines: &str| {
        format!("[cache]\npath = \"/c\"\n[[volume]]\nname = \"v\"\norigin = \"{origin}\"\n{lines}\n")
    };
    let secured = |lines: &str| mistakes("nbds://h/x", lines);
    let cases = [
        (
            mistakes("nbd://h/x", "origin_deadline = \"1 s\""),
            "t.toml:6: volume.origin_deadline: it is for files, block devices and volumes of stores; for an NBD export it \
             is 10 s",
        ),
        (
            mistakes("nbd://h/x", "origin_tls.ca = \"/a\""),
            "t.toml:6: volume.origin_tls: it is for origins that begin with nbds:// or nbds+unix://",
        ),
        (
            secured("origin_tls.key = \"/k\""),
            "t.toml:6: volume.origin_tls.key: certificate is needed with it",
        ),
        (
            secured("origin_tls.certificate = \"/k\""),
            "t.toml:6: volume.origin_tls.certificate: key is needed with it",
        ),
        (
            secured("origin_tls.ca = \"\""),
            "t.toml:6: volume.origin_tls.ca: the path is empty or has a zero byte",
        ),
        (
            secured("origin_tls.server_name = \"a b\""),
            "t.toml:6: volume.origin_tls.server_name: \"a b\" is neither a host name nor an IP address",
        ),
        (secured("origin_tls.server = \"a\""), "t.toml:6: volume.origin_tls.server: there is no such key"),
        (
            secured("[[volume]]\nname = \"w\"\norigin = \"nbd://h/x\""),
            "t.toml:8: volume.origin: nbd://h:10809/x: it is the origin of volume \"v\" already",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(&text), message);
    }
    let all = "connections = 2\norigin_tls.ca = \"/a\"\norigin_tls.certificate = \"/c\"\norigin_tls.key = \"/k\"\n\
               origin_tls.server_name = \"s\"";
    let config = Config::parse(&secured(all), "t.toml").unwrap();
    assert_eq!(
        Config::parse(&config.effective_toml(), "t.toml").unwrap(),
        config,
        "what is shown reads back"
    );
}

#[test]
fn pins_that_are_no_ranges_or_too_much_are_named_with_their_line() {
    let two = |first: &str, second: &str| {
        format!(
            "[cache]\npath = \"/c\"\nsize = \"10 GiB\"\n[[volume]]\nname = \"a\"\norigin = \"/a\"\n{first}\n\
             [[volume]]\nname = \"b\"\norigin = \"/b\"\n{second}\n"
        )
    };
    let many = format!("pin = [{}]", (0..65).map(|n| format!("\"{n}-{}\",", n + 1)).collect::<String>());
    let cases = [
        (
            two("pin = [\"0-3GiB\", \"1GiB - 4 GiB\"]", "pin = [\"0-2GiB\"]"),
            "t.toml:11: volume.pin: 2 GiB makes 6 GiB with the pins above it; a cache of 10 GiB keeps 50 %, 5 GiB, \
             at most",
        ),
        (
            two("pin = [\"0-4GiB\"]", "reserve = \"30.01 %\""),
            "t.toml:7: volume.pin: pins take 50 % of the cache, with a quarter more for what is overwritten, and \
             reserves 30.01 %; together they may take 80 %",
        ),
        (
            two("pin = [\"4GiB-1GiB\"]", ""),
            "t.toml:7: volume.pin: \"4GiB-1GiB\" is not a range: its end is not behind its start",
        ),
        (
            two("pin = [\"0-1GiB\",\n\"first\"]", ""),
            "t.toml:8: volume.pin: \"first\" is not a range such as \"10GiB-12GiB\" or \"10GiB-\"",
        ),
        (two("pin = \"0-1GiB\"", ""), "t.toml:7: volume.pin: \"0-1GiB\" is not a list in brackets"),
        (two("", &many), "t.toml:11: volume.pin: more than 64 entries"),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(&text), message);
    }
    // A range without an end counts when the size of the volume is known, and bytes beyond that do not.
    let config = Config::parse(&two("pin = [\"1GiB-\"]", "pin = [\"0-4GiB\"]"), "t.toml").unwrap();
    let mistake = |bytes: u64| config.pins_mistake(10 << 30, |name| (name == "a").then_some(bytes << 30));
    assert_eq!(mistake(1), None);
    assert!(mistake(3).unwrap().starts_with("t.toml:11: volume.pin: 4 GiB makes 6 GiB"));
    let other = Config::parse(&two("pin = [\"1GiB-\"]", "pin = [\"0-3 GiB\"]"), "t.toml").unwrap();
    let changes = zc_config::diff_live(&config, &other);
    let after = changes.first().and_then(|change| change.after.clone());
    assert_eq!((changes.len(), after.as_deref()), (1, Some("[\"0 B-3 GiB\"]")));
    assert!(changes.iter().all(|change| change.live && change.key == "volume \"b\": pin"));
}

#[test]
fn there_are_so_many_volumes_with_a_share_at_most() {
    let volumes = |count: u32| {
        let volume =
            |id: u32| format!("[[volume]]\nname = \"v{id}\"\norigin = \"/v{id}\"\nquota = \"1 GiB\"\n");
        let volumes: String = (0..count).map(volume).collect();
        format!("[cache]\npath = \"/c\"\n{volumes}")
    };
    Config::parse(&volumes(32), "t.toml").unwrap();
    let message = "t.toml:134: volume.quota: more than 32 volumes have a quota, a reserve or a priority";
    assert_eq!(refusal(&volumes(33)), message);
}

#[test]
fn mistakes_in_sizes_and_numbers_of_the_cache() {
    let cases = [
        (
            "extent_size = \"5 KiB\"",
            "3: cache.extent_size: 5 KiB is not a power of two between 4 KiB and 128 KiB",
        ),
        (
            "extent_size = \"2 KiB\"",
            "3: cache.extent_size: 2 KiB is not a power of two between 4 KiB and 128 KiB",
        ),
        (
            "extent_size = true",
            "3: cache.extent_size: true is not a size such as \"8 KiB\": a whole number of bytes, or of K, M, G, T \
             or P, KiB to PiB",
        ),
        ("weu_size = \"8 MiB\"", "3: cache.weu_size: 8 MiB is not a power of two between 32 KiB and 4 MiB"),
        (
            "weu_size = \"64 KiB\"\nextent_size = \"32 KiB\"",
            "4: cache.extent_size: 32 KiB is too large for a WEU of 64 KiB, which must hold at least 4 extents",
        ),
        (
            "size = \"3 KB\"",
            "3: cache.size: \"3 KB\" is not a size such as \"10 GiB\" or a share such as \"5 %\"",
        ),
        ("size = \"0 %\"", "3: cache.size: 0 % is not between 0.01 % and 100 %"),
        ("size = \"101 %\"", "3: cache.size: 101 % is not between 0.01 % and 100 %"),
        ("size = 4096", "3: cache.size: 4 KiB is not between 1 MiB and 64 TiB"),
        ("size = -1", "3: cache.size: -1 is not a size such as \"10 GiB\" or a share such as \"5 %\""),
        (
            "size = 99999999999999999999999",
            "3: cache.size: 99999999999999999999999 is not a size such as \"10 GiB\" or a share such as \"5 %\"",
        ),
        ("max_ram = \"1 KiB\"", "3: cache.max_ram: 1 KiB is not between 1 MiB and 16 TiB"),
        ("reduce_threads = 257", "3: cache.reduce_threads: 257 is not between 0 and 256"),
        ("reduce_threads = -2", "3: cache.reduce_threads: -2 is not a whole number"),
        (
            "reduce_cpus = \"3-1\"",
            "3: cache.reduce_cpus: \"3-1\" is not a list of CPUs such as \"0,2-5\" or [0, 2]",
        ),
        (
            "shard_cpus = \"one\"",
            "3: cache.shard_cpus: \"one\" is not a list of CPUs such as \"0,2-5\" or [0, 2]",
        ),
        (
            "reduce_cpus = [0, 9000]",
            "3: cache.reduce_cpus: a list is not a list of CPUs such as \"0,2-5\" or [0, 2]",
        ),
        (
            "weu_max_age = \"3 weeks\"",
            "3: cache.weu_max_age: \"3 weeks\" is not a duration such as \"30 s\": a whole number of ms, s, min, h \
             or d",
        ),
        (
            "weu_max_age = 30",
            "3: cache.weu_max_age: 30 is not a duration such as \"30 s\": a whole number of ms, s, min, h or d",
        ),
        ("weu_max_age = \"1 ms\"", "3: cache.weu_max_age: 1 ms is not between 100 ms and 1 h"),
        ("prefetch_max = \"2 MiB\"", "3: cache.prefetch_max: 2 MiB is not between 0 B and 1 MiB"),
        ("insert_max = 0", "3: cache.insert_max: 0 B is not between 128 KiB and 2 GiB"),
        ("regions_active_max = 4", "3: cache.regions_active_max: 4 is not between 8 and 1020"),
        (
            "region_size = \"3 MiB\"",
            "3: cache.region_size: \"3 MiB\" is neither \"auto\" nor a power of two between 1 MiB and 1 TiB",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(refusal(&in_cache(lines)), format!("t.toml:{expected}"), "{lines}");
    }
}

#[test]
fn mistakes_in_words_and_keys_of_the_cache() {
    let cases = [
        ("state_dir = \"\"", "3: cache.state_dir: the path is empty or has a zero byte"),
        ("state_dir = \"/c/.\"", "3: cache.state_dir: /c/. is used already, as cache.path"),
        ("compression = \"gzip\"", "3: cache.compression: \"gzip\" is not one of none, lz4, zlib, zstd"),
        ("compression_level = 3", "3: cache.compression_level: compression \"lz4\" has no levels"),
        (
            "compression = \"zlib\"\ncompression_level = 10",
            "4: cache.compression_level: 10 is not between 1 and 9, the levels of zlib",
        ),
        (
            "compression = \"zstd\"\ncompression_level = \"high\"",
            "4: cache.compression_level: \"high\" is not between 1 and 19, the levels of zstd",
        ),
        ("fingerprint = \"md5\"", "3: cache.fingerprint: \"md5\" is not one of blake3, sha1"),
        (
            "fingerprint_index_ratio = \"101 %\"",
            "3: cache.fingerprint_index_ratio: \"101 %\" is not a share from \"0 %\" to \"100 %\"",
        ),
        (
            "fingerprint_index_ratio = 0.5",
            "3: cache.fingerprint_index_ratio: 0.5 is not a share from \"0 %\" to \"100 %\"",
        ),
        ("dedup = \"yes\"", "3: cache.dedup: \"yes\" is not true or false"),
        ("dirty_high = \"95 %\"", "3: cache.dirty_high: 95 % is not between 1 % and 90 %"),
        ("dirty_high = \"0 %\"", "3: cache.dirty_high: 0 % is not between 1 % and 90 %"),
        (
            "dirty_high = \"20 %\"\ndirty_low = \"30 %\"",
            "4: cache.dirty_low: 30 % is above dirty_high, which is 20 %",
        ),
        ("dirty_low = \"60 %\"", "3: cache.dirty_low: 60 % is above dirty_high, which is 50 %"),
        ("dirty_memory = \"1 KiB\"", "3: cache.dirty_memory: 1 KiB is not between 1 MiB and 16 GiB"),
        ("poll_max = \"2 ms\"", "3: cache.poll_max: 2 ms is not between 0 us and 1 ms"),
        (
            "poll_max = 50",
            "3: cache.poll_max: 50 is not a duration such as \"100 us\": a whole number of us, ms or s",
        ),
        ("destage_idle = \"1 ms\"", "3: cache.destage_idle: 1 ms is not between 10 ms and 1 h"),
        (
            "destage_window = [\"22-06\"]",
            "3: cache.destage_window: \"22-06\" is not a time of day such as 22:00-06:00",
        ),
        ("destage_writes = 0", "3: cache.destage_writes: 0 is not between 1 and 1024"),
        (
            "policy = \"belady\"",
            "3: cache.policy: \"belady\" is not one of lru, fifo-reinsert, s3-fifo, shared-lru, \
             cost-benefit",
        ),
        (
            "packer = \"worst-fit\"",
            "3: cache.packer: \"worst-fit\" is not one of append, first-fit, best-fit",
        ),
        ("colour = 3", "3: cache.colour: there is no such key"),
        ("extend_size = 3", "3: cache.extend_size: there is no such key; did you mean \"extent_size\"?"),
        (
            "journal_size = \"1 MiB\"",
            "3: cache.journal_size: it is the size of a journal file, and there is no journal_path",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(refusal(&in_cache(lines)), format!("t.toml:{expected}"), "{lines}");
    }
}

#[test]
fn mistakes_in_a_volume() {
    let again = "[[volume]]\nname = \"v\"\norigin = \"/o2\"";
    let same_origin = "[[volume]]\nname = \"w\"\norigin = \"/./o\"";
    let cases = [
        ("ack = \"early\"", "6: volume.ack: \"early\" is not one of volatile, durable"),
        ("max_dirty_age = \"1 ms\"", "6: volume.max_dirty_age: 1 ms is not between 100 ms and 1 d"),
        ("on_cache_loss = \"go on\"", "6: volume.on_cache_loss: \"go on\" is not one of error, read-only"),
        (
            "mode = \"write-trough\"",
            "6: volume.mode: \"write-trough\" is not one of write-through, write-around, write-back, read-only, \
             pass-through",
        ),
        ("admission = 2", "6: volume.admission: 2 is not one of always, second-touch, auto, never"),
        (again, "7: volume.name: there is a volume named \"v\" already"),
        (same_origin, "8: volume \"w\": origin: /./o is used already, as volume \"v\": origin"),
        ("[[volume]]\norigin = \"/o2\"", "6: volume.name: it is missing; every volume has one"),
        (
            "[[volume]]\nname = \"w\"",
            "6: volume.origin: it is missing; it names the file or block device behind the volume",
        ),
        (
            "[[volume]]\nname = \"a/b\"\norigin = \"/o2\"",
            "7: volume.name: a name has 1 to 64 bytes, without slashes, quotes and control characters",
        ),
        ("create_size = 5000", "6: volume.create_size: 5000 bytes are not whole sectors of 512"),
        (
            "dedup_domain = \"a\\u0007\"",
            "6: volume.dedup_domain: a domain has a name of at most 64 bytes, without control characters",
        ),
        ("index_share = 130", "6: volume.index_share: 130 is not a share from \"0 %\" to \"100 %\""),
        ("compression_level = 3", "6: volume.compression_level: compression \"lz4\" has no levels"),
        ("size = 3", "6: volume.size: there is no such key"),
        ("create_size = \"2 PiB\"", "6: volume.create_size: 2 PiB is not between 4 KiB and 1 PiB"),
        ("nbd = true", "6: volume.nbd: this is a section, not a value; write [volume.nbd]"),
        ("nbd.exprot = false", "6: volume.nbd.exprot: there is no such key; did you mean \"export\"?"),
        ("[volume.nbd]\nread_only = 1", "7: volume.nbd.read_only: 1 is not true or false"),
        ("ublk.queues = 33", "6: volume.ublk.queues: 33 is not between 1 and 32"),
        (
            "ublk = { queues = 2, queue_depth = 4096 }",
            "6: volume.ublk.queue_depth: 2 queues of 4096 requests are more than 4096",
        ),
        ("limits.iops = -1", "6: volume.limits.iops: -1 is not a whole number"),
        ("limits.iops_burst = 0", "6: volume.limits.iops_burst: 0 is not between 1 and 100000000"),
        (
            "limits.write_bytes_per_s = \"63 KiB\"",
            "6: volume.limits.write_bytes_per_s: 63 KiB is less than 64 KiB; 0 is no limit",
        ),
        ("ublk.request_max = 5000", "6: volume.ublk.request_max: 5000 bytes are not whole pages of 4 KiB"),
    ];
    for (lines, expected) in cases {
        assert_eq!(refusal(&in_volume(lines)), format!("t.toml:{expected}"), "{lines}");
    }
}

#[test]
fn mistakes_in_the_other_sections() {
    let long = format!("[control]\nsocket = \"/{}\"", "s".repeat(107));
    let cases = [
        (
            "[nbd]\nlisten = [\"localhost\"]",
            "7: nbd.listen: \"localhost\" is not an IP address and port such as \"127.0.0.1:10809\"",
        ),
        (
            "[nbd]\nlisten = [\n\"127.0.0.1:1\",\n\"127.0.0.1:1\"]",
            "9: nbd.listen: 127.0.0.1:1 is listed twice",
        ),
        ("[nbd]\nlisten = \"127.0.0.1:1\"", "7: nbd.listen: \"127.0.0.1:1\" is not a list in brackets"),
        ("[nbd]\nunix = [3]", "7: nbd.unix: 3 is not a string in quotes"),
        ("[nbd]\nunix = [\"/c\"]", "7: nbd.unix: /c is used already, as cache.path"),
        ("[nbd]\nconnections_max = 0", "7: nbd.connections_max: 0 is not between 1 and 65536"),
        ("[nbd]\nbytes_in_flight_max = 1", "7: nbd.bytes_in_flight_max: 1 B is not between 32 MiB and 1 TiB"),
        (
            "[nbd]\nhandshake_timeout = \"0 s\"",
            "7: nbd.handshake_timeout: 0 ms is not between 100 ms and 1 h",
        ),
        ("nbd.tls = true", "6: volume.nbd.tls: nbd.tls is \"off\""),
        (
            "nbd.allow_certificates = [\"a\"]",
            "6: volume.nbd.allow_certificates: it needs nbd.tls and nbd.tls_client_ca",
        ),
        ("[nbd]\nunix_mode = \"0888\"", "7: nbd.unix_mode: \"0888\" is not a mode such as \"0660\""),
        ("[nbd]\ntls = \"required\"", "7: nbd.tls: tls_certificate and tls_key are needed for it"),
        ("[nbd]\ntls_client_crl = \"/l\"", "7: nbd.tls_client_crl: tls_client_ca is needed for it"),
        (
            "[nbd]\nallow = [\"here\"]",
            "7: nbd.allow: \"here\" is not an IP address or a range such as \"192.0.2.0/24\"",
        ),
        (
            "[nbd]\nidle_timeout = \"8 weeks\"",
            "7: nbd.idle_timeout: \"8 weeks\" is not a duration such as \"30 s\": a whole number of ms, s, min, h \
             or d",
        ),
        (
            "[nbd]\nunix = [\"/var/lib/zcached/.\"]",
            "7: nbd.unix: /var/lib/zcached/. is used already, as cache.state_dir, where it is by default",
        ),
        ("[control]\nsocket = \"/o\"", "7: control.socket: /o is used already, as volume \"v\": origin"),
        (&long, "7: control.socket: 108 bytes are too long for a Unix socket, 107 fit"),
        (
            "[metrics]\nlisten = \"localhost\"",
            "7: metrics.listen: \"localhost\" is not an IP address and port such as \"127.0.0.1:10810\"",
        ),
        (
            "[metrics]\npage = \"10811\"",
            "7: metrics.page: \"10811\" is not an IP address and port such as \"127.0.0.1:10811\"",
        ),
        ("[sandbox]\nlandlock = true", "7: sandbox.landlock: true is not one of off, auto, required"),
        ("[sandbox]\npaths = [\"etc\"]", "7: sandbox.paths: \"etc\" does not begin with a slash"),
        (
            "[log]\nlevel = \"loud\"",
            "7: log.level: \"loud\" is not a level (error, warn, info, debug, trace, off) or a list such as \
             \"info,zc_engine=debug\"",
        ),
        ("[volumes]\n", "6: volumes: there is no such section; did you mean \"volume\"?"),
        (
            "[telemetry]\n",
            "6: telemetry: there is no such section; there are cache, store, volume, nbd, control, metrics, \
             sandbox, log",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(refusal(&in_volume(lines)), format!("t.toml:{expected}"), "{lines}");
    }
}

#[test]
fn mistakes_of_the_whole() {
    let volume = "[[volume]]\nname = \"v\"\norigin = \"/o\"\n";
    let cases = [
        (volume.to_owned(), "1: cache: the section [cache] is missing"),
        (format!("cache = 3\n{volume}"), "1: cache: this is a section, not a value; write [cache]"),
        (
            format!("[cache]\n{volume}"),
            "1: cache.path: it is missing; it names the file or block device of the cache",
        ),
        (
            "[cache]\npath = \"/c\"\n".to_owned(),
            "1: volume: there is none; add a [[volume]] with name and origin",
        ),
        (
            format!("[cache]\npath = \"/c\"\n{}", volume.replace("[[volume]]", "[volume]")),
            "3: volume: write [[volume]], in double brackets, once for each volume",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(&text), format!("t.toml:{expected}"), "{text}");
    }
}

/// The parser's description is its own; the position is ours.
#[test]
fn broken_toml_has_its_line() {
    for (text, line) in [
        ("[cache]\npath = /c\n", 2),
        ("[cache]\npath = \"/c\"\npath = \"/d\"\n", 3),
        ("[cache]\n\n[[volume]\n", 3),
        ("\u{1}", 1),
    ] {
        let message = refusal(text);
        for message in message.lines() {
            assert!(message.starts_with(&format!("t.toml:{line}: ")), "{message}");
        }
    }
}

#[test]
fn all_mistakes_are_reported_at_once_and_in_order() {
    let text = "[log]\nlevel = 3\n[cache]\npath = \"\"\nextent_size = 7\nx = 1\n\
                [[volume]]\nname = \"\"\norigin = \"/o\"\nmode = 1\n[[volume]]\n";
    let Err(ConfigError::Mistakes(mistakes)) = Config::parse(text, "t.toml") else { panic!("it parsed") };
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, vec![2, 4, 5, 6, 8, 10, 11, 11], "{mistakes:#?}");
}

/// Hostile sizes: neither time nor messages grow with them.
#[test]
fn large_files_are_bounded() {
    let unknown: String = (0..10_000).map(|n| format!("x{n} = 1\n")).collect();
    assert_eq!(refusal(&in_cache(&unknown)).lines().count(), 50);

    let volumes: String =
        (0..1025).map(|n| format!("[[volume]]\nname = \"{n}\"\norigin = \"/{n}\"\n")).collect();
    let text = format!("[cache]\npath = \"/c\"\n{volumes}");
    assert_eq!(refusal(&text), "t.toml:3: volume: 1025 volumes are more than 1024");

    let cpus = "0-8191,".repeat(100_000);
    let message = refusal(&in_cache(&format!("reduce_cpus = \"{cpus}0\"")));
    assert!(
        message.starts_with("t.toml:3: cache.reduce_cpus: \"0-8191,") && message.len() < 200,
        "{message}"
    );

    let long = "#".repeat((1 << 20) + 1);
    assert_eq!(refusal(&long), "t.toml: this is not a configuration: it exceeds 1 MiB");
    let nested = format!("[cache]\npath = {}", "[".repeat(100_000));
    assert!(refusal(&nested).starts_with("t.toml:"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none.toml");
    let message = Config::load(&missing).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("{}: cannot be read: No such file", missing.display())),
        "{message}"
    );
    assert!(matches!(Config::load(dir.path()), Err(ConfigError::Read { .. })));
    assert!(matches!(Config::load("/dev/zero".as_ref()), Err(ConfigError::Read { .. })));
    let long = dir.path().join("long.toml");
    std::fs::write(&long, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(matches!(Config::load(&long), Err(ConfigError::TooLarge { .. })));
}

#[test]
fn mistakes_in_stores_and_in_origins_that_name_them() {
    let cases = [
        ("[store]\nname = \"s\"", "6: store: write [[store]], in double brackets, once for each store"),
        (
            "[[store]]\nname = \"s\"",
            "6: store.path: it is missing; it names the file or block device of the store",
        ),
        (
            "[[store]]\nname = \"a/b\"\npath = \"/s\"",
            "7: store.name: a name has 1 to 64 bytes of letters, digits, '.', '_' and '-'",
        ),
        (
            "[[store]]\nname = \"s\"\npath = \"/s\"\n[[store]]\nname = \"s\"\npath = \"/t\"",
            "10: store.name: there is a store named \"s\" already",
        ),
        (
            "[[store]]\nname = \"s\"\npath = \"/s\"\nclean_below = \"30 %\"\nclean_until = \"20 %\"",
            "10: store.clean_until: is below clean_below; the cleaner would end before it begins",
        ),
        (
            "[[store]]\nname = \"s\"\npath = \"/o\"",
            "volume \"v\": origin: /o is used already, as store \"s\": path",
        ),
        (
            "[[volume]]\nname = \"w\"\norigin = \"store:tank\"",
            "8: volume.origin: \"store:tank\" is not store:STORE/VOLUME",
        ),
        (
            "[[volume]]\nname = \"w\"\norigin = \"store:tank/disk\"",
            "8: volume.origin: there is no store \"tank\"; add a [[store]] with that name",
        ),
    ];
    for (lines, expected) in cases {
        let said = refusal(&in_volume(lines));
        assert!(said.contains(expected), "{lines}\n{said}");
    }
}

#[test]
fn a_volume_of_a_store_is_no_larger_than_a_store_can_make() {
    let with = |size: &str| {
        format!(
            "[cache]\npath = \"/c\"\n[[store]]\nname = \"t\"\npath = \"/t\"\n[[volume]]\nname = \"v\"\n\
             origin = \"store:t/v\"\ncreate_size = {size}\n"
        )
    };
    for size in ["\"256 TiB\"", "\"480 TiB\"", "528581658673152"] {
        Config::parse(&with(size), "t.toml").unwrap();
    }
    for size in ["\"512 TiB\"", "\"481 TiB\"", "528581658673664"] {
        let said = refusal(&with(size));
        let most = "is more than a volume of a store can have, which is 528581658673152 bytes (480 TiB)";
        assert!(said.starts_with("t.toml:9: volume.create_size: ") && said.ends_with(most), "{said}");
    }
}

#[test]
fn addresses_that_cannot_be_listened_on_together_are_named_with_their_line() {
    let cases = [
        (
            "[nbd]\nlisten = [\"[::]:1\",\n\"0.0.0.0:1\"]",
            "8: nbd.listen: 0.0.0.0:1 is in use already by nbd.listen, [::]:1 ([::] includes all IPv4 addresses); \
             remove one of them",
        ),
        (
            "[metrics]\nlisten = \"127.0.0.1:10809\"",
            "7: metrics.listen: 127.0.0.1:10809 is in use already by nbd.listen, 127.0.0.1:10809; remove one of them",
        ),
        (
            "[metrics]\nlisten = \"127.0.0.1:9\"\npage = \"0.0.0.0:9\"",
            "8: metrics.page: 0.0.0.0:9 is in use already by metrics.listen, 127.0.0.1:9; remove one of them",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(refusal(&in_volume(lines)), format!("t.toml:{expected}"), "{lines}");
    }
}
