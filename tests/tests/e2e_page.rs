//! The live page: its contents and access, the names of its numbers, and its display in a real browser.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;
use zc_tests::{Browser, DataGen, MIB, World, http, read_file, workspace};

/// Bytes of the picture in the documents, at most.
const PICTURE_BYTES_MAX: usize = 150 << 10;
const PICTURE: &str = "docs/src/images/live-page.png";
/// Names a file that is to have a new picture. The page is then watched for longer, so that there is a history to see.
const PICTURE_VARIABLE: &str = "ZC_PAGE_PICTURE";

/// A folder whose daemon serves the page on a free port, sandboxed as it ships: a volume in write-back, one in
/// write-through, one of a store.
fn world() -> World {
    let mut world = World::new(16, 16);
    world.add_store("128 MiB");
    world.volumes.push(("library".to_owned(), 32 * MIB, String::new()));
    world.add_thin("thin", 16, "");
    world.nbd = "[metrics]\npage = \"127.0.0.1:0\"\n".to_owned();
    world.volumes[0].2 = "mode = \"write-back\"\n".to_owned();
    let library = DataGen::new(7, 8192).mixed(4096);
    std::fs::write(world.origin("library"), library).expect("cannot write an origin");
    world
}

/// Returns the URL of the page, from the daemon's log.
fn url(world: &World) -> String {
    world.status()["page"].as_str().expect("the status says where the page is").to_owned()
}

fn address(world: &World) -> SocketAddr {
    let url = url(world);
    let place = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
    place.expect("a URL of /").parse().expect("an address")
}

