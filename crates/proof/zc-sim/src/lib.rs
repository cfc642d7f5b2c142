//! Deterministic simulation of manager, format and recovery.
//!
//! Job: run the production cache manager over simulated devices under one seed, with operations that complete in
//! random order, power cuts, killed processes and faults of the cache device. Check every byte that a client reads
//! against a model disk, the contents of the origins alone against the epochs of the clients (guarantees G1 to G7), and
//! every record of shared content against the boundaries of dedup domains (G9).
//!
//! In half of the seeds volumes write back, with two more rules. A request may fail if a fault explains it, because the
//! cache device may hold data that only it has (`excuses`), but it never returns wrong bytes. A read fails only if a copy
//! that its sectors rely on was damaged after they were written. If the device lied about metadata that it kept (lost,
//! misdirected or repeated writes, bit rot), a restart may expose any former bytes of a sector, which then stay. Lies
//! about slots are checked sector by sector (`kept`). They excuse only the last commit of a volume, and only until the
//! device can prove it: at the end of a log, lost data cannot be distinguished from data never written.
//!
//! At the end of a seed all faults are switched off, and everything has to come to an end (`liveness`).
//!
//! Invariants: one seed, one run: no clock, no thread, no I/O. A failing seed replays to the same event.
//!
//! # Fault matrix
//! Faults by place (each counted in [`Coverage`] and required of a full run), and the result that must hold under them.
//! *miss*: the extent is read from the origin. *cold*: mappings are distrusted, stored contents can still be shared.
//!
//! | fault | superblock | region map | checkpoint | journal | WEU body | WEU header |
//! |---|---|---|---|---|---|---|
//! | power cut: unflushed writes kept, lost or torn, 512 or 4096 bytes | older copy | older copy, or cold | older area | shorter | miss | miss |
//! | the same inside a start, between any two of its I/Os, soon after it, and again | older copy | untouched | untouched | untouched | untouched | untouched |
//! | process killed: operations in flight happen or not | nothing distrusted, except for a lost intent log | | | | | |
//! | bit rot | other copy | cold | older area or cold | shorter or cold | miss | miss |
//! | bit rot in a dirty extent that is then rewritten | - | - | - | - | G5, G6: later writes reach the origin | - |
//! | unreadable or zeroed pages | other copy | cold | older area or cold | shorter or cold | miss | miss |
//! | write lost, misdirected, or an old one repeated | older copy, detected by the state directory | detected if mentioned, **otherwise not** | older area or cold | shorter or cold | miss | miss, also of the next start |
//! | target of a misdirected write | - | as bit rot | as bit rot | as bit rot | miss | miss |
//! | slot rolled back as a whole | | | | | miss | distrusted |
//! | read that returns another place's bytes | - | - | - | - | miss | distrusted, then or later |
//! | write error, device full, partly written or not | - | pass-through | pass-through | pass-through | slot abandoned | slot abandoned |
//! | flush error | | pass-through | pass-through | pass-through | | |
//! | device dead, for a while or until the next start | - | pass-through | pass-through | pass-through | miss | miss |
//! | operations of one zone stalled while others pass | - | writes wait | no client waits | writes may wait | no client waits (G8) | no client waits |
//! | the journal on a separate device, which dies and is replaced | untouched | untouched | untouched | pass-through; then cold, dirty volumes fenced | miss | miss |
//! | the whole image replaced by one of an earlier session | cold: the state directory records a later session | | | | | |
//!
//! | fault of an origin | must hold |
//! |---|---|
//! | power cut: any subset of unflushed writes, torn | G2: stable after the first read |
//! | errors; a failed write may have happened in part | G1: uncertain bytes are not cached |
//! | a failed flush that lost writes | G2: the remaining data is read, whatever the cache had (in write-through) |
//! | a file written by another program while stopped (its change time reveals it) | that volume starts cold |
//! | operations last longer than the driver's limits, are reported as failed, and take effect later, in part or never | G1, G2: newer accesses of their sectors and flushes wait; their memory is left alone |
//! | an origin grows while it is served, and the volume with it; either end may cut an extent | G1: reads return the origin's data |
//!
//! | fault of the state directory | must hold |
//! |---|---|
//! | a record fails, or hangs and is executed later or not | G2, G4: dependent writes wait, fail after 30 s, or go to marked regions |
//! | nothing can be changed for a while, alone or full together with the cache device | the same; intent log and risk file are withdrawn |
//! | it fails when a session ends in order | that session counts as unclean |
//! | it is lost between two sessions | cold; dirty data counts once it is trusted; facts that it alone recorded are forgiven |
//! | the configuration changes between two sessions, `ack` included | G5: the old settings decide if a loss is reported |
//!
//! | exchange of the manager in a process that survives it (`exchange`) | must hold |
//! |---|---|
//! | the cache device fails, with or without losing unflushed data, and is reattached | as after a kill; cold |
//! | an empty device of another length takes over, another one or the same | nothing is excused: the origins have all data |
//! | requests wait during the exchange | each is answered once; nothing older is legal afterwards |
//! | the process ends between any two steps | a start finds the old device or the new one |
//!
//! A flush, of either device, covers the writes that had *ended* when it was issued, and any others. In all cases: G1,
//! G2, G3, G7 for every byte read, and G4: no request fails unless its origin failed it or its volume is read-only.
//!
//! # Parts
//! A file uses only the files above its row. Each part owns its state; `world` combines them: events go in, actions come
//! out.
//!
//! | part | files |
//! |---|---|
//! | time, chance, findings | `env`, `coverage`, `canary` |
//! | draws of a seed | `profile`, `drawn`, `plan`, `setup` |
//! | devices | `disk`, `faults`, `device`, `origin`, `pooled`, `state` with `intents` |
//! | the process | `memory`, `queue`, `volumes`, `clients`, `exchange`, `late` |
//! | legal behaviour | `oracle` and `epochs` in `models`; `judges`, `promise`, `losses`, `kept` |
//! | excuses | `trouble`, `excuses`, `forgive` |
//! | the machine | `bench`, `world`, `answers`, `expiries` |
//! | events of the machine | `settings`, `requests`, `ends`, `boot`, `rest`, then `turns`, `run`, `exhaustive` |
//!
//! # A new fault, judge or turn
//! *A fault of the cache device* is a file in `faults`: a type with `faults::Fault`, and a line in the list. Example:
//! writes without their last page. `writes` draws, passes the other pages on, and taints that one.
//!
//! *A judge of the manager* is a file in `judges`: a type with `judges::Judge`, and a line in the list. Example: no
//! slot is erased while a read of it is in progress. `wants` sees both actions, `comes` the end of the read, and `took`
//! reports.
//!
//! *A turn* is a file in `turns`: a function of the machine, and a unique number in the list of `run`.
//!
//! Each addition keeps other seeds' schedules if it draws nothing in seeds that do not have it. `zcsim fuzz` ends with
//! digests of values and actions, which must then be equal.
//!
//! # Faults that no write-through cache can detect
//! The oracle accepts these and nothing else.
//! - *A lost region map.* An update of the region map is acknowledged and flushed, but it is not on the medium, and the
//!   power fails before the device keeps any journal block or checkpoint that mentions it (or its own predecessor
//!   replaces it in the same place). Both copies are intact and consistent, and the origin was written in a region that
//!   nothing marks as written. A judge that reads the medium with the codecs alone (`promise`) detects this before the
//!   start; such a start is then made cold, and counted. With a single mention on the medium, the restart has to detect
//!   it by itself.
//! - *Not simulated, as it is the same in kind*: a device that drops whole flushes (any of its promises may be the lost
//!   region map); an image of the cache taken and restored *within* one session that was then cut off; a block device
//!   as origin that is written elsewhere while stopped (only the sample that is compared at a start may detect
//!   the change); damage that keeps a CRC-32C valid.
//! - *Loss of all four superblocks, or of both volume tables*: the cache no longer exists. It is formatted again.
//!
//! It does not measure anything, or include the daemon.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    reason = "a simulation over small devices: an assumption that breaks is a failed run, and says where"
)]

