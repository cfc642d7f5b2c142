//! A headless browser, controlled over a pipe (Chrome DevTools Protocol).
//!
//! Job: open pages, evaluate expressions in them, and record the browser's complaints and requests.
//!
//! Invariants: host names do not resolve, so a page reaches this machine alone; the browser's own files are in a
//! folder of the test. The test judges.

use crate::{Companion, bounded, run_ok, temp_dir};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::Command;

/// Passes the browser its pipes: descriptor 3 for commands, 4 for answers.
const WITH_PIPES: &str = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    to: PipeWriter,
    from: BufReader<PipeReader>,
    companion: Companion,
    session: Option<String>,
    last_id: u64,
    /// Output of the page's console: errors and warnings, its own and the browser's.
    pub complaints: Vec<String>,
    /// The URLs requested by the page.
    pub requests: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts Chromium, with an empty page.
    ///
    /// # Panics
    /// It is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        let folder = temp_dir();
        let mut command = bounded("sh");
        command.args(["-c", WITH_PIPES, "sh"]).arg(crate::require_tool("chromium"));
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ]);
        command.args(["--remote-debugging-pipe", "--no-first-run", "--disable-component-update"]);
        command.args([
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]);
        command.arg(format!("--user-data-dir={}", folder.path().display())).env("HOME", folder.path());
        let (companion, to, from) = Companion::converse(&mut command);
        let from = BufReader::new(from);
        let (complaints, requests) = (Vec::new(), Vec::new());
        let mut browser =
            Self { to, from, companion, session: None, last_id: 0, complaints, requests, _folder: folder };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the protocol.
    ///
    /// # Panics
    /// The browser refuses it, or has ended.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        write!(self.to, "{message}\0").expect("the browser does not listen");
        let mut answer = self.next();
        while answer["id"] != self.last_id {
            answer = self.next();
        }
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Returns the next message; records its complaints.
    fn next(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).expect("cannot read from the browser");
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        let message: Value = serde_json::from_slice(&message).expect("the browser says JSON");
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(params.to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] != "log" => {
                self.complaints.push(params.to_string());
            }
            Some("Log.entryAdded") => self.complaints.push(params["entry"].to_string()),
            Some("Network.requestWillBeSent") => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
        message
    }

    /// Shows the page of a width in pixels, light or dark.
    pub fn dress(&mut self, width: u64, scheme: &str) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &scheme);
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Panics
    /// It cannot be reached.
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        while self.next()["method"] != "Page.loadEventFired" {}
    }

    /// Returns the value of an expression in the page, or the result of its promise.
    ///
    /// # Panics
    /// The page throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let run = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &run);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression holds after a change of the page.
    ///
    /// # Panics
    /// It does not within [`crate::DEADLINE`].
    pub fn until(&mut self, expression: &str) {
        let deadline_ms = crate::DEADLINE.as_millis();
        self.value(&format!(
            "new Promise((done, fail) => {{
                const look = () => {{ if ({expression}) done(true); }};
                new MutationObserver(look).observe(document, {{
                    subtree: true, childList: true, characterData: true, attributes: true,
                }});
                setTimeout(() => fail(new Error('not in time')), {deadline_ms});
                look();
            }})"
        ));
    }

    /// A picture of the upper part of the page, as a PNG.
    ///
    /// # Panics
    /// There is none.
    pub fn picture(&mut self, width: u64, height: u64) -> Vec<u8> {
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let picture = json!({ "captureBeyondViewport": true, "clip": clip });
        let answer = self.call("Page.captureScreenshot", &picture);
        let encoded = answer["data"].as_str().expect("a picture is text").to_owned();
        let file = temp_dir();
        let path = file.path().join("picture");
        std::fs::write(&path, encoded).expect("cannot write a file");
        run_ok(Command::new(crate::require_tool("base64")).arg("-d").arg(path)).stdout
    }

    /// Ends it in order.
    pub fn close(mut self) {
        self.session = None;
        self.call("Browser.close", &json!({}));
        self.companion.wait();
    }
}
