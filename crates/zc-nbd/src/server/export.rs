//! Description of exports for the sessions of a server.
//!
//! Job: the catalog that the driver implements, and the properties of one export.
//!
//! Invariants: block sizes obey proto.md (powers of two, min <= 64 KiB, preferred >= max(min, 512), max >= preferred).
//!
//! It is independent of volumes; the driver finds its own by [`ExportInfo::token`].

use crate::proto::limits::{BLOCK_MIN_BYTES_MAX, CONTEXTS_MAX, PAYLOAD_BYTES_MAX};
use crate::proto::tx_flag;
use crate::wire::{HeaderStyle, ServerEntry};

/// Exports of a server as one connection sees them. The empty name means the default export, by convention the first.
///
/// The session queries the catalog at every option, so a driver passes a catalog specific to the connection: a
/// borrowed view of the exports, the client's address and, once TLS is established, the name in its certificate.
/// [`ExportCatalog::access`] then implements rights per client.
pub trait ExportCatalog {
    /// The export of that name, if there is one.
    fn lookup(&self, name: &str) -> Option<ExportInfo>;
    /// Every export. The session leaves out those that [`ExportCatalog::access`] does not grant at the time.
    fn list(&self) -> Vec<ServerEntry>;
    /// Returns the rights of this client to the export of that canonical name. Queried with every option that names an
    /// export, so the result may change when TLS has authenticated the client.
    fn access(&self, name: &str) -> Access {
        let _ = name;
        Access::Granted
    }
}

/// Rights of a client to an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Use it.
    #[default]
    Granted,
    /// Use it over TLS only: before, it is not listed, and `INFO` and `GO` are answered `ERR_TLS_REQD`.
    OverTls,
    /// Visible to the client but not usable: `ERR_POLICY`, and not listed.
    Denied,
    /// For this client it does not exist: `ERR_UNKNOWN`, and not listed.
    Hidden,
}

/// A table of exports in order; the first is the default one.
impl ExportCatalog for [ExportInfo] {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        if name.is_empty() { self.first() } else { self.iter().find(|export| export.name == name) }.cloned()
    }

    fn list(&self) -> Vec<ServerEntry> {
        self.iter()
            .map(|export| ServerEntry { name: export.name.clone(), description: export.description.clone() })
            .collect()
    }
}

/// Block size constraints of an export, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    min: u32,
    preferred: u32,
    max: u32,
}

impl BlockSizes {
    /// Any alignment accepted, 4 KiB preferred, 32 MiB payloads.
    pub const DEFAULT: Self = Self { min: 1, preferred: 4096, max: PAYLOAD_BYTES_MAX };

    /// Checked constraints, or `None` if they break a rule of the protocol or exceed 32 MiB payloads.
    #[must_use]
    pub const fn new(min: u32, preferred: u32, max: u32) -> Option<Self> {
        let min_fine = min.is_power_of_two() && min <= BLOCK_MIN_BYTES_MAX;
        let preferred_fine = preferred.is_power_of_two() && preferred >= min && preferred >= 512;
        let max_fine = max >= preferred && max <= PAYLOAD_BYTES_MAX && max.is_multiple_of(min);
        if min_fine && preferred_fine && max_fine { Some(Self { min, preferred, max }) } else { None }
    }

    /// Requests must be multiples of this.
    #[must_use]
    pub const fn min_bytes(self) -> u32 {
        self.min
    }

    /// Requests should be multiples of this.
    #[must_use]
    pub const fn preferred_bytes(self) -> u32 {
        self.preferred
    }

    /// Largest payload of one READ or WRITE.
    #[must_use]
    pub const fn max_bytes(self) -> u32 {
        self.max
    }
}

