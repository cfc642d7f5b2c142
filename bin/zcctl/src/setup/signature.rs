//! Detection of a device's contents.
//!
//! Job: identify partition tables, file systems and members of larger devices by their magic numbers, and distinguish
//! used from empty devices.
//!
//! Invariants: a device is empty if both ends, and samples all over it, are zeros. Nothing is written.
//!
//! It does not read a whole device, which takes hours on a large one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes that are read at each end: the labels of all below are within, and copies of them that others leave behind.
const END_BYTES: u64 = 1 << 20;
/// Number of pieces read between the ends, at equal distances.
const PIECES: u64 = 64;
/// Length of each piece.
const PIECE_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Zeros, wherever it was read.
    Nothing,
    Known(&'static str),
    Unknown,
    /// The device cannot be read, and this is why.
    Unreadable(String),
}

impl Content {
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Nothing => "empty".to_owned(),
            Self::Known(name) => (*name).to_owned(),
            Self::Unknown => "unknown data".to_owned(),
            Self::Unreadable(why) => format!("cannot be read: {}", zc_io::name_errnos(why)),
        }
    }

    /// Returns the object of "the device contains": "an ext2/3/4 file system".
    pub(crate) fn object(&self) -> String {
        match self {
            Self::Known("ext") => "an ext2/3/4 file system".to_owned(),
            Self::Known("xfs") => "an XFS file system".to_owned(),
            Self::Known(name @ ("btrfs" | "f2fs" | "squashfs" | "ntfs" | "vfat")) => {
                format!("a {name} file system")
            }
            Self::Known(name @ ("iso9660" | "exfat")) => format!("an {name} file system"),
            Self::Known("swap") => "swap space".to_owned(),
            Self::Known(name) if name.contains(' ') => (*name).to_owned(),
            Self::Known(name) => format!("a {name} signature"),
            Self::Nothing => "nothing".to_owned(),
            Self::Unknown | Self::Unreadable(_) => "unknown data".to_owned(),
        }
    }
}

/// The name that a cache of ours has here.
pub(crate) const CACHE: &str = "a zcached cache";
/// The name that a store of ours has here.
pub(crate) const STORE: &str = "a zcached store";
pub(crate) const PARTITIONS: &str = "a partition table";

/// Magic numbers: the name, where the bytes stand, and the bytes.
const MARKS: &[(&str, usize, &[u8])] = &[
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("LVM2_member", 512, b"LABELONE"),
    ("LVM2_member", 0, b"LABELONE"),
    ("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9"),
    ("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("xfs", 0, b"XFSB"),
    ("ext", 1024 + 56, b"\x53\xef"),
    ("btrfs", (64 << 10) + 64, b"_BHRfS_M"),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("squashfs", 0, b"hsqs"),
    ("iso9660", (32 << 10) + 1, b"CD001"),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 82, b"FAT32   "),
    ("vfat", 54, b"FAT1"),
    (PARTITIONS, 512, b"EFI PART"),
    (PARTITIONS, 4096, b"EFI PART"),
];

/// Search range for the magic number of our blocks, which follows checksum and version.
const OWN_BYTES: usize = 64;
const OWN: [(&str, &[u8]); 2] = [(CACHE, b"zcached\x01"), (STORE, b"zcstore\x01")];

/// Returns the contents of the device or file at `path`.
pub(crate) fn content(path: &Path) -> Content {
    read(path).unwrap_or_else(|error| Content::Unreadable(error.to_string()))
}

fn read(path: &Path) -> io::Result<Content> {
    use std::io::Seek as _;
    let mut file = File::open(path)?;
    let len = file.seek(io::SeekFrom::End(0))?;
    let piece = |at: u64, bytes: u64| {
        let mut piece = vec![0; zc_core::usize_from_u64(bytes)];
        file.read_exact_at(&mut piece, at).map(|()| piece)
    };
    let first = piece(0, len.min(END_BYTES))?;
    if let Some(name) = name(&first) {
        return Ok(Content::Known(name));
    }
    if !is_zero(&first) || !is_zero(&piece(len - len.min(END_BYTES), len.min(END_BYTES))?) {
        return Ok(Content::Unknown);
    }
    for number in 1..PIECES {
        let at = len / PIECES * number;
        if !is_zero(&piece(at, PIECE_BYTES.min(len - at))?) {
            return Ok(Content::Unknown);
        }
    }
    Ok(Content::Nothing)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Returns the name of contents with this start.
fn name(first: &[u8]) -> Option<&'static str> {
    let is_at = |at: usize, bytes: &[u8]| first.get(at..at + bytes.len()) == Some(bytes);
    let head = first.get(..OWN_BYTES).unwrap_or(first);
    let is_own = |magic: &[u8]| head.windows(magic.len()).any(|window| window == magic);
    let own = OWN.iter().find(|(_, magic)| is_own(magic)).map(|(name, _)| *name);
    let known = || MARKS.iter().find(|(_, place, bytes)| is_at(*place, bytes)).map(|(name, ..)| *name);
    own.or_else(known).or_else(|| is_dos_table(first).then_some(PARTITIONS))
}

/// Returns `true` if the first sector is a DOS partition table: its mark, and one entry at least that has a type.
fn is_dos_table(first: &[u8]) -> bool {
    first.get(510..512) == Some(&[0x55, 0xaa])
        && (0..4).any(|entry| first.get(446 + 16 * entry + 4).is_some_and(|kind| *kind != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(len: usize, parts: &[(usize, &[u8])]) -> Content {
        let mut bytes = vec![0; len];
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::write(&path, bytes).unwrap();
        content(&path)
    }

    #[test]
    fn what_is_on_a_device_has_a_name() {
        const LEN: usize = 3 << 20;
        assert_eq!(device(LEN, &[]), Content::Nothing);
        assert_eq!(device(0, &[]), Content::Nothing);
        for (name, at, bytes) in MARKS {
            assert_eq!(device(LEN, &[(*at, bytes)]), Content::Known(name), "{name} at {at}");
        }
        assert_eq!(device(LEN, &[(450, b"\x83"), (510, b"\x55\xaa")]), Content::Known(PARTITIONS));
        assert_eq!(device(LEN, &[(510, b"\x55\xaa")]), Content::Unknown, "a boot sector without partitions");
        assert_eq!(device(LEN, &[(4, b"zcached\x01")]), Content::Known(CACHE));
        assert_eq!(device(LEN, &[(8, b"zcstore\x01")]), Content::Known(STORE));
        assert_eq!(device(LEN, &[(LEN - 1, b"x")]), Content::Unknown, "a copy of something at the end");
        assert_eq!(device(LEN, &[(700_000, b"x")]), Content::Unknown);
        assert_eq!(device(LEN, &[(LEN / 2, b"x")]), Content::Unknown, "a piece between");
        assert_eq!(device(100, &[(99, b"x")]), Content::Unknown);
    }

    #[test]
    fn what_cannot_be_read_is_not_empty() {
        assert!(matches!(content(Path::new("/nonexistent/device")), Content::Unreadable(_)));
    }
}
