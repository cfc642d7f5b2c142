//! Size of an extent in its unit, and the index form of its place.

/// Location of an extent in a WEU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) offset_units: u16,
    pub(crate) pages: u8,
}

/// Converts an extent's place in its WEU to the index form.
pub(crate) fn stored_of(offset_bytes: u32, stored_bytes: u32) -> Stored {
    let page = zc_core::limits::BLOCK_BYTES;
    let end = offset_bytes + zc_format::EXTENT_HEADER_BYTES + stored_bytes;
    let pages = end.div_ceil(page) - offset_bytes / page;
    Stored {
        offset_units: u16::try_from(offset_bytes / zc_core::limits::PLACE_ALIGN_BYTES).unwrap_or(u16::MAX),
        pages: u8::try_from(pages).unwrap_or(u8::MAX),
    }
}

/// Bytes of an extent in a WEU: inline header, payload, padding.
pub(crate) fn placed_bytes(stored_bytes: u32) -> u32 {
    (zc_format::EXTENT_HEADER_BYTES + stored_bytes).next_multiple_of(zc_core::limits::PLACE_ALIGN_BYTES)
}
