//! Names of volumes and snapshots.
//!
//! Job: `VOLUME` and `VOLUME@SNAP` as people write them. In the catalog a snapshot's name is the whole text, so that
//! names are unique in a pool.

use std::fmt;

/// The name of a volume, or of a snapshot of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName {
    volume: String,
    snapshot: Option<String>,
}

/// A name that no volume or snapshot can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no name of a volume: at most 64 bytes of letters, digits, '.', '_' and '-', with '@' before the name of \
     a snapshot"
)]
pub struct BadName(String);

impl VolumeName {
    /// Reads a name.
    ///
    /// # Errors
    /// When it is empty, too long, or has other characters.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let (volume, snapshot) = match text.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (text, None),
        };
        let is_plain = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let fits = text.len() <= zc_store::limits::NAME_BYTES_MAX;
        if fits && is_plain(volume) && snapshot.is_none_or(is_plain) {
            Ok(Self { volume: volume.to_owned(), snapshot: snapshot.map(str::to_owned) })
        } else {
            Err(BadName(text.to_owned()))
        }
    }

    /// The volume's part.
    #[must_use]
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The snapshot's part.
    #[must_use]
    pub fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_deref()
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.volume)?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| write!(f, "@{snapshot}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_told() {
        for text in ["disk", "disk@monday", "a.b_c-9@x"] {
            assert_eq!(VolumeName::parse(text).unwrap().to_string(), text);
        }
        let name = VolumeName::parse("disk@monday").unwrap();
        assert_eq!((name.volume(), name.snapshot()), ("disk", Some("monday")));
        let long = "x".repeat(65);
        for text in ["", "@", "a@", "@b", "a@b@c", "a/b", "a b", &long] {
            assert!(VolumeName::parse(text).is_err(), "{text}");
        }
    }
}
