//! `nonic draw`: a capture as a ladder diagram, on the terminal or as SVG.
//!
//! What is drawn, and how, is `nonic-ladder`'s business; here are files, the command line and the program that is followed
//! ([`live`]). [`show`] is also what `nonic sim --draw` shows its seeds with.

mod live;

use crate::conversation::GREETING;
use crate::output;
use crate::units;
use anyhow::{Context, Result, bail};
use nonic_ladder::terminal::{self, Screen};
use nonic_ladder::{Arrival, CaptureDrawer, Event, EventKind, Ladder, Selection, svg};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rows that are shown unless more are asked for.
const DEFAULT_LIMIT: usize = 120;
/// Columns of a terminal that says nothing else.
const DEFAULT_WIDTH: usize = 80;
/// How much of a file is read at a time.
const CHUNK: usize = 1 << 20;

/// Draw a capture as a ladder diagram: who sent what, what was lost, refused and repeated
///
/// Reads pcapng and pcap, as NONIC_PCAP, tcpdump and Wireshark write them: RoCEv2 packets, and iWARP's messages on TCP
/// connections whose beginning was captured. With --live, follows a capture that is still being written, or a program:
/// `nonic draw --live -- nonic ping --loopback`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct Arguments {
    /// The capture
    #[arg(value_name = "CAPTURE", required_unless_present = "live")]
    capture: Option<PathBuf>,
    /// Draw packets as they come: of a capture that grows, or of a program that is run under one
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    window: Window,
    /// Also the control connection, over which the two sides of `nonic ping` and `nonic perf` agree on what to do
    #[arg(long)]
    all: bool,
    /// Write it to this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// With --live: the program and its arguments
    #[arg(
        last = true,
        value_name = "COMMAND",
        requires = "live",
        conflicts_with = "capture"
    )]
    command: Vec<OsString>,
}

const NOTES: &str = "\
How to read it:
  - Time goes down. An arrow is a packet, with its opcode, PSN and length; ✗ is where it was lost.
  - `again`: a packet with this PSN was seen before. `late`: it had been missing. `2 before are missing`: two PSNs were
    skipped. All of this is as seen where the capture was made.
  - An address that talks to itself is several processes, told apart by the UDP port that each sends from.
  - The two sides of `nonic ping` and `nonic perf` agree on what to do over a control connection, which only --all shows.

JSON (--json): {title, ends: [name], events: [{at_ns, end, to, arrives_ns, lost, qp, peer_qp, what, mark}],
  left_out, notes: [sentence]}; at_ns counts from the first packet.";

/// Where a ladder is shown, and what of it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) window: Window,
    /// A file, instead of the terminal.
    pub(crate) svg: Option<PathBuf>,
    /// Control connections as well.
    pub(crate) all: bool,
}

impl View {
    /// All of a ladder, on a terminal of the usual width.
    pub(crate) fn terminal() -> Self {
        View {
            window: Window {
                qp: None,
                from: None,
                to: None,
                limit: Some(0),
                width: DEFAULT_WIDTH,
            },
            svg: None,
            all: false,
        }
    }

    /// What is wanted of a ladder.
    fn selection(&self) -> Selection {
        Selection {
            with_control: self.all,
            ..self.window.selection()
        }
    }
}

/// What of a ladder is shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Window {
    /// Only this queue pair, such as 0x7081fe or 17, and its peer
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) qp: Option<u32>,
    /// Only from this time on, such as 20ms after the first packet
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) from: Option<Duration>,
    /// Only up to this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) to: Option<Duration>,
    /// At most so many rows: half from the beginning, half from the end; 0 is all [default: 120]
    #[arg(long, value_name = "ROWS")]
    pub(crate) limit: Option<usize>,
    /// How many columns the terminal has
    #[arg(long, value_name = "COLUMNS", default_value_t = DEFAULT_WIDTH)]
    pub(crate) width: usize,
}

impl Window {
    /// What is wanted of a ladder.
    pub(crate) fn selection(&self) -> Selection {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Selection {
            queue_pairs: self.qp.map(|number| (None, number)).into_iter().collect(),
            from_ns: self.from.map(nanoseconds),
            to_ns: self.to.map(nanoseconds),
            limit: match self.limit {
                None => Some(DEFAULT_LIMIT),
                Some(0) => None,
                Some(limit) => Some(limit),
            },
            ..Selection::default()
        }
    }

