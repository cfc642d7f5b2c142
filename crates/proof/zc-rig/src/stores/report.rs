//! Tables of the measurements.

use anyhow::Context as _;
use serde_json::Value;

use super::{Contender, DISK_IOPS, DISK_MIB, Found, MEMORY_MIB, SPAN};

const MIB: f64 = 1_048_576.0;

const SPACE: &str = "
## Space

*Files*: /usr/bin, /usr/lib and /usr/share of the machine. *Images*: four of 128 MiB of the root disk, each 2.3 % \
different from the one before. *Generations*: a file of 64 MiB, 2.3 % of which change a hundred times; its data compress two to \
one. Stores with snapshots keep twelve of them; ext4 and dm-vdo have none. *At first*: space of the empty store, not counted in \
the other columns. The disk is not throttled in this part.

| | files: MiB used, ratio | images: MiB used, ratio | 100 generations: MiB added | MiB at first | files and images, s | memory MiB |
|---|---|---|---|---|---|---|
";
const TRANSACTIONS: &str = "
## Transactions

Pages of 4 KiB that the disk read and wrote for a transaction: ten reads and six writes of 4 KiB, and a flush, on a file of \
256 MiB, by Zipf's law with an exponent of 0.9, through the page cache, which is empty at first. The columns \
give the share by which each 512 bytes compress. The disk is not throttled.

| | by 25 %: read, written | by 50 % | by 75 % |
|---|---|---|---|
";
const RATES_HEAD: &str = "\
    | | read 512 KiB, MiB/s | write 512 KiB, MiB/s | read 8 KiB a second, p99 ms | write 8 KiB a second, p99 ms \
    | generation 1, 100 MiB/s | ratio |\n\
    |---|---|---|---|---|---|---|\n";

/// A number of a sample.
fn number(value: &Value, sample: &str, key: &str) -> anyhow::Result<f64> {
    value[sample][key].as_f64().with_context(|| format!("the result has no {key} of {sample}"))
}

fn space(contender: Contender, value: &Value) -> anyhow::Result<String> {
    let field = |sample, key| number(value, sample, key);
    let (files, images) = (field("files", "used_bytes")?, field("images", "used_bytes")?);
    Ok(format!(
        "| {} | {:.0}, {:.2} | {:.0}, {:.2} | {:.0} | {:.0} | {:.0}, {:.0} | {:.0} |\n",
        contender.title(),
        files / MIB,
        field("files", "shown_bytes")? / files,
        (images - files) / MIB,
        field("images", "shown_bytes")? / (images - files),
        field("series", "added_bytes")? / MIB,
        field("fixed", "bytes")? / MIB,
        field("files", "seconds")?,
        field("images", "seconds")?,
        field("memory", "bytes")? / MIB,
    ))
}

fn rates(contender: Contender, value: &Value) -> anyhow::Result<String> {
    let field = |sample, key| number(value, sample, key);
    let mib = |sample| field(sample, "bytes_per_s").map(|rate| rate / MIB);
    let reading =
        |sample| -> anyhow::Result<f64> { Ok(field(sample, "bytes")? / MIB / field(sample, "seconds")?) };
    let (first, last) = (reading("generation-1")?, reading("generation-100")?);
    Ok(format!(
        "| {} | {:.1} | {:.1} | {:.0}, {:.0} | {:.0}, {:.0} | {first:.1}, {last:.1} | {:.2} |\n",
        contender.title(),
        mib("sequential-read")?,
        mib("sequential-write")?,
        field("random-read", "per_second")?,
        field("random-read", "p99_ms")?,
        field("random-write", "per_second")?,
        field("random-write", "p99_ms")?,
        last / first,
    ))
}

/// Pages that the disk read and wrote for a transaction, of data that compress by 25, 50 and 75 per cent.
fn pages(contender: Contender, value: &Value) -> anyhow::Result<String> {
    let mut row = format!("| {} |", contender.title());
    for percent in [25, 50, 75] {
        let sample = format!("compressed-by-{percent}");
        let field = |key| number(value, &sample, key);
        let transactions = field("transactions")?;
        let each = |key| field(key).map(|pages| pages / transactions);
        row.push_str(&format!(" {:.1}, {:.1} |", each("pages_read")?, each("pages_written")?));
    }
    row.push('\n');
    Ok(row)
}

