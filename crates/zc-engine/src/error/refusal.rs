//! Refusals of a start or a command.
//!
//! Job: one variant for each reason, with its data for programs; its text has the fault, the effect, and the remedy.
//!
//! Invariants: a refusal changes nothing. Failures of files, devices and sockets are not refusals: [`EngineError`] has
//! them.
//!
//! It does not decide; its users do.

use std::io;
use std::path::PathBuf;

use zc_cache::startup::StartError;
use zc_config::Conflict;
use zc_config::manager::TooLittleRam;
use zc_core::VolumeId;
use zc_format::GeometryError;
use zc_pool::PoolError;
use zc_pool_io::OpenError;

use crate::error::EngineError;

/// Reason of a refusal. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Two paths of the configuration lead to one place.
    #[error("{0}")]
    SamePlace(Conflict),
    /// The settings need more RAM than they allow.
    #[error("{0}")]
    TooLittleRam(#[from] TooLittleRam),
    /// The requests exceed the capacity of the daemon.
    #[error(
        "{connections} connections and {at_once} requests of block devices are more than the {most} that can be \
         served at once: lower nbd.connections_max, or ublk.queues and ublk.queue_depth of volumes"
    )]
    TooManyRequests {
        /// Connections that the configuration allows.
        connections: usize,
        /// Requests of block devices that it allows.
        at_once: usize,
        /// Capacity.
        most: usize,
    },
    /// The daemon may not open enough files.
    #[error(
        "{most} files may be open at once (RLIMIT_NOFILE), and the daemon needs {needed}; raise the limit (`ulimit \
         -n`, LimitNOFILE)"
    )]
    FewDescriptors {
        /// The limit.
        most: u64,
        /// Required number.
        needed: u64,
    },
    /// A socket that another program passed does not listen.
    #[error(
        "a passed socket does not listen for connections: pass a listening one (LISTEN_FDS, `ListenStream=`)"
    )]
    NotListening,
    /// A path for a socket holds something else.
    #[error("cannot listen on {}: the file there is not a socket; move it away, or name another path", .0.display())]
    NoSocket(PathBuf),
    /// The machine has no such group.
    #[error("nbd.unix_group: this machine has no group \"{0}\"; make it (`groupadd`), or name another")]
    NoGroup(String),
    /// A certificate, key or revocation list cannot be used.
    #[error("{}: {what}", .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Fault.
        what: String,
    },
    /// Nothing can be made at a path.
    #[error("{} cannot be made: {} is not a folder", .path.display(), .folder.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
        /// Parent that should be a folder.
        folder: PathBuf,
    },
    /// A file system lacks space for a new cache.
    #[error("there is no space for {} with {bytes} bytes on its file system{}: lower its size, or free \
        space", .path.display(), .room)]
    NoRoom {
        /// The cache.
        path: PathBuf,
        /// Bytes that it is to have.
        bytes: u64,
        /// Free space of the file system.
        room: Room,
    },
    /// No cache can be laid out as wanted.
    #[error("{}: {error}", .place.display())]
    Layout {
        /// The cache.
        place: PathBuf,
        /// Cause.
        error: GeometryError,
    },
    /// The contents of the cache device cannot be served.
    #[error("{}: {error}", .place.display())]
    Cache {
        /// The cache.
        place: PathBuf,
        /// Cause.
        error: StartError,
    },
    /// The cache was formatted with other settings than configured.
    #[error(
        "the cache {} was formatted with {differs}; change the configuration. To have it as configured, start it \
         once as it was formatted, `zcctl stop --flush`, then `zcctl format --force`", .place.display()
    )]
    FormattedOtherwise {
        /// The cache.
        place: PathBuf,
        /// Formatted and configured settings.
        differs: String,
    },
    /// The device holds another cache than the one that was served.
    #[error("{} is the cache {found}, but the daemon served {wanted}; restore that one", .place.display())]
    OtherCache {
        /// The cache.
        place: PathBuf,
        /// Its identity.
        found: String,
        /// The identity of the one that was served.
        wanted: String,
    },
    /// The cache was changed since the daemon closed it.
    #[error(
        "{} has changed since it was closed: {} (session {session}, here {here}); restart the daemon: the start \
         reports the remedy", .place.display(),
        change(.session, .here)
    )]
    NotAsLeft {
        /// The cache.
        place: PathBuf,
        /// Its session.
        session: u64,
        /// The daemon's last session on it.
        here: u64,
    },
    /// The cache has no record of the volumes that the daemon serves.
    #[error("{} has no record of the volumes that the daemon serves; restore the cache that has them", .0.display())]
    OtherVolumes(PathBuf),
    /// The cache has no place for one volume more.
    #[error(
        "the cache {} has {most} volumes already, volume \"{volume}\" does not fit; `zcctl stop --flush`, then \
         `zcctl format --force` makes a new cache", .cache.display()
    )]
    TooManyVolumes {
        /// The cache.
        cache: PathBuf,
        /// Capacity of its volume table.
        most: usize,
        /// The volume that does not fit.
        volume: String,
    },
    /// The journal is shorter than the cache needs.
    #[error("the journal {} has {have} bytes, and the cache needs {needed}; it was truncated: restore the whole \
        journal", .place.display())]
    JournalTruncated {
        /// The journal.
        place: PathBuf,
        /// Its length in bytes.
        have: u64,
        /// Bytes that the cache needs.
        needed: u64,
    },
    /// The journal belongs to another cache.
    #[error("{} is the journal of another cache; name the right one in cache.journal_path", .0.display())]
    OtherJournal(PathBuf),
    /// The configured journal is not a journal.
    #[error(
        "{} contains data that is not a journal; name the right one; if it is a journal, `zcctl repair --journal` \
         repairs its label", .0.display()
    )]
    NoJournal(PathBuf),
    /// A new journal would destroy data.
    #[error(
        "{} contains data; `zcctl format --journal` makes a journal of it and destroys its contents", .0.display()
    )]
    JournalFilled(PathBuf),
    /// The state directory has no proof that a missing cache is dispensable.
    #[error(
        "{why}{}. The state directory {} does not prove that the origins are complete without it. Restore the \
         cache; or make a new one with `zcctl format`, which reports dirty data that would be lost",
        size_hint(.has_size), .state_dir.display()
    )]
    UnknownCache {
        /// Reason why the cache is unusable.
        why: String,
        /// `true` if a new one could be made.
        has_size: bool,
        /// The state directory.
        state_dir: PathBuf,
    },
    /// A volume table is lost, and with it perhaps dirty data.
    #[error(
        "{why}. It may have dirty data, and the state directory {} has no record of its last session. Restore the \
         state directory, or discard the dirty data: `zcctl format --force --discard-dirty`", .state_dir.display()
    )]
    PerhapsDirty {
        /// Fault of the cache.
        why: String,
        /// The state directory.
        state_dir: PathBuf,
    },
    /// A volume's dirty data is on a cache that cannot be used.
    #[error("{why}; {refusal}")]
    DirtyWithoutCache {
        /// Reason why the cache is unusable.
        why: String,
        /// A volume's dirty data is on another cache than the configured one.
        refusal: Box<EngineError>,
    },
    /// A volume's dirty data is on another cache than the one that is there.
    #[error(
        "the cache {cache} has dirty data of volume \"{volume}\", and {what}; restore that cache under the volume's \
         old name, or start with --drop-dirty {volume} to discard the dirty data"
    )]
    DirtyElsewhere {
        /// The volume.
        volume: String,
        /// The identity of the cache that has the data.
        cache: String,
        /// Contents in the cache's place.
        what: String,
    },
    /// A volume's dirty data may not be the newest, or may not belong on this origin.
    #[error(
        "volume \"{volume}\" has dirty data on the cache {}, and {what}; restore the previous state, or start with \
         --trust-dirty {volume} to write the dirty data to {origin} as it is, or with --drop-dirty {volume} to \
         discard it", .cache.display(), origin = .origin.display()
    )]
    DirtyInDoubt {
        /// The volume.
        volume: String,
        /// The cache.
        cache: PathBuf,
        /// The origin.
        origin: PathBuf,
        /// Obstacle.
        what: String,
    },
    /// The state directory has a record of dirty data of a volume that the cache lacks.
    #[error(
        "volume \"{volume}\" has dirty data, and the cache {} has no record of the volume: it is not the one that \
         was used last; restore that one, or start with --drop-dirty {volume} to discard the dirty \
         data", .cache.display()
    )]
    DirtyNotHere {
        /// The volume.
        volume: String,
        /// The cache.
        cache: PathBuf,
    },
    /// A volume's dirty data can reach its origin in no mode that never writes there.
    #[error(
        "volume \"{volume}\" has dirty data on the cache {}, so it cannot start as read-only; start it in another mode, \
         `zcctl flush {volume}`, then change the mode", .cache.display()
    )]
    DirtyReadOnly {
        /// The volume.
        volume: String,
        /// The cache.
        cache: PathBuf,
    },
    /// A volume's dirty data was written in another dedup domain.
    #[error(
        "volume \"{volume}\" has dirty data on the cache {}, and {what}; set it back until the origin {origin} has \
         the dirty data (`zcctl stop --flush`), or start with --drop-dirty {volume} to discard it",
        .cache.display(), origin = .origin.display()
    )]
    DirtyInOtherDomain {
        /// The volume.
        volume: String,
        /// The cache.
        cache: PathBuf,
        /// The origin.
        origin: PathBuf,
        /// Domains.
        what: String,
    },
    /// An answer about dirty data is for a volume that the configuration does not have.
    #[error(
        "--trust-dirty, --drop-dirty or --cold names volume \"{volume}\", which is not in the configuration: there \
         are {}",
        names(.known)
    )]
    AnswerForNone {
        /// The volume.
        volume: String,
        /// Volumes of the configuration.
        known: Vec<String>,
    },
    /// Two answers about dirty data contradict each other.
    #[error("volume \"{0}\": --trust-dirty and --drop-dirty exclude each other; give one of them")]
    TwoAnswers(String),
    /// An answer about dirty data is for a volume that cannot be served.
    #[error(
        "{error}; --trust-dirty and --drop-dirty are for a volume that is served: fix this, or start without the \
         option for volume \"{volume}\", and the other volumes are served"
    )]
    AnswerForAbsent {
        /// The volume.
        volume: String,
        /// Reason why it cannot be served.
        error: Box<EngineError>,
    },
    /// No volume can be served.
    #[error("no volume can be served: {}", .0.join("; "))]
    NoVolume(Vec<String>),
    /// The daemon does not serve such a volume.
    #[error("volume number {} is not served", .0.0)]
    NotServed(VolumeId),
    /// An origin has no bytes.
    #[error("the origin of volume \"{volume}\" ({}) has no bytes; give it a size (`truncate --size=SIZE`), or name \
        another", .origin.display())]
    EmptyOrigin {
        /// The volume.
        volume: String,
        /// The origin.
        origin: PathBuf,
    },
    /// An origin that was served before is not there.
    #[error(
        "volume \"{volume}\" was served before, and its origin {origin} is missing; restore it. For an empty \
         volume, make the origin yourself (`truncate --size=SIZE {origin}` for a file)", origin = .origin.display()
    )]
    OriginGone {
        /// The volume.
        volume: String,
        /// The origin.
        origin: PathBuf,
    },
    /// A file of the state directory cannot be understood.
    #[error("{}: {reason}; remove the file to start with a cold cache", .path.display())]
    StateFile {
        /// The file.
        path: PathBuf,
        /// Fault.
        reason: String,
    },
    /// The record of where the cache was moved cannot be understood.
    #[error("{}: {reason}; name the cache's device as cache.path, then remove the file", .path.display())]
    MovedRecord {
        /// The file.
        path: PathBuf,
        /// Fault.
        reason: String,
    },
    /// A device that is to become the cache holds something.
    #[error("{} {what}; --force makes an empty cache of it", .place.display())]
    DeviceUsed {
        /// The device.
        place: PathBuf,
        /// Contents.
        what: String,
    },
    /// A device that is to become the cache is another one, and may have dirty data.
    #[error(
        "{} is another cache, and may have dirty data that no origin has; `zcctl format --force` lists it, and with \
         --discard-dirty discards it", .0.display()
    )]
    DeviceOwes(PathBuf),
    /// The cache cannot be closed, so it cannot be replaced.
    #[error("the cache stays in use: {0}")]
    NotClosed(String),
    /// Requests under way do not end, so that nothing can be changed.
    #[error(
        "requests in flight did not complete within {seconds} s, so nothing was changed; an origin may hang"
    )]
    NotPaused {
        /// Time limit.
        seconds: u64,
    },
    /// The configuration has no such store.
    #[error(
        "there is no store \"{store}\" in the configuration; there are {}",
        names(.known)
    )]
    NoStore {
        /// Requested name.
        store: String,
        /// Stores of the configuration.
        known: Vec<String>,
    },
    /// A store cannot be opened.
    #[error("store \"{store}\": {error}")]
    Store {
        /// Name of the store.
        store: String,
        /// Cause.
        error: OpenError,
    },
    /// A remote origin cannot be used.
    #[error("the origin {origin} cannot be used: {why}")]
    RemoteOrigin {
        /// Its URI.
        origin: String,
        /// Cause.
        why: String,
    },
    /// A remote origin is to be made longer.
    #[error(
        "{origin} has {len_bytes} bytes, and an NBD export cannot be made longer from here: resize it to {wanted} \
         bytes on its server, then `zcctl resize` again"
    )]
    ExportNotGrown {
        /// Its URI.
        origin: String,
        /// Its size.
        len_bytes: u64,
        /// The wanted size.
        wanted: u64,
    },
    /// A store has no such volume.
    #[error(
        "store \"{store}\" has no volume \"{volume}\"; `zcctl store create-volume`, or create_size, makes one"
    )]
    NoStoreVolume {
        /// The store.
        store: String,
        /// The volume.
        volume: String,
    },
    /// A snapshot cannot be written.
    #[error(
        "\"{volume}\" of store \"{store}\" is a snapshot and never changes: serve it with mode = \"read-only\", or \
         make a clone of it with `zcctl store clone`"
    )]
    Snapshot {
        /// The store.
        store: String,
        /// The snapshot.
        volume: String,
    },
    /// A volume of a store cannot be made.
    #[error("cannot make volume \"{volume}\" in store \"{store}\": {why}")]
    StoreVolume {
        /// The store.
        store: String,
        /// The volume.
        volume: String,
        /// Cause.
        why: String,
    },
    /// A store has ended, or its volume is gone.
    #[error("{volume}: the volume is gone, or its store has ended")]
    StoreEnded {
        /// The volume, as `STORE/VOLUME`.
        volume: String,
    },
    /// A volume of a store cannot have that length.
    #[error("{volume}: {bytes} bytes are not whole chunks of {chunk_bytes}")]
    NoWholeChunks {
        /// The volume, as `STORE/VOLUME`.
        volume: String,
        /// Requested length.
        bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u64,
    },
    /// A volume of a store cannot grow.
    #[error("{volume} cannot grow: {error}")]
    NotGrown {
        /// The volume, as `STORE/VOLUME`.
        volume: String,
        /// Cause.
        error: PoolError,
    },
    /// A store cannot make writes durable.
    #[error("{volume}: {error}")]
    NotFlushed {
        /// The volume, as `STORE/VOLUME`.
        volume: String,
        /// Cause.
        error: PoolError,
    },
}

/// Information on a file system without enough space.
#[derive(Debug)]
pub enum Room {
    /// Free bytes.
    Free(u64),
    /// The daemon tried to allocate the file; this is the result of removing it.
    Tried(io::Result<()>),
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Free(bytes) => write!(f, ", which has {bytes} left"),
            Self::Tried(Ok(())) => Ok(()),
            Self::Tried(Err(_)) => write!(f, " (an empty file was left behind)"),
        }
    }
}

fn names(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

const fn change(session: &u64, here: &u64) -> &'static str {
    if *session < *here { "it is an older image" } else { "it was used elsewhere" }
}

const fn size_hint(has_size: &bool) -> &'static str {
    if *has_size { "" } else { ", and cache.size does not have the size of a new one" }
}
