//! The shipped file is the defaults; mistakes are named with file, line and key.

use zc_config::{Config, ConfigError, diff_live};

const SHIPPED: &str = include_str!("../../../configs/zcached.toml");

/// The least a configuration must say, with the shipped file's examples.
const LEAST: &str = r#"
[cache]
path = "/var/lib/zcached/cache.img"
size = "10 GiB"
[[volume]]
name = "example"
origin = "/var/lib/zcached/example.img"
create_size = "20 GiB"
"#;

#[test]
fn the_shipped_file_says_the_defaults() {
    assert_eq!(Config::parse(SHIPPED, "shipped").unwrap(), Config::parse(LEAST, "least").unwrap());
}

#[test]
fn the_shipped_file_names_every_key() {
    let shown = Config::parse(SHIPPED, "shipped").unwrap().effective_toml();
    for key in shown.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key) {
        assert!(SHIPPED.contains(&format!("{key} = ")), "the shipped file lacks {key}");
    }
}

#[test]
fn the_effective_file_reads_back() {
    let config = Config::parse(SHIPPED, "shipped").unwrap();
    assert_eq!(Config::parse(&config.effective_toml(), "shown").unwrap(), config);
}

#[test]
fn mistakes_are_one_sentence_with_the_line() {
    let cases = [
        (
            "extent_size = \"5 KiB\"",
            "t.toml:4: cache.extent_size: 5 KiB is not a power of two between 4 KiB and 128 KiB",
        ),
        (
            "weu_size = \"8 MiB\"",
            "t.toml:4: cache.weu_size: 8 MiB is not a power of two between 32 KiB and 4 MiB",
        ),
        ("compression_level = 3", "t.toml:4: cache.compression_level: this codec has no levels"),
        (
            "compression = \"zlib\"\ncompression_level = 10",
            "t.toml:5: cache.compression_level: 10 is not between 1 and 9",
        ),
        (
            "reduce_cpus = \"3-1\"",
            "t.toml:4: cache.reduce_cpus: \"3-1\" is not a list of CPUs such as \"0,2-5\"",
        ),
        (
            "journal_path = \"/j\"",
            "t.toml:4: cache.journal_path: a journal outside the cache device is not offered by this version",
        ),
        ("max_ram = \"1 KiB\"", "t.toml:4: cache.max_ram: 1 KiB is not between 1 MiB and 16 TiB"),
        (
            "region_size = \"3 MiB\"",
            "t.toml:4: cache.region_size: \"3 MiB\" is neither \"auto\" nor a power of two between 128 KiB and 1 TiB",
        ),
    ];
    for (line, expected) in cases {
        let text = format!("\n[cache]\npath = \"/c\"\n{line}\n[[volume]]\nname = \"v\"\norigin = \"/o\"\n");
        let error = Config::parse(&text, "t.toml").unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn unknown_keys_bad_units_and_modes_are_errors_with_the_line() {
    for (line, part) in [
        ("colour = 3", "unknown field `colour`"),
        ("size = \"3 KB\"", "invalid value: string \"3 KB\""),
        ("weu_max_age = \"3 weeks\"", "a duration such as"),
        ("fingerprint_index_ratio = \"101 %\"", "a share from"),
        ("policy = \"belady\"", "unknown variant `belady`"),
    ] {
        let text = format!("[cache]\npath = \"/c\"\n{line}\n[[volume]]\nname = \"v\"\norigin = \"/o\"\n");
        let message = Config::parse(&text, "t.toml").unwrap_err().to_string();
        assert!(message.starts_with("t.toml:3: ") && message.contains(part), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let text = "[cache]\npath = \"/c\"\n[[volume]]\nname = \"v\"\norigin = \"/o\"\nmode = \"write-back\"\n";
    let message = Config::parse(text, "t.toml").unwrap_err().to_string();
    assert!(message.contains("unknown variant `write-back`"), "{message}");
}

#[test]
fn one_file_under_two_keys_is_an_error() {
    let text = "[cache]\npath = \"/x/c\"\n[[volume]]\nname = \"v\"\norigin = \"/x/./c\"\n";
    let message = Config::parse(text, "t.toml").unwrap_err().to_string();
    assert_eq!(message, "t.toml:5: origin of volume \"v\": /x/./c is used already, as cache.path");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "[cache]\npath = \"\"\nextent_size = 7\n[[volume]]\nname = \"\"\norigin = \"/o\"\n";
    let Err(ConfigError::Mistakes(mistakes)) = Config::parse(text, "t.toml") else { panic!("it parsed") };
    assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), vec![2, 3, 5]);
}

#[test]
fn a_reload_knows_what_is_live() {
    let old = Config::parse(SHIPPED, "old").unwrap();
    let text = SHIPPED.replace("mode = \"write-through\"", "mode = \"write-around\"");
    let new = Config::parse(&text.replace("weu_size = \"2 MiB\"", "weu_size = \"1 MiB\""), "new").unwrap();
    let changes: Vec<_> = diff_live(&old, &new).into_iter().map(|change| (change.key, change.live)).collect();
    assert_eq!(changes, vec![("cache".to_owned(), false), ("volume \"example\": mode".to_owned(), true)]);
    assert!(diff_live(&old, &old).is_empty());
}
