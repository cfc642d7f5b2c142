//! The clean layer: what reads, writes and insertions have under way, and the copies that it keeps in memory.
//!
//! It caches what origins hold, by the rules of write-through. What it does not do: know of dirty data.

use zc_core::{ExtentKey, KeyedMap, Map};

use crate::config::ManagerConfig;
use crate::insert::Inserts;
use crate::insert::compressibility::CompressionFilter;
use crate::origin::order::OriginOrder;
use crate::read::ReadOp;
use crate::read::fill::Fill;
use crate::read::hit::Hit;
use crate::read::read_ahead::ReadAhead;
use crate::read::read_buffer::ReadBuffer;
use crate::read::recipes::Recipes;
use crate::read::seen::{SeenFilter, Touched};
use crate::read::streams::{StreamConfig, StreamTable};
use crate::write::staging::Staging;
use crate::write::{WaitingWrites, WriteOp};

/// Streams followed at once, reads and writes each.
const STREAMS_MAX: usize = 64;
/// Extents read ahead of which a use is remembered.
const SEEN_MAX: usize = 1 << 16;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Clean {
    pub(crate) staging: Staging,
    pub(crate) read_buffer: ReadBuffer,
    pub(crate) ahead: ReadAhead,
    pub(crate) read_streams: StreamTable,
    pub(crate) write_streams: StreamTable,
    pub(crate) filter: CompressionFilter,
    pub(crate) seen: SeenFilter,
    pub(crate) touched: Touched,
    pub(crate) recipes: Recipes,
    pub(crate) reads: Map<u64, ReadOp>,
    pub(crate) hits: Map<u64, Hit>,
    pub(crate) fetching: KeyedMap<ExtentKey, u64>,
    pub(crate) fills: Map<u64, Fill>,
    pub(crate) fill_of: KeyedMap<ExtentKey, u64>,
    pub(crate) writes: Map<u64, WriteOp>,
    pub(crate) waiting: WaitingWrites,
    pub(crate) inserts: Inserts,
    pub(crate) origin_order: OriginOrder,
    /// Reads of stored extents by clients since one had to prove its content.
    pub(crate) unproved_hits: u32,
}

impl Clean {
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let streams = || {
            StreamTable::new(StreamConfig {
                streams_max: STREAMS_MAX,
                threshold_bytes: u64::from(config.prefetch_threshold_bytes),
                prefetch_max_bytes: u64::from(config.prefetch_max_bytes),
            })
        };
        let (extent_bytes, key) = (config.geometry.extent_bytes, &config.hash_key);
        Self {
            staging: Staging::new(config.staging_bytes, extent_bytes, key),
            read_buffer: ReadBuffer::new(u64::from(config.read_buffer_bytes), extent_bytes, key),
            ahead: ReadAhead::new(key),
            read_streams: streams(),
            write_streams: streams(),
            filter: CompressionFilter::default(),
            seen: SeenFilter::new(SEEN_MAX),
            touched: Touched::new(config.file_index_entries),
            recipes: Recipes::new(config.learned_recipes_bytes, key),
            reads: Map::default(),
            hits: Map::default(),
            fetching: key.map(),
            fills: Map::default(),
            fill_of: key.map(),
            writes: Map::default(),
            waiting: WaitingWrites::default(),
            inserts: Inserts::new(key),
            origin_order: OriginOrder::default(),
            unproved_hits: 0,
        }
    }
}
