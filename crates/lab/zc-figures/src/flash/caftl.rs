//! Figures 5 to 10 of CaFTL and BlueZIP: an SSD that compresses chunks in hardware.

use zc_flash::caftl::corpus::Kind;
use zc_flash::caftl::figures::{FILES, Row, chunk_ratio, copies, dictionary_ratio, postmark, reads};
use zc_flash::caftl::{DICTIONARY_ENTRIES, Mode};

use crate::context::each;
use crate::{Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const OURS: &str = "A model of the codec and of the translation layer over made-up data: lines of sensors, source, documents, \
                    music. A chunk takes the time of its flash pages, but at least 2.67 of them, fitted to SENSOR.";
const MADE_UP: &str = "The paper's files cannot be had. LINUX and DOCUMENT have as many parts that do not compress as make their \
                       copies as fast as in the paper's Figure 7; the other figures follow.";

/// Reason that none of these shapes is asserted.
const FILES_FITTED: &str = "The made-up files: the shares of them that do not compress, to the speeds of the paper's Figure 7; the pages \
                            written follow from the same shares";
const CORPUS: &str = "The made-up files: how they repeat themselves decides it";
const TIME: &str = "The least time of a chunk, 2.67 pages, to SENSOR's speed; shares of the files that do not compress, to LINUX's and \
                    DOCUMENT's";
const METADATA: &str = "The share of writes that are metadata, 30 %, which compress";
const EARLIER: &str =
    "The made-up files have nine tenths of the gain at a half or less of the paper's 2,048 entries";
const HALF: &str = "Half of what is read is metadata that compress by assumption";

/// Chunk size.
pub(crate) const FIGURE_5: Figure = Figure {
    id: "caftl-5",
    title: "Compression over the number of pages compressed together",
    source: "Lee et al., IEEE Transactions on Consumer Electronics 57(4), 2011, section IV.B, Figure 5",
    ours: OURS,
    differences: MADE_UP,
    standing: Standing::Fitted(CORPUS),
    numbers: &[("bluezip.pages", Standing::Fitted(CORPUS))],
    quick: true,
    run: chunks,
};

/// Dictionary size.
pub(crate) const FIGURE_6: Figure = Figure {
    id: "caftl-6",
    title: "Compression over the number of entries of the dictionary",
    source: "Lee et al., IEEE Transactions on Consumer Electronics 57(4), 2011, section IV.B, Figure 6",
    ours: OURS,
    differences: "The paper's files cannot be had. Of the made-up ones only LINUX gains by a larger dictionary, and has nine tenths \
                  of that earlier than the paper's files have all of it.",
    standing: Standing::Contradicted(EARLIER),
    numbers: &[("bluezip.dict", Standing::Contradicted(EARLIER))],
    quick: true,
    run: dictionaries,
};

/// Copies.
pub(crate) const FIGURE_7: Figure = Figure {
    id: "caftl-7",
    title: "Copying files to an SSD that compresses always or selectively: speed and pages written",
    source: "Lee et al., IEEE Transactions on Consumer Electronics 57(4), 2011, section IV.C, Figures 7 and 8",
    ours: OURS,
    differences: "LINUX and DOCUMENT have as many parts that do not compress, and a chunk as many pages of host transfer, as make \
                  these speeds: they are fitted, and show no more than that one set of files has all of them. The pages \
                  written follow from the same shares. MP3 is written a little faster than in the paper: metadata, of which we assume 6 %, compresses. Documents gain \
                  less from selective compression than from compressing all: a stream that was filtered once is not tried \
                  again when its data get better.",
    standing: Standing::Fitted(FILES_FITTED),
    numbers: &[("bluezip.wr", Standing::Fitted(TIME)), ("bluezip.life", Standing::Fitted(FILES_FITTED))],
    quick: true,
    run: copying,
};

/// Reads.
pub(crate) const FIGURE_9: Figure = Figure {
    id: "caftl-9",
    title: "Reading source files and metadata from an SSD that compresses",
    source: "Lee et al., IEEE Transactions on Consumer Electronics 57(4), 2011, section IV.C, Figure 9",
    ours: "Flash pages read of all source files from front to back, and of metadata in runs of three pages, through the read \
           buffer of four chunks.",
    differences: "How FIND walks through metadata is ours; decompression takes no time of its own.",
    standing: Standing::Fitted(HALF),
    numbers: &[("bluezip.rd", Standing::Fitted(HALF))],
    quick: true,
    run: reading,
};

/// PostMark.
pub(crate) const FIGURE_10: Figure = Figure {
    id: "caftl-10",
    title: "PostMark on an SSD that compresses: speed and pages written",
    source: "Lee et al., IEEE Transactions on Consumer Electronics 57(4), 2011, section IV.C, Figure 10",
    ours: "Transactions of less than 9 KB on new files with text, markup and compressed pictures, 30 % of writes metadata.",
    differences: "Made-up contents; PostMark's deletions are not modelled, as they write metadata only.",
    standing: Standing::Fitted(METADATA),
    numbers: &[("bluezip.post", Standing::Fitted(METADATA))],
    quick: true,
    run: mail,
};

/// Bytes of each file.
fn bytes(context: &Context) -> usize {
    context.scale.pick(1 << 19, 8 << 20)
}

fn lines(title: &str, x: &str, at: &[f64], rows: &[(Kind, Vec<f64>)]) -> Chart {
    let mut chart = Chart::lines(title, Axis::log2(x), Axis::linear("after over before"));
    for (kind, values) in rows {
        chart.add(kind.name(), at.iter().copied().zip(values.iter().copied()).collect());
    }
    chart
}

fn table(outcome: &mut Outcome, title: &str, names: &[String], rows: &[(Kind, Vec<f64>)]) {
    let mut columns = vec!["file"];
    columns.extend(names.iter().map(String::as_str));
    let cells = rows.iter().map(|(kind, values)| {
        let mut cells = vec![kind.name().to_owned()];
        cells.extend(values.iter().map(|value| format!("{value:.3}")));
        cells
    });
    outcome.table(title, &columns, cells.collect());
}

/// Returns the smallest size with this share of the largest size's gain over the first, on average over the files.
fn smallest(sizes: &[u32], rows: &[(Kind, Vec<f64>)], share: f64) -> u32 {
    let mean = |at: usize| rows.iter().map(|(_, ratios)| ratios[at]).sum::<f64>() / rows.len() as f64;
    let (first, last) = (mean(0), mean(sizes.len() - 1));
    let found = (0..sizes.len()).find(|at| first - mean(*at) >= share * (first - last));
    found.map_or(0, |at| sizes[at])
}

fn chunks(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let (pages, bytes) = ([1_u32, 2, 4, 8, 16], bytes(context));
    let rows = each(&FILES, |kind| {
        let ratio = |pages: &u32| chunk_ratio(*kind, zc_core::usize_from_u32(*pages), bytes);
        Ok((*kind, pages.iter().map(ratio).collect::<Vec<_>>()))
    })?;
    for (kind, ratios) in &rows {
        let (early, late) = (ratios[0] - ratios[2], ratios[2] - ratios[4]);
        outcome.fitted(
            CORPUS,
            ratios[0] >= 1.0 && late < early / 2.0,
            format!("{}: a page alone gains nothing; most of the gain is there with four", kind.name()),
            format!("{:.2}, {:.2} and {:.2} with 1, 4 and 16 pages", ratios[0], ratios[2], ratios[4]),
        );
    }
    outcome
        .beside("bluezip.pages", format!("{} (two thirds of the gain)", smallest(&pages, &rows, 2.0 / 3.0)));
    let at = pages.map(f64::from);
    outcome.charts.push(lines("Pages after compression over pages before", "pages per chunk", &at, &rows));
    table(
        &mut outcome,
        "Pages after over pages before, by pages per chunk",
        &pages.map(|n| n.to_string()),
        &rows,
    );
    Ok(outcome)
}

fn dictionaries(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let entries = [64_u32, 128, 256, 512, 1024, 2048, 4096];
    let rows = each(&FILES, |kind| {
        let ratio = |entries: &u32| dictionary_ratio(*kind, *entries, bytes(context));
        Ok((*kind, entries.iter().map(ratio).collect::<Vec<_>>()))
    })?;
    for (kind, ratios) in &rows {
        outcome.fitted(
            CORPUS,
            ratios[6] > ratios[5] * 0.98,
            format!("{}: more than {DICTIONARY_ENTRIES} entries gain next to nothing", kind.name()),
            format!("{:.3} and {:.3} with 2048 and 4096", ratios[5], ratios[6]),
        );
        let gain = ratios[0] - ratios[5];
        outcome.fitted(
            CORPUS,
            (gain > 0.05) == (*kind == Kind::Linux),
            format!("{}: the size of the dictionary matters for LINUX only", kind.name()),
            format!("{gain:.3} from 64 to 2048"),
        );
    }
    outcome.beside("bluezip.dict", format!("{} (nine tenths of the gain)", smallest(&entries, &rows, 0.9)));
    let at = entries.map(f64::from);
    outcome.charts.push(lines("Bytes after compression over bytes before", "entries", &at, &rows));
    table(&mut outcome, "Bytes after over bytes before, by entries", &entries.map(|n| n.to_string()), &rows);
    Ok(outcome)
}

const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Baseline => "baseline",
        Mode::Always => "always",
        Mode::Selective => "selective",
    }
}

