//! Runs the cases against one server.
//!
//! Invariants: cases run one after the other, each on connections of its own; a case that ends early has a reason.

use crate::case::Case;
use crate::cases;
use crate::stop::Stop;
use crate::subject::{Options, Subject};
use crate::uri::Uri;

/// Outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Conforms to the document.
    Pass,
    /// Violates the document: observation, and the last bytes of both directions.
    Fail {
        /// Observation.
        why: String,
        /// Lines of hexadecimal bytes, `C:` sent by the suite, `S:` by the server.
        bytes: Vec<String>,
    },
    /// The server does not offer the tested feature.
    NotApplicable(String),
    /// The server could not be reached.
    Error(String),
}

impl Outcome {
    /// One word, as in the table and in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "FAIL",
            Self::NotApplicable(_) => "n/a",
            Self::Error(_) => "error",
        }
    }
}

/// A case and how it ended.
#[derive(Debug)]
pub struct Row {
    /// The case.
    pub case: &'static Case,
    /// Outcome.
    pub outcome: Outcome,
}

/// Results for one server.
#[derive(Debug)]
pub struct Report {
    /// One row per case that was run, in order.
    pub rows: Vec<Row>,
}

/// Number of cases by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub pass: usize,
    /// Failed.
    pub fail: usize,
    /// Not applicable.
    pub not_applicable: usize,
    /// The server could not be reached.
    pub error: usize,
}

impl Report {
    /// Returns the number of cases by outcome.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in &self.rows {
            let count = match row.outcome {
                Outcome::Pass => &mut counts.pass,
                Outcome::Fail { .. } => &mut counts.fail,
                Outcome::NotApplicable(_) => &mut counts.not_applicable,
                Outcome::Error(_) => &mut counts.error,
            };
            *count += 1;
        }
        counts
    }

    /// Both reports of one server in two settings: a failure in either counts, then a pass.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        let rank = |outcome: &Outcome| match outcome {
            Outcome::NotApplicable(_) => 0,
            Outcome::Pass => 1,
            Outcome::Error(_) => 2,
            Outcome::Fail { .. } => 3,
        };
        for (row, other) in self.rows.iter_mut().zip(other.rows) {
            if rank(&other.outcome) > rank(&row.outcome) {
                *row = other;
            }
        }
        self
    }

    /// No case failed and the server could always be reached.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let counts = self.counts();
        counts.fail == 0 && counts.error == 0
    }
}

/// Reason why the suite could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server is not there.
    #[error("the server cannot be tested: {0}")]
    Unreachable(String),
    /// No such case.
    #[error("no case is called `{0}`; --list shows all")]
    UnknownCase(String),
}

/// Runs the cases against the server at `uri`. A server that crashes in a case is not restarted.
///
/// # Errors
/// When the server is unreachable, or a case of [`Options::only`] does not exist.
pub fn run(uri: Uri, options: Options) -> Result<Report, RunError> {
    run_and_revive(uri, options, &mut || {})
}

/// As [`run`]; calls `revive` when the server is gone after a case, which is reported with that case.
///
/// # Errors
/// As [`run`].
pub fn run_and_revive(uri: Uri, options: Options, revive: &mut dyn FnMut()) -> Result<Report, RunError> {
    let cases = select(&options.only)?;
    let subject = Subject::probe(uri, options).map_err(|stop| RunError::Unreachable(stop.to_string()))?;
    subject.take_trace();
    let mut rows = Vec::new();
    for case in cases {
        let mut outcome = outcome(&subject, case);
        // A server that is about to die may still take a connection; it sends no greeting on it.
        if let Outcome::Fail { why, .. } | Outcome::Error(why) = &mut outcome
            && subject.negotiate().is_err()
        {
            why.push_str("; afterwards the server cannot be reached");
            revive();
        }
        subject.take_trace();
        rows.push(Row { case, outcome });
    }
    Ok(Report { rows })
}

fn select(only: &[String]) -> Result<Vec<&'static Case>, RunError> {
    let all = cases::all();
    let unknown = only.iter().find(|id| !all.iter().any(|case| case.id == id.as_str()));
    if let Some(id) = unknown {
        return Err(RunError::UnknownCase(id.clone()));
    }
    let wanted = |case: &&Case| only.is_empty() || only.iter().any(|id| id == case.id);
    Ok(all.into_iter().filter(wanted).collect())
}

fn outcome(subject: &Subject, case: &Case) -> Outcome {
    if let Some(why) = case.needs.iter().find_map(|need| subject.lacks(*need)) {
        return Outcome::NotApplicable(why.to_owned());
    }
    let result = (case.run)(subject);
    let bytes = subject.take_trace();
    match result {
        Ok(()) => Outcome::Pass,
        Err(Stop::NotApplicable(why)) => Outcome::NotApplicable(why),
        Err(Stop::Unreachable(why)) => Outcome::Error(why),
        Err(stop @ (Stop::Fail(_) | Stop::Closed(_))) => Outcome::Fail { why: stop.to_string(), bytes },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: [Outcome; 3]) -> Report {
        let rows =
            cases::all().into_iter().zip(outcomes).map(|(case, outcome)| Row { case, outcome }).collect();
        Report { rows }
    }

    #[test]
    fn of_two_settings_a_failure_counts_and_then_a_pass() {
        let (absent, bad) = (Outcome::NotApplicable("no TLS".to_owned()), Outcome::Error("gone".to_owned()));
        let one = report([absent.clone(), Outcome::Pass, bad.clone()]);
        let two = report([Outcome::Pass, absent.clone(), absent]);
        let merged: Vec<Outcome> = one.merge(two).rows.into_iter().map(|row| row.outcome).collect();
        assert_eq!(merged, [Outcome::Pass, Outcome::Pass, bad]);
    }
}
