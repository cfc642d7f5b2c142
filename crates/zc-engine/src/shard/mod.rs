//! A shard: one cache manager with its clients and devices, and I/O threads that take turns with it.
//!
//! Job: `dispatch` collects in each turn what ended on the ring of the thread that has it, turns that into events, lets
//! the manager handle them, has its actions carried out, and gathers replies. After the turn the thread submits
//! everything with one system call. `dispatch` leads each event to its component, and alone knows all of them. A
//! component has private fields and gets what else it needs with each call (`base`).
//!
//! Invariants: the thread that has the turn alone touches the manager, connections and buffers' table. An event is
//! handled to its end before the next. Actions are carried out in order; what they make the rings do starts after the
//! turn, after the intent log was written. A module uses those before it in this list, and none behind it:
//!
//! | Module | What is there |
//! | --- | --- |
//! | `cpus`, `reduce`, `extents`, `reduce_pool` | the worker threads and what they do with bytes |
//! | `metrics`, `stop` | latencies and counters; how far the end has come |
//! | `buffers`, `pending`, `io`, `base` | memory, what the rings get, and what every component may use |
//! | `reads`, `workers`, `device` | bytes for the manager, the cache device |
//! | `volumes`, `origin_limits`, `origins`, `lengths` | volumes with their limits and taps, their origins with theirs |
//! | `settled`, `health`, `leaving`, `dirty_asks`, `pause`, `give_back`, `close` | what is told and kept of the cache and its end |
//! | `warm` | ranges that an operator wants in the cache |
//! | `clients` | connections, block devices, and their requests |
//! | `stats`, `commands` | numbers and commands, as other threads see them |
//! | `dispatch` | the shard itself: the I/O threads, their turns, and who gets what |
//!
//! It does not wait for anything but the rings, or know configuration files. Hashing, compressing and decoding
//! are the workers', but for what `limits` allows here: small reads of compressed extents, a small job that is alone or
//! that a flush waits for, and what no queue has room for.

pub(crate) mod base;
pub(crate) mod buffers;
pub(crate) mod clients;
pub(crate) mod close;
pub(crate) mod commands;
pub(crate) mod cpus;
pub(crate) mod device;
pub(crate) mod dirty_asks;
pub(crate) mod dispatch;
pub(crate) mod extents;
pub(crate) mod give_back;
pub(crate) mod health;
pub(crate) mod io;
pub(crate) mod leaving;
pub(crate) mod lengths;
pub(crate) mod metrics;
pub(crate) mod origin_limits;
pub(crate) mod origins;
pub(crate) mod pause;
pub(crate) mod pending;
pub(crate) mod reads;
pub(crate) mod reduce;
pub(crate) mod reduce_pool;
pub(crate) mod settled;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod volumes;
pub(crate) mod warm;
pub(crate) mod workers;
