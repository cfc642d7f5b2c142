//! Decodes arbitrary bytes as numbers of variable length and leaves of maps: no panic; decoded values encode and
//! decode to the same, and a delta applied to a base encodes.

use zc_store::format2::leaf::Leaf;
use zc_store::format2::varint;

pub(crate) fn run(data: &[u8]) {
    number(data);
    leaf(data);
    let (base, delta) = data.split_at(data.len() / 2);
    if let (Ok(mut base), Ok(delta)) = (Leaf::decode(base), Leaf::decode(delta)) {
        base.apply(&delta);
        assert_eq!(Leaf::decode(&base.encode()), Ok(base));
    }
}

fn number(data: &[u8]) {
    let mut left = data;
    let Some(value) = varint::take(&mut left) else { return };
    let mut bytes = Vec::new();
    varint::put(&mut bytes, value);
    assert!(bytes.len() <= data.len() - left.len(), "{value} has a shorter encoding");
    assert_eq!(varint::take(&mut &bytes[..]), Some(value));
    let Some(to) = varint::take_difference(&mut left, value) else { return };
    let mut bytes = Vec::new();
    varint::put_difference(&mut bytes, value, to);
    assert_eq!(varint::take_difference(&mut &bytes[..], value), Some(to));
}

fn leaf(data: &[u8]) {
    if let Ok(leaf) = Leaf::decode(data) {
        assert_eq!(Leaf::decode(&leaf.encode()), Ok(leaf));
    }
}
