//! Ranges of IP addresses, as in allow-lists.

use core::fmt;
use core::str::FromStr;
use std::net::IpAddr;

/// An address and the number of its significant leading bits: `192.0.2.0/24`. All bits of a bare address are
/// significant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressRange {
    address: IpAddr,
    prefix_bits: u8,
}

/// Not an address, or not a prefix of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a range such as \"192.0.2.0/24\"")]
pub struct NotARange;

/// Returns the bits of an address, left-aligned, and their number.
const fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => ((address.to_bits() as u128) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl AddressRange {
    /// Returns `true` if the address is in the range. IPv4 addresses mapped to IPv6 count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((own, own_len), (other, other_len)) = (bits(self.address), bits(address.to_canonical()));
        let differing = (own ^ other).checked_shr(128 - u32::from(self.prefix_bits)).unwrap_or(0);
        own_len == other_len && differing == 0
    }
}

impl FromStr for AddressRange {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address = address.parse::<IpAddr>().map_err(|_| NotARange)?.to_canonical();
        let (_, most) = bits(address);
        let prefix_bits = match prefix {
            // No signs, no leading zeros: each range has one spelling.
            Some(len) if len.len() > 1 && !len.starts_with(|c: char| ('1'..='9').contains(&c)) => {
                return Err(NotARange);
            }
            Some(len) => len.parse::<u8>().ok().filter(|len| *len <= most).ok_or(NotARange)?,
            None => most,
        };
        Ok(Self { address, prefix_bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_what_they_say() {
        let cases = [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("192.0.2.0/24", "::ffff:192.0.2.9", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "::1", true),
            ("::1/128", "::1", true),
        ];
        for (range, address, inside) in cases {
            let range: AddressRange = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), inside, "{range} {address}");
            assert_eq!(range.to_string().parse(), Ok(range));
        }
        for bad in
            ["", "localhost", "192.0.2.0/33", "192.0.2.0/", "192.0.2.0/+1", "192.0.2.0/08", "::1/129", "/8"]
        {
            assert_eq!(bad.parse::<AddressRange>(), Err(NotARange), "{bad}");
        }
    }
}
