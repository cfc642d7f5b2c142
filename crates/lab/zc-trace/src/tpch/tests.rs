//! A small database: its bytes, and reads of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, OrderGenerator, PartGenerator, PartSuppGenerator, SupplierGenerator,
};
use zc_core::Map;

use super::*;
use crate::request::{Op, Request};

const BYTES: u64 = 20 << 20;
const BLOCK: usize = 4096;

static DATABASE: LazyLock<Database> = LazyLock::new(|| Database::new(BYTES).unwrap());
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut image = Vec::new();
    DATABASE.image(&mut image).unwrap();
    image
});

fn read(run: &Run) -> Vec<Request> {
    DATABASE.requests(run).collect()
}

/// A query alone, without memory in front of it.
fn alone(query: Query, seed: u64) -> Run {
    Run { queries: vec![query], pool: 0.0, seed, ..Run::default() }
}

#[test]
fn the_image_is_what_contents_were_made_of() {
    assert_eq!(IMAGE.len() as u64, DATABASE.bytes());
    for (number, block) in IMAGE.chunks(BLOCK).enumerate() {
        let content = DATABASE.content(number as u64).unwrap();
        assert_eq!(content.fingerprint.to_be_bytes(), blake3::hash(block).as_bytes()[..16]);
        let lz4 = lz4_flex::block::compress(block).len().min(BLOCK);
        assert_eq!(content.lz4_bytes, u32::try_from(lz4).ok());
        let zstd = zstd::bulk::compress(block, 1).unwrap().len().min(BLOCK);
        assert_eq!(content.zstd1_bytes, u32::try_from(zstd).ok());
    }
    assert_eq!(DATABASE.content(DATABASE.blocks()), None);
}

#[test]
fn sizes_are_about_those_asked_for() {
    for bytes in [DATABASE_BYTES_MIN, BYTES, 50_000_000] {
        let database = Database::new(bytes).unwrap();
        let error = database.bytes() as f64 / bytes as f64 - 1.0;
        assert!(error.abs() < 0.02, "{bytes} {error}");
        let tables = database.table_blocks() as f64;
        let indices = database.blocks() as f64 - tables;
        assert!((0.60..0.66).contains(&(indices / tables)), "{}", indices / tables);
    }
    for bytes in [DATABASE_BYTES_MIN - 1, DATABASE_BYTES_MAX + 1] {
        assert!(matches!(Database::new(bytes), Err(TraceError::Database { .. })));
    }
}

#[test]
fn rows_lie_where_tables_say() {
    let mut text = String::new();
    for (number, row) in LineItemGenerator::new(DATABASE.scale(), 1, 1).iter().enumerate() {
        text.clear();
        writeln!(text, "{row}").unwrap();
        let line = &DATABASE.tables.line;
        let first = usize::try_from(line.blocks().start).unwrap() * BLOCK;
        let at = first + usize::try_from(line.position(number)).unwrap();
        assert_eq!(&IMAGE[at..at + text.len()], text.as_bytes());
        let held = (at / BLOCK) as u64..((at + text.len() - 1) / BLOCK) as u64 + 1;
        assert_eq!(line.blocks_of(number), held);
    }
    let line = &DATABASE.tables.line;
    let end = usize::try_from(line.blocks().start * 4096 + u64::from(line.position(line.rows()))).unwrap();
    assert!(
        !end.is_multiple_of(BLOCK) && IMAGE[end..end.next_multiple_of(BLOCK)].iter().all(|byte| *byte == 0)
    );
}

#[test]
fn indices_are_sorted_and_lead_to_rows() {
    let index = &DATABASE.indices.lines_by_date;
    let line = &DATABASE.tables.line;
    let entry = |number: usize| {
        let at = usize::try_from(index.block(number)).unwrap() * BLOCK + number % 256 * 16;
        &IMAGE[at..at + 16]
    };
    let row_text = |position: u64| {
        let at = usize::try_from(line.blocks().start * 4096 + position).unwrap();
        let row = IMAGE[at..].split(|byte| *byte == b'\n').next().unwrap();
        String::from_utf8(row.to_vec()).unwrap()
    };
    for number in 1..line.rows() {
        assert!(entry(number - 1) < entry(number), "entry {number}");
    }
    for number in (0..line.rows()).step_by(97) {
        let (key, position) = entry(number).split_at(8);
        let row = row_text(u64::from_be_bytes(position.try_into().unwrap()));
        let shipped: Vec<u32> =
            row.split('|').nth(10).unwrap().split('-').map(|n| n.parse().unwrap()).collect();
        let key = u64::from_be_bytes(key.try_into().unwrap());
        assert_eq!(key, u64::from(shipped[0] << 9 | shipped[1] << 5 | shipped[2]), "{row}");
    }
}