/// The rows of a table.
fn rows(
    found: &Found,
    row: fn(Contender, &Value) -> anyhow::Result<String>,
    text: &mut String,
) -> anyhow::Result<()> {
    for (contender, value) in found {
        text.push_str(&row(*contender, value).with_context(|| contender.name())?);
    }
    Ok(())
}

/// The report as text.
///
/// # Errors
/// A result lacks a number.
pub(super) fn markdown(stores: &Found, transactions: &Found) -> anyhow::Result<String> {
    let mut text = format!(
        "# Comparison of stores\n\n\
         `cargo xtask bench stores`: Debian's kernel in QEMU without hardware acceleration, 2 processors, {MEMORY_MIB} MiB, a disk \
         of {DISK_MIB} MiB. Computation costs five to ten times as much as without emulation, which puts compressing stores at a \
         disadvantage.\n"
    );
    if !stores.is_empty() {
        text.push_str(SPACE);
        rows(stores, space, &mut text)?;
        text.push_str(&format!(
            "\n## Rates\n\nThe disk does {DISK_IOPS} requests a second, of any size. {SPAN} s a load on a file of 128 MiB that \
             compresses two to one, with 4 requests of 512 KiB or 16 of 8 KiB in flight. *Generation*: a sequential read \
             of the file, 512 KiB a request, before and after its hundred generations.\n\n{RATES_HEAD}"
        ));
        rows(stores, rates, &mut text)?;
    }
    if !transactions.is_empty() {
        text.push_str(TRANSACTIONS);
        rows(transactions, pages, &mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result() -> Value {
        let load = json!({"per_second": 100.0, "bytes_per_s": 2.0 * MIB, "p99_ms": 5.0});
        json!({
            "fixed": {"bytes": 0}, "memory": {"bytes": MIB},
            "files": {"shown_bytes": 4.0 * MIB, "used_bytes": 2.0 * MIB, "seconds": 1.0},
            "images": {"shown_bytes": 9.0 * MIB, "used_bytes": 5.0 * MIB, "seconds": 1.0},
            "series": {"added_bytes": MIB, "seconds": 1.0},
            "sequential-read": load, "sequential-write": load, "random-read": load, "random-write": load,
            "generation-1": {"bytes": 8.0 * MIB, "seconds": 1.0}, "generation-100": {"bytes": 8.0 * MIB, "seconds": 4.0},
        })
    }

    #[test]
    fn images_count_what_they_add_and_generations_are_compared() {
        let text = markdown(&vec![(Contender::Vdo, result())], &Vec::new()).unwrap();
        assert!(text.contains("| ext4 on dm-vdo | 2, 2.00 | 3, 3.00 | 1 | 0 | 1, 1 | 1 |"), "{text}");
        assert!(
            text.contains("| ext4 on dm-vdo | 2.0 | 2.0 | 100, 5 | 100, 5 | 8.0, 2.0 | 0.25 |"),
            "{text}"
        );
    }

    #[test]
    fn a_result_that_lacks_something_is_an_error_that_names_it() {
        let mut value = result();
        value["series"] = json!({});
        let error = format!("{:#}", markdown(&vec![(Contender::Ext4, value)], &Vec::new()).unwrap_err());
        assert!(error.contains("ext4") && error.contains("added_bytes of series"), "{error}");
    }

    #[test]
    fn pages_are_those_of_a_transaction() {
        let sample = json!({"transactions": 100, "pages_read": 1000, "pages_written": 650});
        let value =
            json!({"compressed-by-25": sample, "compressed-by-50": sample, "compressed-by-75": sample});
        let text = markdown(&Vec::new(), &vec![(Contender::Btrfs, value)]).unwrap();
        assert!(text.contains("| btrfs, not compressed | 10.0, 6.5 | 10.0, 6.5 | 10.0, 6.5 |"), "{text}");
        assert!(!text.contains("## Space"), "{text}");
    }
}
