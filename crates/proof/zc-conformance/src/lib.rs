//! Conformance suite for NBD servers.
//!
//! Job: one case for each MUST and SHOULD of the protocol document that a client can observe on the wire, for any
//! server over TCP or a Unix socket, with the bytes that show a failure.
//!
//! Invariants: the encoding is the suite's own, so that a bug in `zc-nbd` is not mirrored; every wait has a deadline;
//! a server's data never determines the size of an allocation; the export is written only with the caller's
//! permission.
//!
//! It does not measure speed, test clients, check or present certificates, or prove durability, which a client cannot
//! observe.
//!
//! The document is `doc/proto.md` of NetworkBlockDevice/nbd, and the same file of its branch `extension-ext-header`
//! for extended headers (sections that open with `ext:`). Requirements are in our own words.
//!
#![doc = include_str!("../TABLE.md")]
#![forbid(unsafe_code)]

mod case;
mod cases;
mod conn;
mod negotiation;
pub mod report;
mod run;
mod session;
mod stop;
#[cfg(test)]
mod stub;
mod subject;
pub mod table;
mod tls;
mod uri;
mod wire;

pub use case::{Case, Level};
pub use cases::all as cases;
pub use run::{Counts, Outcome, Report, Row, RunError, run, run_and_revive};
pub use subject::{Need, Options};
pub use uri::{Address, Uri, UriError};

/// The table that the last run over all servers wrote.
pub const TABLE: &str = include_str!("../TABLE.md");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_in_order_and_requirements_are_one_line() {
        let all = cases();
        assert!(all.len() >= 100);
        for pair in all.windows(2) {
            let (group, number) = pair[1].id.split_at(3);
            let next = pair[0].id.starts_with(group);
            let before: u32 = if next { pair[0].id[3..].parse().unwrap() } else { 0 };
            assert_eq!(number.parse::<u32>().unwrap(), before + 1, "{}", pair[1].id);
        }
        let groups: Vec<&str> = all.iter().map(|case| &case.id[..2]).collect();
        let mut distinct = groups.clone();
        distinct.dedup();
        let count = distinct.len();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), count, "a group is split");
        assert!(all.iter().all(|case| !case.text.contains(['\n', '|']) && !case.text.ends_with('.')));
    }

    #[test]
    fn the_table_shows_the_suite_as_it_is() {
        let stale = table::stale_cases(TABLE, &cases());
        assert!(stale.is_empty(), "run `cargo xtask nbd-conformance`:\n{}", stale.join("\n"));
    }
}
