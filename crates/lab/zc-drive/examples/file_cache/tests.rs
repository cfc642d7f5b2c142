//! The second pass over a file is served by the cache.

use std::io::Write as _;

#[test]
fn a_second_read_is_served_from_the_cache() {
    let bytes: Vec<u8> =
        (0..1_u32 << 20).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let mut passed_bytes = 0;
    let [first, both] = super::read_twice(file.path(), |offset, read| {
        let at = usize::try_from(offset).unwrap();
        assert_eq!(read, &bytes[at..][..read.len()], "at byte {offset}");
        passed_bytes += read.len();
    })
    .unwrap();
    assert_eq!(passed_bytes, 2 * bytes.len());
    assert!(first >= 64, "{first} reads of 4 MiB");
    assert_eq!(both, first, "the second pass reached the file");
}
