//! Identities and digests as text.

use core::fmt::Write as _;

/// Bytes as hexadecimal digits, in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _never_fails = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(hex(&[]), "");
    }
}