    fn screen(&self) -> Screen {
        Screen {
            width: self.width,
            colour: output::colours_are_welcome(),
        }
    }
}

pub(crate) fn main(arguments: &Arguments, json: bool) -> Result<()> {
    let view = View {
        window: arguments.window.clone(),
        svg: arguments.svg.clone(),
        all: arguments.all,
    };
    let ladder = match (&arguments.capture, arguments.live) {
        (Some(capture), false) => read(capture)?,
        (capture, _) => {
            if json {
                bail!("--live draws for people; for --json, draw the capture when it is complete");
            }
            return live::follow(capture.as_deref(), &arguments.command, &view);
        }
    };
    if ladder.events.is_empty() {
        let notes = ladder.notes.join(" ");
        bail!("there is nothing to draw in the capture. {notes}");
    }
    show(&view.selection().apply(ladder), &view, json)
}

/// Shows a ladder, or writes it to a file.
pub(crate) fn show(ladder: &Ladder, view: &View, json: bool) -> Result<()> {
    if ladder.events.is_empty() {
        bail!("nothing happened there: choose another --qp, --from or --to");
    }
    if let Some(path) = &view.svg {
        std::fs::write(path, svg::render(ladder))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match (json, &view.svg) {
        (true, _) => output::json(&as_json(ladder)),
        (false, Some(path)) => output::line(format_args!(
            "{} events drawn to {}",
            ladder.events.len(),
            path.display()
        )),
        (false, None) => {
            terminal::render(ladder, view.window.screen())
                .iter()
                .try_for_each(output::line)?;
            if ladder.left_out.is_some() && view.window.limit != Some(0) {
                output::line("(--limit 0 shows all rows; --qp, --from and --to choose)")?;
            }
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<Ladder> {
    let what = || format!("cannot draw {}", path.display());
    let mut file = File::open(path).with_context(what)?;
    let mut drawer = drawer();
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = file.read(&mut chunk).with_context(what)?;
        if length == 0 {
            break;
        }
        drawer.handle(&chunk[..length]).with_context(what)?;
    }
    let mut ladder = drawer.finish();
    ladder.title = path.display().to_string();
    Ok(ladder)
}

/// Draws captures, and knows the connection over which `nonic ping` and `nonic perf` agree on what to do.
fn drawer() -> CaptureDrawer {
    CaptureDrawer::new().with_control_greeting(GREETING)
}

fn as_json(ladder: &Ladder) -> Value {
    let start_ns = ladder.start_ns();
    let event = |event: &Event| {
        let (to, arrives_ns, lost) = match event.kind {
            EventKind::Local => (None, None, false),
            EventKind::Packet { to, arrival } => match arrival {
                Arrival::At(at_ns) => (Some(to), Some(at_ns.saturating_sub(start_ns)), false),
                Arrival::Unknown => (Some(to), None, false),
                Arrival::Never => (Some(to), None, true),
            },
        };
        json!({
            "at_ns": event.at_ns.saturating_sub(start_ns),
            "end": event.end,
            "to": to,
            "arrives_ns": arrives_ns,
            "lost": lost,
            "qp": event.qp,
            "peer_qp": event.peer_qp,
            "what": event.text,
            "mark": event.mark,
        })
    };
    json!({
        "title": ladder.title,
        "ends": ladder.ends,
        "events": ladder.events.iter().map(event).collect::<Vec<_>>(),
        "left_out": ladder.left_out.map_or(0, |(_, count)| count),
        "notes": ladder.notes,
    })
}

/// Reads a queue pair number as people and Wireshark write it.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let is_number = |number: &u32| *number < 1 << 24;
    parsed
        .ok()
        .filter(is_number)
        .ok_or_else(|| format!("`{text}` is no queue pair number; write it like 0x7081fe or 17"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_are_read_in_either_base() {
        assert_eq!((number("0x7081fe"), number("17")), (Ok(0x70_81fe), Ok(17)));
        for bad in ["", "0x", "7081fe", "0x1000000", "-1"] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }
}
