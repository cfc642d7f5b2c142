//! Operators' orders to an open pool.
//!
//! Job: turn an [`Order`] into requests of the pool, and its replies into JSON. `zcctl store` executes orders on a
//! pool that it opens itself; the daemon does on its open pools, and refuses orders that disturb volumes in service.
//!
//! Invariants: names are resolved before any change; a change is durable when its reply is sent. Two concurrent orders
//! may choose the same free number, and the pool refuses the second: callers execute one order at a time.
//!
//! It does not create, open or close pools, or move contents of volumes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zc_core::Codec;
use zc_pool::{Answer, BadName, Counters, PoolError, RequestKind, VolumeName};
use zc_store::seam::StoreError;
use zc_store::{
    Accounts, CatalogChange, CatalogOp, FLAG_DEDUP, Root, RootAccount, RootId, RootKind, ScrubPoint,
    ScrubReport, Space, SurveyKind, Surveyed, limits,
};

use crate::PoolClient;
use crate::limits::{CHUNK_SHIFT, SCRUB_ADDRESSES};

/// An order. On the wire, `do` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    // Braces: fields of a unit variant would be ignored rather than refused.
    /// State of the pool (`state`: see [`PoolState`]) and its space: `total_bytes`, `free_bytes`, `stored_bytes`,
    /// `map_bytes`, `dead_bytes`, `nominal_bytes`, `used_bytes`, `raw_bytes`.
    Status {},
    /// `volumes`, each with `name`, `chunk_bytes`, `codec`, `dedup`, `nominal_bytes`, `used_bytes`, `shared_bytes`,
    /// `unique_bytes`, `delete_frees_bytes`.
    Volumes {},
    /// `snapshots`, likewise.
    Snapshots {},
    /// Creates an empty volume.
    CreateVolume {
        /// Name of the volume.
        name: String,
        /// Its size as clients see it.
        size_bytes: u64,
        /// What cannot be changed later.
        #[serde(default)]
        options: VolumeOptions,
    },
    /// Takes a snapshot of a volume.
    Snapshot {
        /// The volume.
        volume: String,
        /// Name of the snapshot.
        name: String,
    },
    /// Creates a volume with the contents of another volume or a snapshot.
    Clone {
        /// Source.
        from: String,
        /// Name of the clone.
        name: String,
    },
    /// Reverts a volume to one of its snapshots: `size_bytes`, `snapshot_size_bytes`; a dry run reports `loses_bytes`.
    Rollback {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
        /// Changes nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Makes a volume larger.
    Grow {
        /// The volume.
        volume: String,
        /// Its new size.
        size_bytes: u64,
    },
    /// Deletes a volume; a dry run reports `size_bytes`, `used_bytes`, `loses_bytes` (not held elsewhere) and
    /// `frees_bytes`.
    DeleteVolume {
        /// Name of the volume.
        name: String,
        /// Changes nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Deletes a snapshot; a dry run reports the same.
    DeleteSnapshot {
        /// Name of the snapshot.
        name: String,
        /// Changes nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Verifies a part of the stored data: `chunks`, `stored_bytes`, `damage`, and `next`, the position to resume
    /// from, or `null`.
    Scrub {
        /// Position to start from; the start of the pool if absent.
        #[serde(default)]
        from: Option<Point>,
    },
}

/// Storage options of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeOptions {
    /// Bytes of a chunk: a power of two from 4 KiB to 128 KiB.
    pub chunk_bytes: u32,
    /// Compression of chunks.
    pub codec: VolumeCodec,
    /// Equal chunks are stored once.
    pub dedup: bool,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self { chunk_bytes: 1 << CHUNK_SHIFT, codec: VolumeCodec::Lz4, dedup: true }
    }
}

/// Compression of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeCodec {
    /// None.
    Raw,
    /// LZ4.
    Lz4,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl VolumeCodec {
    const fn codec(self) -> Codec {
        match self {
            Self::Raw => Codec::Raw,
            Self::Lz4 => Codec::Lz4,
            Self::Zlib => Codec::Zlib(0),
            Self::Zstd => Codec::Zstd(0),
        }
    }

    const fn of(codec: Codec) -> Self {
        match codec {
            Codec::Raw => Self::Raw,
            Codec::Lz4 => Self::Lz4,
            Codec::Zlib(_) => Self::Zlib,
            Codec::Zstd(_) => Self::Zstd,
        }
    }
}

