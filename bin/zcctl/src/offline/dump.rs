//! `zcctl dump`: contents of a structure, for people or as JSON.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use serde_json::{Value, json};
use zc_core::{JournalSeq, WeuSlot, hex};
use zc_format::{JOURNAL_DEVICE, OriginKind, Record, Superblock, VolumeRecord, WeuEntry};

use super::cli::{DumpArgs, Structure};
use super::image::{Image, newest};
use super::slots::read_header;
use crate::text;

pub(crate) fn run(args: &DumpArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let image = Image::open(&args.path, args.journal.as_deref())?;
    let value = match args.structure {
        Structure::Superblock => superblock(&image.superblock),
        Structure::Volumes => volumes(&image)?,
        Structure::Regions => regions(&image)?,
        Structure::Checkpoint => checkpoint(&image)?,
        Structure::Journal => journal(&image)?,
        Structure::Weu => weu(&image, args.slot)?,
    };
    if args.json {
        writeln!(out, "{value:#}")?;
    } else {
        show(out, &value)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn superblock(superblock: &Superblock) -> Value {
    let geometry = &superblock.geometry;
    json!({
        "uuid": uuid::Uuid::from_bytes(superblock.uuid).to_string(),
        "label": superblock.label,
        "fingerprint": format!("{:?}", superblock.fingerprint_kind).to_lowercase(),
        "sequence": superblock.sequence,
        "session": superblock.session,
        "clean": superblock.clean,
        "journal_next": superblock.journal_next.0,
        "checkpoint": superblock.checkpoint,
        "index_image": superblock.index_image,
        "boot_id": hex(&superblock.boot_id),
        "created_unix_s": superblock.created_unix_s,
        "feature_compat": superblock.features.compat,
        "feature_ro_compat": superblock.features.ro_compat,
        "feature_incompat": superblock.features.incompat,
        "device_bytes": geometry.device_bytes,
        "weu_bytes": geometry.weu_bytes,
        "extent_bytes": geometry.extent_bytes,
        "slots": geometry.slots,
        "volume_table": geometry.volume_table,
        "region_map": geometry.region_map,
        "checkpoint": geometry.checkpoint,
        "checkpoint_blocks": geometry.checkpoint_blocks,
        "journal_device": geometry.has_journal_device(),
        "journal_offset": geometry.journal_offset % JOURNAL_DEVICE,
        "journal_blocks": geometry.journal_blocks,
        "slots_offset": geometry.slots_offset,
        "index_capacity": geometry.index_capacity,
    })
}

fn volumes(image: &Image) -> anyhow::Result<Value> {
    let tables = image.volume_tables();
    let Some((table, copy)) = newest(&tables, |table| table.sequence) else {
        bail!("both copies of the volume table are damaged; `zcctl check` lists further damage");
    };
    let rows: Vec<Value> = table.records.iter().map(volume).collect();
    Ok(json!({"sequence": table.sequence, "copy": copy, "volumes": rows}))
}

fn volume(record: &VolumeRecord) -> Value {
    let kind = match record.origin.kind {
        OriginKind::File => "file",
        OriginKind::Block => "block",
    };
    json!({
        "id": record.id.0,
        "name": record.name,
        "size_bytes": record.size_bytes,
        "region_bytes": record.region_bytes,
        "origin_kind": kind,
        "origin_dev": record.origin.dev,
        "origin_inode": record.origin.inode,
        "origin_len_bytes": record.origin.len_bytes,
        "origin_mtime_ns": record.origin.mtime_ns,
        "stamp": format!("{:016x}", record.stamp),
        "may_be_dirty": record.may_be_dirty,
    })
}

fn regions(image: &Image) -> anyhow::Result<Value> {
    let maps = image.region_maps();
    let Some((map, copy)) = newest(&maps, |map| map.sequence) else {
        bail!("both copies of the region map are damaged; the cache then starts cold and makes a new one");
    };
    let rows: Vec<Value> =
        map.regions.iter().map(|key| json!({"volume": key.volume.0, "region": key.region})).collect();
    Ok(json!({
        "sequence": map.sequence,
        "copy": copy,
        "session": map.session,
        "journal_required": map.journal_required.0,
        "regions": rows,
    }))
}

fn checkpoint(image: &Image) -> anyhow::Result<Value> {
    let headers = image.checkpoints();
    let Some((header, area)) = newest(&headers, |header| header.sequence) else {
        bail!("no checkpoint header is valid: there is none yet, or both are damaged (see `zcctl check`)");
    };
    let found = image.checkpoint_records(header, area);
    let rows: Vec<Value> = found.records.iter().map(record).collect();
    let bad: Vec<Value> =
        found.bad_blocks.iter().map(|(block, why)| json!({"block": block, "fault": why})).collect();
    Ok(json!({
        "sequence": header.sequence,
        "area": area,
        "session": header.session,
        "journal_start": header.journal_start.0,
        "blocks": header.blocks,
        "weu_seq_next": header.weu_seq_next.0,
        "region_map_sequence": header.region_map_sequence,
        "bad_blocks": bad,
        "records": rows,
    }))
}

fn journal(image: &Image) -> anyhow::Result<Value> {
    let headers = image.checkpoints();
    let checkpoint = newest(&headers, |header| header.sequence).map(|(header, _)| header);
    let start = checkpoint.map_or(JournalSeq(1), |header| header.journal_start);
    let journal = image.journal(checkpoint)?;
    let mut rows = Vec::new();
    for block in &journal.blocks {
        for found in &block.records {
            let mut row = record(found);
            if let Value::Object(row) = &mut row {
                row.insert("block".to_owned(), json!(block.sequence.0));
                row.insert("session".to_owned(), json!(block.session));
            }
            rows.push(row);
        }
    }
    for summary in &journal.chain.summaries {
        for found in &summary.records {
            let mut row = record(found);
            if let Value::Object(row) = &mut row {
                row.insert("summary".to_owned(), json!(summary.ordinal));
                row.insert("session".to_owned(), json!(summary.session));
            }
            rows.push(row);
        }
    }
    Ok(json!({
        "start": start.0,
        "next": journal.next.0,
        "summaries": journal.chain.summaries.len(),
        "bytes": super::image::blocks_bytes(journal.blocks.len()),
        "end": journal.end.map(|end| format!("{end:?}")),
        "records": rows,
    }))
}

fn weu(image: &Image, slot: Option<u32>) -> anyhow::Result<Value> {
    let (slot, slots) = (slot.unwrap_or(0), image.geometry().slots);
    ensure!(slot < slots, "there is no slot {slot}: the cache has {slots}");
    let header = match read_header(image, WeuSlot(slot)) {
        Ok(header) => header,
        Err(why) => bail!("slot {slot} has no valid header: {why}"),
    };
    let rows: Vec<Value> = header.entries.iter().map(entry).collect();
    Ok(json!({
        "slot": slot,
        "generation": header.generation.0,
        "weu_seq": header.weu_seq.0,
        "session": header.session,
        "extents": rows,
    }))
}

fn entry(entry: &WeuEntry) -> Value {
    json!({
        "volume": entry.key.volume.0,
        "extent": entry.key.extent.0,
        "offset_bytes": entry.offset_bytes,
        "stored_bytes": entry.stored_bytes,
        "codec": format!("{:?}", entry.codec).split('(').next().unwrap_or_default().to_lowercase(),
        "fingerprint": hex(&entry.fingerprint.0),
    })
}

fn record(record: &Record) -> Value {
    match *record {
        Record::SlotSealed { slot, generation, weu_seq, header_bytes } => json!({
            "kind": "slot-sealed", "slot": slot.0, "generation": generation.0,
            "weu_seq": weu_seq.0, "header_bytes": header_bytes,
        }),
        Record::SlotRetired { slot, generation } => {
            json!({"kind": "slot-retired", "slot": slot.0, "generation": generation.0})
        }
        Record::Duplicate { key, slot, generation, offset_units, pages } => json!({
            "kind": "duplicate", "volume": key.volume.0, "extent": key.extent.0, "slot": slot.0,
            "generation": generation.0, "offset_units": offset_units, "pages": pages,
        }),
        Record::Zero { key } => json!({"kind": "zero", "volume": key.volume.0, "extent": key.extent.0}),
        Record::Unmap { key } => json!({"kind": "unmap", "volume": key.volume.0, "extent": key.extent.0}),
        Record::BaseInvalid { key, slot, generation, offset_units } => json!({
            "kind": "base-invalid", "volume": key.volume.0, "extent": key.extent.0, "slot": slot.0,
            "generation": generation.0, "offset_units": offset_units,
        }),
        Record::SlotDirty { slot, generation, weu_seq } => json!({
            "kind": "slot-dirty", "slot": slot.0, "generation": generation.0, "weu_seq": weu_seq.0,
        }),
        Record::Dirty { key, span, slot, generation, offset_units, pages } => json!({
            "kind": "dirty", "volume": key.volume.0, "extent": key.extent.0,
            "first_sector": span.first(), "last_sector": span.last(), "slot": slot.0,
            "generation": generation.0, "offset_units": offset_units, "pages": pages,
        }),
        Record::DirtyZero { key, span, no_hole } => json!({
            "kind": "dirty-zero", "volume": key.volume.0, "extent": key.extent.0,
            "first_sector": span.first(), "last_sector": span.last(), "no_hole": no_hole,
        }),
        Record::Committed { volume, epoch } => {
            json!({"kind": "committed", "volume": volume.0, "epoch": epoch})
        }
        Record::Clean { volume, epoch } => json!({"kind": "clean", "volume": volume.0, "epoch": epoch}),
        Record::DirtyReset { volume, epoch } => {
            json!({"kind": "dirty-reset", "volume": volume.0, "epoch": epoch})
        }
        Record::Durable { volume, epoch } => json!({"kind": "durable", "volume": volume.0, "epoch": epoch}),
    }
}

/// A JSON value without quotes and braces, on one line.
fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}={}", flat(value))).collect();
            fields.join(" ")
        }
        Value::Array(values) => values.iter().map(flat).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Fields first, then lists of objects line by line.
fn show(out: &mut dyn Write, value: &Value) -> anyhow::Result<()> {
    let Value::Object(fields) = value else { return Ok(()) };
    let is_list = |value: &Value| value.as_array().is_some_and(|rows| rows.iter().any(Value::is_object));
    let plain: Vec<(&str, String)> = fields
        .iter()
        .filter(|(_, value)| !is_list(value))
        .map(|(name, value)| (name.as_str(), flat(value)))
        .collect();
    text::pairs(out, &plain)?;
    for (name, value) in fields.iter().filter(|(_, value)| is_list(value)) {
        writeln!(out, "{name}:")?;
        for row in value.as_array().into_iter().flatten() {
            writeln!(out, "  {}", text::clean(&flat(row)))?;
        }
    }
    Ok(())
}
