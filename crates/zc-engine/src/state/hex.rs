//! Identities and digests as text.

/// Sixteen bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
