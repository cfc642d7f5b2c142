//! The superblock: what the cache is, where everything is, and which session has it.

use zc_core::FingerprintKind;

use crate::bytes::{Reader, Writer};
use crate::crc::{BlockType, check, seal};
use crate::geometry::GEOMETRY_BYTES;
use crate::{BLOCK, FormatError, Geometry};

/// Copies of the superblock: two at each end of the device.
pub const SUPERBLOCK_COPIES: usize = 4;
const MAGIC: [u8; 8] = *b"zcached\x01";
const VERSION: u32 = 1;
const LABEL_BYTES: usize = 64;
/// Distance between two copies at one end.
const COPY_STEP_BYTES: u64 = 32 << 10;

/// Feature flags: a reader refuses what it does not know in `incompat`, opens read-only for `ro_compat`, ignores the
/// rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Safe to ignore.
    pub compat: u64,
    /// Safe to read past.
    pub ro_compat: u64,
    /// Not safe to read past.
    pub incompat: u64,
}

/// A superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The cache's identity.
    pub uuid: [u8; 16],
    /// Feature flags.
    pub features: Features,
    /// The layout.
    pub geometry: Geometry,
    /// The cache's fingerprint function.
    pub fingerprint_kind: FingerprintKind,
    /// Counts rewrites; the newest valid copy counts.
    pub sequence: u64,
    /// Counts starts of the daemon on this cache.
    pub session: u64,
    /// The session ended cleanly.
    pub clean: bool,
    /// The kernel's boot identity of the session.
    pub boot_id: [u8; 16],
    /// When the cache was formatted, in seconds since 1970.
    pub created_unix_s: u64,
    /// A name for people, at most 64 bytes.
    pub label: String,
}

impl Superblock {
    /// Where the copies of a device of this size are.
    #[must_use]
    pub fn offsets(device_bytes: u64) -> [u64; SUPERBLOCK_COPIES] {
        let end = device_bytes.saturating_sub(2 * COPY_STEP_BYTES);
        [0, COPY_STEP_BYTES, end, end + COPY_STEP_BYTES]
    }

    /// The bytes of a copy.
    #[must_use]
    pub fn encode(&self, copy: usize) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut geometry = [0; GEOMETRY_BYTES];
        self.geometry.encode(&mut geometry);
        let mut label = [0; LABEL_BYTES];
        for (to, from) in label.iter_mut().zip(self.label.bytes()) {
            *to = from;
        }
        let mut w = Writer::new(&mut block);
        w.u32(0).u32(VERSION).put(&MAGIC).put(&self.uuid);
        w.u64(self.features.compat).u64(self.features.ro_compat).u64(self.features.incompat);
        w.u64(self.sequence).u64(self.session).put(&self.boot_id).u64(self.created_unix_s);
        w.u8(u8::from(self.clean)).u8(fingerprint_code(self.fingerprint_kind)).put(&[0; 6]);
        w.put(&geometry).put(&label);
        seal(BlockType::Superblock, zc_core::u64_from_usize(copy), 0, &mut block);
        block
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// When it is no superblock, damaged, from another place, or of a version or with features unknown here.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        let version = r.u32()?;
        if r.array::<8>()? != MAGIC {
            return Err(FormatError::Magic);
        }
        check(BlockType::Superblock, zc_core::u64_from_usize(copy), 0, bytes)?;
        let uuid = r.array()?;
        let features = Features { compat: r.u64()?, ro_compat: r.u64()?, incompat: r.u64()? };
        if version != VERSION || features.incompat != 0 || features.ro_compat != 0 {
            return Err(FormatError::Version);
        }
        let (sequence, session, boot_id, created_unix_s) = (r.u64()?, r.u64()?, r.array()?, r.u64()?);
        let (clean, fingerprint) = (r.u8()?, r.u8()?);
        r.take(6)?;
        let geometry = Geometry::decode(r.take(GEOMETRY_BYTES)?)?;
        let label = String::from_utf8_lossy(r.take(LABEL_BYTES)?).trim_end_matches('\0').to_owned();
        Ok(Self {
            uuid,
            features,
            geometry,
            fingerprint_kind: fingerprint_kind(fingerprint)?,
            sequence,
            session,
            clean: clean == 1,
            boot_id,
            created_unix_s,
            label,
        })
    }
}

fn fingerprint_code(kind: FingerprintKind) -> u8 {
    match kind {
        FingerprintKind::Blake3 => 1,
        FingerprintKind::Sha1 => 2,
    }
}

fn fingerprint_kind(code: u8) -> Result<FingerprintKind, FormatError> {
    match code {
        1 => Ok(FingerprintKind::Blake3),
        2 => Ok(FingerprintKind::Sha1),
        _ => Err(FormatError::Field("fingerprint kind")),
    }
}
