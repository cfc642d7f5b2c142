//! Groups of checks: which of them a run of `cargo xtask test` takes besides the base.
//!
//! Each run executes the group whose turn it is, and then groups whose paths the last changes touched, until their CPU
//! time is used up. The remaining touched ones are listed. The turn is derived from the commit ID, so that a run can
//! be repeated.
//!
//! Invariant: whatever changed, base and groups fit into half an hour on two cores.

use crate::step::Step;
use anyhow::{Context as _, bail};
use std::process::Command;
use zc_rig::host::run::workspace;

/// CPU time of all groups of one run, in minutes. An hour of CPU time is half an hour of two cores; the base takes its
/// part of it, and cores are never fully used.
pub(crate) const MINUTES_MAX: u32 = 22;

/// Changes that count when there is no tag: those of the day before the last commit.
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// A group: one step that is not part of the base.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) step: Step,
    /// CPU time, user and system, of the step after the base, rounded up.
    pub(crate) minutes: u32,
    /// Prefixes of the paths that it checks.
    paths: &'static [&'static str],
}

/// Paths with the logic of cache and store.
const CORE: &[&str] = &[
    "crates/zc-core/",
    "crates/zc-format/",
    "crates/zc-reduce/",
    "crates/zc-cache/",
    "crates/zc-store/",
    "crates/zc-pool/",
    "crates/proof/zc-sim/",
    "bin/zcsim/src/fuzz/",
];

/// Every group, in the order of the turns.
pub(crate) const GROUPS: &[Group] = &[
    Group { step: Step::LongSeeds, minutes: 17, paths: CORE },
    Group {
        step: Step::Vm,
        minutes: 8,
        paths: &["crates/zc-ublk/", "crates/zc-io/", "crates/proof/zc-rig/"],
    },
    Group { step: Step::Canaries, minutes: 22, paths: CORE },
    Group {
        step: Step::Package,
        minutes: 3,
        paths: &["configs/", "bin/zcached/", "bin/zcctl/", "crates/proof/xtask/src/deb/", "Cargo.lock"],
    },
    Group {
        step: Step::Fuzz,
        minutes: 11,
        paths: &[
            "crates/zc-nbd/",
            "crates/zc-format/",
            "crates/zc-reduce/",
            "crates/zc-config/",
            "crates/zc-daemon/src/control/",
            "crates/zc-daemon/fuzz/",
            "crates/zc-recording/",
            "crates/lab/zc-trace/",
        ],
    },
    Group {
        step: Step::Lab,
        minutes: 8,
        paths: &["crates/lab/", "crates/proof/zc-model/", "crates/proof/zc-conformance/", "benches/"],
    },
    Group {
        step: Step::NewerClients,
        minutes: 2,
        paths: &["crates/zc-nbd/", "tests/tests/newer_clients.rs"],
    },
    Group {
        step: Step::Browser,
        minutes: 1,
        paths: &[
            "crates/zc-daemon/src/control/page_http.rs",
            "crates/zc-daemon/src/observe/live.rs",
            "tests/tests/e2e_page.rs",
        ],
    },
    Group {
        step: Step::RemoteKills,
        minutes: 2,
        paths: &[
            "crates/zc-remote/",
            "crates/zc-engine/src/origin/remote/",
            "tests/tests/e2e_remote.rs",
            "tests/tests/e2e_ceph.rs",
        ],
    },
    Group { step: Step::Book, minutes: 4, paths: &["docs/", "README.md"] },
    Group { step: Step::Advisories, minutes: 6, paths: &["Cargo.lock", "deny.toml"] },
];

/// Returns `true` if every run includes the step.
pub(crate) fn is_base(step: Step) -> bool {
    GROUPS.iter().all(|group| group.step != step)
}

/// Groups of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Group that runs in any case.
    pub(crate) turn: Option<Step>,
    /// Others that the last changes touched.
    pub(crate) touched: Vec<Step>,
    /// Touched groups for which no time is left.
    pub(crate) left_out: Vec<Step>,
}

impl Choice {
    /// Returns `true` if a step is to run.
    pub(crate) fn takes(&self, step: Step) -> bool {
        self.turn == Some(step) || self.touched.contains(&step)
    }

    /// The choice, with the commands that run a group alone.
    pub(crate) fn describe(&self) -> String {
        let mut lines = Vec::new();
        let mut add = |what: &str, step: Step| {
            let name = step.name();
            lines.push(format!("    {what:<22} {name:<14} cargo xtask test --only {name}"));
        };
        self.turn.into_iter().for_each(|step| add("group by turns", step));
        self.touched.iter().for_each(|step| add("group, changed", *step));
        self.left_out.iter().for_each(|step| add("changed, but NOT RUN", *step));
        lines.push("    every group:                          cargo xtask test --full".to_owned());
        lines.join("\n")
    }
}

