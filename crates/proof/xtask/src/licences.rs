//! Licences and sources of every dependency, from cargo's metadata: the part of `deny.toml` that needs no tool.
//!
//! Job: each dependency has a licence expression that `deny.toml` allows, comes from the common registry or from this
//! tree, and is requested by version. The group `advisories` has cargo-deny check the same, and vulnerabilities
//! besides.

use crate::products::metadata;
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use zc_rig::host::run::workspace;

/// Prefix of the sources that are registries; others are git.
const REGISTRY: &str = "registry+";
/// The processors that `deny.toml` names.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The step `licences`.
///
/// # Errors
/// A dependency has another licence or source, or an allowed licence is unused; the message names them all.
pub(crate) fn check() -> anyhow::Result<()> {
    let place = workspace().join("deny.toml");
    let text = std::fs::read_to_string(&place).with_context(|| format!("cannot read {}", place.display()))?;
    let allowed = allowed(&text).context("deny.toml has no line `allow = [...]`")?;
    let targets = TARGETS.map(|target| format!("--filter-platform={target}"));
    let args: Vec<&str> = targets.iter().map(String::as_str).collect();
    let metadata = metadata(&args)?;
    let faults = faults(&metadata, &allowed)?;
    if !faults.is_empty() {
        bail!("dependencies that deny.toml does not allow:\n  {}", faults.join("\n  "));
    }
    println!("    {} packages", metadata["packages"].as_array().map_or(0, Vec::len));
    Ok(())
}

/// The licences that `deny.toml` allows.
fn allowed(text: &str) -> Option<Vec<&str>> {
    let line = text.lines().find_map(|line| line.strip_prefix("allow = ["))?;
    let (list, _) = line.split_once(']')?;
    Some(list.split(',').map(|word| word.trim().trim_matches('"')).collect())
}

/// Returns the violations in the output of `cargo metadata`.
fn faults(metadata: &Value, allowed: &[&str]) -> anyhow::Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo lists no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo resolves nothing")?;
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let (mut found, mut needed) = (Vec::new(), BTreeSet::new());
    let registry =
        packages.iter().find_map(|one| one["source"].as_str().filter(|source| source.starts_with(REGISTRY)));
    for package in packages.iter().filter(|one| one["id"].as_str().is_some_and(|id| used.contains(id))) {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        let source = package["source"].as_str();
        if source.is_some() && source != registry {
            found.push(format!("{name} comes from {}", source.unwrap_or_default()));
        }
        let licence = text(package, "license");
        if !holds(licence, allowed, &mut needed) {
            found.push(format!("{name} has the licence `{licence}`"));
        }
        if source.is_none() {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let wild = dependencies.filter(|one| one["req"] == "*" && one["path"].is_null());
            found.extend(wild.map(|one| format!("{name} takes any version of {}", text(one, "name"))));
        }
    }
    let unused = allowed.iter().filter(|licence| !needed.contains(**licence));
    found.extend(unused.map(|licence| format!("no dependency has the licence `{licence}` any more")));
    Ok(found)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns `true` if an SPDX expression can be met with allowed licences, and adds those that it names to `needed`.
fn holds<'a>(expression: &str, allowed: &[&'a str], needed: &mut BTreeSet<&'a str>) -> bool {
    // Old packages write a slash for OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let holds = either(&mut rest, allowed, needed);
    holds && rest.is_empty()
}

/// Alternatives, of which one must hold.
fn either<'a>(rest: &mut &[&str], allowed: &[&'a str], needed: &mut BTreeSet<&'a str>) -> bool {
    let mut holds = both(rest, allowed, needed);
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        holds |= both(rest, allowed, needed);
    }
    holds
}

/// Parts that must all hold.
fn both<'a>(rest: &mut &[&str], allowed: &[&'a str], needed: &mut BTreeSet<&'a str>) -> bool {
    let mut holds = licence(rest, allowed, needed);
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        holds &= licence(rest, allowed, needed);
    }
    holds
}

/// One licence, or an expression in parentheses. An exception gives more rights, and is never needed.
fn licence<'a>(rest: &mut &[&str], allowed: &[&'a str], needed: &mut BTreeSet<&'a str>) -> bool {
    let [word, after @ ..] = *rest else { return false };
    *rest = after;
    if *word == "(" {
        let holds = either(rest, allowed, needed);
        let [")", after @ ..] = *rest else { return false };
        *rest = after;
        return holds;
    }
    if let ["WITH", _, after @ ..] = *rest {
        *rest = after;
        return false;
    }
    let found = allowed.iter().find(|licence| *licence == word);
    needed.extend(found);
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ALLOWED: [&str; 3] = ["MIT", "Apache-2.0", "Unicode-3.0"];

    #[test]
    fn expressions_are_judged_as_spdx_has_them() {
        let holds = |text: &str| holds(text, &ALLOWED, &mut BTreeSet::new());
        for good in [
            "MIT",
            "MIT OR GPL-2.0",
            "GPL-2.0 OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(holds(good), "{good}");
        }
        for bad in
            ["", "GPL-2.0", "MIT AND GPL-2.0", "(MIT", "MIT )", "Apache-2.0 WITH LLVM-exception", "OR MIT"]
        {
            assert!(!holds(bad), "{bad}");
        }
    }

    #[test]
    fn licences_sources_and_wildcards_are_seen() {
        let package = |name: &str, licence: &str, source: Value, req: &str| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": licence, "source": source,
                "dependencies": [{ "name": "x", "req": req, "path": null }],
            })
        };
        let faults = |packages: Vec<Value>| {
            let nodes: Vec<Value> = packages.iter().map(|package| json!({ "id": package["id"] })).collect();
            faults(&json!({ "packages": packages, "resolve": { "nodes": nodes } }), &["MIT"]).unwrap()
        };
        assert_eq!(
            faults(vec![package("a", "MIT", json!("registry+https://example.org/index"), "*")]),
            Vec::<String>::new()
        );
        let found = faults(vec![
            package("a", "GPL-2.0", json!("registry+https://example.org/index"), "1"),
            package("b", "MIT", json!("git+https://example.org/b"), "1"),
            package("c", "MIT", Value::Null, "*"),
            package("d", "MIT", json!("registry+https://example.org/second"), "1"),
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(
            faults(vec![package("a", "ISC OR MIT", json!("registry+https://example.org/index"), "1")]),
            Vec::<String>::new()
        );
        assert_eq!(faults(vec![]), ["no dependency has the licence `MIT` any more"]);
    }

    #[test]
    fn the_list_is_read_from_deny_toml() {
        assert_eq!(allowed("[licenses]\nallow = [\"MIT\", \"ISC\"]\n"), Some(vec!["MIT", "ISC"]));
        assert_eq!(allowed("[bans]\n"), None);
    }
}
