//! `zcctl store`: operates on an offline store, or on one that a running daemon has open.
//!
//! Invariants: an offline store is locked first; every change is durable when the command ends. `zc-pool-io` executes
//! orders, here or in the daemon. It does not move contents of volumes through a daemon, whose exports do that.

mod cli;
mod copy;
mod driver;
mod place;
mod progress;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use zc_pool_io::{MakeError, OpenError, Order, Point, VolumeOptions};

pub(crate) use cli::StoreCommand;
use cli::{Deleted, Named, Pool};
use driver::Driver;
use place::Place;
use progress::Progress;

use crate::confirm::Consent;
use crate::text;
use crate::units::{ratio, size};

pub(crate) fn run(command: &StoreCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        StoreCommand::Create { pool, size, force } => {
            create(pool.path()?, size.map(|size| size.0), *force)?;
        }
        StoreCommand::Status(pool) => look(pool, &Order::Status {}, out, status)?,
        StoreCommand::Volumes(pool) => look(pool, &Order::Volumes {}, out, volumes)?,
        StoreCommand::Snapshots(pool) => look(pool, &Order::Snapshots {}, out, volumes)?,
        StoreCommand::CreateVolume { new, size, chunk, codec, no_dedup } => {
            let chunk_bytes = u32::try_from(chunk.0).unwrap_or(u32::MAX);
            let options = VolumeOptions { chunk_bytes, codec: (*codec).into(), dedup: !no_dedup };
            let order = Order::CreateVolume { name: new.name.clone(), size_bytes: size.0, options };
            show(&new.pool, &order, out, nothing)?;
        }
        StoreCommand::Snapshot { from, snapshot } => {
            let order = Order::Snapshot { volume: from.name.clone(), name: snapshot.clone() };
            derive(from, &order, out)?;
        }
        StoreCommand::Clone { from, clone } => {
            let order = Order::Clone { from: from.name.clone(), name: clone.clone() };
            derive(from, &order, out)?;
        }
        StoreCommand::Rollback { volume, snapshot, consent } => {
            let (name, snapshot) = (&volume.name, &snapshot);
            let order =
                |dry_run| Order::Rollback { volume: name.clone(), snapshot: snapshot.to_string(), dry_run };
            lose(&volume.pool, consent, order, would_roll_back, out)?;
        }
        StoreCommand::Grow { volume, size } => {
            let order = Order::Grow { volume: volume.name.clone(), size_bytes: size.0 };
            show(&volume.pool, &order, out, nothing)?;
        }
        StoreCommand::DeleteVolume(Deleted { at, consent }) => {
            let order = |dry_run| Order::DeleteVolume { name: at.name.clone(), dry_run };
            lose(&at.pool, consent, order, |answer| would_delete("volume", answer), out)?;
        }
        StoreCommand::DeleteSnapshot(Deleted { at, consent }) => {
            let order = |dry_run| Order::DeleteSnapshot { name: at.name.clone(), dry_run };
            lose(&at.pool, consent, order, |answer| would_delete("snapshot", answer), out)?;
        }
        StoreCommand::Scrub(pool) => return scrub(pool, out),
        StoreCommand::AcceptLoss { pool, consent } => accept_loss(pool, consent, out)?,
        StoreCommand::Clean(pool) => clean(pool, out)?,
        StoreCommand::Import { volume, image } => copy::import(volume, image)?,
        StoreCommand::Export { volume, image } => return copy::export(volume, image),
    }
    Ok(ExitCode::SUCCESS)
}

