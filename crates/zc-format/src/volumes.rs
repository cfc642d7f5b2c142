//! The volume table: volumes of the cache, and the origins they are paired with (`FORMAT.md`, section 5).
//!
//! Job: encode and decode a copy. Invariant: one checksum over the whole copy, so a mix of old and new blocks fails.
//! It does not compare identities, or assign ids.

use zc_core::{VolumeId, limits};

use crate::FormatError;
use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};

/// Size of one copy.
pub const VOLUME_TABLE_BYTES: u64 = 64 << 10;
/// Volumes that fit in one table.
pub const VOLUMES_PER_TABLE: usize = 255;
const BYTES: usize = 64 << 10;
const ENTRY_BYTES: usize = 256;
const MAGIC: u32 = u32::from_le_bytes(*b"zcVt");
/// Flag of a record: [`VolumeRecord::may_be_dirty`].
const MAY_BE_DIRTY: u32 = 1;
const _: () = assert!((VOLUMES_PER_TABLE + 1) * ENTRY_BYTES <= BYTES);

/// Kind of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OriginKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

/// Identity by which an origin is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OriginIdentity {
    /// File or device.
    pub kind: OriginKind,
    /// Device number of the file system, or of the device itself.
    pub dev: u64,
    /// Inode number (0 for devices).
    pub inode: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Last modification in nanoseconds since 1970 (0 for devices). Compared only after a clean stop.
    pub mtime_ns: u64,
}

/// A volume of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Its number in keys.
    pub id: VolumeId,
    /// Name of the volume.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its region size.
    pub region_bytes: u64,
    /// Its origin.
    pub origin: OriginIdentity,
    /// Must equal the stamp in the state directory for clean contents to be trusted.
    pub stamp: u64,
    /// `true` if it may have dirty extents. Durably set before the first one; only with
    /// [`crate::Features::WRITE_BACK`].
    pub may_be_dirty: bool,
}

/// The volume table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeTable {
    /// Number of the table; the newest valid copy counts.
    pub sequence: u64,
    /// At most [`VOLUMES_PER_TABLE`].
    pub records: Vec<VolumeRecord>,
}

impl VolumeTable {
    /// Encodes copy 0 or 1.
    ///
    /// # Panics
    /// When there are too many volumes, or a name is too long.
    #[must_use]
    pub fn encode(&self, copy: usize, salt: Salt) -> Vec<u8> {
        assert!(self.records.len() <= VOLUMES_PER_TABLE, "{} volumes in one table", self.records.len());
        let mut bytes = vec![0; BYTES];
        let count = u32::try_from(self.records.len()).unwrap_or(0);
        let mut w = Writer::new(&mut bytes);
        w.u32(0).u32(MAGIC).u64(self.sequence).u32(count).u32(0).put(&[0; ENTRY_BYTES - 24]);
        for record in &self.records {
            let mut entry = [0; ENTRY_BYTES];
            encode_record(record, &mut entry);
            w.put(&entry);
        }
        Binding::copy(BlockType::VolumeTable, copy, salt).seal(&mut bytes);
        bytes
    }

    /// Decodes copy 0 or 1.
    ///
    /// # Errors
    /// When it is torn, corrupt, from another place, or holds impossible values.
    pub fn decode(bytes: &[u8], copy: usize, salt: Salt) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BYTES).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        if r.u32()? != MAGIC {
            return Err(FormatError::Magic);
        }
        Binding::copy(BlockType::VolumeTable, copy, salt).check(bytes)?;
        let sequence = r.u64()?;
        let count = zc_core::usize_from_u32(r.u32()?);
        if count > VOLUMES_PER_TABLE {
            return Err(FormatError::Field("volume count"));
        }
        let entries = bytes.get(ENTRY_BYTES..).ok_or(FormatError::Truncated)?;
        let records =
            entries.chunks_exact(ENTRY_BYTES).take(count).map(decode_record).collect::<Result<_, _>>()?;
        Ok(Self { sequence, records })
    }
}

fn encode_record(record: &VolumeRecord, entry: &mut [u8]) {
    let name = record.name.as_bytes();
    assert!(name.len() <= limits::VOLUME_NAME_BYTES_MAX, "volume name of {} bytes", name.len());
    let mut padded = [0; limits::VOLUME_NAME_BYTES_MAX];
    for (to, from) in padded.iter_mut().zip(name) {
        *to = *from;
    }
    let origin = &record.origin;
    let mut w = Writer::new(entry);
    w.u16(record.id.0)
        .u8(u8::try_from(name.len()).unwrap_or(0))
        .u8(u8::from(origin.kind == OriginKind::Block));
    w.u32(u32::from(record.may_be_dirty) * MAY_BE_DIRTY)
        .put(&padded)
        .u64(record.size_bytes)
        .u64(record.region_bytes);
    w.u64(origin.dev).u64(origin.inode).u64(origin.len_bytes).u64(origin.mtime_ns).u64(record.stamp);
}

fn decode_record(entry: &[u8]) -> Result<VolumeRecord, FormatError> {
    let mut r = Reader::new(entry);
    let (id, name_len, block, flags) = (r.u16()?, r.u8()?, r.u8()?, r.u32()?);
    let padded = r.take(limits::VOLUME_NAME_BYTES_MAX)?;
    let name = padded.get(..usize::from(name_len)).ok_or(FormatError::Field("volume name"))?;
    let name = core::str::from_utf8(name).map_err(|_| FormatError::Field("volume name"))?.to_owned();
    let (size_bytes, region_bytes) = (r.u64()?, r.u64()?);
    if id >= limits::VOLUMES_MAX || region_bytes == 0 {
        return Err(FormatError::Field("volume"));
    }
    if flags & !MAY_BE_DIRTY != 0 {
        return Err(FormatError::Field("volume flags"));
    }
    let kind = if block == 1 { OriginKind::Block } else { OriginKind::File };
    let origin =
        OriginIdentity { kind, dev: r.u64()?, inode: r.u64()?, len_bytes: r.u64()?, mtime_ns: r.u64()? };
    Ok(VolumeRecord {
        id: VolumeId(id),
        name,
        size_bytes,
        region_bytes,
        origin,
        stamp: r.u64()?,
        may_be_dirty: flags & MAY_BE_DIRTY != 0,
    })
}
