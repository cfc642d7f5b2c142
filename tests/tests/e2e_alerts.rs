//! Shipped files for Prometheus and Grafana: alert rules, and a dashboard with queries that a real Prometheus answers.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use zc_tests::{Companion, DEADLINE, World, require_tool, run_ok};

const RULES: &str = include_str!("../../configs/prometheus/zcached.rules.yml");
const DASHBOARD: &str = include_str!("../../configs/grafana/zcached.json");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prometheus")
}

/// A daemon that serves its numbers, with a volume on a file and one in a store.
fn world() -> World {
    let mut world = World::new(16, 16);
    world.add_store("128 MiB");
    world.add_thin("thin", 16, "");
    world.nbd = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    world.volumes[0].2 = "mode = \"write-back\"\n".to_owned();
    world
}

/// Returns the queries of all panels, with Grafana's values for its variables.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("a panel has queries"));
    let fill = |query: &str| {
        query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$volume", ".*")
    };
    targets.map(|target| fill(target["expr"].as_str().expect("a query is text"))).collect()
}

/// Families of ours that a text names.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_part(c)).filter(|word| word.starts_with("zcached_")).collect()
}

#[test]
fn the_alert_rules_pass_their_own_tests() {
    run_ok(
        Command::new(require_tool("promtool"))
            .args(["check", "rules", "zcached.rules.yml"])
            .current_dir(folder()),
    );
    run_ok(
        Command::new(require_tool("promtool"))
            .args(["test", "rules", "zcached.test.yml"])
            .current_dir(folder()),
    );
}

#[test]
fn rules_and_dashboard_name_families_that_there_are() {
    let world = world();
    let daemon = world.start();
    let page = String::from_utf8(world.zcctl_output(&["stats", "--prometheus"]).stdout).expect("text");
    assert_eq!(daemon.terminate().code(), Some(0));
    let there: BTreeSet<&str> = named(&page);
    let all = queries().join("\n");
    for family in named(RULES).union(&named(&all)) {
        assert!(there.contains(family), "{family} is not on the page");
    }
}

/// Returns the answer of Prometheus to a query; `None` while it accepts no connection.
fn ask(port: u16, query: &str) -> Option<Value> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).expect("cannot set a timeout");
    write!(stream, "GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n").expect("cannot ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no answer");
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}

/// A Prometheus that scrapes this daemon once in a second, and where it answers.
fn prometheus(world: &World) -> (Companion, u16) {
    let status = world.status();
    let url = status["metrics"].as_str().expect("the status says where the numbers are");
    let target = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).expect("a URL");
    let rules = folder().join("zcached.rules.yml").canonicalize().expect("the rules are there");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
         scrape_configs: [{{job_name: zcached, static_configs: [{{targets: ['{target}']}}]}}]\n",
        rules.display()
    );
    let path = world.path("prometheus.yml");
    std::fs::write(&path, config).expect("cannot write a configuration");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let mut command = Command::new(require_tool("prometheus"));
    command.arg(format!("--config.file={}", path.display()));
    command.arg(format!("--storage.tsdb.path={}", world.path("tsdb").display()));
    command.arg(format!("--web.listen-address={free}"));
    (Companion::start(&mut command), free.port())
}

#[test]
fn a_real_prometheus_answers_every_query_of_the_dashboard() {
    let world = world();
    let daemon = world.start();
    let (server, port) = prometheus(&world);
    let mut client = world.connect("disk");
    let scrapes = |query: &str| {
        let answer = ask(port, query)?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    };
    world.stats_until("it has scraped thrice", |_| {
        client.write(0, &[7; 8192]).expect("write");
        client.flush().expect("flush");
        client.read(0, 65536).expect("read");
        scrapes("count_over_time(up{job=\"zcached\"}[1m])") >= Some(3.0)
    });
    for query in queries() {
        let answer = ask(port, &query).expect("Prometheus runs");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        assert!(
            answer["data"]["result"].as_array().is_some_and(|rows| !rows.is_empty()),
            "{query}: {answer}"
        );
    }
    world.stats_until("the recorded ratio is there", |_| scrapes("zcached:hit_ratio:rate5m").is_some());
    drop(server);
    assert_eq!(daemon.terminate().code(), Some(0));
}