/// Carries an order out and shows its answer.
fn show(
    pool: &Pool,
    order: &Order,
    out: &mut dyn Write,
    text: impl Fn(&Value, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    show_at(Place::open(pool)?, pool, order, out, text)
}

/// Carries an order out that changes nothing, and shows its answer.
fn look(
    pool: &Pool,
    order: &Order,
    out: &mut dyn Write,
    text: impl Fn(&Value, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    show_at(Place::look(pool)?, pool, order, out, text)
}

fn show_at(
    place: Place<'_>,
    pool: &Pool,
    order: &Order,
    out: &mut dyn Write,
    text: impl Fn(&Value, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let answer = place.carry_out(order)?;
    place.close()?;
    answered(pool, &answer, out, text)
}

fn answered(
    pool: &Pool,
    answer: &Value,
    out: &mut dyn Write,
    text: impl Fn(&Value, &mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    driver::warn_of_dropped(number(answer, "dropped_commits"))?;
    if pool.daemon.json {
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    text(answer, out)
}

/// Success is silent.
fn nothing(_answer: &Value, _out: &mut dyn Write) -> anyhow::Result<()> {
    Ok(())
}

/// Executes an order that loses data, once confirmed, or shows the loss.
fn lose(
    pool: &Pool,
    consent: &Consent,
    order: impl Fn(bool) -> Order,
    loss: impl Fn(&Value) -> String,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if consent.dry_run {
        return look(pool, &order(true), out, move |answer, out| Ok(writeln!(out, "{}", loss(answer))?));
    }
    let place = Place::open(pool)?;
    let agreed = if consent.yes {
        Ok(())
    } else {
        place.carry_out(&order(true)).and_then(|plan| consent.ask(&loss(&plan)))
    };
    let answer = agreed.and_then(|()| place.carry_out(&order(false)));
    let closed = place.close();
    let answer = answer?;
    closed?;
    answered(pool, &answer, out, nothing)
}

fn would_roll_back(answer: &Value) -> String {
    let (volume, snapshot) = (string(answer, "name"), string(answer, "snapshot"));
    let size_of = |key| size(number(answer, key));
    format!(
        "volume \"{volume}\" ({}) would become what its snapshot \"{snapshot}\" ({}) is, and writes since then \
         would be lost: {} of them are stored nowhere else",
        size_of("size_bytes"),
        size_of("snapshot_size_bytes"),
        size_of("loses_bytes")
    )
}

fn would_delete(what: &str, answer: &Value) -> String {
    let size_of = |key| size(number(answer, key));
    format!(
        "{what} \"{}\" ({}, {} used) would be lost, and with it {} that are stored nowhere else; {} would become \
         free",
        string(answer, "name"),
        size_of("size_bytes"),
        size_of("used_bytes"),
        size_of("loses_bytes"),
        size_of("frees_bytes")
    )
}

fn string(answer: &Value, key: &str) -> String {
    text::clean(answer[key].as_str().unwrap_or_default())
}

fn number(answer: &Value, key: &str) -> u64 {
    answer[key].as_u64().unwrap_or(0)
}

/// Takes a snapshot or makes a clone, after a daemon's cached data of the volume is in the store.
fn derive(from: &Named, order: &Order, out: &mut dyn Write) -> anyhow::Result<()> {
    let place = Place::open(&from.pool)?;
    place.settle(&from.name)?;
    let answer = place.carry_out(order)?;
    place.close()?;
    answered(&from.pool, &answer, out, nothing)
}

fn clean(pool: &Pool, out: &mut dyn Write) -> anyhow::Result<()> {
    let driver = Driver::open(pool.path()?)?;
    let (freed, free) = driver.client().clean();
    let dropped = driver.client().dropped_commits();
    driver.close()?;
    let answer = json!({ "freed_bytes": freed, "free_bytes": free, "dropped_commits": dropped });
    answered(pool, &answer, out, |answer, out| {
        let (freed, free) = (size(number(answer, "freed_bytes")), size(number(answer, "free_bytes")));
        Ok(writeln!(out, "freed {freed}; {free} free")?)
    })
}

fn create(path: &Path, wanted: Option<u64>, force: bool) -> anyhow::Result<()> {
    let was_there = path.exists();
    let file = driver::lock(path, wanted)?;
    if !force && file.first_filled()?.is_some() {
        bail!("{} is not empty; add --force to destroy its contents", path.display());
    }
    let made = zc_pool_io::make(&file);
    if made.is_err() && !was_there {
        // Or a second try with a fitting size would find a file of the wrong one.
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    made.map_err(|error| match error {
        MakeError::TooSmall { least_bytes, .. } => {
            anyhow::anyhow!("{} is too small, {} are needed", path.display(), size(least_bytes))
        }
        error => error.into(),
    })
}

fn status(pool: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let number_of = |key: &str| number(pool, key);
    let state = match pool["state"].as_str() {
        Some("low") => {
            "low: delete snapshots or volumes, or discard data; the daemon, or `zcctl store clean`, frees it"
        }
        Some("full") => {
            "full: writes fail; delete snapshots or volumes; the daemon, or `zcctl store clean`, frees them"
        }
        Some("failed") => "failed: its device failed; repair the device, then restart the daemon",
        Some("dropped") => {
            "dropped: its last changes are lost, possibly including flushed ones; run `zcctl store scrub`"
        }
        _ => "ok",
    };
    let rows = [
        ("state", state.to_owned()),
        ("size", size(number_of("total_bytes"))),
        ("free", size(number_of("free_bytes"))),
        ("stored", size(number_of("stored_bytes"))),
        ("maps", size(number_of("map_bytes"))),
        ("dead", size(number_of("dead_bytes"))),
        ("volumes' size", size(number_of("nominal_bytes"))),
        ("used", size(number_of("used_bytes"))),
        ("deduplication", ratio(number_of("used_bytes"), number_of("raw_bytes"))),
        ("compression", ratio(number_of("raw_bytes"), number_of("stored_bytes"))),
        ("fingerprints", from_cache(number_of("prints_known"), number_of("prints_computed"))),
        ("compressed", from_cache(number_of("encodings_known"), number_of("encodings_computed"))),
    ];
    text::pairs(out, &rows)?;
    Ok(())
}

/// Formats the share of content work since opening that the cache had already done.
fn from_cache(known: u64, computed: u64) -> String {
    format!("{known} by the cache, {computed} by the store")
}

/// Volumes, or snapshots.
fn volumes(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let listed = ["volumes", "snapshots"].into_iter().find_map(|kind| answer[kind].as_array());
    let keys = ["nominal_bytes", "used_bytes", "shared_bytes", "unique_bytes", "delete_frees_bytes"];
    let row = |volume: &Value| {
        let cells = keys.map(|key| size(number(volume, key)));
        [string(volume, "name")].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = listed.into_iter().flatten().map(row).collect();
    text::table(out, &["name", "size", "used", "shared", "unique", "delete frees"], &rows)?;
    Ok(())
}

/// Opens a store whose device lost a part of its log, or shows the resulting state.
fn accept_loss(pool: &Pool, consent: &Consent, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = pool.path()?;
    match Driver::open(path) {
        Ok(driver) if driver.client().dropped_commits() > 0 => {
            return accept_dropped(pool, driver, consent, out);
        }
        Ok(driver) => {
            driver.close()?;
            writeln!(out, "{} opens without a loss; there is nothing to accept", path.display())?;
            return Ok(());
        }
        Err(error) if error.downcast_ref::<OpenError>().is_some_and(OpenError::is_log_lost) => {}
        Err(error) => return Err(error),
    }
    let driver = Driver::look_beyond_loss(path)?;
    let answer = Order::Volumes {}.carry_out(driver.client())?;
    driver.close()?;
    answered(pool, &answer, out, volumes)?;
    if consent.dry_run {
        return Ok(());
    }
    consent.ask(
        "the device lost a part of the log, and later changes with it. The store would go back to the volumes \
         above, as they were before; a cache of them then starts cold. If an undamaged copy of the device may come \
         back, wait for it",
    )?;
    let driver = Driver::open_beyond_loss(path)?;
    // The end of an abandoned log may be torn as well.
    driver.acknowledge_dropped();
    driver.close()
}

/// Shows a store without the changes that its recovery dropped, and acknowledges them.
fn accept_dropped(pool: &Pool, driver: Driver, consent: &Consent, out: &mut dyn Write) -> anyhow::Result<()> {
    let answer = Order::Volumes {}.carry_out(driver.client())?;
    answered(pool, &answer, out, volumes)?;
    if !consent.dry_run {
        consent.ask("the next flush of a volume would fail, to notify its client. After this it does not")?;
        driver.acknowledge_dropped();
    }
    driver.close()
}

/// Verifies all stored data, order by order; on a terminal it shows the progress.
fn scrub(pool: &Pool, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let place = Place::open(pool)?;
    let mut progress = Progress::new(pool.daemon.json);
    let (mut chunks, mut stored, mut damage, mut from) = (0, 0, Vec::new(), None);
    let dropped = loop {
        let mut answer = place.carry_out(&Order::Scrub { from })?;
        let dropped = number(&answer, "dropped_commits");
        chunks += number(&answer, "chunks");
        stored += number(&answer, "stored_bytes");
        if let Some(found) = answer["damage"].as_array_mut() {
            damage.append(found);
        }
        progress.tell(stored, || format!("{chunks} chunks with {} verified", size(stored)))?;
        from = serde_json::from_value::<Option<Point>>(answer["next"].take())?;
        if from.is_none() {
            break dropped;
        }
    };
    progress.end()?;
    place.close()?;
    let code = if damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let answer =
        json!({ "chunks": chunks, "stored_bytes": stored, "damage": damage, "dropped_commits": dropped });
    answered(pool, &answer, out, scrubbed)?;
    Ok(code)
}

fn scrubbed(answer: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let damage = answer["damage"].as_array().map(Vec::as_slice).unwrap_or_default();
    for found in damage {
        let (name, error) = (string(found, "name"), string(found, "error"));
        let (offset, len) = (number(found, "offset_bytes"), number(found, "len_bytes"));
        writeln!(out, "{name}: {len} bytes at byte {offset} cannot be read: {error}")?;
    }
    let (chunks, stored) = (number(answer, "chunks"), size(number(answer, "stored_bytes")));
    writeln!(out, "{chunks} chunks with {stored} verified, {} places damaged", damage.len())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use zc_pool_io::create_volume;

    use super::*;

    #[test]
    fn a_device_that_fails_at_the_end_is_no_success() {
        let pool = memfd_create("pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&pool, 128 << 20).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", pool.as_raw_fd()));
        create(&path, None, false).unwrap();
        let driver = Driver::open(&path).unwrap();
        create_volume(driver.client(), "kept", 1 << 30, VolumeOptions::default()).unwrap();
        driver.close().unwrap();

        let driver = Driver::open(&path).unwrap();
        // From now on every write fails.
        fcntl_add_seals(&pool, SealFlags::WRITE).unwrap();
        create_volume(driver.client(), "lost", 1 << 30, VolumeOptions::default()).unwrap_err();
        let error = format!("{:#}", driver.close().unwrap_err());
        assert!(error.contains("may be lost") && error.contains("device"), "{error}");
    }
}
