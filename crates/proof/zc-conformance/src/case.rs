//! A case: one requirement of the protocol, and how it is tried.

use crate::stop::Check;
use crate::subject::{Need, Subject};

/// Requirement level in the protocol document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// MUST, MUST NOT.
    Must,
    /// SHOULD, SHOULD NOT.
    Should,
    /// A layout or meaning that the document gives without a key word.
    Format,
}

impl Level {
    /// As in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Format => "format",
        }
    }
}

/// One requirement.
#[derive(Debug)]
pub struct Case {
    /// A name for ever: a group of two letters and a number.
    pub id: &'static str,
    /// Requirement level.
    pub level: Level,
    /// The section of the protocol document that it is from; `ext:` marks the branch with extended headers.
    pub section: &'static str,
    /// The requirement in one line.
    pub text: &'static str,
    /// Features that the server must offer for the case to apply.
    pub needs: &'static [Need],
    pub(crate) run: fn(&Subject) -> Check,
}

/// Builders for the tables.
pub(crate) const fn must(
    id: &'static str,
    section: &'static str,
    text: &'static str,
    needs: &'static [Need],
    run: fn(&Subject) -> Check,
) -> Case {
    Case { id, level: Level::Must, section, text, needs, run }
}

pub(crate) const fn should(
    id: &'static str,
    section: &'static str,
    text: &'static str,
    needs: &'static [Need],
    run: fn(&Subject) -> Check,
) -> Case {
    Case { id, level: Level::Should, section, text, needs, run }
}

pub(crate) const fn format(
    id: &'static str,
    section: &'static str,
    text: &'static str,
    needs: &'static [Need],
    run: fn(&Subject) -> Check,
) -> Case {
    Case { id, level: Level::Format, section, text, needs, run }
}
