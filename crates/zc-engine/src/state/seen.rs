//! Final state of an origin at a clean stop, and its comparison at the next start.
//!
//! Job: compute the digests of the origin's landmarks and the kernel's count of written sectors (`Seen::of`), which
//! the state directory keeps with the volume; compare them at the next start ([`changed`]).
//!
//! # Lifetime
//! Only between a clean stop and the next start that serves the volume. That start removes them from the state
//! directory, durably, before the first write to the origin (`open::record_pairing`). After a kill or a power failure
//! there are none, because zcached wrote to those ranges itself: then only length, inode and the sample of cached
//! extents are checked. The same applies if an origin could not be flushed or read at the stop.
//!
//! # Conclusions
//! - A different digest proves a write. Equal digests prove nothing about other ranges.
//! - A count that grew within one boot proves a write: the last own one was flushed before the count was read. A count
//!   proves nothing about another boot, about a device that was re-created, or about writes to a partition through the
//!   whole disk. The count of a whole disk includes its partitions.

use serde::{Deserialize, Serialize};
use zc_core::hex;
use zc_io::FileKind;
use zc_origin::Landmark;

use crate::error::EngineError;
use crate::origin::Origin;

/// Digests of an origin's landmarks, and the count of written sectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    landmarks: Vec<Kept>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Written>,
}

/// A landmark as the state directory keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    name: String,
    offset: u64,
    len_bytes: u64,
    digest: String,
}

/// The kernel's count of sectors written, or discarded, on a block device since it appeared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    boot_id: String,
    dev: u64,
    sectors: u64,
}

impl Written {
    fn of(origin: &Origin, boot_id: &[u8; 16]) -> Result<Option<Self>, EngineError> {
        let identity = origin.identity()?;
        let is_counted = identity.kind == FileKind::Block && *boot_id != [0; 16];
        let sectors = origin.sectors_written().filter(|_| is_counted);
        Ok(sectors.map(|sectors| Self { boot_id: hex(boot_id), dev: identity.dev, sectors }))
    }

    /// Sectors that were written between the two.
    fn until(&self, now: &Self) -> u64 {
        let comparable = self.boot_id == now.boot_id && self.dev == now.dev;
        if comparable { now.sectors.saturating_sub(self.sectors) } else { 0 }
    }
}

impl Seen {
    /// Records the state of an origin that is no longer written. Flushes it first. Blocks.
    pub(crate) fn of(origin: &Origin, boot_id: &[u8; 16]) -> Result<Self, EngineError> {
        if origin.is_writable() {
            origin.sync_blocking()?;
        }
        let keep = |Landmark { name, offset, len_bytes, digest }| Kept {
            name,
            offset,
            len_bytes,
            digest: hex(&digest),
        };
        let landmarks = origin.landmarks()?.into_iter().map(keep).collect();
        Ok(Self { landmarks, written: Written::of(origin, boot_id)? })
    }

    fn landmarks(&self) -> Option<Vec<Landmark>> {
        let landmark = |kept: &Kept| {
            let digest = u128::from_str_radix(&kept.digest, 16).ok()?.to_be_bytes();
            let Kept { name, offset, len_bytes, .. } = kept.clone();
            Some(Landmark { name, offset, len_bytes, digest })
        };
        self.landmarks.iter().map(landmark).collect()
    }
}

/// Returns the difference from the recorded state of the origin; continues "the origin ...". Blocks.
pub fn changed(seen: &Seen, origin: &Origin, boot_id: &[u8; 16]) -> Option<String> {
    let now = Written::of(origin, boot_id).ok().flatten();
    let sectors = seen.written.as_ref().zip(now.as_ref()).map_or(0, |(then, now)| then.until(now));
    let Some(landmarks) = seen.landmarks() else {
        return Some("cannot be compared: the state directory's record of it is damaged".to_owned());
    };
    match origin.changed_landmark(&landmarks) {
        Ok(Some(landmark)) => Some(format!(
            "was written since zcached last stopped cleanly: {} differs (byte {})",
            landmark.name, landmark.offset
        )),
        Ok(None) if sectors > 0 => Some(format!(
            "was written since zcached last stopped cleanly: the kernel counts {sectors} more sectors"
        )),
        Ok(None) => None,
        Err(error) => Some(format!("cannot be compared with what zcached left: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_origin::OriginOptions;

    const BOOT: [u8; 16] = [7; 16];

    fn written(boot: u8, dev: u64, sectors: u64) -> Written {
        Written { boot_id: hex(&[boot; 16]), dev, sectors }
    }

    #[test]
    fn only_a_count_that_grew_on_the_same_device_in_the_same_boot_proves_a_write() {
        let then = written(1, 8, 100);
        assert_eq!(then.until(&written(1, 8, 103)), 3);
        assert_eq!(then.until(&written(1, 8, 100)), 0);
        assert_eq!(then.until(&written(1, 8, 5)), 0, "it was plugged in anew");
        assert_eq!(then.until(&written(1, 9, 103)), 0);
        assert_eq!(then.until(&written(2, 8, 103)), 0);
    }

    #[test]
    fn a_write_to_a_landmark_is_noticed_after_the_state_directory_kept_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("origin");
        std::fs::write(&path, vec![5; 1 << 20]).unwrap();
        let open = || Origin::open(&path, OriginOptions { write: true, ..OriginOptions::default() }).unwrap();
        let seen = Seen::of(&open(), &BOOT).unwrap();
        let kept = serde_json::to_string(&seen).unwrap();
        let kept: Seen = serde_json::from_str(&kept).unwrap();
        assert_eq!(changed(&kept, &open(), &BOOT), None);
        let damaged = kept.landmarks.iter().map(|kept| Kept { digest: "x".to_owned(), ..kept.clone() });
        let damaged = Seen { landmarks: damaged.collect(), written: None };
        assert!(changed(&damaged, &open(), &BOOT).unwrap().contains("damaged"));
        let mut bytes = vec![5; 1 << 20];
        bytes[(1 << 20) - 9] = 6;
        std::fs::write(&path, &bytes).unwrap();
        assert!(changed(&kept, &open(), &BOOT).unwrap().contains("the last 128 KiB differs (byte 917504)"));
        std::fs::write(&path, &bytes[..1 << 19]).unwrap();
        assert!(changed(&kept, &open(), &BOOT).unwrap().contains("cannot be compared"));
    }
}