fn get(address: SocketAddr, path: &str, host: &str) -> (String, String) {
    http(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

#[test]
fn the_page_its_parts_and_its_numbers_are_served_with_strict_headers() {
    let world = world();
    let daemon = world.start();
    let address = address(&world);
    let host = address.to_string();
    let parts = [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/live.json", "application/json"),
    ];
    for (path, content_type) in parts {
        let (head, body) = get(address, path, &host);
        assert!(head.starts_with("HTTP/1.1 200") && !body.is_empty(), "{path}: {head}");
        assert!(head.contains(&format!("content-type: {content_type}")), "{path}: {head}");
    }
    for (path, host, status) in [
        ("/", &*host, "200"),
        ("/", "localhost:1", "200"),
        ("/live.json", "evil.example", "421"),
        ("/", "localhost.evil.example", "421"),
        ("/metrics", &host, "404"),
        ("/../page.js", &host, "404"),
        ("/favicon.ico", &host, "404"),
    ] {
        let (head, _) = get(address, path, host);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path} at {host}: {head}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';";
        for wanted in
            [policy, "frame-ancestors 'none'", "x-content-type-options: nosniff", "cache-control: no-store"]
        {
            assert!(head.contains(wanted), "{wanted} in {head}");
        }
        assert!(!head.contains("access-control"), "{head}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        let request = format!("{method} /live.json HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let (head, _) = http(address, &request);
        assert!(head.starts_with("HTTP/1.1 405") && head.contains("allow: GET"), "{method}: {head}");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn without_an_address_there_is_no_page() {
    let world = World::new(16, 16);
    let daemon = world.start();
    assert!(world.status()["page"].is_null());
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Returns the rows of the table of members in the documents: the member, and the words in backquotes beside it.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let text = String::from_utf8(read_file(&workspace().join("docs/src/operations.md"))).expect("it is text");
    let (_, table) = text.split_once("| Member of `/live.json` |").expect("there is a table of members");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let code = |row: &str| row.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    rows.map(|row| (code(row)[0].clone(), code(row)[1..].iter().cloned().collect())).collect()
}

#[test]
fn every_member_of_the_numbers_is_documented_and_counts() {
    let world = world();
    let daemon = world.start();
    world.connect("disk").write(0, &[1; 8192]).expect("write");
    let mut client = world.connect("library");
    // A stream is inserted at its second time.
    for _ in 0..2 {
        client.read(0, 1 << 20).expect("read");
        world.inserted();
    }
    client.read(0, 1 << 20).expect("read");
    let address = address(&world);
    let live: Value = serde_json::from_str(&get(address, "/live.json", "localhost").1).expect("JSON");
    let documented = documented();
    let members: BTreeSet<&String> = live.as_object().expect("an object").keys().collect();
    assert_eq!(members, documented.iter().map(|(member, _)| member).collect());
    for (member, words) in &documented {
        let value = if live[member].is_array() { &live[member][0] } else { &live[member] };
        for inner in value.as_object().into_iter().flat_map(|object| object.keys()) {
            assert!(words.contains(inner), "{member}.{inner} is not documented");
        }
    }

    let number = |place: &str| live.pointer(place).and_then(Value::as_u64).expect(place);
    assert_eq!(live["verdict"]["state"], "HEALTHY");
    assert_eq!((number("/extents/read"), number("/extents/hits") >= 128), (384, true), "{live}");
    let from_origin = number("/reads_from/origin") + number("/reads_from/origin_joined");
    assert_eq!(from_origin + number("/extents/hits"), 384, "{live}");
    assert_eq!((number("/paths/write/requests"), number("/paths/write/bytes")), (1, 8192));
    let read = ["hit", "miss", "mixed"].map(|path| number(&format!("/paths/{path}/bytes")));
    assert_eq!(read.iter().sum::<u64>(), 3 << 20, "{live}");
    let (raw, distinct) = (number("/cache/taken_in_bytes"), number("/cache/distinct_bytes"));
    assert!(raw > distinct && distinct > number("/cache/compressed_bytes"), "{live}");
    assert_eq!(live["volumes"][0]["max_dirty_age_ms"], 30_000);
    assert!(live["volumes"][1]["max_dirty_age_ms"].is_null());
    assert_eq!((number("/stores/0/volumes"), number("/stores/0/snapshots")), (1, 0));
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Everything that is wider than the page, has too little contrast, or is a picture or heading without words.
const FAULTS: &str = "(() => {
    const faults = [];
    if (document.documentElement.scrollWidth > innerWidth) faults.push('the page is wider than its window');
    const parts = (color) => (color.match(/[0-9.]+/g) ?? []).map(Number);
    const light = (color) => {
        const [r, g, b] = parts(color).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (of) => {
        const color = getComputedStyle(of).backgroundColor;
        return parts(color)[3] === 0 && of.parentElement ? ground(of.parentElement) : color;
    };
    for (const of of document.querySelectorAll('body *')) {
        const says = [...of.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (says && of.getClientRects().length > 0) {
            const both = [light(getComputedStyle(of).color), light(ground(of))];
            const contrast = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
            if (contrast < 4.5) faults.push(`${contrast.toFixed(1)}: ${of.textContent}`);
        }
    }
    for (const svg of document.querySelectorAll('svg')) {
        if (!svg.getAttribute('aria-label') && svg.getAttribute('aria-hidden') !== 'true') faults.push(svg.outerHTML);
    }
    for (const th of document.querySelectorAll('th')) {
        if (!th.scope || !th.textContent.trim()) faults.push(th.outerHTML);
    }
    return faults;
})()";

/// The text of a cell by the heading of its row.
fn cell(rows: &str, heading: &str, column: usize) -> String {
    format!(
        "[...document.querySelectorAll('#{rows} tr')].find((row) => row.cells[0].textContent === '{heading}')\
         ?.cells[{column}].textContent"
    )
}

/// Reads and writes of a round: a part of the library again and again, another for the first time, and writes.
fn traffic(world: &World, round: u64) {
    let mut library = world.connect("library");
    let fresh = (round * 7 % 29) * MIB;
    for offset in [0, MIB, fresh] {
        for piece in 0..4 {
            library.read(offset + piece * (256 << 10), 256 << 10).expect("read");
        }
    }
    let data = DataGen::new(round, 8192).mixed(32);
    for name in ["disk", "thin"] {
        let mut client = world.connect(name);
        let offset = (round * 5 % 15) * MIB;
        client.write(offset, &data).expect("write");
        client.read(offset, data.len()).expect("read");
        client.read((round * 3 % 15) * MIB, 256 << 10).expect("read");
        client.flush().expect("flush");
    }
}

#[test]
fn a_browser_shows_numbers_that_move_on_any_screen() {
    let mut world = world();
    world.volumes.push(("late".to_owned(), MIB, String::new()));
    std::fs::create_dir(world.origin("late")).expect("nothing that can be opened");
    let daemon = world.start();
    let url = url(&world);
    let mut browser = Browser::start();
    browser.dress(1280, "light");
    browser.open(&url);
    browser.until("document.querySelector('#verdict-state').textContent === 'FAILED'");
    let reason = browser.value("document.querySelector('#reasons').textContent");
    assert!(reason.as_str().is_some_and(|text| text.contains("volume late: it is not served")), "{reason}");

    // A repaired fault is healthy on the page, and its log has both.
    std::fs::remove_dir(world.origin("late")).expect("it was ours");
    assert!(world.zcctl_output(&["reload"]).status.success());
    browser.until("document.querySelector('#verdict-state').textContent === 'HEALTHY: nothing to do'");
    browser.until("document.querySelectorAll('#events li').length === 3");
    let events = browser.value("document.querySelector('#events').textContent");
    assert!(
        events.as_str().is_some_and(|text| text.contains("origin-missing ends: volume late")),
        "{events}"
    );

    let offered = cell("insertion", "offered to the cache", 2);
    let picture = std::env::var_os(PICTURE_VARIABLE);
    for round in 0..if picture.is_some() { 60 } else { 3 } {
        let before = browser.value(&offered);
        traffic(&world, round);
        browser.until(&format!("{offered} !== {before}"));
    }
    assert_eq!(browser.value(&cell("stores", "tank", 3)), "1");
    let twice = browser.value(&cell("curve", "twice this size", 1));
    assert!(twice.as_str().is_some_and(|text| text.ends_with(" %")), "{twice}");
    let dirty = browser.value(&cell("dirty", "disk", 2));
    assert!(dirty.as_str().is_some_and(|text| text.ends_with("of 30.0 s")), "{dirty}");
    assert_eq!(browser.value("document.querySelectorAll('#hits-chart path[d^=M]').length > 2"), true);
    assert_eq!(browser.value("document.querySelectorAll('#paths svg path[d^=M]').length > 8"), true);

    let mut grounds = BTreeSet::new();
    for (width, scheme) in [(360, "light"), (360, "dark"), (1280, "dark"), (1280, "light")] {
        browser.dress(width, scheme);
        assert_eq!(browser.value("innerWidth"), width);
        assert_eq!(browser.value(FAULTS), Value::Array(Vec::new()), "{width} px, {scheme}");
        grounds.insert(browser.value("getComputedStyle(document.body).backgroundColor").to_string());
    }
    assert_eq!(grounds.len(), 2, "one light, one dark");
    browser.dress(960, "light");
    let shown = browser.picture(960, 1030);
    assert!(shown.starts_with(b"\x89PNG"));
    if let Some(path) = picture {
        std::fs::write(path, shown).expect("cannot write the picture");
    }
    let own = |asked: &&String| asked.starts_with(&url);
    let strange: Vec<&String> = browser.requests.iter().filter(|asked| !own(asked)).collect();
    assert!(strange.iter().all(|asked| *asked == "data:,"), "{strange:?}");
    assert_eq!(browser.complaints, Vec::<String>::new());

    // A stopped daemon is reported, and the page continues when it is back.
    assert_eq!(daemon.terminate().code(), Some(0));
    browser.until("!document.querySelector('#lost').hidden");
    browser.close();
}

#[test]
fn the_picture_in_the_documents_is_there_and_small() {
    let bytes = read_file(&workspace().join(PICTURE));
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() < PICTURE_BYTES_MAX, "{} bytes", bytes.len());
}
