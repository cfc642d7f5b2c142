//! Data of `top`: rates of the volumes between two replies of the daemon, sorted.
//!
//! Invariants: a rate is relative to the daemon's own clock; replies within [`RATE_MS_MIN`] of each other change no
//! rate. A restarted daemon begins without rates. It does not draw.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

/// Shortest time that a rate is taken over.
const RATE_MS_MIN: u64 = 500;
/// Rates of a volume that are kept: a minute, at one in a second.
const HISTORY_MAX: usize = 60;

/// Sort key of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Read,
    Written,
    Hits,
    Dirty,
}

impl Sort {
    /// Key and label of each order.
    pub(super) const KEYS: [(char, &'static str, Self); 5] = [
        ('n', "name", Self::Name),
        ('r', "read", Self::Read),
        ('w', "written", Self::Written),
        ('h', "hits", Self::Hits),
        ('d', "dirty", Self::Dirty),
    ];

    pub(super) fn of_key(letter: char) -> Option<Self> {
        Self::KEYS.iter().find(|(key, ..)| *key == letter).map(|(.., sort)| *sort)
    }
}

/// A volume's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    reads: u64,
    hits: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
}

impl Counters {
    fn of(volume: &Value) -> Self {
        let count = |name: &str| volume["traffic"][name].as_u64().unwrap_or(0);
        Self {
            reads: count("reads"),
            hits: count("hits"),
            read_bytes: count("read_bytes"),
            writes: count("writes"),
            write_bytes: count("write_bytes"),
        }
    }
}

/// Rates of a volume per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    /// Reads that needed no origin, of a thousand; nothing if there were no reads.
    pub(super) hits_permille: Option<u64>,
}

impl Rates {
    fn between(before: &Counters, now: &Counters, ms: u64) -> Self {
        let rate = |of: fn(&Counters) -> u64| {
            let more = u128::from(of(now).saturating_sub(of(before)));
            (more * 1000).checked_div(ms.into()).and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0)
        };
        let reads = now.reads.saturating_sub(before.reads);
        let hits = now.hits.saturating_sub(before.hits);
        Self {
            reads: rate(|of| of.reads),
            writes: rate(|of| of.writes),
            read_bytes: rate(|of| of.read_bytes),
            write_bytes: rate(|of| of.write_bytes),
            hits_permille: hits.saturating_mul(1000).checked_div(reads).map(|permille| permille.min(1000)),
        }
    }

    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) mode: String,
    /// Reason for which its requests fail, as an identifier.
    pub(super) trouble: Option<&'static str>,
    pub(super) rates: Rates,
    pub(super) dirty_bytes: u64,
    pub(super) dirty_age_ms: u64,
    /// Bytes a second, read and written, the newest last.
    pub(super) history: VecDeque<u64>,
}

/// State at a reply.
#[derive(Debug)]
struct Sample {
    pid: u64,
    uptime_ms: u64,
    counters: BTreeMap<String, Counters>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    sort: Sort,
    reversed: bool,
    first: usize,
    before: Option<Sample>,
    rows: Vec<Row>,
    status: Value,
    /// Reason why the daemon does not reply.
    gone: Option<String>,
}

impl Model {
    /// Updates the model from a reply to `status`.
    pub(super) fn take(&mut self, status: &Value) {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let (pid, uptime_ms) = (number(&status["pid"]), number(&status["uptime_ms"]));
        let same = self.before.as_ref().filter(|before| before.pid == pid && before.uptime_ms <= uptime_ms);
        let ms = same.map(|before| uptime_ms - before.uptime_ms);
        let volumes = status["volumes"].as_array().into_iter().flatten();
        let counters: BTreeMap<String, Counters> =
            volumes.map(|volume| (name(volume), Counters::of(volume))).collect();
        let fresh = ms.is_none_or(|ms| ms >= RATE_MS_MIN);
        let mut rates = BTreeMap::new();
        if let (Some(before), Some(ms)) = (same, ms.filter(|_| fresh)) {
            for (name, now) in &counters {
                let then = before.counters.get(name).copied().unwrap_or_default();
                rates.insert(name.clone(), Rates::between(&then, now, ms));
            }
        }
        let known = if same.is_some() { std::mem::take(&mut self.rows) } else { Vec::new() };
        let row = |volume: &Value| row(volume, &known, &rates, fresh);
        let all = ["volumes", "absent"].map(|kind| status[kind].as_array().cloned().unwrap_or_default());
        self.rows = all.concat().iter().map(row).collect();
        if fresh {
            self.before = Some(Sample { pid, uptime_ms, counters });
        }
        (self.status, self.gone) = (status.clone(), None);
        self.order();
    }

    /// The daemon does not answer.
    pub(super) fn lose(&mut self, why: &str) {
        self.gone = Some(why.to_owned());
        self.before = None;
    }

