//! `zcctl top`: the volumes of a running daemon on a terminal, refreshed until the operator quits.
//!
//! Job: poll the daemon, and pass its replies and the keys typed to [`model`]; [`view`] draws. Invariants: the
//! terminal is restored when the command ends for any reason; the daemon is not changed. It does not run without a
//! terminal.

mod model;
mod view;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::json;

use crate::control::ask;
use model::{Model, Sort};

/// Shows the volumes until the operator leaves.
pub(crate) fn run(socket: &Path, interval_s: u16) -> anyhow::Result<ExitCode> {
    if !std::io::stdout().is_terminal() {
        bail!("top needs a terminal; for programs and pipes there is `zcctl status --json`");
    }
    // A wrong socket is reported on the normal screen.
    let status = ask(socket, &json!({ "cmd": "status" }))?;
    let mut model = Model::default();
    model.take(&status);
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = show(&mut terminal, &mut model, socket, Duration::from_secs(interval_s.into()));
    ratatui::try_restore().context("cannot restore the terminal; type reset")?;
    ended.map(|()| ExitCode::SUCCESS)
}

fn show(
    terminal: &mut DefaultTerminal,
    model: &mut Model,
    socket: &Path,
    interval: Duration,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| view::draw(frame, model))?;
        if event::poll(interval)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press && !typed(model, key) => return Ok(()),
                _ => {}
            }
        }
        match ask(socket, &json!({ "cmd": "status" })) {
            Ok(status) => model.take(&status),
            Err(error) => model.lose(&format!("{error:#}")),
        }
    }
}

/// Executes the action of a key; returns `false` to quit.
fn typed(model: &mut Model, key: KeyEvent) -> bool {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return key.code != KeyCode::Char('c');
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('-') => model.reverse(),
        KeyCode::Char(letter) => {
            if let Some(sort) = Sort::of_key(letter) {
                model.sort_by(sort);
            }
        }
        KeyCode::Down => model.scroll(1),
        KeyCode::Up => model.scroll(-1),
        KeyCode::PageDown => model.scroll(10),
        KeyCode::PageUp => model.scroll(-10),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_scroll_and_leave() {
        let mut model = Model::default();
        let mut press = |code, modifiers| typed(&mut model, KeyEvent::new(code, modifiers));
        for letter in ['n', 'r', 'w', 'h', 'd', '-', 'x'] {
            assert!(press(KeyCode::Char(letter), KeyModifiers::NONE), "{letter}");
        }
        assert!(press(KeyCode::Down, KeyModifiers::NONE));
        assert!(!press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(!press(KeyCode::Esc, KeyModifiers::NONE));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(press(KeyCode::Char('d'), KeyModifiers::CONTROL));
    }
}