fn of(rows: &[Row], kind: Kind, mode: Mode) -> Result<&Row, FigureError> {
    let found = rows.iter().find(|row| row.kind == kind && row.mode == mode);
    found.ok_or_else(|| FigureError::Simulator { what: format!("no row of {}", kind.name()) })
}

/// Charts and table of speed and pages.
fn compare(outcome: &mut Outcome, rows: &[Row]) {
    let names: Vec<String> = rows.iter().step_by(3).map(|row| row.kind.name().to_owned()).collect();
    let mut speed = Chart::bars("Speed, baseline = 1", names.clone(), Axis::linear("times"));
    let mut pages = Chart::bars("Flash pages written, baseline = 1", names, Axis::linear("times"));
    for wanted in [Mode::Baseline, Mode::Always, Mode::Selective] {
        let same = || rows.iter().filter(|row| row.mode == wanted);
        speed.add_bars(mode(wanted), &same().map(|row| row.speed).collect::<Vec<_>>());
        pages.add_bars(mode(wanted), &same().map(|row| row.pages).collect::<Vec<_>>());
    }
    outcome.charts.extend([speed, pages]);
    let cells = |row: &Row| {
        let figures = [row.speed, row.pages].map(|figure| format!("{figure:.2}"));
        let mut cells = vec![row.kind.name().to_owned(), mode(row.mode).to_owned()];
        cells.extend(figures);
        cells
    };
    let columns = ["contents", "compression", "speed", "pages written"];
    outcome.table("Over the baseline", &columns, rows.iter().map(cells).collect());
}