/// Blocks of a stretch that were read, in that order.
fn read_within(blocks: &std::ops::Range<u64>, requests: &[Request]) -> Vec<u64> {
    let all = requests.iter().map(|request| request.offset_bytes / 4096);
    all.filter(|block| blocks.contains(block)).collect()
}

/// Blocks of a table among those that the requests read.
fn read_of(table: &tables::Table, requests: &[Request]) -> Vec<u64> {
    read_within(&table.blocks(), requests)
}

/// The month of a run is derived from the rows that are read.
#[test]
fn q14_reads_the_rows_of_a_month_and_no_other() {
    let (line, part) = (&DATABASE.tables.line, &DATABASE.tables.part);
    let part_of_key: Map<i64, usize> = (PartGenerator::new(DATABASE.scale(), 1, 1).iter())
        .enumerate()
        .map(|(number, row)| (row.p_partkey, number))
        .collect();
    let mut rows: Vec<_> = LineItemGenerator::new(DATABASE.scale(), 1, 1).iter().enumerate().collect();
    rows.sort_by_key(|(number, row)| (row.l_shipdate, *number));
    let dates = &DATABASE.indices.lines_by_date;
    let mut months: BTreeMap<(i32, i32), [Vec<u64>; 3]> = BTreeMap::new();
    for (entry, (number, row)) in rows.iter().enumerate() {
        let (year, month, _) = row.l_shipdate.to_ymd();
        let [leaves, lines, parts] = months.entry((1900 + year, month)).or_default();
        leaves.push(dates.block(entry));
        lines.extend(line.blocks_of(*number));
        parts.extend(part.blocks_of(part_of_key[&row.l_partkey]));
    }
    let mut drawn = BTreeSet::new();
    for seed in 0..8 {
        let requests = read(&alone(Query::Q14, seed));
        let leaves = read_within(&(dates.block(0)..dates.block(rows.len() - 1) + 1), &requests);
        let found = [leaves, read_of(line, &requests), read_of(part, &requests)];
        let fits: Vec<_> = months.iter().filter(|(_, wanted)| **wanted == found).collect();
        assert_eq!(fits.len(), 1, "seed {seed}");
        assert!((1993..=1997).contains(&fits[0].0.0));
        drawn.insert(fits[0].0);
    }
    let of_year: BTreeSet<i32> = drawn.iter().map(|(_, month)| *month).collect();
    let years: BTreeSet<i32> = drawn.iter().map(|(year, _)| *year).collect();
    assert!(of_year.len() > 3 && years.len() > 2, "{drawn:?}");
}

#[test]
fn q3_reads_the_lines_of_a_segments_orders_before_a_date() {
    let (customer, order, line) = (&DATABASE.tables.customer, &DATABASE.tables.order, &DATABASE.tables.line);
    let scale = DATABASE.scale();
    let mut lines_of: Map<i64, Vec<u64>> = Map::default();
    for (number, row) in LineItemGenerator::new(scale, 1, 1).iter().enumerate() {
        lines_of.entry(row.l_orderkey).or_default().extend(line.blocks_of(number));
    }
    let mut orders_of: Map<i64, Vec<_>> = Map::default();
    for (number, row) in OrderGenerator::new(scale, 1, 1).iter().enumerate() {
        let one = (row.o_orderdate.to_string(), order.blocks_of(number), row.o_orderkey);
        orders_of.entry(row.o_custkey).or_default().push(one);
    }
    let wanted = |segment: &str, before: &str| {
        let (mut orders, mut lines) = (Vec::new(), Vec::new());
        for row in CustomerGenerator::new(scale, 1, 1).iter().filter(|row| row.c_mktsegment == segment) {
            for (date, blocks, key) in orders_of.get(&row.c_custkey).into_iter().flatten() {
                orders.extend(blocks.clone());
                if date.as_str() < before {
                    lines.extend(&lines_of[key]);
                }
            }
        }
        (orders, lines)
    };
    let mut drawn = BTreeSet::new();
    for seed in 0..4 {
        let requests = read(&alone(Query::Q3, seed));
        let at_once = requests.iter().take_while(|request| request.time_ns == 0).count();
        assert_eq!(at_once, 32, "a scan reads ahead");
        assert_eq!(read_of(customer, &requests), customer.blocks().collect::<Vec<_>>());
        let found = (read_of(order, &requests), read_of(line, &requests));
        let fits =
            |segment: &&str| (1..=31).any(|day| wanted(segment, &format!("1995-03-{day:02}")) == found);
        let segments: Vec<&str> = tables::SEGMENTS.into_iter().filter(fits).collect();
        assert_eq!(segments.len(), 1, "seed {seed}");
        drawn.extend(segments);
    }
    assert!(drawn.len() > 1, "{drawn:?}");
}