    pub(super) fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.order();
    }

    pub(super) fn reverse(&mut self) {
        self.reversed = !self.reversed;
        self.order();
    }

    /// Moves down, or up.
    pub(super) fn scroll(&mut self, rows: isize) {
        self.first = self.first.saturating_add_signed(rows).min(self.rows.len().saturating_sub(1));
    }

    fn order(&mut self) {
        let by = |a: &Row, b: &Row| -> Ordering {
            // The largest first.
            match self.sort {
                Sort::Name => Ordering::Equal,
                Sort::Read => b.rates.read_bytes.cmp(&a.rates.read_bytes),
                Sort::Written => b.rates.write_bytes.cmp(&a.rates.write_bytes),
                Sort::Hits => b.rates.hits_permille.cmp(&a.rates.hits_permille),
                Sort::Dirty => b.dirty_bytes.cmp(&a.dirty_bytes),
            }
        };
        self.rows.sort_by(|a, b| by(a, b).then_with(|| a.name.cmp(&b.name)));
        if self.reversed {
            self.rows.reverse();
        }
        self.scroll(0);
    }

    pub(super) const fn sort(&self) -> Sort {
        self.sort
    }

    /// Rows from the first visible one on.
    pub(super) fn rows(&self) -> &[Row] {
        self.rows.get(self.first..).unwrap_or_default()
    }

    pub(super) fn total(&self) -> Rates {
        let mut total = Rates::default();
        self.rows.iter().for_each(|row| total.add(row.rates));
        total
    }

    /// The last answer.
    pub(super) const fn status(&self) -> &Value {
        &self.status
    }

    pub(super) fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }
}

fn name(volume: &Value) -> String {
    volume["name"].as_str().unwrap_or_default().to_owned()
}

fn row(volume: &Value, known: &[Row], rates: &BTreeMap<String, Rates>, fresh: bool) -> Row {
    let name = name(volume);
    let before = known.iter().find(|row| row.name == name).cloned().unwrap_or_default();
    let rates = if fresh { rates.get(&name).copied().unwrap_or_default() } else { before.rates };
    let mut history = before.history;
    if fresh {
        history.push_back(rates.read_bytes.saturating_add(rates.write_bytes));
        if history.len() > HISTORY_MAX {
            history.pop_front();
        }
    }
    let trouble = if volume["info"].is_null() {
        Some("absent")
    } else if volume["dirty"]["fenced"] == true {
        Some("fenced")
    } else {
        None
    };
    let dirty = |field: &str| volume["dirty"][field].as_u64().unwrap_or(0);
    let mode = volume["info"]["mode"].as_str().unwrap_or("-").to_owned();
    let (dirty_bytes, dirty_age_ms) = (dirty("bytes"), dirty("oldest_age_ms"));
    Row { name, mode, trouble, rates, dirty_bytes, dirty_age_ms, history }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(uptime_ms: u64, reads: [u64; 2]) -> Value {
        let volume = |name: &str, reads: u64| {
            json!({
                "name": name,
                "info": {"mode": "write-back"},
                "dirty": {"bytes": reads, "oldest_age_ms": 5},
                "traffic": {"reads": reads, "hits": reads / 2, "read_bytes": reads * 4096},
            })
        };
        let volumes = [volume("a", reads[0]), volume("b", reads[1])];
        json!({ "pid": 7, "uptime_ms": uptime_ms, "volumes": volumes, "absent": [{"name": "gone"}] })
    }

    fn names(model: &Model) -> String {
        model.rows().iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rates_are_over_the_daemons_time() {
        let mut model = Model::default();
        model.take(&status(1000, [10, 0]));
        assert_eq!(model.rows()[0].rates, Rates::default());
        model.take(&status(3000, [30, 0]));
        let rates = model.rows()[0].rates;
        assert_eq!((rates.reads, rates.read_bytes, rates.hits_permille), (10, 40_960, Some(500)));
        assert_eq!(model.rows()[1].rates.hits_permille, None);
        // Too soon: the rates stay, and nothing is lost for the next.
        model.take(&status(3100, [40, 0]));
        assert_eq!((model.rows()[0].rates.reads, model.rows()[0].history.len()), (10, 2));
        model.take(&status(4000, [50, 0]));
        assert_eq!(model.rows()[0].rates.reads, 20);
        assert_eq!(model.total().reads, 20);
    }

    #[test]
    fn a_daemon_that_was_started_anew_begins_without_rates() {
        let mut model = Model::default();
        model.take(&status(5000, [10, 0]));
        model.take(&status(6000, [20, 0]));
        model.take(&status(900, [99, 0]));
        assert_eq!((model.rows()[0].rates.reads, model.rows()[0].history.len()), (0, 1));
        model.lose("no answer");
        assert_eq!(model.gone(), Some("no answer"));
        model.take(&status(2900, [199, 0]));
        assert_eq!((model.rows()[0].rates.reads, model.gone()), (0, None));
    }

    #[test]
    fn rows_are_sorted_and_scrolled() {
        let mut model = Model::default();
        model.take(&status(1000, [0, 0]));
        model.take(&status(2000, [1, 9]));
        assert_eq!(names(&model), "a b gone");
        model.sort_by(Sort::Read);
        assert_eq!(names(&model), "b a gone");
        model.reverse();
        assert_eq!(names(&model), "gone a b");
        model.scroll(2);
        assert_eq!(names(&model), "b");
        model.scroll(50);
        assert_eq!(names(&model), "b");
        model.scroll(-50);
        model.reverse();
        model.sort_by(Sort::Dirty);
        assert_eq!(names(&model), "b a gone");
        assert_eq!(model.rows()[2].trouble, Some("absent"));
    }

    #[test]
    fn a_minute_is_remembered() {
        let mut model = Model::default();
        for second in 0..100 {
            model.take(&status(second * 1000, [second, 0]));
        }
        assert_eq!(model.rows()[0].history.len(), HISTORY_MAX);
    }
}
