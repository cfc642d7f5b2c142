//! The superblock: identity, layout and session of the cache (`FORMAT.md`, section 4).
//!
//! Job: encode and decode a copy, compute the positions of copies. Invariants: a decoded superblock has a valid
//! geometry and no unknown feature that forbids the intended use. It does not order the writes (two copies, flush, the
//! other two, flush), or choose the newest copy (see [`crate::recover`]).

use zc_core::{FingerprintKind, JournalSeq};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::geometry::GEOMETRY_BYTES;
use crate::{BLOCK, CheckpointHeader, FormatError, Geometry};

/// Copies of the superblock: two at each end of the device.
pub const SUPERBLOCK_COPIES: usize = 4;
const MAGIC: [u8; 8] = *b"zcached\x01";
const VERSION: u32 = 2;
const LABEL_BYTES: usize = 64;
const BLOCK_MASK: u64 = zc_core::limits::BLOCK_BYTES as u64 - 1;
/// Distance between two copies at one end.
const COPY_STEP_BYTES: u64 = 32 << 10;
const _: () = assert!(2 * COPY_STEP_BYTES == crate::geometry::END_BYTES);

/// Intended use of a superblock: decides about unknown read-only-compatible features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Inspect only.
    Read,
    /// Serve: the cache will be written.
    Write,
}

/// Feature flags: a reader refuses unknown `incompat` bits, opens read-only for unknown `ro_compat` bits, and ignores
/// the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Safe to ignore.
    pub compat: u64,
    /// Safe for readers.
    pub ro_compat: u64,
    /// Unsafe for readers.
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
    /// Number of rewrites; the newest valid copy is used.
    pub sequence: u64,
    /// Number of starts of the daemon on this cache.
    pub session: u64,
    /// `true` if the session ended cleanly.
    pub clean: bool,
    /// `true` if the session began with distrusted mappings and has not ended cleanly: its invalidations may not be
    /// durable, so the next start must distrust the mappings as well.
    pub distrusted: bool,
    /// Boot id of the kernel during the session.
    pub boot_id: [u8; 16],
    /// When the cache was formatted, in seconds since 1970.
    pub created_unix_s: u64,
    /// All journal blocks before this one were durable when the copy was written; 0: unknown.
    pub journal_next: JournalSeq,
    /// Sequence of the checkpoint from which the session began; 0: unknown.
    pub checkpoint: u64,
    /// Session of the valid index image, which ended with this copy; 0: none.
    pub index_image: u64,
    /// Name for people; bytes beyond 64 bytes of UTF-8 are truncated.
    pub label: String,
}

impl Features {
    /// In `compat`: the session's intent log failed and could not be removed; it is incomplete.
    pub const INTENTS_VOID: u64 = 1;

    /// In `incompat`: the journal is on a device of its own.
    pub const EXTERNAL_JOURNAL: u64 = 1;

    /// In `incompat`: dirty extents and their records may exist.
    pub const WRITE_BACK: u64 = 2;

    /// `incompat` features of this build.
    const KNOWN: u64 = Self::EXTERNAL_JOURNAL | Self::WRITE_BACK;

    /// Updates the features for a new session, whose intent log is new.
    pub const fn begin_session(&mut self) {
        self.compat &= !Self::INTENTS_VOID;
    }

    /// Returns the features of a layout.
    #[must_use]
    pub const fn of(geometry: &Geometry) -> Self {
        let incompat = if geometry.has_journal_device() { Self::EXTERNAL_JOURNAL } else { 0 };
        Self { compat: 0, ro_compat: 0, incompat }
    }
}

impl Superblock {
    /// Returns `true` if the journal continues from this checkpoint: the session began from it, or wrote it. Another
    /// one may lack facts of that checkpoint alone: its journal blocks may have been lost, and their numbers reused.
    #[must_use]
    pub const fn goes_on_from(&self, checkpoint: &CheckpointHeader) -> bool {
        self.checkpoint == 0 || checkpoint.session >= self.session || checkpoint.sequence == self.checkpoint
    }

