//! Numbers of variable length: LEB128, and zigzag for signed differences.

/// Bytes of the longest encoding of a `u64`.
const BYTES_MAX: usize = 10;

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends the difference of two numbers.
pub fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    put(out, (difference << 1 ^ difference >> 63).cast_unsigned());
}

/// Takes a number from the front of `bytes`, or returns `None` where none ends there.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        let low = u64::from(byte & 0x7f);
        let shift = 7 * u32::try_from(index).ok()?;
        if low << shift >> shift != low {
            return None;
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            *bytes = bytes.get(index + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Takes a number that was stored as its difference to `from`.
pub fn take_difference(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let value = take(bytes)?;
    let difference = (value >> 1) ^ 0_u64.wrapping_sub(value & 1);
    Some(from.wrapping_add(difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_differences_round_trip(from: u64, to: u64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            put(&mut bytes, from);
            put_difference(&mut bytes, from, to);
            bytes.extend_from_slice(&rest);
            let mut left = &bytes[..];
            prop_assert_eq!(take(&mut left), Some(from));
            prop_assert_eq!(take_difference(&mut left, from), Some(to));
            prop_assert_eq!(left, &rest[..]);
        }
    }

    #[test]
    fn small_differences_take_one_byte_in_both_directions() {
        for to in [1000_u64 - 64, 1000, 1000 + 63] {
            let mut bytes = Vec::new();
            put_difference(&mut bytes, 1000, to);
            assert_eq!(bytes.len(), 1, "{to}");
        }
    }

    #[test]
    fn a_number_that_does_not_end_or_does_not_fit_is_refused() {
        for bytes in [
            &[][..],
            &[0x80],
            &[0xff; 9],
            &[0xff; 12],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(take(&mut &bytes[..]), None, "{bytes:?}");
        }
    }
}
