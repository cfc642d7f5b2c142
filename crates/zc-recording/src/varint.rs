//! Integers of variable length: seven bits per byte, lowest first.

pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// Removes a number from the front; `None` if there is none.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(first & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Encodes a signed difference so that small absolute values are small.
pub(crate) const fn fold(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from).cast_signed();
    (difference << 1 ^ (difference >> 63)).cast_unsigned()
}

/// Decodes a difference relative to `from`.
pub(crate) const fn unfold(from: u64, folded: u64) -> u64 {
    let difference = (folded >> 1) ^ (folded & 1).wrapping_neg();
    from.wrapping_add(difference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, from: u64, tail in any::<u8>()) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert!(out.len() <= 10);
            out.push(tail);
            let mut rest = out.as_slice();
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(rest, [tail]);
            prop_assert_eq!(unfold(from, fold(from, value)), value);
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for mut wrong in
            [&[][..], &[0x80], &[0xff; 9], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert_eq!(take(&mut wrong), None);
        }
        assert_eq!([fold(5, 5), fold(5, 4), fold(5, 6), fold(5, 3)], [0, 1, 2, 3]);
    }
}
