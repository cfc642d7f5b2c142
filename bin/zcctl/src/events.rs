//! `zcctl events`: what changed in how the daemon is, for programs.
//!
//! Invariants: one JSON object a line, each written out at once; an event is printed once. While it follows, a daemon
//! that goes away is waited for, and its end and its return are events, too.
//!
//! What it does not do: judge. The daemon does.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::online::ask;

/// Time between two questions.
const PAUSE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };

/// What was printed last.
#[derive(Debug)]
struct Seen {
    pid: Option<u64>,
    number: u64,
}

pub(crate) fn run(socket: &Path, follow: bool, after: u64, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut seen = Seen { pid: None, number: after };
    print(&ask(socket, &request(&seen))?, &mut seen, out)?;
    if !follow {
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_gone = false;
    loop {
        rustix::event::poll(&mut [], Some(&PAUSE)).context("cannot wait")?;
        match ask(socket, &request(&seen)) {
            Ok(answer) => {
                if std::mem::take(&mut is_gone) {
                    writeln!(out, "{}", json!({"event": "daemon-back", "pid": answer["pid"]}))?;
                }
                print(&answer, &mut seen, out)?;
            }
            Err(error) if !std::mem::replace(&mut is_gone, true) => {
                let told = json!({"event": "daemon-gone", "pid": seen.pid, "what": format!("{error:#}")});
                writeln!(out, "{told}")?;
                out.flush()?;
            }
            Err(_) => {}
        }
    }
}

fn request(seen: &Seen) -> Value {
    json!({"cmd": "events", "after": seen.number})
}

/// Prints what is new in an answer. Another daemon counts anew: what it was not asked for comes with the next answer.
fn print(answer: &Value, seen: &mut Seen, out: &mut dyn Write) -> anyhow::Result<()> {
    let pid = answer["pid"].as_u64();
    if seen.pid.is_some() && pid != seen.pid {
        *seen = Seen { pid, number: 0 };
        return Ok(out.flush()?);
    }
    seen.pid = pid;
    for event in answer["events"].as_array().into_iter().flatten() {
        writeln!(out, "{event}")?;
        seen.number = event["number"].as_u64().unwrap_or(seen.number);
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_once_and_another_daemon_counts_anew() {
        let mut seen = Seen { pid: None, number: 4 };
        let mut out = Vec::new();
        let answer = json!({"pid": 9, "events": [{"number": 5, "event": "fenced"}, {"number": 6}]});
        print(&answer, &mut seen, &mut out).unwrap();
        let lines = "{\"event\":\"fenced\",\"number\":5}\n{\"number\":6}\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
        assert_eq!((seen.pid, seen.number), (Some(9), 6));
        let mut out = Vec::new();
        print(&json!({"pid": 10, "events": []}), &mut seen, &mut out).unwrap();
        assert!(out.is_empty());
        assert_eq!(request(&seen), json!({"cmd": "events", "after": 0}));
    }
}
