//! Errors of structures on media.

/// Fault of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer bytes than the structure needs.
    #[error("the block is truncated")]
    Truncated,
    /// Not this kind of block, or nothing was ever written there.
    #[error("the block does not begin with the expected magic number")]
    Magic,
    /// The checksum does not match: corrupt, torn, or from another place.
    #[error("the block's checksum does not match its contents and place")]
    Checksum,
    /// Written by a version of zcached that this one cannot read.
    #[error("the cache was written by a newer version of zcached")]
    Version,
    /// Uses features under which this version can read, but must not write.
    #[error("the cache uses features of a newer version of zcached: it can be read, not written")]
    ReadOnly,
    /// The checksum is valid, a field is not.
    #[error("field {0} of the block has an impossible value")]
    Field(&'static str),
}
