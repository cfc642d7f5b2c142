//! Dirty data according to checkpoint and journal.
//!
//! Job: follow the records as a restart does, count dirty data by volume, and (with `--data`) read every piece. It
//! does not decide whether a commit at the journal's very end is valid; a start reads its data for that.

use std::collections::BTreeMap;

use zc_core::{VolumeId, limits, u64_from_usize, usize_from_u32};
use zc_format::{ExpectedExtent, ExtentHeader, Record};

use super::image::Image;
use super::report::{Class, Report};
use super::slots::Slots;

/// Epochs of one volume.
#[derive(Debug, Default)]
struct Volume {
    open: Vec<Record>,
    committed: u64,
    epochs: Vec<(u64, Vec<Record>)>,
}

/// Dirty data of all volumes.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    volumes: BTreeMap<VolumeId, Volume>,
}

impl Dirty {
    /// Replays records in order.
    pub(crate) fn replay<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            match *record {
                Record::Dirty { key, .. } | Record::DirtyZero { key, .. } => {
                    self.volumes.entry(key.volume).or_default().open.push(*record);
                }
                Record::Committed { volume, epoch } => {
                    let volume = self.volumes.entry(volume).or_default();
                    let records = std::mem::take(&mut volume.open);
                    if epoch > volume.committed {
                        volume.committed = epoch;
                        volume.epochs.push((epoch, records));
                    }
                }
                Record::Clean { volume, epoch } => {
                    let volume = self.volumes.entry(volume).or_default();
                    volume.committed = volume.committed.max(epoch);
                    volume.epochs.retain(|(number, _)| *number > epoch);
                }
                Record::DirtyReset { volume, epoch } => {
                    let volume = self.volumes.entry(volume).or_default();
                    volume.open.clear();
                    volume.committed = volume.committed.min(epoch);
                    volume.epochs.retain(|(number, _)| *number <= epoch);
                }
                _ => {}
            }
        }
    }

    /// Returns `true` if any volume has dirty data.
    pub(crate) fn is_empty(&self) -> bool {
        self.volumes.values().all(|volume| volume.epochs.is_empty())
    }

    /// Bytes of committed dirty data by volume, older versions that are still dirty included.
    pub(crate) fn bytes_by_volume(&self) -> BTreeMap<VolumeId, u64> {
        let bytes =
            |volume: &Volume| volume.epochs.iter().flat_map(|(_, records)| records).map(len_bytes).sum();
        self.volumes.iter().map(|(id, volume)| (*id, bytes(volume))).collect()
    }

    /// Counts, and with `data` reads, dirty data.
    pub(crate) fn check(&self, image: &Image, slots: &Slots, data: bool, report: &mut Report) {
        let (mut epochs, mut pieces, mut bytes) = (0, 0, 0);
        for (id, volume) in &self.volumes {
            epochs += u64_from_usize(volume.epochs.len());
            for record in volume.epochs.iter().flat_map(|(_, records)| records) {
                pieces += 1;
                bytes += len_bytes(record);
                if data && let Err(why) = read(image, slots, record) {
                    let at = address(record);
                    let text = format!("dirty data of volume {}, {at}, cannot be read: {why}", id.0);
                    report.problem(Class::Dirty, text);
                }
            }
            if !volume.open.is_empty() {
                let text = format!(
                    "volume {}: {} dirty records without a commit; none was acknowledged as durable",
                    id.0,
                    volume.open.len()
                );
                report.note(text);
            }
        }
        report.count("dirty epochs", epochs);
        report.count("dirty pieces", pieces);
        report.count("dirty bytes", bytes);
    }
}

fn len_bytes(record: &Record) -> u64 {
    match record {
        Record::Dirty { span, .. } | Record::DirtyZero { span, .. } => span.len_bytes().into(),
        _ => 0,
    }
}

fn address(record: &Record) -> String {
    match record {
        Record::Dirty { key, span, .. } | Record::DirtyZero { key, span, .. } => {
            format!("extent {}, sectors {} to {}", key.extent.0, span.first(), span.last())
        }
        other => format!("{other:?}"),
    }
}

/// Reads and verifies the extent of a record.
fn read(image: &Image, slots: &Slots, record: &Record) -> Result<(), String> {
    let Record::Dirty { span, slot, generation, offset_units, pages, .. } = *record else { return Ok(()) };
    let geometry = image.geometry();
    let offset_bytes = u32::from(offset_units) * limits::PLACE_ALIGN_BYTES;
    let start = offset_bytes / limits::BLOCK_BYTES * limits::BLOCK_BYTES;
    let len = u32::from(pages) * limits::BLOCK_BYTES;
    if slot.0 >= geometry.slots || start + len > geometry.weu_bytes {
        return Err("its place is outside the cache".to_owned());
    }
    let bytes = image
        .read(geometry.slot_offset(slot) + u64::from(start), usize_from_u32(len))
        .map_err(|error| error.to_string())?;
    let bytes = bytes.get(usize_from_u32(offset_bytes - start)..).unwrap_or_default();
    let expected = ExpectedExtent {
        salt: geometry.salt,
        slot,
        generation,
        weu_seq: slots
            .weu_seq(slot, generation)
            .or_else(|| ExtentHeader::peek_weu_seq(bytes))
            .ok_or("there is no extent")?,
        offset_bytes,
        raw_bytes: span.len_bytes(),
        first_sector: span.first(),
        key: None,
        print: None,
    };
    ExtentHeader::verify(bytes, &expected).map(drop).map_err(|error| error.to_string())
}
