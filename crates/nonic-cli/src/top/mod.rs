//! `nonic top`: a live screen of your processes, their devices and queue pairs.
//!
//! A thread asks the processes ([`sampler`]); what it brings is turned into rows with rates ([`model`]), of which the screen
//! ([`draw`]) shows as many as fit. Keys never wait for an answer. Only this file touches the terminal, so that the rest is
//! tested without one.

mod draw;
mod json;
mod model;
mod sampler;

use crate::units;
use anyhow::{Context, Result, bail};
use model::{Action, Model};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sampler::Sampler;
use std::io::IsTerminal;
use std::time::Duration;

/// How long the screen stays as it is while no key is pressed; answers of processes are shown at the latest then.
const REDRAW: Duration = Duration::from_millis(100);

/// Watch your processes live: devices, queue pairs, rates, retries
///
/// Keys: arrows and Page Up/Down move, Enter shows all of one queue pair, s changes what is sorted by, r reverses it, / filters, q
/// leaves. With --json, prints an object each interval, with a number of bytes and packets per second for each device and queue pair.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this process
    #[arg(long)]
    pid: Option<u32>,
    /// Ask the processes this often
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// With --json: end after so many objects
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<()> {
    if json {
        return json::print(arguments);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!(
            "`nonic top` draws on a terminal, and this is none; `nonic top --json` prints an object each second, `nonic show qp` a table once"
        );
    }
    let sampler = Sampler::start(arguments.pid, arguments.interval)?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let outcome = watch(&mut terminal, &sampler);
    ratatui::restore();
    outcome
}

fn watch(terminal: &mut DefaultTerminal, sampler: &Sampler) -> Result<()> {
    let mut model = Model::default();
    loop {
        for sample in sampler.take() {
            model.update(sample?);
        }
        terminal.draw(|frame| draw::draw(frame, &mut model))?;
        if !event::poll(REDRAW)? {
            continue;
        }
        // All keys that came meanwhile, then one drawing.
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else {
                continue;
            };
            let action = action(key, model.is_filtering());
            if action.is_some_and(|action| !model.act(action)) {
                return Ok(());
            }
        }
    }
}

/// What a key means.
fn action(key: KeyEvent, filtering: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    Some(match key.code {
        KeyCode::Up => Action::Move(-1),
        KeyCode::Down => Action::Move(1),
        KeyCode::PageUp => Action::MovePage(-1),
        KeyCode::PageDown => Action::MovePage(1),
        KeyCode::Home => Action::Move(isize::MIN),
        KeyCode::End => Action::Move(isize::MAX),
        KeyCode::Enter => Action::Enter,
        KeyCode::Esc => Action::Back,
        KeyCode::Backspace if filtering => Action::Erase,
        KeyCode::Char(letter) if filtering => Action::Type(letter),
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Char('j') => Action::Move(1),
        KeyCode::Char('s') => Action::NextSort,
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('/') => Action::Filter,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_commands_unless_a_filter_is_typed() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(action(key(KeyCode::Char('q')), false), Some(Action::Quit));
        assert_eq!(action(key(KeyCode::Char('q')), true), Some(Action::Type('q')));
        assert_eq!(action(key(KeyCode::Char('x')), false), None);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(interrupt, true), Some(Action::Quit));
    }
}
