//! Division by a number that is fixed long before: by multiplication, which takes a tenth of the time. Both indexes
//! divide at every lookup.
//!
//! Out of scope: numbers of 64 bits; the highest bit has to be 0.

#[derive(Debug, Clone, Copy)]
pub(crate) struct Divisor {
    number: u64,
    reciprocal: u64,
}

impl Divisor {
    /// Division by `number`; 0 counts as 1.
    pub(crate) const fn new(number: u64) -> Self {
        let number = if number == 0 { 1 } else { number };
        Self { number, reciprocal: u64::MAX / number }
    }

    /// Quotient and remainder of a number below 2^63.
    pub(crate) const fn divide(&self, number: u64) -> (u64, u64) {
        debug_assert!(number >> 63 == 0, "too large a number to divide");
        // The reciprocal is too small by less than one part in 2^64, so this is the quotient or one less.
        let about = high_u64(number as u128 * self.reciprocal as u128);
        let rest = number - about * self.number;
        if rest < self.number { (about, rest) } else { (about + 1, rest - self.number) }
    }
}

const fn high_u64(wide: u128) -> u64 {
    (wide >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_divides(number in 0_u64..1 << 63, by in 1_u64..1 << 63, shift in 0_u32..63) {
            for by in [by, by >> shift, 1 << shift, (1 << shift) + 1] {
                let by = by.max(1);
                for number in [number, number >> shift, (number / by) * by, ((number / by) * by).saturating_sub(1)] {
                    prop_assert_eq!(Divisor::new(by).divide(number), (number / by, number % by));
                }
            }
        }
    }
}