/// Part of a pool, in per cent, that its cleaner can still free at a fair price.
const CLEANABLE_PERCENT: u64 = 15;

/// State of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// Normal.
    Ok,
    /// Less than a twentieth of it is free for contents, and the cleaner cannot free much more.
    Low,
    /// Nothing is free for contents, and the cleaner cannot free much more.
    Full,
    /// The device failed: the pool accepts no changes until it is opened again.
    Failed,
    /// Opened without changes that may have been flushed, and no flush has failed for that yet.
    Dropped,
}

impl PoolState {
    /// State of a pool with this space. `dropped_commits`: see [`zc_store::Store::dropped_commits`].
    #[must_use]
    pub const fn of(space: &Space, has_failed: bool, dropped_commits: u32) -> Self {
        let free_bytes = space.free_bytes.saturating_sub(space.reserve_bytes);
        if has_failed {
            Self::Failed
        } else if dropped_commits > 0 {
            Self::Dropped
        } else if free_bytes >= space.total_bytes / 20
            // A pool under constant overwrites has little free space: its cleaner frees the next segments on demand.
            || Self::left_bytes(space) >= space.total_bytes / 100 * CLEANABLE_PERCENT
        {
            Self::Ok
        } else if free_bytes > 0 {
            Self::Low
        } else {
            Self::Full
        }
    }

    /// Bytes that contents may still take after the cleaner has freed all dead data.
    #[must_use]
    pub const fn left_bytes(space: &Space) -> u64 {
        space.total_bytes.saturating_sub(space.referred_bytes).saturating_sub(space.reserve_bytes)
    }
}

/// Position at which a scrub resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Number of the volume or snapshot.
    pub root: u16,
    /// The address in it, in chunks.
    pub address: u64,
}

/// Reason for refusing an order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// No object has this name.
    #[error("the store has no {what} \"{name}\"")]
    Missing {
        /// Volume, snapshot, or either.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("the store has \"{name}\" already; choose another name")]
    Taken {
        /// The name.
        name: VolumeName,
    },
    /// The snapshot is of another volume.
    #[error(
        "\"{snapshot}\" is a snapshot of {}, not of \"{volume}\"; to have its contents as a volume: `zcctl store clone STORE \
         {snapshot} NAME`", owner_of(.owner)
    )]
    OtherSnapshot {
        /// The volume.
        volume: String,
        /// The snapshot.
        snapshot: String,
        /// Its volume; `None`: a deleted one.
        owner: Option<String>,
    },
    /// All volume numbers are in use.
    #[error("the store has reached its maximum number of volumes and snapshots")]
    Full,
    /// Invalid chunk size.
    #[error("invalid chunk size of {bytes} bytes; choose a power of two from 4 KiB to 128 KiB")]
    Chunk {
        /// The size.
        bytes: u32,
    },
    /// The new size is smaller: volumes only grow.
    #[error("\"{name}\" has {size_bytes} bytes already")]
    Larger {
        /// The volume.
        name: String,
        /// Its size.
        size_bytes: u64,
    },
    /// The text is not a valid name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The pool refused, or failed.
    #[error("{0}")]
    Pool(StoreError),
    /// Unexpected reply of the pool: a bug of the program.
    #[error("internal error: the store returned an unexpected reply")]
    Confused,
}

fn owner_of(owner: &Option<String>) -> String {
    owner.as_ref().map_or_else(|| "a volume that is deleted".to_owned(), |owner| format!("\"{owner}\""))
}

impl From<PoolError> for OrderError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error.error)
    }
}

