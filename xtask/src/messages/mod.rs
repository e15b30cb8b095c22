//! Messages and streams beside raw verbs and TCP: on one host, between two namespaces, and with a millisecond between them.
//!
//! The measuring is done by two examples, `message_bench` and `web_bench`; here they are given their paths, and `--report` writes
//! what they said to `docs/messages.md` and `docs/streams.md`, with a plot. It needs root, for namespaces.

mod sizes;

use crate::bench::commit;
use crate::bench::machine::Machine;
use crate::dist;
use crate::net::network::{Network, Plan};
use anyhow::{Context, Result, ensure};
use nonic_netem::LinkSettings;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testbed::namespace::{Namespace, VethPair};
use testbed::owned::OwnedChild;
use testbed::packages::is_root;
use testbed::page::Part;
use testbed::process::Process;
use testbed::run_as::RunAs;

/// Where the peer listens.
const PORT: u16 = 7471;
const PATIENCE: Duration = Duration::from_secs(300);

/// What to measure, and how long.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds of each figure
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds for each line of the table of HTTP and gRPC
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Only between these, and no HTTP and gRPC
    #[arg(long, value_enum)]
    between: Option<Between>,
    /// Only this part of `message_bench`, and no HTTP and gRPC: latency, bandwidth, cutoffs, cache or sizes
    #[arg(long)]
    part: Option<String>,
    /// Write what was found to these pages and their plots
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "docs", conflicts_with_all = ["between", "part"])]
    report: Option<PathBuf>,
}

/// Measures and tells.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(is_root(), "only root can make network namespaces");
    // Before anything runs that is not there without us.
    let machine = Machine::here(env!("CARGO_PKG_VERSION"), commit());
    let all = options.between.is_none() && options.part.is_none();
    let examples = build(all)?;
    let mut found = Vec::new();
    let mut arguments = vec![options.rounds.to_string()];
    arguments.extend(options.part.clone());
    for path in [Between::OneHost, Between::Veth, Between::Delay] {
        if options.between.is_none_or(|asked| asked == path) {
            println!("{}", path.name());
            let said = path.measure(&examples.join("message_bench"), &arguments)?;
            println!("{said}");
            found.push((path, said));
        }
    }
    if !all {
        return Ok(());
    }
    let web = Command::new(examples.join("web_bench"))
        .arg(options.seconds.to_string())
        .output()
        .context("cannot start web_bench")?;
    ensure!(web.status.success(), "{}", String::from_utf8_lossy(&web.stderr));
    let web = String::from_utf8_lossy(&web.stdout);
    println!("{web}");
    match &options.report {
        Some(docs) => write(docs, &machine.markdown(), &found, &web),
        None => Ok(()),
    }
}

/// The folder with both examples in it, or the first of them.
fn build(both: bool) -> Result<PathBuf> {
    let examples = [
        ("nonic-message", "message_bench"),
        ("nonic-web-examples", "web_bench"),
    ];
    for (package, example) in examples.into_iter().take(if both { 2 } else { 1 }) {
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--release",
                "--quiet",
                "-p",
                package,
                "--example",
                example,
            ])
            .current_dir(dist::workspace())
            .status()
            .context("cannot start cargo")?;
        ensure!(status.success(), "{example} does not build");
    }
    Ok(dist::target_directory()?.join("release/examples"))
}

/// What is between the two programs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Between {
    OneHost,
    Veth,
    Delay,
}

impl Between {
    fn name(self) -> &'static str {
        match self {
            Between::OneHost => "One host",
            Between::Veth => "Two namespaces and a veth pair",
            Between::Delay => "Two namespaces and a wire with a round trip of 1 ms",
        }
    }

    fn measure(self, bench: &Path, arguments: &[String]) -> Result<String> {
        match self {
            Between::OneHost => {
                let mut command = Command::new(bench);
                command.arg("roce_lo").args(arguments);
                Process::start(&mut command)?.finish_within(PATIENCE)
            }
            Between::Veth => {
                let pair = VethPair::new()?;
                between(&pair.left, &pair.right, "10.77.0.2", bench, arguments)
            }
            Between::Delay => {
                let mut settings = LinkSettings::default();
                settings.change("delay=500us")?;
                let network = Network::new(&Plan {
                    left: 1,
                    right: 1,
                    mtu: 1500,
                    settings: [settings.clone(), settings],
                    seed: 1,
                    offload: true,
                })?;
                let (left, right) = (&network.left[0], &network.right[0]);
                let address = right.address.to_string();
                between(&left.namespace, &right.namespace, &address, bench, arguments)
            }
        }
    }
}

/// Runs the peer on one host and measures on the other.
fn between(
    left: &Namespace,
    right: &Namespace,
    address: &str,
    bench: &Path,
    arguments: &[String],
) -> Result<String> {
    let on = |namespace| RunAs {
        namespace: Some(namespace),
        ..RunAs::default()
    };
    let address = format!("{address}:{PORT}");
    let mut peer = on(right)
        .command(bench)
        .args(["serve", &address])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the peer")?;
    // It says where it listens, and ends when its client does.
    let mut line = String::new();
    let output = peer.stdout.take().context("no output")?;
    // Killed when its client has ended, or anything fails.
    let _peer = OwnedChild::from(peer);
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line.trim() == address, "the peer listens at {line:?}");
    let client = Process::start(on(left).command(bench).arg(&address).args(arguments))?;
    client.finish_within(PATIENCE)
}

fn write(docs: &Path, machine: &str, found: &[(Between, String)], web: &str) -> Result<()> {
    let mut page = format!("Measured on this machine, both programs on it:\n\n{machine}\n");
    for (path, said) in found {
        let (figures, _) = sizes::split(said);
        page.push_str(&format!(
            "{}:\n\n```text\n{}\n```\n\n",
            path.name(),
            figures.trim()
        ));
    }
    for (path, said) in found {
        let file = format!("messages-{}.svg", format!("{path:?}").to_lowercase());
        let chart = sizes::chart(path.name(), said)?;
        let svg = docs.join("plots").join(&file);
        std::fs::write(&svg, chart.svg()).with_context(|| format!("cannot write {}", svg.display()))?;
        page.push_str(&format!("![{}](plots/{file})\n\n", chart.title));
    }
    part("messages.md").write(docs, &page)?;
    let web = format!(
        "Client and server in two processes of one host, four connections, on this machine:\n\n{machine}\n{web}"
    );
    part("streams.md").write(docs, &web)
}

/// The part of a page that a run writes.
fn part(page: &'static str) -> Part {
    Part::found_by(page, "messages --report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_pages_have_their_marks() {
        for name in ["messages.md", "streams.md"] {
            let page = dist::workspace().join("docs").join(name);
            let page = std::fs::read_to_string(page).expect("there is a page");
            assert!(part(name).replaced(&page, "two").is_ok(), "{name}");
        }
    }
}
