//! Enums with a word for each variant, shared by configuration, commands and replies.
//!
//! Job: define the enum and its words together, so that every part parses what another prints. It does not define the
//! default or the effect of a choice.

/// An enum whose variants are words of the configuration.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// Every word with its meaning, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];

            /// Returns the word as written in the configuration.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::NoSuchWord;

            fn from_str(text: &str) -> Result<Self, $crate::NoSuchWord> {
                let known = Self::WORDS.iter().find(|(word, _)| *word == text);
                known.map(|(_, choice)| *choice).ok_or_else(|| $crate::NoSuchWord {
                    text: text.to_owned(),
                    words: Self::WORDS.iter().map(|(word, _)| *word).collect(),
                })
            }
        }
    };
}

/// A text that is none of the accepted words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is none of {}", words.join(", "))]
pub struct NoSuchWord {
    /// The text.
    pub text: String,
    /// The words.
    pub words: Vec<&'static str>,
}

words! {
    /// How a volume treats writes and lookups.
    Mode {
        /// Reads and writes fill the cache; a write is acknowledged when the origin has it.
        WriteThrough = "write-through",
        /// Reads fill the cache, writes only invalidate.
        WriteAround = "write-around",
        /// Reads and writes fill the cache; a write is acknowledged before the origin has it.
        WriteBack = "write-back",
        /// Reads fill the cache, writes are refused.
        ReadOnly = "read-only",
        /// The cache is neither read nor filled; writes still invalidate.
        PassThrough = "pass-through",
    }
}

words! {
    /// Time of the acknowledgement of a write in write-back. Flush and FUA guarantee durability in both cases.
    #[derive(Default)]
    Ack {
        /// When the daemon has it in memory, as a disk with a volatile write cache does.
        #[default]
        Volatile = "volatile",
        /// When it is durable on the cache device.
        Durable = "durable",
    }
}

words! {
    /// Order in which volumes lose cached content under pressure, lowest first.
    #[derive(Default, PartialOrd, Ord)]
    Priority {
        /// Before all others.
        Low = "low",
        /// As a volume without a priority.
        #[default]
        Normal = "normal",
        /// After all others.
        High = "high",
    }
}

words! {
    /// Order in which dirty data of write-back reaches the origin.
    #[derive(Default)]
    Destage {
        /// Epoch by epoch, as flushes divide them: the origin alone always has a state that the volume once had.
        #[default]
        Epoch = "epoch",
        /// Overwritten data is skipped even if flushes lie between. Without the cache, the origin may have a state
        /// that the volume never had.
        Coalesce = "coalesce",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_and_others_are_refused_with_those_there_are() {
        for (word, mode) in Mode::WORDS {
            assert_eq!((word.parse(), mode.word()), (Ok(*mode), *word));
        }
        assert_eq!(
            "write behind".parse::<Mode>().unwrap_err().to_string(),
            "\"write behind\" is none of write-through, write-around, write-back, read-only, pass-through"
        );
    }
}