impl Order {
    /// Returns `true` if the order changes nothing.
    #[must_use]
    pub const fn only_looks(&self) -> bool {
        match self {
            Self::Status {} | Self::Volumes {} | Self::Snapshots {} | Self::Scrub { .. } => true,
            Self::Rollback { dry_run, .. }
            | Self::DeleteVolume { dry_run, .. }
            | Self::DeleteSnapshot { dry_run, .. } => *dry_run,
            Self::CreateVolume { .. } | Self::Snapshot { .. } | Self::Clone { .. } | Self::Grow { .. } => {
                false
            }
        }
    }

    /// Returns the volume or snapshot that the order changes while it may be in use.
    #[must_use]
    pub fn disturbs(&self) -> Option<&str> {
        match self {
            Self::Rollback { volume, dry_run: false, .. } | Self::Grow { volume, .. } => Some(volume),
            Self::DeleteVolume { name, dry_run: false } | Self::DeleteSnapshot { name, dry_run: false } => {
                Some(name)
            }
            _ => None,
        }
    }

    /// Executes the order and waits for completion. Blocks. The reply has `dropped_commits` if the pool was opened
    /// without changes that may have been flushed.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed then, except that the state is unknown after [`OrderError::Pool`] of a
    /// failed device.
    pub fn carry_out(&self, pool: &PoolClient) -> Result<Value, OrderError> {
        let mut answer = self.answer(pool)?;
        let dropped = pool.dropped_commits();
        if let Some(fields) = answer.as_object_mut()
            && dropped > 0
        {
            fields.insert("dropped_commits".to_owned(), dropped.into());
        }
        Ok(answer)
    }

    fn answer(&self, pool: &PoolClient) -> Result<Value, OrderError> {
        match self {
            Self::Status {} => status(pool),
            Self::Volumes {} => Ok(json!({ "volumes": list(pool, RootKind::Volume)? })),
            Self::Snapshots {} => Ok(json!({ "snapshots": list(pool, RootKind::Snapshot)? })),
            Self::CreateVolume { name, size_bytes, options } => {
                let root = create_volume(pool, name, *size_bytes, *options)?;
                Ok(json!({ "name": name, "root": root.0 }))
            }
            Self::Snapshot { volume, name } => {
                derive(pool, volume, Some(RootKind::Volume), CatalogOp::Snapshot, name)
            }
            Self::Clone { from, name } => derive(pool, from, None, CatalogOp::Clone, name),
            Self::Rollback { volume, snapshot, dry_run } => rollback(pool, volume, snapshot, *dry_run),
            Self::Grow { volume, size_bytes } => grow(pool, volume, *size_bytes),
            Self::DeleteVolume { name, dry_run } => delete(pool, name, RootKind::Volume, *dry_run),
            Self::DeleteSnapshot { name, dry_run } => delete(pool, name, RootKind::Snapshot, *dry_run),
            Self::Scrub { from } => scrub(pool, *from),
        }
    }
}

/// Creates an empty volume.
///
/// # Errors
/// [`OrderError`].
pub fn create_volume(
    pool: &PoolClient,
    name: &str,
    size_bytes: u64,
    options: VolumeOptions,
) -> Result<RootId, OrderError> {
    let VolumeOptions { chunk_bytes, codec, dedup } = options;
    let sizes = limits::CHUNK_BYTES_MIN..=limits::CHUNK_BYTES_MAX;
    if !chunk_bytes.is_power_of_two() || !sizes.contains(&chunk_bytes) {
        return Err(OrderError::Chunk { bytes: chunk_bytes });
    }
    let id = free_id(pool)?;
    change(
        pool,
        CatalogChange {
            codec: codec.codec(),
            chunk_shift: u8::try_from(chunk_bytes.ilog2()).unwrap_or(CHUNK_SHIFT),
            size_chunks: size_bytes.div_ceil(u64::from(chunk_bytes)),
            flags: if dedup { FLAG_DEDUP } else { 0 },
            name: name.to_owned(),
            ..blank(CatalogOp::Create, id)
        },
    )?;
    Ok(id)
}

