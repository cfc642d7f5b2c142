//! Every bound of the crate.

/// Requests in flight on one connection.
pub const IN_FLIGHT_MAX: usize = 128;
/// Connections to one export.
pub const CONNECTIONS_MAX: usize = 16;
/// Payload bytes in flight on all connections together. A single request always fits.
pub const IN_FLIGHT_BYTES_MAX: u64 = 32 << 20;
/// Owed bytes from which on the component flushes by itself.
pub const OWED_FLUSH_BYTES: u64 = 32 << 20;
/// Owed bytes from which on new changes wait. Changes in flight may exceed it by [`IN_FLIGHT_BYTES_MAX`] at most.
pub const OWED_HOLD_BYTES: u64 = 64 << 20;
/// Size at which an owed entry counts beside its bytes: node, entry and reference count.
pub const OWED_ENTRY_BYTES: u64 = 128;
/// Pieces of content that are compared after a reconnect.
pub const SAMPLES_MAX: usize = 64;
/// Longest such piece, in bytes.
pub const SAMPLE_BYTES_MAX: u64 = 4096;
/// Pieces that the first connection reads in order to recognise the export later.
pub const SURVEY_PIECES: u64 = 16;
/// Time from the start of a connection attempt to the end of its handshake.
pub const HANDSHAKE_MS: u64 = 10_000;
/// Time for the comparison of all samples.
pub const COMPARE_MS: u64 = 30_000;
/// Time that the server has for closing a connection that the daemon ends.
pub const LEAVE_MS: u64 = 10_000;
/// Silence of a server with requests in flight that counts as an outage. The connection stays.
pub const SILENCE_MS: u64 = 10_000;
/// Attempts to make a connection beside the first that may fail before the server is left alone.
pub const OTHER_ATTEMPTS_MAX: u32 = 5;
/// First pause before the next connection attempt.
pub const PAUSE_MIN_MS: u64 = 100;
/// Longest pause between two attempts.
pub const PAUSE_MAX_MS: u64 = 5_000;
/// Longest piece of a trim or zeroing, in bytes: below 32 bits, as plain headers need.
pub const CHANGE_BYTES_MAX: u64 = 1 << 30;
/// Longest piece of a zeroing that the server carries out by writing, so that it answers before it counts as silent.
pub const SLOW_ZERO_BYTES_MAX: u64 = 32 << 20;
/// Longest range of a block status, in bytes: below 32 bits, as plain headers need.
pub const STATUS_BYTES_MAX: u64 = 1 << 30;
/// Runs of a block status that are kept. The rest of the range stays unknown.
pub const STATUS_RUNS_MAX: usize = 4096;
/// Piece of the export whose holes are requested with the first read in it.
pub const REGION_BYTES: u64 = 256 << 20;
/// Pieces whose holes are requested. Holes of the rest of a large export stay unknown.
pub const REGIONS_MAX: usize = 1 << 16;
/// Shortest hole that is kept, in bytes.
pub const HOLE_BYTES_MIN: u64 = 4096;
/// Shortest hole inside a read that divides it into two requests.
pub const HOLE_CUT_BYTES: u64 = 64 << 10;
/// Holes that are kept.
pub const HOLES_MAX: usize = 1 << 14;
/// Largest minimum block that is accepted: the sector, which is the unit of requests.
pub const MIN_BLOCK_BYTES_MAX: u32 = zc_core::SECTOR_BYTES;
