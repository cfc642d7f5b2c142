//! A shard: one cache manager with its clients and devices, shared by I/O threads.
//!
//! Job: in each turn `dispatch` collects the completions of the ring whose thread has the lock, turns them into
//! events, lets the manager handle them, executes its actions, and gathers replies. After the turn the thread submits
//! everything with one system call. `dispatch` routes each event to its component, and alone depends on all of them. A
//! component has private fields and receives everything else with each call (`base`).
//!
//! Invariants: only the thread with the lock accesses the manager, connections and the table of buffers. An event is
//! handled completely before the next. Actions are executed in order; the resulting ring operations start after the
//! turn, when the intent log is written. A module uses those before it in this list, and none after it:
//!
//! | Module | What is there |
//! | --- | --- |
//! | `cpus`, `reduce`, `extents`, `reduce_pool` | the worker threads and what they do with bytes |
//! | `metrics`, `stop` | latencies and counters; how far the end has come |
//! | `buffers`, `pending`, `io`, `base` | memory, what the rings get, and what every component may use |
//! | `reads`, `workers`, `device` | bytes for the manager, the cache device |
//! | `volumes`, `origin_limits`, `origins`, `lengths` | volumes with their limits and taps, their origins with theirs |
//! | `settled`, `health`, `leaving`, `dirty_asks`, `pause`, `give_back`, `close` | state of the cache, and its end |
//! | `warm` | ranges that an operator wants in the cache |
//! | `clients` | connections, block devices, and their requests |
//! | `stats`, `commands` | numbers and commands, as other threads see them |
//! | `dispatch` | the shard itself: the I/O threads, their turns, and who gets what |
//!
//! It waits for nothing except the rings, and is independent of configuration files. Workers hash, compress and
//! decode, except for work that `limits` allows here: small reads of compressed extents, a small job that is alone or
//! that a flush waits for, and jobs that no queue has space for.

pub(crate) mod base;
pub(crate) mod buffers;
pub mod clients;
pub mod close;
pub mod commands;
pub(crate) mod cpus;
pub mod device;
pub(crate) mod dirty_asks;
pub mod dispatch;
pub(crate) mod extents;
pub(crate) mod give_back;
pub(crate) mod health;
pub(crate) mod io;
pub mod leaving;
pub mod lengths;
pub mod metrics;
pub(crate) mod origin_limits;
pub(crate) mod origins;
pub mod pause;
pub(crate) mod pending;
pub(crate) mod reads;
pub(crate) mod reduce;
pub(crate) mod reduce_pool;
pub(crate) mod settled;
pub mod stats;
pub(crate) mod stop;
pub mod volumes;
pub mod warm;
pub(crate) mod workers;
