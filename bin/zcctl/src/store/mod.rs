//! `zcctl store`: a store that no daemon has open.
//!
//! Invariants: the file or device is locked first; every change is durable when the command ends; what a name means is
//! looked up before anything changes. What it does not do: reach a running daemon.

mod cli;
mod driver;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use serde_json::{Value, json};
use zc_core::Codec;
use zc_io::AlignedBuf;
use zc_pool::{RequestKind, VolumeName};
use zc_store::{
    Accounts, BLOCK, CatalogChange, CatalogOp, FLAG_DEDUP, Root, RootAccount, RootId, RootKind, ScrubReport,
    Superblock, SurveyKind, Surveyed, limits,
};

pub(crate) use cli::StoreCommand;
use cli::{Deleted, Named, Shown};
use driver::Driver;

use crate::text;
use crate::units::{ratio, size};

/// Chunk of new volumes: the extent of the cache.
const CHUNK_SHIFT: u8 = 13;
/// Bytes that an import or export moves at a time: a multiple of every chunk.
const COPY_BYTES: u64 = 1 << 20;

pub(crate) fn run(command: &StoreCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Create { pool, size, force } => create(&pool.pool, size.map(|size| size.0), *force)?,
        StoreCommand::Status(shown) => status(shown, out)?,
        StoreCommand::Volumes(shown) => list(shown, RootKind::Volume, out)?,
        StoreCommand::Snapshots(shown) => list(shown, RootKind::Snapshot, out)?,
        StoreCommand::CreateVolume { new, size } => {
            let driver = Driver::open(&new.pool)?;
            create_volume(&driver, &new.name, size.0)?;
            driver.close()?;
        }
        StoreCommand::Snapshot { from, snapshot } => derive(from, CatalogOp::Snapshot, snapshot)?,
        StoreCommand::Clone { from, clone } => derive(from, CatalogOp::Clone, clone)?,
        StoreCommand::Rollback { volume, snapshot, dry_run } => rollback(volume, snapshot, *dry_run, out)?,
        StoreCommand::Grow { volume, size } => grow(volume, size.0)?,
        StoreCommand::DeleteVolume(deleted) => delete(deleted, RootKind::Volume, out)?,
        StoreCommand::DeleteSnapshot(deleted) => delete(deleted, RootKind::Snapshot, out)?,
        StoreCommand::Scrub(shown) => return scrub(shown, out),
        StoreCommand::Clean(pool) => {
            let driver = Driver::open(&pool.pool)?;
            let (freed, free) = driver.client().clean();
            driver.close()?;
            writeln!(out, "{} became free, {} are", size(freed), size(free))?;
        }
        StoreCommand::Import { volume, image } => import(volume, image)?,
        StoreCommand::Export { volume, image } => export(volume, image)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn create(path: &Path, wanted: Option<u64>, force: bool) -> anyhow::Result<()> {
    let file = driver::lock(path, wanted)?;
    if !force && file.first_filled()?.is_some() {
        bail!("{} is not empty; to lose what is there, add --force", path.display());
    }
    let uuid = *uuid::Uuid::new_v4().as_bytes();
    let segment_bytes = limits::SEGMENT_BYTES_DEFAULT;
    let superblock = Superblock::format(uuid, file.len_bytes(), segment_bytes, driver::nonce());
    let least = u64::from(limits::SEGMENTS_MIN + 1) * u64::from(segment_bytes);
    let superblock =
        superblock.with_context(|| format!("{} is too small, {} are needed", path.display(), size(least)))?;
    for copy in 0..2 {
        let block = AlignedBuf::from(&superblock.encode(copy)[..]);
        file.write_blocking(Superblock::offset_bytes(copy), &block)?;
    }
    file.sync_blocking()?;
    Ok(())
}

/// A volume or snapshot by its name.
fn find(driver: &Driver, name: &str, kind: Option<RootKind>) -> anyhow::Result<(RootId, Root)> {
    let found = driver.client().find(name);
    let what = match kind {
        None => "volume or snapshot",
        Some(RootKind::Volume) => "volume",
        Some(RootKind::Snapshot) => "snapshot",
    };
    let found = found.filter(|(_, root)| kind.is_none_or(|kind| root.kind == kind));
    found.with_context(|| format!("the store has no {what} \"{}\"", text::clean(name)))
}

fn free_id(driver: &Driver) -> anyhow::Result<RootId> {
    let roots = driver.roots();
    let is_free = |id: &RootId| roots.iter().all(|(taken, _)| taken != id);
    (0..limits::ROOTS_MAX).map(RootId).find(is_free).context("the store has as many volumes as it can")
}

fn change(driver: &Driver, change: CatalogChange) -> anyhow::Result<()> {
    if matches!(change.op, CatalogOp::Create | CatalogOp::Snapshot | CatalogOp::Clone) {
        let name = VolumeName::parse(&change.name)?;
        if driver.client().find(&name.to_string()).is_some() {
            bail!("the store has \"{name}\" already; choose another name");
        }
    }
    driver.ask(RequestKind::Catalog(change))?;
    Ok(())
}

fn blank(op: CatalogOp, id: RootId) -> CatalogChange {
    CatalogChange {
        op,
        id,
        source: id,
        codec: Codec::Lz4,
        chunk_shift: CHUNK_SHIFT,
        size_chunks: 0,
        flags: FLAG_DEDUP,
        name: String::new(),
    }
}

fn create_volume(driver: &Driver, name: &str, bytes: u64) -> anyhow::Result<RootId> {
    let id = free_id(driver)?;
    let size_chunks = bytes.div_ceil(1 << CHUNK_SHIFT);
    change(driver, CatalogChange { size_chunks, name: name.to_owned(), ..blank(CatalogOp::Create, id) })?;
    Ok(id)
}

fn derive(from: &Named, op: CatalogOp, name: &str) -> anyhow::Result<()> {
    let driver = Driver::open(&from.pool)?;
    let kind = (op == CatalogOp::Snapshot).then_some(RootKind::Volume);
    let (source, _) = find(&driver, &from.name, kind)?;
    let id = free_id(&driver)?;
    change(&driver, CatalogChange { source, name: name.to_owned(), ..blank(op, id) })?;
    driver.close()
}

fn rollback(volume: &Named, snapshot: &str, dry_run: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let driver = Driver::open(&volume.pool)?;
    let (id, _) = find(&driver, &volume.name, Some(RootKind::Volume))?;
    let (source, _) = find(&driver, snapshot, Some(RootKind::Snapshot))?;
    if dry_run {
        writeln!(out, "\"{}\" would become what \"{}\" is", volume.name, text::clean(snapshot))?;
    } else {
        change(&driver, CatalogChange { source, ..blank(CatalogOp::Rollback, id) })?;
    }
    driver.close()
}

fn grow(volume: &Named, bytes: u64) -> anyhow::Result<()> {
    let driver = Driver::open(&volume.pool)?;
    let (id, root) = find(&driver, &volume.name, Some(RootKind::Volume))?;
    let size_chunks = bytes.div_ceil(1 << root.chunk_shift);
    if size_chunks < root.size_chunks {
        bail!("\"{}\" has {} already", volume.name, size(root.size_chunks << root.chunk_shift));
    }
    change(&driver, CatalogChange { size_chunks, ..blank(CatalogOp::Grow, id) })?;
    driver.close()
}

fn delete(deleted: &Deleted, kind: RootKind, out: &mut dyn Write) -> anyhow::Result<()> {
    let driver = Driver::open(&deleted.at.pool)?;
    let (id, _) = find(&driver, &deleted.at.name, Some(kind))?;
    if deleted.dry_run {
        let accounts = accounts(&driver)?;
        let account = accounts.roots.iter().find(|account| account.root == id);
        let frees = account.map_or(0, RootAccount::delete_frees_bytes);
        writeln!(out, "{} would become free", size(frees))?;
    } else {
        change(&driver, blank(CatalogOp::Delete, id))?;
    }
    driver.close()
}

fn accounts(driver: &Driver) -> anyhow::Result<Accounts> {
    match driver.survey(SurveyKind::Account)? {
        Surveyed::Accounts(accounts) => Ok(accounts),
        Surveyed::Scrub(_) => bail!("the store answered another question"),
    }
}

fn status(shown: &Shown, out: &mut dyn Write) -> anyhow::Result<()> {
    let driver = Driver::open(&shown.pool)?;
    let pool = accounts(&driver)?.pool;
    driver.close()?;
    if shown.json {
        let value = json!({
            "total_bytes": pool.total_bytes,
            "free_bytes": pool.free_bytes,
            "stored_bytes": pool.stored_bytes,
            "map_bytes": pool.map_bytes,
            "dead_bytes": pool.dead_bytes,
            "nominal_bytes": pool.nominal_bytes,
            "used_bytes": pool.used_bytes,
            "raw_bytes": pool.raw_bytes,
        });
        writeln!(out, "{value:#}")?;
        return Ok(());
    }
    let rows = [
        ("size", size(pool.total_bytes)),
        ("free", size(pool.free_bytes)),
        ("stored", size(pool.stored_bytes)),
        ("maps", size(pool.map_bytes)),
        ("dead", size(pool.dead_bytes)),
        ("volumes' size", size(pool.nominal_bytes)),
        ("used", size(pool.used_bytes)),
        ("deduplication", ratio(pool.used_bytes, pool.raw_bytes)),
        ("compression", ratio(pool.raw_bytes, pool.stored_bytes)),
    ];
    text::pairs(out, &rows)?;
    Ok(())
}

fn list(shown: &Shown, kind: RootKind, out: &mut dyn Write) -> anyhow::Result<()> {
    let driver = Driver::open(&shown.pool)?;
    let accounts = accounts(&driver)?;
    let roots = driver.roots();
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for account in &accounts.roots {
        let Some((_, root)) = roots.iter().find(|(id, _)| *id == account.root) else { continue };
        if root.kind != kind {
            continue;
        }
        values.push(account_json(&root.name, account));
        let cells = [
            account.nominal_bytes,
            account.used_bytes,
            account.shared_bytes(),
            account.unique_bytes,
            account.delete_frees_bytes(),
        ];
        let mut row = vec![root.name.clone()];
        row.extend(cells.map(size));
        rows.push(row);
    }
    driver.close()?;
    if shown.json {
        writeln!(out, "{:#}", Value::from(values))?;
    } else {
        text::table(out, &["name", "size", "used", "shared", "unique", "delete frees"], &rows)?;
    }
    Ok(())
}

fn account_json(name: &str, account: &RootAccount) -> Value {
    json!({
        "name": name,
        "nominal_bytes": account.nominal_bytes,
        "used_bytes": account.used_bytes,
        "shared_bytes": account.shared_bytes(),
        "unique_bytes": account.unique_bytes,
        "delete_frees_bytes": account.delete_frees_bytes(),
    })
}

fn scrub(shown: &Shown, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let driver = Driver::open(&shown.pool)?;
    let (mut from, mut damage) = (None, Vec::new());
    let mut total = ScrubReport::default();
    loop {
        let asked = SurveyKind::Scrub { from, addresses_max: u64::MAX };
        let Surveyed::Scrub(report) = driver.survey(asked)? else {
            bail!("the store answered another question");
        };
        total.chunks += report.chunks;
        total.stored_bytes += report.stored_bytes;
        for found in report.damage {
            let root = driver.client().root(found.root).context("a volume that was scrubbed is there")?;
            damage.push(json!({
                "name": root.name,
                "offset_bytes": found.first << root.chunk_shift,
                "len_bytes": found.count << root.chunk_shift,
                "error": found.error.to_string(),
            }));
        }
        from = report.next;
        if from.is_none() {
            break;
        }
    }
    driver.close()?;
    let code = if damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if shown.json {
        let value = json!({ "chunks": total.chunks, "stored_bytes": total.stored_bytes, "damage": damage });
        writeln!(out, "{value:#}")?;
        return Ok(code);
    }
    for found in &damage {
        let name = text::clean(found["name"].as_str().unwrap_or_default());
        let (offset, len) = (&found["offset_bytes"], &found["len_bytes"]);
        let error = found["error"].as_str().unwrap_or_default();
        writeln!(out, "{name}: {len} bytes at byte {offset} cannot be read: {error}")?;
    }
    let stored = size(total.stored_bytes);
    writeln!(out, "{} chunks with {stored} verified, {} places damaged", total.chunks, damage.len())?;
    Ok(code)
}

fn import(volume: &Named, image: &Path) -> anyhow::Result<()> {
    let source = File::open(image).with_context(|| format!("cannot open {}", image.display()))?;
    let len = source.metadata()?.len();
    if len == 0 {
        bail!("{} is empty or no image file", image.display());
    }
    let driver = Driver::open(&volume.pool)?;
    // Nothing is known of what is stored after opening; a round of the cleaner passes all fingerprints.
    let _freed = driver.client().clean();
    let root = create_volume(&driver, &volume.name, len)?;
    let copied = copy_in(&driver, root, &source, len).and_then(|()| driver.close());
    copied.with_context(|| {
        let name = text::clean(&volume.name);
        format!("the volume \"{name}\" is incomplete; delete it before you import again")
    })
}

/// Stores what the image has that is no hole.
fn copy_in(driver: &Driver, root: RootId, source: &File, len: u64) -> anyhow::Result<()> {
    let chunk = 1_u64 << CHUNK_SHIFT;
    let mut at = 0;
    while let Some(data) = next_data(source, at)? {
        let mut start = data.start / chunk * chunk;
        let end = data.end.next_multiple_of(chunk).min(len);
        while start < end {
            let piece = (end - start).min(COPY_BYTES);
            let mut bytes = vec![0; zc_core::usize_from_u64(piece)];
            source.read_exact_at(&mut bytes, start)?;
            driver.write(root, start, Bytes::from(bytes))?;
            start += piece;
        }
        at = end;
    }
    Ok(())
}

/// The next range from `at` on that is no hole.
fn next_data(file: &File, at: u64) -> anyhow::Result<Option<core::ops::Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start..seek(file, SeekFrom::Hole(start))?)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn export(volume: &Named, image: &Path) -> anyhow::Result<()> {
    let driver = Driver::open(&volume.pool)?;
    let (id, root) = find(&driver, &volume.name, None)?;
    let file = File::create_new(image).with_context(|| format!("cannot make {}", image.display()))?;
    file.set_len(root.size_chunks << root.chunk_shift)?;
    let (mut at, len) = (0, root.size_chunks << root.chunk_shift);
    while at < len {
        let pieces = driver.read(id, at, u32::try_from((len - at).min(COPY_BYTES))?)?;
        for piece in pieces {
            write_sparse(&file, &piece, at)?;
            at += zc_core::u64_from_usize(piece.len());
        }
    }
    file.sync_all()?;
    driver.close()
}

/// Writes bytes; blocks of zeros stay holes.
fn write_sparse(file: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    for (offset, block) in (at..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
        if !zc_reduce::is_zero(block) {
            file.write_all_at(block, offset)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    #[test]
    fn a_device_that_fails_at_the_end_is_no_success() {
        let pool = memfd_create("pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&pool, 128 << 20).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", pool.as_raw_fd()));
        create(&path, None, false).unwrap();
        let driver = Driver::open(&path).unwrap();
        create_volume(&driver, "kept", 1 << 30).unwrap();
        driver.close().unwrap();

        let driver = Driver::open(&path).unwrap();
        create_volume(&driver, "lost", 1 << 30).unwrap();
        // From now on every write fails.
        fcntl_add_seals(&pool, SealFlags::WRITE).unwrap();
        let error = format!("{:#}", driver.close().unwrap_err());
        assert!(error.contains("may be lost") && error.contains("device"), "{error}");
    }
}
