//! Evidence value of a figure, a shape or a number: the possibility of another result.
//!
//! Job: separate predictions of the models from their inputs, and state disagreements with a paper.
//!
//! Invariant: only a claim that fails under an ablation is called asserted ([`crate::unbroken`]).

use crate::Ablation;

/// Evidence value of a figure, a shape or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Each of these ablations makes it fail. Of a figure or a number: a shape of it is so.
    Asserted(&'static [Ablation]),
    /// A parameter was chosen so, or taken from the paper: its name, and the target of the fit.
    Fitted(&'static str),
    /// The result disagrees with the paper: extent and reason. Such a shape compares later results with the present
    /// one.
    Contradicted(&'static str),
    /// The paper's number has another subject, named here.
    NotComparable(&'static str),
}

impl Standing {
    /// The words for the four kinds, in order.
    pub const WORDS: [&str; 4] = ["asserted", "fitted", "contradicted", "not comparable"];

    /// Returns the index of the kind, of four.
    #[must_use]
    pub const fn kind(self) -> usize {
        match self {
            Self::Asserted(_) => 0,
            Self::Fitted(_) => 1,
            Self::Contradicted(_) => 2,
            Self::NotComparable(_) => 3,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        Self::WORDS[self.kind()]
    }

    /// Returns the reason; of an asserted claim, its failure condition.
    #[must_use]
    pub fn reason(self) -> String {
        match self {
            Self::Asserted(ablations) => {
                let meanings: Vec<&str> = ablations.iter().map(|ablation| ablation.meaning()).collect();
                format!("fails if {}", meanings.join("; or if "))
            }
            Self::Fitted(why) | Self::Contradicted(why) | Self::NotComparable(why) => why.to_owned(),
        }
    }
}

/// Counts by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts(pub [usize; 4]);

impl Counts {
    /// Counts all of these.
    pub fn of(all: impl IntoIterator<Item = Standing>) -> Self {
        let mut counts = Self::default();
        all.into_iter().for_each(|standing| counts.0[standing.kind()] += 1);
        counts
    }

    /// All together.
    #[must_use]
    pub fn sum(&self) -> usize {
        self.0.iter().sum()
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = self.0.iter().zip(Standing::WORDS).map(|(count, word)| format!("{count} {word}"));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_and_reasons_told() {
        let all = [
            Standing::Asserted(&[Ablation::Incompressible, Ablation::NoCleaner]),
            Standing::Fitted("a to b"),
            Standing::Contradicted("twice"),
            Standing::Contradicted("thrice"),
        ];
        let counts = Counts::of(all);
        assert_eq!(counts.to_string(), "1 asserted, 1 fitted, 2 contradicted, 0 not comparable");
        assert_eq!(counts.sum(), 4);
        assert_eq!(all[0].reason(), "fails if no content compresses; or if nothing cleans");
        assert_eq!((all[2].word(), all[2].reason().as_str()), ("contradicted", "twice"));
    }
}
