//! Quickstart's requests over its daemon's control socket, as an operator makes them with `zcctl`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use zc_pool_io::Order;

use super::place::STORE;

/// Makes a clone of a volume in the store.
pub(crate) fn clone(socket: &Path, from: &str, name: &str) -> anyhow::Result<()> {
    order(socket, &Order::Clone { from: from.to_owned(), name: name.to_owned() }).map(drop)
}

/// Returns the bytes of all volumes, and the bytes stored for them.
pub(crate) fn shown_and_stored(socket: &Path) -> anyhow::Result<(u64, u64)> {
    let status = order(socket, &Order::Status {})?;
    let bytes = |name: &str| status[name].as_u64().unwrap_or(0);
    Ok((bytes("used_bytes"), bytes("stored_bytes") + bytes("map_bytes")))
}

/// Has the daemon read its configuration again.
pub(crate) fn reload(socket: &Path) -> anyhow::Result<()> {
    ask(socket, &json!({ "cmd": "reload" })).map(drop)
}

fn order(socket: &Path, order: &Order) -> anyhow::Result<Value> {
    ask(socket, &json!({ "cmd": "store", "store": STORE, "order": order }))
}

fn ask(socket: &Path, request: &Value) -> anyhow::Result<Value> {
    let context = || format!("the daemon does not answer at {}", socket.display());
    let stream = UnixStream::connect(socket).with_context(context)?;
    writeln!(&stream, "{request}").with_context(context)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).with_context(context)?;
    let answer: Value = serde_json::from_str(&line).with_context(context)?;
    if answer["ok"] != json!(true) {
        bail!("the daemon refuses: {}", answer["error"]);
    }
    Ok(answer)
}
