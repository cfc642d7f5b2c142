//! Policies by name.

use std::fmt;
use std::str::FromStr;

use crate::arc::Arc;
use crate::lirs::Lirs;
use crate::queues::{Queue, Touch};
use crate::s3_fifo::S3Fifo;
use crate::sieve::Sieve;
use crate::tiny_lfu::TinyLfu;
use crate::two_q::TwoQ;
use crate::{Belady, CAPACITY_MAX, Policy};

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// FIFO with a second chance for keys used since (Corbato 1968).
    Clock,
    /// A FIFO for new keys, its ghosts, an LRU for returning keys (Johnson and Shasha, VLDB 1994).
    TwoQ,
    /// Recency and frequency in balance (Megiddo and Modha, FAST 2003).
    Arc,
    /// Inter-reference recency (Jiang and Zhang, SIGMETRICS 2002).
    Lirs,
    /// Three static FIFO queues (Yang et al., SOSP 2023).
    S3Fifo,
    /// One queue and a moving hand (Zhang et al., NSDI 2024).
    Sieve,
    /// Admission by frequency behind a window (Einziger et al., ACM TOS 2017).
    WTinyLfu,
    /// The optimum (Belady 1966): whatever is used last in the future goes.
    Belady,
}

/// There is no policy of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSuchPolicy {
    name: String,
}

impl fmt::Display for NoSuchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        write!(f, "no policy is called \"{}\"; there are {}", self.name, known.join(", "))
    }
}

impl std::error::Error for NoSuchPolicy {}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Lru,
        Self::Fifo,
        Self::Clock,
        Self::TwoQ,
        Self::Arc,
        Self::Lirs,
        Self::S3Fifo,
        Self::Sieve,
        Self::WTinyLfu,
        Self::Belady,
    ];

    /// The name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::TwoQ => "2q",
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::S3Fifo => "s3-fifo",
            Self::Sieve => "sieve",
            Self::WTinyLfu => "w-tinylfu",
            Self::Belady => "belady",
        }
    }

    /// Creates an empty cache. `future` returns the keys of all future accesses; only Belady's calls it.
    ///
    /// # Panics
    /// If the capacity is 0 or above [`CAPACITY_MAX`].
    pub fn build(self, capacity: usize, future: impl FnOnce() -> Vec<u64>) -> Box<dyn Policy> {
        assert!((1..=CAPACITY_MAX).contains(&capacity), "the capacity is checked by whoever asks");
        match self {
            Self::Lru => Box::new(Queue::new(capacity, Touch::Move)),
            Self::Fifo => Box::new(Queue::new(capacity, Touch::Nothing)),
            Self::Clock => Box::new(Queue::new(capacity, Touch::Mark)),
            Self::TwoQ => Box::new(TwoQ::new(capacity)),
            Self::Arc => Box::new(Arc::new(capacity)),
            Self::Lirs => Box::new(Lirs::new(capacity)),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Sieve => Box::new(Sieve::new(capacity)),
            Self::WTinyLfu => Box::new(TinyLfu::new(capacity)),
            Self::Belady => Box::new(Belady::new(capacity, &future())),
        }
    }
}

impl FromStr for Kind {
    type Err = NoSuchPolicy;

    fn from_str(name: &str) -> Result<Self, NoSuchPolicy> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| NoSuchPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_policies() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "mru".parse::<Kind>().unwrap_err().to_string();
        assert!(error.contains("\"mru\"") && error.contains("w-tinylfu, belady"), "{error}");
    }
}