fn copying(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let rows = copies(bytes(context) * 4);
    compare(&mut outcome, &rows);
    let mut gains = Vec::new();
    for (kind, paper) in
        [(Kind::Sensor, 50.0), (Kind::Linux, 23.0), (Kind::Document, 17.0), (Kind::Mp3, -20.0)]
    {
        let gain = (of(&rows, kind, Mode::Always)?.speed - 1.0) * 100.0;
        outcome.fitted(
            TIME,
            (gain - paper).abs() <= 8.0,
            format!(
                "{}: compressing all changes the speed by {paper:+} % in the paper; within 8 points",
                kind.name()
            ),
            format!("{gain:+.0} %"),
        );
        gains.push(format!("{gain:+.0}"));
    }
    let music = of(&rows, Kind::Mp3, Mode::Selective)?;
    outcome.fitted(
        FILES_FITTED,
        music.speed > 0.95 && music.pages < 1.0,
        "MP3: selective compression is as fast as the baseline and writes a little less",
        format!("{:.2} times as fast, {:.2} times the pages", music.speed, music.pages),
    );
    let pages = FILES.map(|kind| of(&rows, kind, Mode::Selective).map(|row| row.pages));
    let saved = pages.into_iter().collect::<Result<Vec<_>, _>>()?;
    let saved = (1.0 - saved.iter().sum::<f64>() / 4.0) * 100.0;
    outcome.fitted(
        FILES_FITTED,
        (saved - 26.0).abs() <= 6.0,
        "selective compression writes 26 % fewer pages on average; within 6 points",
        format!("{saved:.0} %"),
    );
    outcome.beside("bluezip.wr", gains.join("|"));
    outcome.beside("bluezip.life", format!("{saved:.0}"));
    Ok(outcome)
}

fn reading(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let rows = reads(bytes(context) * 2);
    let mut chart = Chart::bars(
        "Speed of reading, baseline = 1",
        rows.iter().map(|(name, _)| (*name).to_owned()).collect(),
        Axis::linear("times"),
    );
    chart.add_bars("selective", &rows.map(|(_, speed)| speed));
    outcome.charts.push(chart);
    let cells = rows.map(|(name, speed)| vec![name.to_owned(), format!("{speed:.2}")]);
    outcome.table("Speed over the baseline", &["program", "speed"], cells.to_vec());
    let mean = (rows.iter().map(|(_, speed)| speed).sum::<f64>() / 2.0 - 1.0) * 100.0;
    outcome.fitted(
        HALF,
        (mean - 20.0).abs() <= 8.0,
        "reads gain 20 % on average; within 8 points",
        format!("{mean:.0} %"),
    );
    outcome.beside("bluezip.rd", format!("{mean:.0}"));
    Ok(outcome)
}

fn mail(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let rows = postmark(context.scale.pick(300, 10_000));
    compare(&mut outcome, &rows);
    let saved = |mode| Ok::<f64, FigureError>((1.0 - of(&rows, Kind::ImageWeb, mode)?.pages) * 100.0);
    let (all, some) = (saved(Mode::Always)?, saved(Mode::Selective)?);
    outcome.fitted(
        METADATA,
        (all - 14.0).abs() <= 4.0,
        "pictures: 14 % fewer pages for the metadata's sake; within 4 points",
        format!("{all:.0} %"),
    );
    outcome.fitted(
        METADATA,
        (all - some).abs() < 3.0,
        "small transactions leave selective compression nothing to filter",
        format!("{all:.1} and {some:.1} %"),
    );
    for kind in [Kind::TextRaw, Kind::TextWeb] {
        let row = of(&rows, kind, Mode::Selective)?;
        outcome.fitted(
            CORPUS,
            row.speed > 1.2,
            format!("{}: significantly faster", kind.name()),
            format!("{:+.0} %", (row.speed - 1.0) * 100.0),
        );
    }
    outcome.beside("bluezip.post", format!("{all:.0}"));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_size_with_most_of_the_gain_is_found() {
        let rows = vec![(Kind::Linux, vec![1.0, 0.8, 0.6, 0.5]), (Kind::Mp3, vec![1.0, 1.0, 1.0, 1.0])];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|share| smallest(&[1, 2, 4, 8], &rows, share)), [1, 4, 4, 8]);
    }
}