/// Returns a volume or snapshot by its name, optionally of one kind.
///
/// # Errors
/// [`OrderError::Missing`].
pub fn find(pool: &PoolClient, name: &str, kind: Option<RootKind>) -> Result<(RootId, Root), OrderError> {
    let what = match kind {
        None => "volume or snapshot",
        Some(RootKind::Volume) => "volume",
        Some(RootKind::Snapshot) => "snapshot",
    };
    let found = pool.find(name).filter(|(_, root)| kind.is_none_or(|kind| root.kind == kind));
    found.ok_or_else(|| OrderError::Missing { what, name: name.to_owned() })
}

fn free_id(pool: &PoolClient) -> Result<RootId, OrderError> {
    let roots = pool.roots();
    // The number of a deleted volume is not reused while it has snapshots: they would pass for snapshots of the new
    // volume.
    let is_free = |id: &RootId| roots.iter().all(|(taken, root)| taken != id && root.source != *id);
    (0..limits::ROOTS_MAX).map(RootId).find(is_free).ok_or(OrderError::Full)
}

fn change(pool: &PoolClient, change: CatalogChange) -> Result<(), OrderError> {
    if matches!(change.op, CatalogOp::Create | CatalogOp::Snapshot | CatalogOp::Clone) {
        let name = VolumeName::parse(&change.name)?;
        if pool.find(&name.to_string()).is_some() {
            return Err(OrderError::Taken { name });
        }
    }
    pool.ask(RequestKind::Catalog(change))?;
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

fn derive(
    pool: &PoolClient,
    from: &str,
    kind: Option<RootKind>,
    op: CatalogOp,
    name: &str,
) -> Result<Value, OrderError> {
    let (source, _) = find(pool, from, kind)?;
    let id = free_id(pool)?;
    change(pool, CatalogChange { source, name: name.to_owned(), ..blank(op, id) })?;
    Ok(json!({ "name": name }))
}

fn rollback(pool: &PoolClient, volume: &str, snapshot: &str, dry_run: bool) -> Result<Value, OrderError> {
    let (id, root) = find(pool, volume, Some(RootKind::Volume))?;
    let (source, of) = find(pool, snapshot, Some(RootKind::Snapshot))?;
    if of.source != id {
        let owner = pool.root(of.source).filter(|root| root.kind == RootKind::Volume).map(|root| root.name);
        let (volume, snapshot) = (volume.to_owned(), snapshot.to_owned());
        return Err(OrderError::OtherSnapshot { volume, snapshot, owner });
    }
    let mut answer = json!({
        "name": volume,
        "snapshot": snapshot,
        "size_bytes": root.size_chunks << root.chunk_shift,
        "snapshot_size_bytes": of.size_chunks << of.chunk_shift,
    });
    if dry_run {
        // Contents that no snapshot, clone or other volume shares, computed from all maps.
        let unique = account_of(&accounts(pool)?, id).map_or(0, |account| account.unique_bytes);
        answer["loses_bytes"] = json!(unique);
    } else {
        change(pool, CatalogChange { source, ..blank(CatalogOp::Rollback, id) })?;
    }
    Ok(answer)
}

fn account_of(accounts: &Accounts, id: RootId) -> Option<&RootAccount> {
    accounts.roots.iter().find(|account| account.root == id)
}

fn grow(pool: &PoolClient, volume: &str, size_bytes: u64) -> Result<Value, OrderError> {
    let (id, root) = find(pool, volume, Some(RootKind::Volume))?;
    let size_chunks = size_bytes.div_ceil(1 << root.chunk_shift);
    if size_chunks < root.size_chunks {
        let size_bytes = root.size_chunks << root.chunk_shift;
        return Err(OrderError::Larger { name: volume.to_owned(), size_bytes });
    }
    change(pool, CatalogChange { size_chunks, ..blank(CatalogOp::Grow, id) })?;
    Ok(json!({ "name": volume, "size_bytes": size_chunks << root.chunk_shift }))
}

fn delete(pool: &PoolClient, name: &str, kind: RootKind, dry_run: bool) -> Result<Value, OrderError> {
    let (id, _) = find(pool, name, Some(kind))?;
    if !dry_run {
        change(pool, blank(CatalogOp::Delete, id))?;
        return Ok(json!({ "name": name }));
    }
    // Freed bytes, computed from all maps.
    let accounts = accounts(pool)?;
    let of = |bytes: fn(&RootAccount) -> u64| account_of(&accounts, id).map_or(0, bytes);
    Ok(json!({
        "name": name,
        "size_bytes": of(|account| account.nominal_bytes),
        "used_bytes": of(|account| account.used_bytes),
        "loses_bytes": of(|account| account.unique_bytes),
        "frees_bytes": of(RootAccount::delete_frees_bytes),
    }))
}

fn survey(pool: &PoolClient, kind: SurveyKind) -> Result<Surveyed, OrderError> {
    match pool.ask(RequestKind::Survey(kind))? {
        Answer::Surveyed(surveyed) => Ok(*surveyed),
        _ => Err(OrderError::Confused),
    }
}

fn accounts(pool: &PoolClient) -> Result<Accounts, OrderError> {
    match survey(pool, SurveyKind::Account)? {
        Surveyed::Accounts(accounts) => Ok(accounts),
        Surveyed::Scrub(_) => Err(OrderError::Confused),
    }
}

fn status(pool: &PoolClient) -> Result<Value, OrderError> {
    let seen = pool.look_at_pool(|pool| {
        let store = pool.store();
        let state = PoolState::of(&store.space(), store.failure().is_some(), store.dropped_commits());
        (state, pool.counters())
    });
    let (state, counters) = seen.unwrap_or_else(|| (PoolState::Failed, Counters::default()));
    let pool = accounts(pool)?.pool;
    Ok(json!({
        "state": state,
        "total_bytes": pool.total_bytes,
        "free_bytes": pool.free_bytes,
        "stored_bytes": pool.stored_bytes,
        "map_bytes": pool.map_bytes,
        "dead_bytes": pool.dead_bytes,
        "nominal_bytes": pool.nominal_bytes,
        "used_bytes": pool.used_bytes,
        "raw_bytes": pool.raw_bytes,
        "prints_known": counters.prints_known,
        "prints_computed": counters.prints_computed,
        "encodings_known": counters.encodings_known,
        "encodings_computed": counters.encodings_computed,
    }))
}

fn list(pool: &PoolClient, kind: RootKind) -> Result<Vec<Value>, OrderError> {
    let accounts = accounts(pool)?;
    let roots = pool.roots();
    let of = |account: &RootAccount| {
        let (_, root) = roots.iter().find(|(id, root)| *id == account.root && root.kind == kind)?;
        Some(json!({
            "name": root.name,
            "chunk_bytes": 1_u32 << root.chunk_shift,
            "codec": VolumeCodec::of(root.codec),
            "dedup": root.is_deduplicated(),
            "nominal_bytes": account.nominal_bytes,
            "used_bytes": account.used_bytes,
            "shared_bytes": account.shared_bytes(),
            "unique_bytes": account.unique_bytes,
            "delete_frees_bytes": account.delete_frees_bytes(),
        }))
    };
    Ok(accounts.roots.iter().filter_map(of).collect())
}

fn scrub(pool: &PoolClient, from: Option<Point>) -> Result<Value, OrderError> {
    let from = from.map(|point| ScrubPoint { root: RootId(point.root), address: point.address });
    let asked = SurveyKind::Scrub { from, addresses_max: SCRUB_ADDRESSES };
    let Surveyed::Scrub(report) = survey(pool, asked)? else { return Err(OrderError::Confused) };
    let ScrubReport { addresses, chunks, stored_bytes, damage, next, lost_segments, .. } = report;
    let damage: Vec<Value> = damage
        .into_iter()
        .filter_map(|found| {
            // A root that was deleted since is no longer damaged.
            let root = pool.root(found.root)?;
            Some(json!({
                "name": root.name,
                "offset_bytes": found.first << root.chunk_shift,
                "len_bytes": found.count << root.chunk_shift,
                "error": found.error.to_string(),
            }))
        })
        .collect();
    let next = next.map(|point| Point { root: point.root.0, address: point.address });
    Ok(json!({
        "addresses": addresses, "chunks": chunks, "stored_bytes": stored_bytes, "damage": damage, "next": next,
        "lost_segments": lost_segments,
    }))
}
