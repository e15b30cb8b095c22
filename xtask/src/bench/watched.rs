//! The cost of being watched: perftest alone, and with `nonic top` running beside it.
//!
//! Each round measures alone, watched and alone again, in changing order. The two figures alone differ by chance only, so their
//! ratio shows what a difference has to exceed to mean something. `top` asks ten times as often as by default, on a terminal of its
//! own. It is one more process on the machine, and where two processes that poll have all the processors, that shows too.

use super::measure::{Absence, Bench};
use super::probe::{Place, Probe, Quantity, Subject};
use anyhow::{Context, Result, bail};
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};
use testbed::owned::OwnedChild;
use testbed::packages::install;
use testbed::stats::{Summary, ratios};

/// Long enough that each run is asked many times.
const SCALE: f64 = 25.0;
const INTERVAL: &str = "100ms";
/// How long `nonic top` may take to leave.
const PATIENCE: Duration = Duration::from_secs(60);

const PROBES: [Probe; 2] = [
    Probe {
        subject: Subject::Perftest {
            program: "ib_write_bw",
            arguments: &[],
        },
        size: 65536,
        quantity: Quantity::Bandwidth,
        place: Place::OneHost,
    },
    Probe {
        subject: Subject::Perftest {
            program: "ib_send_lat",
            arguments: &[],
        },
        size: 64,
        quantity: Quantity::Time,
        place: Place::OneHost,
    },
];

/// The ways, in the order of the first round.
const ALONE: usize = 0;
const WATCHED: usize = 1;
const ALONE_AGAIN: usize = 2;

/// Measures and tells.
pub(super) fn run(bench: Bench<'_>, rounds: u32) -> Result<()> {
    install(&[
        ("/usr/bin/ib_write_bw", "perftest"),
        ("/usr/bin/script", "bsdutils"),
    ])?;
    let bench = Bench {
        scale: bench.scale * SCALE,
        ..bench
    };
    println!(
        "medians of {rounds} rounds (least to most); ratios are watched : alone, and alone again : alone"
    );
    for probe in PROBES {
        let mut found = [const { Vec::new() }; 3];
        for round in 0..rounds as usize {
            for step in 0..found.len() {
                let way = (round + step) % found.len();
                let watcher = (way == WATCHED).then(|| Watcher::start(&bench)).transpose()?;
                found[way].push(Some(figure(&bench, &probe)?));
                watcher.map_or(Ok(()), Watcher::end)?;
            }
        }
        let shown = |values: &[f64], show: &dyn Fn(f64) -> String| {
            Summary::of(values).map_or_else(
                || "–".to_owned(),
                |all| format!("{} ({} to {})", show(all.median), show(all.least), show(all.most)),
            )
        };
        let times = |value: f64| format!("{value:.3} ×");
        let alone: Vec<f64> = found[ALONE].iter().flatten().copied().collect();
        println!("{}", probe.name());
        println!(
            "  alone        {}",
            shown(&alone, &|value| probe.quantity.show(value))
        );
        println!(
            "  watched      {}",
            shown(&ratios(&found[WATCHED], &found[ALONE]), &times)
        );
        println!(
            "  alone again  {}",
            shown(&ratios(&found[ALONE_AGAIN], &found[ALONE]), &times)
        );
    }
    Ok(())
}

fn figure(bench: &Bench<'_>, probe: &Probe) -> Result<f64> {
    match bench.measure(probe) {
        Ok(figure) => Ok(figure.value),
        Err(Absence::NotInstalled(package)) => bail!("{} is missing: install {package}", probe.name()),
        Err(Absence::NeedsRoot) => bail!("needs root"),
        Err(Absence::Failed(complaint)) => bail!("{}: {complaint}", probe.name()),
    }
}

/// `nonic top` on a terminal of its own.
struct Watcher {
    keys: ChildStdin,
    script: OwnedChild,
}

impl Watcher {
    fn start(bench: &Bench<'_>) -> Result<Self> {
        let line = format!("{} top --interval {INTERVAL}", bench.nonic.display());
        let mut script = bench.one_host.client.command("script".as_ref());
        script.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        script
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut script = script.spawn().context("cannot start script")?;
        Ok(Self {
            keys: script.stdin.take().context("the input is piped")?,
            script: script.into(),
        })
    }

    /// Presses the key that leaves; whether it was well until then.
    fn end(mut self) -> Result<()> {
        use std::io::Write as _;
        self.keys.write_all(b"q").context("`nonic top` had ended")?;
        self.keys.flush()?;
        let ended = self.script.wait_until(Instant::now() + PATIENCE)?;
        let status = ended.context("`nonic top` does not end when it is asked to")?;
        anyhow::ensure!(status.success(), "`nonic top` ended with {status}");
        Ok(())
    }
}
