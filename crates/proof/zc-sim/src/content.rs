//! Sector contents: one number each, from which its 512 bytes are derived.

use zc_core::{SECTOR_BYTES, usize_from_u32};

/// Sector size as a slice length.
pub(crate) const SECTOR: usize = usize_from_u32(SECTOR_BYTES);

/// Upper bound of the shared pool's content numbers. Pool contents are shared between writes (duplicates); larger numbers
/// are used once.
pub(crate) const POOL: u64 = 1 << 20;

/// Fills in the bytes of a sector: zeros for 0. A third of the other contents is incompressible.
pub(crate) fn fill(id: u64, sector: &mut [u8]) {
    sector.fill(0);
    if id == 0 {
        return;
    }
    let mut state = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let noisy = if (id / 64).is_multiple_of(3) { SECTOR } else { 64 };
    for chunk in sector[..noisy].chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    sector[..8].copy_from_slice(&id.to_le_bytes());
}

/// Returns the number of a sector's content, or `None` if the bytes match no content.
pub(crate) fn identify(sector: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(sector[..8].try_into().ok()?);
    let mut expected = [0; SECTOR];
    fill(id, &mut expected);
    (expected == sector).then_some(id)
}