    /// Returns the positions of the copies on a device of this size; bytes beyond a multiple of 4096 are unused. If a
    /// copy has a geometry of another size (the device has grown), the positions for that size must be probed too.
    #[must_use]
    pub fn offsets(device_bytes: u64) -> [u64; SUPERBLOCK_COPIES] {
        let used = device_bytes & !BLOCK_MASK;
        let end = used.saturating_sub(crate::geometry::END_BYTES);
        [0, COPY_STEP_BYTES, end, end.saturating_add(COPY_STEP_BYTES)]
    }

    /// Encodes a copy.
    ///
    /// # Panics
    /// When the geometry's salt belongs to another cache.
    #[must_use]
    pub fn encode(&self, copy: usize) -> Vec<u8> {
        assert_eq!(self.geometry.salt, Salt::of(&self.uuid), "another cache's salt");
        let mut block = vec![0; BLOCK];
        let mut geometry = [0; GEOMETRY_BYTES];
        self.geometry.encode(&mut geometry);
        let mut label = [0; LABEL_BYTES];
        let kept = (0..=LABEL_BYTES).rev().find_map(|len| self.label.get(..len)).unwrap_or_default();
        Writer::new(&mut label).put(kept.as_bytes());
        let mut w = Writer::new(&mut block);
        w.u32(0).u32(VERSION).put(&MAGIC).put(&self.uuid);
        w.u64(self.features.compat).u64(self.features.ro_compat).u64(self.features.incompat);
        w.u64(self.sequence).u64(self.session).put(&self.boot_id).u64(self.created_unix_s);
        w.u8(u8::from(self.clean)).u8(fingerprint_code(self.fingerprint_kind));
        w.u8(u8::from(self.distrusted)).put(&[0; 5]);
        w.put(&geometry).put(&label).u64(self.journal_next.0).u64(self.checkpoint).u64(self.index_image);
        Binding::copy(BlockType::Superblock, copy, Salt::NONE).seal(&mut block);
        block
    }

    /// Decodes a copy of a cache to serve.
    ///
    /// # Errors
    /// When it is no superblock, corrupt, from another place, or of an unknown version or with unknown features.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Self, FormatError> {
        Self::decode_for(bytes, copy, Access::Write)
    }

    /// Decodes a copy.
    ///
    /// # Errors
    /// As [`Superblock::decode`]; unknown `ro_compat` features matter for [`Access::Write`] only.
    pub fn decode_for(bytes: &[u8], copy: usize, access: Access) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        let version = r.u32()?;
        if r.array::<8>()? != MAGIC {
            return Err(FormatError::Magic);
        }
        Binding::copy(BlockType::Superblock, copy, Salt::NONE).check(bytes)?;
        let uuid = r.array()?;
        let features = Features { compat: r.u64()?, ro_compat: r.u64()?, incompat: r.u64()? };
        if version != VERSION || features.incompat & !Features::KNOWN != 0 {
            return Err(FormatError::Version);
        }
        if features.ro_compat != 0 && access == Access::Write {
            return Err(FormatError::ReadOnly);
        }
        let (sequence, session, boot_id, created_unix_s) = (r.u64()?, r.u64()?, r.array()?, r.u64()?);
        let (clean, fingerprint, distrusted) = (r.u8()?, r.u8()?, r.u8()?);
        r.take(5)?;
        let geometry = Geometry::decode(r.take(GEOMETRY_BYTES)?, Salt::of(&uuid))?;
        if geometry.has_journal_device() != (features.incompat & Features::EXTERNAL_JOURNAL != 0) {
            return Err(FormatError::Field("journal_offset"));
        }
        let label = core::str::from_utf8(r.take(LABEL_BYTES)?).map_err(|_| FormatError::Field("label"))?;
        let (journal_next, checkpoint, index_image) = (JournalSeq(r.u64()?), r.u64()?, r.u64()?);
        Ok(Self {
            uuid,
            features,
            geometry,
            fingerprint_kind: fingerprint_kind(fingerprint)?,
            sequence,
            session,
            clean: clean == 1,
            distrusted: distrusted == 1,
            boot_id,
            created_unix_s,
            journal_next,
            checkpoint,
            index_image,
            label: label.trim_end_matches('\0').to_owned(),
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
