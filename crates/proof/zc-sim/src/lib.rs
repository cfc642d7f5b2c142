//! Deterministic simulation of manager, format and recovery.
//!
//! Job: run the production cache manager over simulated devices under one seed, with operations that end in random
//! order, power cuts, killed processes and faults of the cache device, and check every byte that a client reads
//! against a model disk, and what the origins hold alone against the epochs of the clients (guarantees G1 to G7),
//! and every record of shared content against the borders of dedup domains (G9).
//!
//! In half of the seeds volumes write back. Two more judgements hold there. A request may fail where a fault explains
//! it (the cache device may hold what only it has; `excuses`), and never return wrong bytes. A read fails only if a copy
//! that its sectors rely on was damaged after they were written. Where the device lied about metadata that it kept
//! (lost, misdirected or repeated writes, rot), a restart may show any bytes that a sector once had, and keeps to them.
//! Lies about slots are judged sector by sector (`kept`): they excuse only the last commit of a volume, and that only
//! until the device can prove it: at the end of a log, what was lost cannot be distinguished from what never was.
//!
//! At the end of a seed all faults are switched off, and everything has to come to an end (`liveness`).
//!
//! Invariants: one seed, one run: no clock, no thread, no I/O. A failing seed replays to the same event.
//!
//! # The atlas of faults
//! What may happen where (each counted in [`Coverage`] and required of a full run), and what must hold all the same.
//! *miss*: the extent comes from the origin. *cold*: no mapping is believed, stored contents still serve to share.
//!
//! | fault | superblock | region map | checkpoint | journal | WEU body | WEU header |
//! |---|---|---|---|---|---|---|
//! | power cut: unflushed writes kept, lost or torn, 512 or 4096 bytes | older copy | older copy, or cold | older area | shorter | miss | miss |
//! | the same inside a start, between any two of its I/Os, soon after it, and again | older copy | untouched | untouched | untouched | untouched | untouched |
//! | process killed: what is in flight happens or not | nothing distrusted, but for a lost intent log | | | | | |
//! | bit rot | other copy | cold | older area or cold | shorter or cold | miss | miss |
//! | the same of a dirty extent that is then written anew | - | - | - | - | G5, G6: what was written later reaches the origin | - |
//! | unreadable or zeroed pages | other copy | cold | older area or cold | shorter or cold | miss | miss |
//! | write lost, misdirected, or an old one repeated | older copy, told by the state directory | noticed if mentioned, **else not** | older area or cold | shorter or cold | miss | miss, also of the next start |
//! | what a misdirected write hits | - | as bit rot | as bit rot | as bit rot | miss | miss |
//! | slot rolled back as a whole | | | | | miss | not believed |
//! | read that brings another place's bytes | - | - | - | - | miss | not believed, then or later |
//! | write error, device full, in part written or not | - | pass-through | pass-through | pass-through | slot given up | slot given up |
//! | flush error | | pass-through | pass-through | pass-through | | |
//! | device dead, for a while or until the next start | - | pass-through | pass-through | pass-through | miss | miss |
//! | operations of one zone stalled while others pass | - | writes wait | no client waits | writes may wait | no client waits (G8) | no client waits |
//! | the journal on a device of its own, which dies and is replaced | untouched | untouched | untouched | pass-through; then cold, dirty volumes fenced | miss | miss |
//! | the whole image replaced by one of an earlier session | cold: the state directory knows a later session | | | | | |
//!
//! | fault of an origin | must hold |
//! |---|---|
//! | power cut: any subset of unflushed writes, torn | G2: stable after the first read |
//! | errors; a failed write may have happened in part | G1: uncertain bytes are not cached |
//! | a failed flush, that lost writes | G2: what is left is read, whatever the cache had (in write-through) |
//! | a file written by another program while stopped (its change time tells) | that volume starts cold |
//! | it grows while it is served, and the volume with it; either end may cut an extent | G1: what the origin has there is read |
//!
//! | fault of the state directory | must hold |
//! |---|---|
//! | a record fails, or hangs and is carried out later or not | G2, G4: what needs it waits, fails after 30 s, or goes where marks are |
//! | nothing can be changed for a while, alone or full together with the cache device | the same; intent log and risk file are withdrawn |
//! | it fails when a session ends in order | that session did not |
//! | it is lost between two sessions | cold; dirty data counts once it is trusted; what it alone knew is forgiven |
//! | the configuration changes between two sessions, `ack` included | G5: whether a loss is told goes by the old settings |
//!
//! | exchange of the manager in a process that lives on (`exchange`) | must hold |
//! |---|---|
//! | the cache device fails, with or without losing what no flush covered, and is taken up again | as after a kill; cold |
//! | an empty device of another length takes over, another one or the same | nothing is excused: the origins have all |
//! | requests wait meanwhile | each is answered once; nothing older is legal afterwards |
//! | the process ends between any two steps | a start finds the old device or the new one |
//!
//! A flush, of either device, covers the writes that had *ended* when it was issued, and any others. In all cases: G1,
//! G2, G3, G7 for every byte read, and G4: no request fails unless its origin failed it or its volume is read-only.
//!
//! # Parts
//! A file that stands below uses only what stands above it. Each part has its state to itself; `world` puts them
//! together: events go in, actions come out.
//!
//! | part | files |
//! |---|---|
//! | time, chance, findings | `env`, `coverage`, `canary` |
//! | what a seed draws | `profile`, `drawn`, `plan`, `setup` |
//! | devices | `disk`, `faults`, `device`, `origin`, `pooled`, `state` with `intents` |
//! | the process | `memory`, `queue`, `volumes`, `clients`, `exchange` |
//! | what is legal | `oracle` and `epochs` in `models`; `judges`, `promise`, `losses`, `kept` |
//! | what excuses | `trouble`, `excuses`, `forgive` |
//! | the machine | `bench`, `world`, `answers` |
//! | what happens to it | `settings`, `requests`, `ends`, `boot`, `rest`, then `turns`, `run`, `exhaustive` |
//!
//! # A new fault, judge or turn
//! *A fault of the cache device* is a file in `faults`: a type with `faults::Fault`, and a line in the list. Say, writes
//! without their last page: `writes` draws, lets the other pages through, and taints that one.
//!
//! *A judge of the manager* is a file in `judges`: a type with `judges::Judge`, and a line in the list. Say, no slot is
//! erased while a read of it is under way: `wants` sees both actions, `comes` the end of the read, `took` tells.
//!
//! *A turn* is a file in `turns`: a function of the machine, and a number of its own in the list of `run`.
//!
//! Each leaves the other seeds what they were if it draws nothing in seeds that do not have it. `zcsim fuzz` ends with
//! digests of values and actions, which must be equal then.
//!
//! # What no write-through cache can tell
//! The oracle accepts these and nothing else.
//! - *A lost region map.* An update of the region map is acknowledged and flushed, but it is not on the medium, and the
//!   power goes before the device keeps any journal block or checkpoint that mentions it (or it is replaced by its own
//!   predecessor in the same place). Both copies are whole, all agrees, and the origin was written in a region that
//!   nothing calls written. A judge that reads the medium with the codecs alone (`promise`) decides that this is so
//!   before the start; such a start is then made cold, and counted. One mention on the medium, and the restart has to
//!   notice by itself.
//! - *Not simulated, as it is the same in kind*: a device that drops whole flushes (any of its promises may be the lost
//!   region map); an image of the cache taken and put back *within* one session that was then cut off; a block device
//!   as origin that is written elsewhere while stopped (only the sample that is compared at a start may meet the
//!   change); damage that keeps a CRC-32C valid.
//! - *Loss of all four superblocks, or of both volume tables*: there is no cache any more. It is formatted anew.
//!
//! What it does not do: measure anything, or know the daemon.
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
mod faults;
mod forgive;
mod intents;
mod judges;
mod judging;
mod kept;
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
