//! The steps of `cargo xtask test`: names, order, and requirements.
//!
//! Job: every run includes the base; the other steps are groups, of which a run includes some.

use clap::ValueEnum;
use zc_rig::host::packages::Set;

/// Lane of a step: one step of each lane runs at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Cargo's lock, and the cores for compilers.
    Cargo,
    /// Tests, on all cores.
    Tests,
    /// Package servers, a virtual machine.
    Waits,
}

/// One check. Those after `nbd-conformance` are groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Install the Debian packages that the chosen steps use.
    Packages,
    /// Formatting.
    Fmt,
    /// Licences and sources of every dependency.
    Licences,
    /// Programs and tests of the base, built once.
    Build,
    /// Rules about the tree itself: layers, sizes, forbidden words, links of documents.
    Tidy,
    /// The programs contain no deliberate bug and depend on nothing of the lab.
    Shipped,
    /// The programs with real clients.
    EndToEnd,
    /// Unit and property tests, and the fuzzers' seeds, of every crate that programs are made of.
    Unit,
    /// The simulator over hundreds of long and short seeds of the cache and seeds of the store.
    Simulation,
    /// Lints of every target of every crate, warnings are errors.
    Clippy,
    /// Documentation builds, warnings are errors, and its examples run.
    Doc,
    /// Our NBD server judged by the protocol document, and the table of that.
    NbdConformance,
    /// Tests of crates that no program uses: figures, models, the NBD suite itself, benchmarks.
    Lab,
    /// Every crash of small workloads, and every deliberate bug, found by the simulator.
    Canaries,
    /// The seeds that make the simulation's a thousand long, a thousand short, and four hundred of the store.
    LongSeeds,
    /// Every fuzzer for a minute.
    Fuzz,
    /// The Debian package: installed, used, upgraded and removed in a clean root; the archive, in an empty one.
    Package,
    /// The daemon with clients of a newer Debian, if they can be had.
    NewerClients,
    /// The live page in a real browser.
    Browser,
    /// Fifty kills of the server of a remote origin under a verified load, in two modes; an image of Ceph RBD.
    RemoteKills,
    /// Block devices and file systems, kills and power cuts in a virtual machine, if it can be made.
    Vm,
    /// The book is built from its pages.
    Book,
    /// Known weaknesses and yanked versions of dependencies (RustSec), if the database can be had; licences again.
    Advisories,
}

impl Step {
    /// The name on the command line and in headings.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Lane in which it runs.
    pub(crate) const fn lane(self) -> Lane {
        match self {
            Self::Fmt
            | Self::Build
            | Self::Clippy
            | Self::Doc
            | Self::NbdConformance
            | Self::Lab
            | Self::Canaries
            | Self::Fuzz
            | Self::NewerClients
            | Self::Package => Lane::Cargo,
            Self::Licences
            | Self::Unit
            | Self::Tidy
            | Self::Shipped
            | Self::Simulation
            | Self::EndToEnd
            | Self::LongSeeds
            | Self::RemoteKills
            | Self::Browser => Lane::Tests,
            Self::Packages | Self::Vm | Self::Book | Self::Advisories => Lane::Waits,
        }
    }

    /// Steps that must have ended well, if they are part of the run.
    pub(crate) const fn needs(self) -> &'static [Self] {
        match self {
            Self::Packages
            | Self::Fmt
            | Self::Licences
            | Self::Build
            | Self::Clippy
            | Self::Doc
            | Self::Lab => &[],
            Self::Unit | Self::Tidy | Self::Shipped | Self::Simulation | Self::LongSeeds => &[Self::Build],
            // The other steps also install or use packages.
            _ => &[Self::Build, Self::Packages],
        }
    }

    /// The Debian packages that it uses.
    pub(crate) const fn packages(self) -> &'static [Set] {
        match self {
            Self::EndToEnd | Self::NbdConformance | Self::NewerClients => &[Set::EndToEnd],
            Self::RemoteKills => &[Set::EndToEnd, Set::Ceph],
            Self::Fuzz => &[Set::Fuzzers],
            Self::Browser => &[Set::EndToEnd, Set::Browser],
            Self::Vm | Self::Package => &[Set::Vm],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!(Step::EndToEnd.name(), "end-to-end");
        assert_eq!(Step::from_str("licences", false), Ok(Step::Licences));
    }

    #[test]
    fn what_a_step_needs_comes_before_it() {
        let all = Step::value_variants();
        let place = |step: Step| all.iter().position(|other| *other == step);
        for step in all {
            assert!(step.needs().iter().all(|needed| place(*needed) < place(*step)), "{step:?}");
        }
    }
}
