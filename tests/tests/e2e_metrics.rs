//! The daemon's numbers for Prometheus: over HTTP and by zcctl, in both text formats.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use zc_tests::{World, http, require_tool};

const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";

/// A folder whose daemon serves its numbers on a free port, sandboxed as it ships.
fn world() -> World {
    let mut world = World::new(16, 16);
    world.nbd = "[metrics]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    world
}

/// Returns the address of the metrics, from the daemon's log.
fn address(world: &World) -> SocketAddr {
    let status = world.status();
    let url = status["metrics"].as_str().expect("the status says where the numbers are");
    let place = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    place.expect("a URL of /metrics").parse().expect("an address")
}

fn get(address: SocketAddr, path: &str, headers: &str) -> (String, String) {
    http(address, &format!("GET {path} HTTP/1.1\r\nHost: zcached\r\n{headers}\r\n"))
}

/// The value of one sample.
fn value<'p>(page: &'p str, sample: &str) -> &'p str {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{page}"))
}

/// Checks that Prometheus's own tool has no complaint about a page.
fn is_clean(page: &str) {
    let mut tool = Command::new(require_tool("promtool"));
    let tool =
        tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().expect("cannot start promtool");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(page.as_bytes()).expect("promtool reads");
    drop(input);
    let output = child.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn promtool_has_nothing_to_say_of_the_numbers() {
    let world = world();
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &[1; 8192]).expect("write");
    client.read(0, 8192).expect("read");
    let (head, page) = get(address(&world), "/metrics", "");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    is_clean(&page);
    let by_zcctl = world.zcctl_output(&["stats", "--prometheus"]);
    assert_eq!(by_zcctl.status.code(), Some(0));
    is_clean(&String::from_utf8(by_zcctl.stdout).expect("text"));
    assert_eq!(value(&page, "zcached_volume_writes_total{volume=\"disk\"}"), "1");
    assert_eq!(value(&page, "zcached_state{state=\"healthy\"}"), "1");
    assert_eq!(value(&page, "zcached_volume_served{volume=\"disk\"}"), "1");
    // Every request is in a step, and all of them in the last.
    for (path, count) in [("write", "1"), ("hit", "1"), ("flush", "0")] {
        let labels = format!("volume=\"disk\",path=\"{path}\"");
        let name = "zcached_request_duration_seconds";
        assert_eq!(value(&page, &format!("{name}_count{{{labels}}}")), count, "{path}");
        assert_eq!(value(&page, &format!("{name}_bucket{{{labels},le=\"+Inf\"}}")), count, "{path}");
        assert_eq!(value(&page, &format!("{name}_sum{{{labels}}}")) != "0.0", count != "0", "{path}");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn no_number_of_stats_is_missing() {
    let world = world();
    let daemon = world.start();
    let (_, page) = get(address(&world), "/metrics", "");
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let families: BTreeSet<&str> = families.map(|name| name.strip_suffix("_total").unwrap_or(name)).collect();
    let stats = world.stats();
    let sections = [
        ("manager", "manager"),
        ("driver", "driver"),
        ("dirty", "dirty"),
        ("limits", "limits"),
        ("origin_limits", "origin_limits"),
        ("traffic", "volume"),
    ];
    for (section, prefix) in sections {
        let numbers =
            if stats[section]["disk"].is_object() { &stats[section]["disk"] } else { &stats[section] };
        for name in numbers.as_object().expect("numbers").keys() {
            // Base units; where dirty data is stuck and why are no quantities.
            let unit = |from: &str| name.strip_suffix(from).map(|name| format!("{name}_seconds"));
            let name = unit("_ms").or_else(|| unit("_us")).unwrap_or_else(|| name.clone());
            let family = format!("zcached_{prefix}_{name}").replace("by_summary", "in_one_write");
            assert!(
                ["stuck_offset_bytes", "refused_error", "refusing", "unproved"].contains(&&*name)
                    || families.contains(family.as_str()),
                "{family} in\n{page}"
            );
        }
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn who_knows_open_metrics_gets_it_and_nothing_else_is_served() {
    let world = world();
    let daemon = world.start();
    let address = address(&world);
    let (head, page) = get(address, "/metrics", OPEN_METRICS);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(page.ends_with("# EOF\n") && page.contains("# TYPE zcached_volume_reads counter\n"), "{page}");
    let (head, _) = get(address, "/", "");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let (head, _) = http(address, "POST /metrics HTTP/1.1\r\nHost: zcached\r\nContent-Length: 0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405"), "{head}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Silent clients, and those with incomplete requests, outnumber the connections.
#[test]
fn silent_clients_do_not_hold_up_a_scrape() {
    let world = world();
    let daemon = world.start();
    let address = address(&world);
    for said in ["", "GET /metrics HTTP/1.1\r\nHost: zcached\r\n", "GET /metrics HTTP/1.1\r\nHost: z\r\n\r\n"]
    {
        let connect = |_| {
            let mut stream = TcpStream::connect(address).expect("connect");
            // The daemon may have ended the connection by now.
            let _sent = stream.write_all(said.as_bytes());
            stream
        };
        let silent: Vec<TcpStream> = (0..200).map(connect).collect();
        let mut scrape = TcpStream::connect(address).expect("connect");
        // A silent client has 2 s; eight at a time would be 50 s.
        scrape.set_read_timeout(Some(Duration::from_secs(8))).expect("a timeout");
        scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: zcached\r\n\r\n").expect("a request");
        let mut answer = String::new();
        scrape.read_to_string(&mut answer).unwrap_or_else(|error| panic!("after {said:?}: {error}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "after {said:?}: {answer}");
        drop(silent);
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn without_an_address_nothing_listens() {
    let world = World::new(16, 16);
    let daemon = world.start();
    assert!(world.status()["metrics"].is_null());
    assert_eq!(daemon.terminate().code(), Some(0));
}
