//! The suite against the stub: honest it passes every case, and each case is failed by at least one lie.
#![cfg(test)]

use super::lies;
use super::{Rules, Stub};
use crate::run::{Outcome, Report, run};
use crate::subject::Options;
use crate::wire::{FIXED_NEWSTYLE, flag};
use std::collections::BTreeSet;
use std::time::Duration;

/// Patience with an honest server, and with one that may rightly be found silent.
const PATIENCE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

/// Correct servers that together offer, and together lack, every feature that a case depends on.
pub(super) fn honest() -> Vec<(&'static str, Rules)> {
    let rules = Rules::default;
    vec![
        ("everything", rules()),
        ("TLS on request", Rules { tls: true, ..rules() }),
        ("TLS first", Rules { tls: true, forced_tls: true, ..rules() }),
        ("padding always", Rules { handshake_flags: FIXED_NEWSTYLE, ..rules() }),
        (
            "few features",
            Rules { flags: flag::HAS_FLAGS | flag::WRITE_ZEROES, status_payload: false, ..rules() },
        ),
        ("large blocks", Rules { block: [4096, 4096, 1 << 20], ..rules() }),
    ]
}

fn judge(rules: Rules, only: Vec<String>, deadline: Duration) -> Report {
    let stub = Stub::start(rules);
    let options = Options { deadline, writes: true, read_only: Some(stub.uri("frozen")), only };
    run(stub.uri("disk"), options).unwrap()
}

fn failed(report: &Report) -> BTreeSet<&'static str> {
    let bad = |outcome: &Outcome| matches!(outcome, Outcome::Fail { .. } | Outcome::Error(_));
    report.rows.iter().filter(|row| bad(&row.outcome)).map(|row| row.case.id).collect()
}

#[test]
fn an_honest_server_passes_and_every_case_applies_to_one() {
    let mut passed = BTreeSet::new();
    for (name, rules) in honest() {
        let report = judge(rules, Vec::new(), PATIENCE);
        assert!(report.is_clean(), "{name}:\n{}", crate::report::text(&report));
        let good = report.rows.iter().filter(|row| row.outcome == Outcome::Pass);
        passed.extend(good.map(|row| row.case.id));
    }
    let never: Vec<&str> =
        crate::cases().iter().map(|case| case.id).filter(|id| !passed.contains(id)).collect();
    assert!(never.is_empty(), "no honest server shows these cases: {never:?}");
}

#[test]
fn each_lie_is_found_by_the_cases_that_are_about_it_and_no_case_believes_all_lies() {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut problems = Vec::new();
    for lie in lies::HANDSHAKE.iter().chain(lies::TRANSMISSION) {
        let mut rules = honest()[lie.server].1.clone();
        (lie.tell)(&mut rules);
        let report = judge(rules, lie.found_by.iter().map(|id| (*id).to_owned()).collect(), SHORT);
        let failed = failed(&report);
        let missed: Vec<&&str> = lie.found_by.iter().filter(|id| !failed.contains(**id)).collect();
        if !missed.is_empty() {
            problems.push(format!("{}: not found by {missed:?}", lie.name));
        }
        found.extend(failed);
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let believed: Vec<&str> =
        crate::cases().iter().map(|case| case.id).filter(|id| !found.contains(id)).collect();
    assert!(believed.is_empty(), "these cases believe every lie: {believed:?}");
}
