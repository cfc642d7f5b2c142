//! The formats and their names.

use std::str::FromStr;

use crate::error::TraceError;

/// A format of traces. Fields are named in the order of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `ts_ns lba512 nsect op hash lz4 zstd1`: one 4 KiB block a line, op R, W or F; the hash is 16 hexadecimal digits,
    /// then the sizes of the block after LZ4 and Zstandard, a dash for one that is not known.
    Fingerprints,
    /// FIU: `ts_ns pid process lba512 nsect W|R major minor md5` (Koller and Rangaswami, FAST 2010). One MD5
    /// for each 4 KiB or, in the traces of home directories, for each sector, without spaces between them. Lines of one
    /// process that follow each other on the disk, within 200 us, were one request and are taken as one.
    Fiu,
    /// Microsoft Research Cambridge CSV: `filetime,host,disk,Read|Write,offset,length,response`.
    Msr,
    /// CSV with a header: `ts_us,op,offset,length`.
    CloudPhysics,
    /// Records of 32 bytes, little-endian: number, length (u32 each), segments (u32), SCSI command, version (u16 each),
    /// block of 512 bytes, time in microseconds (u64 each).
    Vscsi,
    /// Storage Performance Council: `unit,lba512,bytes,R|W,seconds`.
    Spc,
    /// Alibaba block traces: `device,R|W,offset,length,ts_us`.
    Alibaba,
    /// Tencent CBS: `seconds,offset512,sectors,0|1,volume`, 1 for a write.
    Tencent,
    /// Text of blkparse with its default fields; requests are its Q events.
    Blkparse,
    /// DiskSim and MQSim ASCII: `time device lba512 sectors flags`, bit 0 of the flags for a read. Times are in
    /// milliseconds (DiskSim) if the first of a file that is not 0 has a decimal point, else in nanoseconds (MQSim).
    DiskSim,
    /// I/O logs of fio, versions 2 and 3; each file is a device.
    FioIolog,
    /// `block blocks ignored number`: block references of the ARC authors (Megiddo and Modha, FAST 2003).
    Lis,
    /// One key a line; `*` is passed over (traces of the LIRS authors).
    Keys,
    /// Keys of four bytes back to back; has to be named.
    Keys32,
    /// libCacheSim's oracleGeneral: records of 24 bytes, little-endian: time in seconds (u32), object (u64), its size
    /// (u32), the number of its next use or -1 (i64). An object is one key; its size is not used.
    OracleGeneral,
    /// Recordings of the daemon ([`zc_recording`]).
    Recording,
}

/// All with their names.
pub(crate) const NAMES: [(Format, &str); 16] = [
    (Format::Fingerprints, "fingerprints"),
    (Format::Fiu, "fiu"),
    (Format::Msr, "msr"),
    (Format::CloudPhysics, "cloudphysics"),
    (Format::Vscsi, "vscsi"),
    (Format::Spc, "spc"),
    (Format::Alibaba, "alibaba"),
    (Format::Tencent, "tencent"),
    (Format::Blkparse, "blkparse"),
    (Format::DiskSim, "disksim"),
    (Format::FioIolog, "fio"),
    (Format::Lis, "lis"),
    (Format::Keys, "keys"),
    (Format::Keys32, "keys32"),
    (Format::OracleGeneral, "oraclegeneral"),
    (Format::Recording, "recording"),
];

/// Names of all formats, for messages.
pub(crate) fn known() -> String {
    NAMES.map(|(_, name)| name).join(", ")
}

impl Format {
    /// The name that users write.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(format, _)| *format == self).map_or("unnamed", |(_, name)| name)
    }

    /// Bytes of a record, for binary formats.
    pub(crate) const fn record_bytes(self) -> Option<usize> {
        match self {
            Self::Vscsi => Some(32),
            Self::Keys32 => Some(4),
            Self::OracleGeneral => Some(24),
            _ => None,
        }
    }

    /// Returns `true` if it has lines.
    pub(crate) const fn is_text(self) -> bool {
        self.record_bytes().is_none() && !matches!(self, Self::Recording)
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, TraceError> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found
            .map(|(format, _)| *format)
            .ok_or_else(|| TraceError::NoSuchFormat { name: name.to_owned(), known: known() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_formats() {
        for (format, name) in NAMES {
            assert_eq!(name.parse::<Format>().unwrap(), format);
            assert_eq!(format.name(), name);
        }
        let error = "zip".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("zip") && error.contains("fiu"), "{error}");
    }
}