/// Capabilities of an export. Set only those that the driver implements: every flag is advertised unchanged, except
/// that a read-only export offers no `TRIM` and no `WRITE_ZEROES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportFlags {
    /// Writes are refused with `EPERM` by the session.
    pub read_only: bool,
    /// Behaves like a rotating disk.
    pub rotational: bool,
    /// All connections see one coherent export and a flush covers all of them.
    pub multi_conn: bool,
    /// `FLUSH`.
    pub flush: bool,
    /// `FUA` on every command.
    pub fua: bool,
    /// `TRIM`.
    pub trim: bool,
    /// `WRITE_ZEROES` with and without `NO_HOLE`.
    pub write_zeroes: bool,
    /// `FAST_ZERO`; advertised only together with `write_zeroes`.
    pub fast_zero: bool,
    /// `CACHE`.
    pub cache: bool,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// Canonical name, at most 4096 bytes.
    pub name: String,
    /// Text for people, at most 4096 bytes, may be empty.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Capabilities.
    pub flags: ExportFlags,
    /// Block size constraints.
    pub blocks: BlockSizes,
    /// Metadata contexts for `BLOCK_STATUS`, e.g. [`crate::proto::BASE_ALLOCATION`]; the first 16 count.
    pub contexts: Vec<String>,
    /// The driver's own id of the export, handed back with [`super::ServerEvent::Attached`].
    pub token: u64,
}

impl ExportInfo {
    /// The transmission flags to advertise.
    #[must_use]
    pub fn tx_flags(&self, style: HeaderStyle) -> u16 {
        let flags = self.flags;
        let zeroes = flags.write_zeroes && !flags.read_only;
        let table = [
            (flags.read_only, tx_flag::READ_ONLY),
            (flags.flush, tx_flag::SEND_FLUSH),
            (flags.fua, tx_flag::SEND_FUA),
            (flags.rotational, tx_flag::ROTATIONAL),
            (flags.trim && !flags.read_only, tx_flag::SEND_TRIM),
            (zeroes, tx_flag::SEND_WRITE_ZEROES),
            (style != HeaderStyle::Simple, tx_flag::SEND_DF),
            (flags.multi_conn, tx_flag::CAN_MULTI_CONN),
            (flags.cache, tx_flag::SEND_CACHE),
            (zeroes && flags.fast_zero, tx_flag::SEND_FAST_ZERO),
        ];
        table.iter().filter(|(on, _)| *on).fold(tx_flag::HAS_FLAGS, |sum, (_, bit)| sum | bit)
    }

    /// The contexts with their ids on the wire, from 1 on.
    pub(crate) fn contexts_with_ids(&self) -> impl Iterator<Item = (u32, &str)> {
        (1..).zip(self.contexts.iter().take(CONTEXTS_MAX).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn must_10_block_sizes_obey_the_protocol() {
        assert_eq!(BlockSizes::new(1, 4096, PAYLOAD_BYTES_MAX), Some(BlockSizes::DEFAULT));
        assert!(BlockSizes::new(512, 512, 1 << 20).is_some());
        assert_eq!(BlockSizes::new(0, 4096, 1 << 20), None);
        assert_eq!(BlockSizes::new(3, 4096, 1 << 20), None);
        assert_eq!(BlockSizes::new(128 << 10, 128 << 10, 1 << 20), None);
        assert_eq!(BlockSizes::new(1, 256, 1 << 20), None);
        assert_eq!(BlockSizes::new(4096, 512, 1 << 20), None);
        assert_eq!(BlockSizes::new(1, 4096, 2048), None);
        assert_eq!(BlockSizes::new(1, 4096, PAYLOAD_BYTES_MAX + 1), None);
        assert_eq!(BlockSizes::new(512, 512, 1000), None);
    }

    #[test]
    fn must_11_flags_are_consistent() {
        let mut export = ExportInfo {
            name: String::new(),
            description: String::new(),
            size_bytes: 1,
            flags: ExportFlags::default(),
            blocks: BlockSizes::DEFAULT,
            contexts: Vec::new(),
            token: 0,
        };
        assert_eq!(export.tx_flags(HeaderStyle::Simple), tx_flag::HAS_FLAGS);
        assert_eq!(export.tx_flags(HeaderStyle::Structured), tx_flag::HAS_FLAGS | tx_flag::SEND_DF);
        export.flags.fast_zero = true;
        export.flags.trim = true;
        assert_eq!(export.tx_flags(HeaderStyle::Simple) & tx_flag::SEND_FAST_ZERO, 0);
        export.flags.write_zeroes = true;
        assert_ne!(export.tx_flags(HeaderStyle::Simple) & tx_flag::SEND_FAST_ZERO, 0);
        export.flags.read_only = true;
        assert_eq!(export.tx_flags(HeaderStyle::Simple), tx_flag::HAS_FLAGS | tx_flag::READ_ONLY);
    }
}
