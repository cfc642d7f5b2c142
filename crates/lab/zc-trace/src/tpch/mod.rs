//! TPC-H: a database with its real bytes, and what three of its queries read of it.
//!
//! Job: lay out the database that FlaZ's evaluation ran (Makatos et al., EuroSys 2010, section 3.1: 4 GB of
//! data, 2.5 GB of indices, queries Q3, Q11 and Q14 back to back, in that order) in any size; tell of every
//! block of 4 KiB what its bytes hash and compress to ([`Database::content`]); write those bytes, so that
//! they can be the origin of a cache ([`Database::image`]); and tell what the queries read, block by block
//! ([`Database::requests`]).
//!
//! # The image
//! Tables, then indices, each beginning at a block, with zeroes behind its end. A table is the text that
//! dbgen makes of it (the crate `tpchgen` does), row behind row; rows cross blocks. An index is the leaves of
//! a B-tree, full: entries of 16 bytes, sorted, of a key and of the row's position in its table, big-endian.
//! Its inner nodes are left out: they are a 256th of it, and in memory when it is used. Which columns have an
//! index is chosen so that indices take 0.62 of what tables do, as in the paper (0.625), among those that
//! clause 1.5.7 of the specification lets have one: primary keys, foreign keys and dates.
//!
//! # The queries
//! From the specification: the rows, and the parameters that a pass draws (clauses 2.4.3.3, 2.4.11.3,
//! 2.4.14.3).
//!
//! Not from specification or paper: the plans. They are nested loops over indices, as a database has them
//! that knows no other join (MySQL 5.0, which FlaZ ran, is one). Q3 scans the customers, finds the orders of
//! those of a segment, and the lines of the orders before a date. Q11 reads the nations, finds the suppliers
//! of one, and what they supply; its condition on the sum of all is a query of its own, which reads the same
//! again. Q14 goes through the lines that were shipped in a month in the order of their dates, and finds the
//! part of each. Scans read 128 KiB at once; all else is read when it is used, a leaf or a row at a time. In
//! front lies a pool of blocks in memory (`pool.rs`).
//!
//! Invariants: the same size gives the same image, and the same run the same requests, on every machine; the
//! image's blocks are those that contents were made of, as both are made by one walk; every request reads
//! blocks of the image.
//!
//! Memory, per GiB of database: 220 MB while it is made, 130 MB afterwards, of which 5 MB are contents and
//! the rest is what queries need of the rows, and 210 MB more while an image is written; besides, 315 MB of
//! text, which dbgen cuts its comments from: made when the first database is, kept until the process ends.
//! The bytes of tables and indices are never in memory, but for one block.
//!
//! Out of scope: writes, of which the benchmark has next to none (FlaZ 3.1); the other nineteen
//! queries; results.

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
    /// A database of so many bytes, or up to 2 % more or less: what dbgen makes of the scale factor that
    /// fits.
    ///
    /// # Errors
    /// A size out of bounds ([`DATABASE_BYTES_MIN`] to [`DATABASE_BYTES_MAX`]), or no memory to compress in.
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

    /// What a block holds; `None` behind the end.
    #[must_use]
    pub fn content(&self, block: u64) -> Option<Content> {
        self.contents.get(zc_core::usize_from_u64(block)).map(walk::Short::content)
    }

    /// Writes the bytes, from first to last. They are made again: that takes as long as the database took,
    /// without hashing and compressing.
    ///
    /// # Errors
    /// As the writer says.
    pub fn image(&self, out: &mut impl Write) -> io::Result<()> {
        walk(self.scale, |block| out.write_all(block)).map(drop)
    }

    /// What queries read: one block of 4 KiB each, with content; blocks of one request have the same time.
    #[must_use]
    pub fn requests(&self, run: &Run) -> Requests<'_> {
        Requests::new(self, run)
    }
}

/// Makes all blocks in their order, and keeps what queries need.
fn walk(scale: f64, each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(Tables, Indices)> {
    let mut blocks = Blocks::new(each);
    let mut tables = Tables::write(scale, &mut blocks)?;
    let indices = Indices::write(&tables, &mut blocks)?;
    tables.keep_what_is_asked_for();
    Ok((tables, indices))
}
