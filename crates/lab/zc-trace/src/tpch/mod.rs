//! TPC-H: a database with its real bytes, and the reads of three of its queries.
//!
//! Job: lay out the database of FlaZ's evaluation (Makatos et al., EuroSys 2010, section 3.1: 4 GB of data, 2.5 GB of
//! indices, queries Q3, Q11 and Q14 back to back, in that order) in any size; return hash and compressed size of every
//! block of 4 KiB ([`Database::content`]); write its bytes as the origin of a cache ([`Database::image`]); and return
//! the reads of the queries, block by block ([`Database::requests`]).
//!
//! # The image
//! Tables, then indices, each beginning at a block, with zeroes after its end. A table is dbgen's text (from the crate
//! `tpchgen`), row after row; rows cross blocks. An index is the full leaves of a B-tree: sorted entries of 16 bytes,
//! of a key and the row's position in its table, big-endian. Its inner nodes are omitted: they are a 256th of it, and
//! in memory during use. The indexed columns are chosen so that indices take 0.62 of the tables' size, as in the paper
//! (0.625), among those that clause 1.5.7 of the specification allows: primary keys, foreign keys and dates.
//!
//! # The queries
//! From the specification: the rows, and the parameters that a pass draws (clauses 2.4.3.3, 2.4.11.3,
//! 2.4.14.3).
//!
//! Not from specification or paper: the plans. They are nested loops over indices, as in a database without other
//! joins (such as MySQL 5.0, which FlaZ ran). Q3 scans the customers, looks up the orders of one segment, and the
//! lines of orders before a date. Q11 reads the nations, looks up the suppliers of one, and their parts; its condition
//! on the total is a query of its own, which repeats the reads. Q14 iterates over the lines shipped in a month in the
//! order of their dates, and looks up the part of each. Scans read 128 KiB at once; all other reads are on demand, a
//! leaf or a row at a time. A pool of blocks in memory precedes the reads (`pool.rs`).
//!
//! Invariants: the same size yields the same image, and the same run the same requests, on every machine; contents and
//! image are produced by the same walk; every request reads blocks of the image.
//!
//! Memory, per GiB of database: 220 MB during construction, 130 MB afterwards, of which 5 MB are contents and the rest
//! row data for the queries, and 210 MB more while an image is written; besides, 315 MB of text, from which dbgen cuts
//! its comments: built with the first database, kept until the process ends. Of the bytes of tables and indices, only
//! one block is in memory.
//!
//! Out of scope: writes, which the benchmark hardly has (FlaZ 3.1); the other nineteen queries; results.

mod indices;
mod pool;
mod queries;
mod tables;
#[cfg(test)]
mod tests;
mod walk;

use std::io::{self, Write};

use indices::Indices;
pub use queries::{Query, Requests, Run};
use tables::Tables;
use walk::Blocks;

use crate::error::TraceError;
use crate::limits::{DATABASE_BYTES_MAX, DATABASE_BYTES_MIN};
use crate::request::Content;

/// Unit of contents and of reads.
pub const BLOCK_BYTES: u32 = 4096;

/// Bytes of tables and indices at a scale factor of 1. They grow a little faster than the scale, as numbers
/// get longer: 1.74 GB per unit of it at a scale of 0.009, 1.78 GB at 1.
const BYTES_PER_SCALE: f64 = 1.77e9;

/// A database, of which every block's content is known.
#[derive(Debug)]
pub struct Database {
    scale: f64,
    contents: Vec<walk::Short>,
    tables: Tables,
    indices: Indices,
}

impl Database {
    /// Creates a database of `bytes`, within 2 %: dbgen's output for the fitting scale factor.
    ///
    /// # Errors
    /// When the size is out of bounds ([`DATABASE_BYTES_MIN`] to [`DATABASE_BYTES_MAX`]), or memory for compression is
    /// exhausted.
    pub fn new(bytes: u64) -> Result<Self, TraceError> {
        if !(DATABASE_BYTES_MIN..=DATABASE_BYTES_MAX).contains(&bytes) {
            let (min, max) = (DATABASE_BYTES_MIN, DATABASE_BYTES_MAX);
            return Err(TraceError::Database { bytes, min, max });
        }
        let scale = bytes as f64 / BYTES_PER_SCALE;
        let made = |source| TraceError::Generate { source };
        let mut measure = walk::Measure::new().map_err(made)?;
        let mut contents = Vec::new();
        let (tables, indices) = walk(scale, |block| {
            contents.push(measure.block(block));
            Ok(())
        })
        .map_err(made)?;
        contents.shrink_to_fit();
        Ok(Self { scale, contents, tables, indices })
    }

    /// The scale factor.
    #[must_use]
    pub const fn scale(&self) -> f64 {
        self.scale
    }

    /// Blocks of tables and indices.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        zc_core::u64_from_usize(self.contents.len())
    }

    /// Blocks of tables alone, which come first.
    #[must_use]
    pub const fn table_blocks(&self) -> u64 {
        self.tables.end_block
    }

    /// Bytes of tables and indices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks() * u64::from(BLOCK_BYTES)
    }

    /// Returns the content of a block; `None` after the end.
    #[must_use]
    pub fn content(&self, block: u64) -> Option<Content> {
        self.contents.get(zc_core::usize_from_u64(block)).map(walk::Short::content)
    }

    /// Writes the bytes, from first to last. They are generated again: that takes the time of construction without
    /// hashing and compressing.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn image(&self, out: &mut impl Write) -> io::Result<()> {
        walk(self.scale, |block| out.write_all(block)).map(drop)
    }

    /// Returns the reads of queries: one block of 4 KiB each, with content; blocks of one request have the same time.
    #[must_use]
    pub fn requests(&self, run: &Run) -> Requests<'_> {
        Requests::new(self, run)
    }
}

/// Generates all blocks in order, and keeps the data that queries need.
fn walk(scale: f64, each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(Tables, Indices)> {
    let mut blocks = Blocks::new(each);
    let mut tables = Tables::write(scale, &mut blocks)?;
    let indices = Indices::write(&tables, &mut blocks)?;
    tables.keep_what_is_asked_for();
    Ok((tables, indices))
}
