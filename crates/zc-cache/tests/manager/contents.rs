//! Contents that tests write.

/// Bytes that LZ4 halves, different for every `id`.
pub(crate) fn half(id: u64, len: usize) -> Vec<u8> {
    let mut state = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(16) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (to, from) in chunk.iter_mut().zip(state.to_le_bytes()) {
            *to = from;
        }
    }
    bytes
}

/// Bytes that no codec makes shorter.
pub(crate) fn noise(id: u64, len: usize) -> Vec<u8> {
    let wide = half(id, 2 * len);
    wide.chunks(16).flat_map(|chunk| chunk[..8].to_vec()).collect()
}
