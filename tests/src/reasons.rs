//! Reasons of the verdict: awaited, compared in all that shows them, and their advice followed.

use std::process::Command;

use serde_json::{Value, json};

use crate::{World, program, run_ok};

/// A reason that `zcctl status` gives.
#[derive(Debug, Clone)]
pub struct Reason {
    /// Cause.
    pub what: String,
    /// Effect.
    pub follows: String,
    /// Action.
    pub command: String,
}

impl World {
    /// Waits for a reason of this kind, and checks that status, exit status and events agree about it.
    ///
    /// # Panics
    /// It does not come, or they differ.
    #[must_use]
    pub fn reason(&self, kind: &str) -> Reason {
        let find = |status: &Value| {
            let reasons = status["verdict"]["reasons"].as_array()?;
            reasons.iter().find(|reason| reason["kind"] == kind).cloned()
        };
        let status = self.status_until(kind, |status| find(status).is_some());
        let reason = find(&status).expect("it was there");
        let text = |name: &str| reason[name].as_str().unwrap_or_default().to_owned();
        let found = Reason { what: text("what"), follows: text("follows"), command: text("command") };
        // The events contain the original report; the present status may count more of it.
        let events = self.control(&json!({ "cmd": "events", "after": 0 }));
        let begun = events["events"].as_array().into_iter().flatten();
        let is_begun = |event: &Value| event["event"] == kind && event["change"] == "begins";
        assert!(begun.into_iter().any(is_begun), "{kind} is no event: {events}");
        let output = self.zcctl_output(&["status"]);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        for part in [&found.follows, &format!("action: {}", found.command)] {
            assert!(shown.contains(part.as_str()) && !part.is_empty(), "{part} in {shown}");
        }
        let code = if status["verdict"]["state"] == "FAILED" { 3 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{shown}");
        found
    }

    /// Waits until nothing is wrong, which `zcctl status` shows by its exit status, too.
    ///
    /// # Panics
    /// Something stays wrong.
    pub fn is_healthy(&self) {
        let verdict = self.status()["verdict"].clone();
        if verdict["state"] != "HEALTHY" {
            eprintln!("waits until this is over: {verdict}");
        }
        let _status = self.status_until("HEALTHY", |status| status["verdict"]["state"] == "HEALTHY");
        let output = self.zcctl_output(&["status"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

impl Reason {
    /// Checks that the reason has these words.
    ///
    /// # Panics
    /// It lacks one of them.
    #[must_use]
    pub fn of(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.what.contains(word) || self.follows.contains(word), "{word} in {self:?}");
        }
        self
    }

    /// Runs a command of the advice, as it is written there, with the programs that are tested.
    ///
    /// # Panics
    /// The advice lacks it, or it fails.
    pub fn run(&self, world: &World, command: &str) {
        assert!(self.command.contains(command), "{command} in {self:?}");
        let programs = program("zcctl").parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-ec", command]).env("PATH", format!("{programs}:{path}"));
        run_ok(shell.env("ZCACHED_SOCKET", world.control_socket()));
    }

    /// Checks that the advice contains these words, which the test executes itself.
    ///
    /// # Panics
    /// They are missing.
    pub fn advises(&self, words: &str) {
        assert!(self.command.contains(words), "{words} in {self:?}");
    }
}
