//! What a configuration may name but this version does not do.
//!
//! Job: refuse it with one clear sentence instead of "no such key" or, worse, silence. An engine that learns one of
//! these takes its row out and reads the key.

/// A key, or one value of a key, that is not available yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotYet {
    /// The section.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// The value; `None`: every value.
    pub value: Option<&'static str>,
    /// What is missing.
    pub what: &'static str,
}

/// Everything that is known by name and refused.
pub const NOT_YET: &[NotYet] =
    &[NotYet { section: "volume", key: "mode", value: Some("write-back"), what: "\"write-back\" is" }];

impl NotYet {
    pub(crate) fn is(&self, section: &str, key: &str) -> bool {
        self.section == section && self.key == key
    }

    /// The sentence of the refusal, without the key.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{} not available in this version yet", self.what)
    }
}
