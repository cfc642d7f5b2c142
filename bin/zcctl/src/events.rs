//! `zcctl events`: changes of the daemon's state, for programs.
//!
//! Invariants: one JSON object a line, each flushed at once; an event is printed once. While following, it waits for a
//! daemon that goes away; its end and its return are events, too. Programs run after the line is printed.
//!
//! It does not judge states. The daemon does.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::control::ask;
use crate::hooks::Hooks;

/// Time between two questions.
const PAUSE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };

/// Last printed event.
#[derive(Debug)]
struct LastEvent {
    pid: Option<u64>,
    number: u64,
}

struct Sink<'a> {
    out: &'a mut dyn Write,
    hooks: Option<Hooks>,
}

impl Sink<'_> {
    fn tell(&mut self, event: &Value) -> anyhow::Result<()> {
        writeln!(self.out, "{event}")?;
        self.out.flush()?;
        if let Some(hooks) = &self.hooks {
            hooks.run(event);
        }
        Ok(())
    }
}

/// Prints events of the daemon at `socket`, from the one after `after` on, and runs programs for them.
///
/// # Errors
/// There is no daemon at first, or no program reads the events.
pub(crate) fn run(
    socket: &Path,
    follow: bool,
    after: u64,
    hooks: Option<Hooks>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut sink = Sink { out, hooks };
    let mut seen = LastEvent { pid: None, number: after };
    print(&ask(socket, &request(&seen))?, &mut seen, &mut sink)?;
    if !follow {
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_gone = false;
    loop {
        rustix::event::poll(&mut [], Some(&PAUSE)).context("cannot wait")?;
        match ask(socket, &request(&seen)) {
            Ok(answer) => {
                if std::mem::take(&mut is_gone) {
                    sink.tell(&json!({"event": "daemon-back", "pid": answer["pid"]}))?;
                }
                print(&answer, &mut seen, &mut sink)?;
            }
            Err(error) if !std::mem::replace(&mut is_gone, true) => {
                sink.tell(&json!({"event": "daemon-gone", "pid": seen.pid, "what": format!("{error:#}")}))?;
            }
            Err(_) => {}
        }
    }
}

fn request(seen: &LastEvent) -> Value {
    json!({"cmd": "events", "after": seen.number})
}

/// Prints new events of a reply. A restarted daemon restarts its numbers: missed events arrive with the next reply.
fn print(answer: &Value, seen: &mut LastEvent, sink: &mut Sink<'_>) -> anyhow::Result<()> {
    let pid = answer["pid"].as_u64();
    if seen.pid.is_some() && pid != seen.pid {
        *seen = LastEvent { pid, number: 0 };
        return Ok(());
    }
    seen.pid = pid;
    for event in answer["events"].as_array().into_iter().flatten() {
        sink.tell(event)?;
        seen.number = event["number"].as_u64().unwrap_or(seen.number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_once_and_another_daemon_counts_anew() {
        let mut seen = LastEvent { pid: None, number: 4 };
        let mut out = Vec::new();
        let answer = json!({"pid": 9, "events": [{"number": 5, "event": "fenced"}, {"number": 6}]});
        print(&answer, &mut seen, &mut Sink { out: &mut out, hooks: None }).unwrap();
        let lines = "{\"event\":\"fenced\",\"number\":5}\n{\"number\":6}\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
        assert_eq!((seen.pid, seen.number), (Some(9), 6));
        let mut out = Vec::new();
        let answer = json!({"pid": 10, "events": []});
        print(&answer, &mut seen, &mut Sink { out: &mut out, hooks: None }).unwrap();
        assert!(out.is_empty());
        assert_eq!(request(&seen), json!({"cmd": "events", "after": 0}));
    }
}
