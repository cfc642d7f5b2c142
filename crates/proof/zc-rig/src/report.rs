//! Reports of a machine: one JSON object per line.

use anyhow::{Context, bail};
use serde_json::Value;
use zc_core::usize_from_u64;

/// A line.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    /// A check ended.
    Check { name: String, ok: bool, seconds: f64 },
    /// Something was measured.
    Figure { name: String, value: f64 },
    /// A set of measurements, which the scenario interprets.
    Sample(Value),
    /// Steps of a writer up to this one are durable.
    Durable { writer: usize, step: u64 },
    /// The scenario completed.
    End,
}

impl Line {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let value: Value =
            serde_json::from_str(text).with_context(|| format!("the machine reported `{text}`"))?;
        let name = |key: &str| value[key].as_str().map(str::to_owned);
        if let (Some(name), Some(ok)) = (name("check"), value["ok"].as_bool()) {
            return Ok(Self::Check { name, ok, seconds: value["seconds"].as_f64().unwrap_or(0.0) });
        }
        if let (Some(name), Some(value)) = (name("figure"), value["value"].as_f64()) {
            return Ok(Self::Figure { name, value });
        }
        if value["sample"].is_string() {
            return Ok(Self::Sample(value));
        }
        if let (Some(writer), Some(step)) = (value["writer"].as_u64(), value["durable"].as_u64()) {
            return Ok(Self::Durable { writer: usize_from_u64(writer), step });
        }
        if value["end"] == Value::Bool(true) {
            return Ok(Self::End);
        }
        bail!("the machine reported `{text}`, which means nothing here")
    }

    /// For people.
    pub(crate) fn show(&self) -> Option<String> {
        match self {
            Self::Check { name, ok, seconds } => {
                Some(format!("{name:<20} {seconds:>8.1} s  {}", if *ok { "ok" } else { "FAILED" }))
            }
            Self::Figure { name, value } => Some(format!("{name:<20} {value:>8}")),
            Self::Sample(_) | Self::Durable { .. } | Self::End => None,
        }
    }
}

/// Judges the lines of a scenario that should have come to its end, with the checks of `wanted` among others.
///
/// # Errors
/// A check failed or is missing, or the end is missing.
pub(crate) fn judge(lines: &[String], wanted: &[&str]) -> anyhow::Result<()> {
    let lines = lines.iter().map(|line| Line::parse(line)).collect::<anyhow::Result<Vec<_>>>()?;
    let failed: Vec<&str> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Check { name, ok: false, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    if !failed.is_empty() {
        bail!("failed in the machine: {}", failed.join(", "));
    }
    if lines.last() != Some(&Line::End) {
        bail!("the machine went away before the end of the scenario");
    }
    let ran =
        |wanted: &str| lines.iter().any(|line| matches!(line, Line::Check { name, .. } if name == wanted));
    if let Some(missing) = wanted.iter().find(|name| !ran(name)) {
        bail!("the machine knows no check {missing}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_run_is_good_only_if_it_ends_and_nothing_failed() {
        let good = r#"{"check":"a","ok":true,"seconds":1.5}"#;
        let bad = r#"{"check":"b","ok":false,"seconds":0}"#;
        let end = r#"{"end":true}"#;
        judge(&lines(&[good, r#"{"figure":"x","value":3}"#, end]), &["a"]).unwrap();
        assert!(judge(&lines(&[good, end]), &["a", "b"]).unwrap_err().to_string().contains("no check b"));
        assert!(judge(&lines(&[good, bad, end]), &[]).unwrap_err().to_string().contains(": b"));
        assert!(judge(&lines(&[good]), &[]).unwrap_err().to_string().contains("went away"));
        judge(&[], &[]).unwrap_err();
        judge(&lines(&["nonsense", end]), &[]).unwrap_err();
    }

    #[test]
    fn durable_steps_belong_to_writers() {
        let line = Line::parse(r#"{"writer":2,"durable":7}"#).unwrap();
        assert_eq!(line, Line::Durable { writer: 2, step: 7 });
        Line::parse("{}").unwrap_err();
    }
}