mod action_digest;
mod answers;
mod bench;
mod boot;
mod canary;
mod clients;
mod content;
mod coverage;
mod crashes;
mod device;
mod disk;
mod drawn;
mod ends;
mod env;
mod epochs;
mod exchange;
mod excuses;
mod exhaustive;
mod expiries;
mod faults;
mod forgive;
mod intents;
mod judges;
mod judging;
mod kept;
mod late;
mod losses;
mod media;
mod memory;
mod models;
mod options;
mod oracle;
mod origin;
mod placed;
mod plan;
mod pooled;
mod profile;
mod promise;
mod queue;
mod requests;
mod rest;
mod run;
mod settings;
mod setup;
mod shrink;
mod state;
pub mod store;
mod stored;
mod trouble;
mod turn_list;
mod turns;
mod twin;
mod volumes;
mod world;
mod zone;

pub use canary::{CANARIES, Canary, DriverBug, manager_bugs};
pub use coverage::{Coverage, REQUIRED};
pub use exhaustive::{Exhaustive, ExhaustiveReport, run_exhaustive};
pub use options::Options;
pub use profile::Profile;
pub use run::{SeedReport, Violation, run_seed, run_turns};
pub use shrink::{Shrunk, shrink};
pub use turn_list::{Turns, TurnsError};
pub use zc_cache::config::{Packer, Replacement};
