//! What a figure, a shape or a number is worth: whether it could have come out otherwise.
//!
//! Job: tell what the models predict from what was put into them, and say where ours disagrees with a paper.
//!
//! Invariant: only what fails under an ablation is called asserted ([`crate::unbroken`]).

use crate::Ablation;

/// What a figure, a shape or a number is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Each of these ablations makes it fail. Of a figure or a number: a shape of it is so.
    Asserted(&'static [Ablation]),
    /// A parameter was chosen so, or taken from the paper: which, and to what it was fitted.
    Fitted(&'static str),
    /// Ours disagrees with the paper: by how much, and why. Such a shape holds ours to what was seen.
    Contradicted(&'static str),
    /// The paper's number is of something else: of what.
    NotComparable(&'static str),
}

impl Standing {
    /// The words for the four kinds, in order.
    pub const WORDS: [&str; 4] = ["asserted", "fitted", "contradicted", "not comparable"];

    /// Which of the four it is.
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

    /// Why it is so; of what is asserted, when it fails.
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

/// How many there are of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts(pub [usize; 4]);

impl Counts {
    /// Of all these.
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
