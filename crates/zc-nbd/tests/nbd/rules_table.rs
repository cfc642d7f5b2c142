//! The table of rules is true: each test it names exists, and each numbered test is named.

const TABLE: &str = include_str!("../../RULES.md");

/// All sources that hold tests with numbers.
const SOURCES: [&str; 13] = [
    include_str!("bytes.rs"),
    include_str!("client_rules.rs"),
    include_str!("client_tls.rs"),
    include_str!("extended_rules.rs"),
    include_str!("handshake_rules.rs"),
    include_str!("inquiry_rules.rs"),
    include_str!("loopback.rs"),
    include_str!("tls_rules.rs"),
    include_str!("transmission_rules.rs"),
    include_str!("wire_round_trip.rs"),
    include_str!("../../src/client/pending.rs"),
    include_str!("../../src/proto.rs"),
    include_str!("../../src/server/export.rs"),
];

/// Names of functions behind `#[test]` or inside `proptest!`, where the attribute is the same.
fn tests() -> Vec<&'static str> {
    let mut names = Vec::new();
    for source in SOURCES {
        for piece in source.split("#[test]").skip(1) {
            let after = piece.split_once("fn ").map_or("", |(_, after)| after);
            names.push(after.split('(').next().unwrap_or_default());
        }
    }
    names
}

#[test]
fn the_table_names_every_numbered_test_and_no_other() {
    let tests = tests();
    let named: Vec<&str> = TABLE.split('`').skip(1).step_by(2).filter(|name| name.contains('_')).collect();
    let in_prose = |name: &&&str| !name.contains('/') && name.to_lowercase() == **name;
    for name in named.iter().filter(in_prose) {
        assert!(tests.contains(name), "the table names {name}, which does not exist");
    }
    for test in tests.iter().filter(|test| test.starts_with("must_")) {
        assert!(named.contains(test), "the table does not name {test}");
    }
    for number in 1..=24 {
        assert!(TABLE.contains(&format!("\n| {number} | ")), "rule {number} is missing");
    }
}
