//! Results of *reduce*: fingerprints and codecs.

use core::fmt;

/// Hash of an extent's bytes. SHA-1 fills the first 20 bytes and leaves the rest zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The first eight bytes as a little-endian number, the key of hash tables.
    #[must_use]
    pub const fn prefix(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fp{:016x}", self.prefix())
    }
}

/// The fingerprint function of a cache, fixed when the cache is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FingerprintKind {
    /// BLAKE3, 256 bits: collision resistant, so equal fingerprints are shared without a comparison of bytes (G7).
    Blake3,
    /// SHA-1, 160 bits, as in the Nitro paper: no longer collision resistant, so bytes are compared before sharing.
    Sha1,
}

impl FingerprintKind {
    /// Returns `true` if equality of fingerprints is enough to share content (G7).
    #[must_use]
    pub const fn is_collision_resistant(self) -> bool {
        matches!(self, Self::Blake3)
    }
}

/// Set of volumes that share content, as the key of their fingerprints: fingerprints of equal content are equal only
/// within one domain. The key is derived from the cache and the domain's name (`zc_reduce::dedup_domain`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DedupDomain(Option<[u8; 32]>);

impl DedupDomain {
    /// The domain without a name, whose fingerprints have no key.
    pub const COMMON: Self = Self(None);

    /// The domain of this key.
    #[must_use]
    pub const fn keyed(key: [u8; 32]) -> Self {
        Self(Some(key))
    }

    /// Returns the key, or `None` for [`DedupDomain::COMMON`].
    #[must_use]
    pub const fn key(&self) -> Option<&[u8; 32]> {
        self.0.as_ref()
    }
}

impl fmt::Debug for DedupDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("common"),
            // Enough to distinguish domains.
            Some([a, b, ..]) => write!(f, "domain{a:02x}{b:02x}"),
        }
    }
}

/// Encoding of a stored extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Stored uncompressed.
    Raw,
    /// LZ4 block format.
    Lz4,
    /// zlib (RFC 1950) at the given level, 1-9. The level matters to the encoder only.
    Zlib(u8),
    /// Zstandard at the given level, 1-19. The level matters to the encoder only.
    Zstd(u8),
}

impl Codec {
    /// The codec's number on media, without the level.
    #[must_use]
    pub const fn media_code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Lz4 => 1,
            Self::Zlib(_) => 2,
            Self::Zstd(_) => 3,
        }
    }

    /// The codec with the given number on media, or `None` for an unknown one. Levels read back as 0.
    #[must_use]
    pub const fn from_media_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zlib(0)),
            3 => Some(Self::Zstd(0)),
            _ => None,
        }
    }
}