/// Returns the choice for the current tree.
///
/// # Errors
/// When git fails in a repository.
pub(crate) fn choose() -> anyhow::Result<Choice> {
    // An unpacked archive has no history: nothing is known to have changed.
    if !workspace().join(".git").exists() {
        return Ok(choice(0, &[]));
    }
    let id = git(&["rev-parse", "HEAD"])?;
    let turn = u64::from_str_radix(id.get(..8).unwrap_or_default(), 16).context("git names no commit")?;
    Ok(choice(turn, &changed()?))
}

/// Returns the paths changed by commits since the newest tag or of the last day, and by uncommitted changes.
fn changed() -> anyhow::Result<Vec<String>> {
    let list = ["log", "--name-only", "--format=", "--no-renames"];
    let commits = if let Ok(tag) = git(&["describe", "--tags", "--abbrev=0"]) {
        git(&[&list[..], &[&format!("{}..HEAD", tag.trim())]].concat())?
    } else {
        let last: u64 = git(&["log", "-1", "--format=%ct"])?.trim().parse().context("git tells no time")?;
        let since = format!("--since=@{}", last.saturating_sub(DAY_SECONDS));
        git(&[&list[..], &[&since]].concat())?
    };
    let open = git(&["diff", "--name-only", "HEAD"])?;
    Ok(commits.lines().chain(open.lines()).map(str::to_owned).collect())
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(args).current_dir(workspace()).output();
    let output = output.context("cannot start git")?;
    if !output.status.success() {
        bail!("git {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The choice by the number of a commit and the paths that changed.
fn choice(commit: u64, changed: &[String]) -> Choice {
    let count = GROUPS.len();
    let start = usize::try_from(commit % u64::try_from(count).unwrap_or(1)).unwrap_or(0);
    let order = (0..count).map(|index| &GROUPS[(start + index) % count]);
    let mut choice = Choice::default();
    let mut left = MINUTES_MAX;
    for group in order {
        let is_touched = changed.iter().any(|path| group.paths.iter().any(|start| path.starts_with(start)));
        let fits = group.minutes <= left;
        if choice.turn.is_none() {
            choice.turn = Some(group.step);
        } else if is_touched && fits {
            choice.touched.push(group.step);
        } else {
            if is_touched {
                choice.left_out.push(group.step);
            }
            continue;
        }
        left = left.saturating_sub(group.minutes);
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    fn changed(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    /// A commit for each turn.
    fn turns() -> std::ops::Range<u64> {
        0..u64::try_from(GROUPS.len()).unwrap()
    }

    #[test]
    fn each_group_has_its_turn() {
        let turns: Vec<Step> = turns().filter_map(|commit| choice(commit, &[]).turn).collect();
        let groups: Vec<Step> = GROUPS.iter().map(|group| group.step).collect();
        assert_eq!(turns, groups);
        assert!(choice(3, &[]).touched.is_empty());
    }

    #[test]
    fn changed_groups_run_while_their_time_lasts_and_the_others_are_named() {
        let only_page = choice(0, &changed(&["crates/zc-daemon/src/observe/live.rs"]));
        assert_eq!((only_page.touched, only_page.left_out), (vec![Step::Browser], vec![]));
        let all: Vec<String> =
            GROUPS.iter().flat_map(|group| group.paths).map(|path| format!("{path}x")).collect();
        for commit in turns() {
            let found = choice(commit, &all);
            let minutes: u32 =
                GROUPS.iter().filter(|group| found.takes(group.step)).map(|group| group.minutes).sum();
            assert!(minutes <= MINUTES_MAX, "{found:?}: {minutes} minutes");
            assert_eq!(1 + found.touched.len() + found.left_out.len(), GROUPS.len(), "{found:?}");
            let text = found.describe();
            assert!(found.left_out.iter().all(|step| text.contains(&step.name())), "{text}");
        }
    }

    #[test]
    fn over_the_turns_every_group_that_changes_runs() {
        let all: Vec<String> =
            GROUPS.iter().flat_map(|group| group.paths).map(|path| format!("{path}x")).collect();
        for group in GROUPS {
            assert!(turns().any(|commit| choice(commit, &all).takes(group.step)), "{:?}", group.step);
        }
    }

    #[test]
    fn groups_are_the_steps_that_are_not_in_the_base_and_their_paths_exist() {
        let all = Step::value_variants();
        let last = all.iter().position(|step| *step == Step::NbdConformance).unwrap();
        assert!(all[..=last].iter().all(|step| is_base(*step)));
        assert!(all[last + 1..].iter().all(|step| !is_base(*step)), "a step is in neither");
        for path in GROUPS.iter().flat_map(|group| group.paths) {
            assert!(workspace().join(path).exists(), "{path} is not in the tree");
        }
    }
}
