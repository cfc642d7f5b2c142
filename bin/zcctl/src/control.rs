//! Client of the control socket: one JSON object per line to a running daemon, one back.
//!
//! Invariants: replies are bounded in size and time; the text of a refusal is escaped. See
//! `crates/zc-daemon/CONTROL.md` for the protocol.
//!
//! It is independent of the commands.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::net;
use serde_json::{Value, json};

use crate::options::Daemon;
use crate::text;

/// Longest answer taken.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Time-out after which a daemon counts as hung.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Connect time-out after which a daemon counts as not running.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for a command that waits for devices or the kernel. These commands have deadlines of their own.
const DEVICE_WAIT: Duration = Duration::from_secs(150);
const SLOW: [&str; 11] = [
    "stop",
    "attach",
    "detach",
    "reattach",
    "replace-cache",
    "resize-cache",
    "resize",
    "erase",
    "store",
    "reload",
    "check-config",
];

/// Sends a request and prints the reply: as JSON if requested, else with `show`.
///
/// # Errors
/// As for [`ask`], or if the output cannot be written.
pub(crate) fn one(
    daemon: &Daemon,
    request: &Value,
    show: impl Fn(&Value, &mut dyn Write) -> anyhow::Result<()>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let answer = ask(&daemon.socket, request)?;
    if daemon.json {
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    show(&answer, out)
}

/// Connects within [`CONNECT_WAIT`]: a server that accepts no connections fills its queue, and the kernel would then
/// block forever.
fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let fd =
        net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_timeout(&fd, net::sockopt::Timeout::Send, Some(CONNECT_WAIT))?;
    net::connect(&fd, &net::SocketAddrUnix::new(socket)?)?;
    Ok(fd.into())
}

/// Sends one request, and returns the reply.
///
/// # Errors
/// When no daemon listens, the reply is malformed, or the daemon refuses.
pub(crate) fn ask(socket: &Path, request: &Value) -> anyhow::Result<Value> {
    let place = socket.display();
    let stream = connect(socket).map_err(|error| {
        let what = if error.kind() == std::io::ErrorKind::PermissionDenied {
            format!("{place} is for the user that the daemon runs as, and for root")
        } else if error.kind() == std::io::ErrorKind::WouldBlock {
            format!(
                "the program listening at {place} accepts no connections: the daemon is stopped (SIGSTOP) or \
                 overloaded, or another \
                 program listens there"
            )
        } else {
            format!(
                "no daemon answers at {place}: start it (`systemctl start zcached`), or name its socket with --socket"
            )
        };
        anyhow::Error::new(error).context(what)
    })?;
    let is_slow = SLOW.iter().any(|slow| request["cmd"] == **slow);
    stream.set_read_timeout(Some(if is_slow { DEVICE_WAIT } else { ANSWER_WAIT }))?;
    writeln!(&stream, "{request}").with_context(|| format!("cannot reach the daemon at {place}"))?;
    let mut line = String::new();
    let mut input = BufReader::new((&stream).take(ANSWER_BYTES_MAX));
    input.read_line(&mut line).with_context(|| format!("the daemon at {place} does not answer"))?;
    let answer: Value =
        serde_json::from_str(&line).with_context(|| format!("the program at {place} is not zcached"))?;
    if answer["ok"] != json!(true) {
        bail!(
            "{}",
            text::clean_lines(answer["error"].as_str().unwrap_or("the daemon refuses without a reason"))
        );
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Simulates a daemon that replies to one request with a line; returns the request.
    fn with_daemon(answer: &'static str, request: &Value) -> (anyhow::Result<Value>, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            line
        });
        let result = ask(&path, request);
        (result, daemon.join().unwrap())
    }

    #[test]
    fn requests_are_lines_and_refusals_are_errors() {
        let (answer, asked) = with_daemon("{\"ok\":true,\"pid\":7}\n", &json!({"cmd": "status"}));
        assert_eq!((answer.unwrap()["pid"].as_u64(), asked.as_str()), (Some(7), "{\"cmd\":\"status\"}\n"));
        let (answer, _) = with_daemon("{\"ok\":false,\"error\":\"no such \\u001b volume\"}\n", &json!({}));
        assert_eq!(answer.unwrap_err().to_string(), "no such \u{fffd} volume");
        // Several mistakes in a configuration are several lines.
        let (answer, _) = with_daemon("{\"ok\":false,\"error\":\"a:1: x\\na:2: y\"}\n", &json!({}));
        assert_eq!(answer.unwrap_err().to_string(), "a:1: x\na:2: y");
        let (answer, _) = with_daemon("HTTP/1.1 400\r\n", &json!({}));
        assert!(answer.unwrap_err().to_string().contains("not zcached"));
        assert!(
            ask(Path::new("/nonexistent/x.sock"), &json!({})).unwrap_err().to_string().contains("--socket")
        );
    }

    #[test]
    fn a_socket_whose_owner_takes_no_connections_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("squatted.sock");
        let fd = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None).unwrap();
        net::bind(&fd, &net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&fd, 0).unwrap();
        let _first_fills_the_queue = UnixStream::connect(&path).unwrap();
        let error = ask(&path, &json!({"cmd": "status"})).unwrap_err();
        assert!(error.to_string().contains("accepts no connections"), "{error}");
    }
}