#[test]
fn q11_reads_what_a_nations_suppliers_supply_twice() {
    let (nation, supply) = (&DATABASE.tables.nation, &DATABASE.tables.supply);
    let scale = DATABASE.scale();
    let nation_of: Map<i64, i64> =
        SupplierGenerator::new(scale, 1, 1).iter().map(|row| (row.s_suppkey, row.s_nationkey)).collect();
    let mut supplies: Vec<_> = PartSuppGenerator::new(scale, 1, 1).iter().enumerate().collect();
    supplies.sort_by_key(|(number, row)| (row.ps_suppkey, *number));
    let wanted = |key: i64| -> Vec<u64> {
        let rows = supplies.iter().filter(|(_, row)| nation_of[&row.ps_suppkey] == key);
        let once: Vec<u64> = rows.flat_map(|(number, _)| supply.blocks_of(*number)).collect();
        [once.clone(), once].concat()
    };
    let mut drawn = BTreeSet::new();
    for seed in 0..8 {
        let requests = read(&alone(Query::Q11, seed));
        assert_eq!(read_of(nation, &requests), nation.blocks().collect::<Vec<_>>());
        let found = read_of(supply, &requests);
        let fits: Vec<i64> = (0..25).filter(|key| wanted(*key) == found).collect();
        assert_eq!(fits.len(), 1, "seed {seed}");
        drawn.extend(fits);
    }
    assert!(drawn.len() > 4, "{drawn:?}");
}

#[test]
fn requests_are_reads_of_blocks_side_by_side_in_the_image() {
    let requests = read(&Run { passes: 2, ..Run::default() });
    for pair in requests.windows(2) {
        let (before, request) = (pair[0], pair[1]);
        let step = request.time_ns - before.time_ns;
        assert!(step == 1_000_000 || (step == 0 && before.end_bytes() == request.offset_bytes));
    }
    assert_eq!(requests[0].time_ns, 0);
    for request in &requests {
        assert_eq!((request.op, request.len_bytes), (Op::Read, BLOCK_BYTES));
        assert!(request.end_bytes() <= DATABASE.bytes());
        assert_eq!(request.content, DATABASE.content(request.offset_bytes / 4096));
    }
}

#[test]
fn the_seed_decides_and_passes_differ() {
    let run = |seed| Run { passes: 2, seed, pool: 0.0, ..Run::default() };
    let again = Database::new(BYTES).unwrap();
    assert_eq!(read(&run(1)), again.requests(&run(1)).collect::<Vec<_>>());
    assert_ne!(read(&run(1)), read(&run(2)));
    let once = read(&Run { passes: 1, ..run(1) });
    let twice = read(&run(1));
    assert!(twice.starts_with(&once) && twice[once.len()..] != once);
}

#[test]
fn a_pool_saves_reads() {
    let reads = |pool: f64| read(&Run { pool, ..Run::default() });
    let (none, some, all) = (reads(0.0), reads(0.077), reads(1.0));
    assert!(all.len() < some.len() && some.len() < none.len());
    let different: BTreeSet<u64> = none.iter().map(|request| request.offset_bytes).collect();
    assert_eq!(all.len(), different.len(), "what is in memory is never read again");
}

/// FlaZ saw about 40 % saved by lzo, on 4 KiB blocks of tables and indices.
#[test]
fn tables_compress_as_tables_do() {
    let tables = DATABASE.table_blocks();
    let left: u32 = (0..tables).map(|block| DATABASE.content(block).unwrap().lz4_bytes.unwrap()).sum();
    let saved = 1.0 - f64::from(left) / (tables * 4096) as f64;
    assert!((0.38..0.42).contains(&saved), "{saved}");
}
