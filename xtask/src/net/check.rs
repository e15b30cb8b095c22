//! `net check`: a few bad wires in less than a minute. What arrives is verified; how fast it is has bounds that hold by far, beside
//! TCP in the same run.

use super::network::{Network, Plan};
use super::subject::{Meter, Subject, topology};
use super::trial::describe;
use super::{Built, wire::Side};
use crate::dist;
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail, ensure};
use nonic_netem::{LinkCounters, LinkSettings};
use std::time::{Duration, Instant};
use testbed::packages::is_root;
use testbed::process::{Process, Ready};

/// What to check with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
}

/// A verified run on a wire with these settings in both directions.
struct Verified {
    settings: &'static str,
    /// Of `nonic perf`.
    arguments: &'static str,
    /// Which of the wire's counters must not be zero: a run in which nothing happened proves nothing.
    happened: fn(&LinkCounters) -> u64,
}

const VERIFIED: [Verified; 6] = [
    Verified {
        settings: "delay=2ms,loss=20%",
        arguments: "--op write --size 65536 --iterations 32",
        happened: |counters| counters.faults.lost,
    },
    Verified {
        settings: "delay=2ms,jitter=2ms",
        arguments: "--op send --size 20000 --iterations 1000",
        happened: |counters| counters.packets,
    },
    Verified {
        settings: "delay=1ms,corrupt=2%,dup=5%",
        arguments: "--op write --size 65536 --iterations 300",
        happened: |counters| counters.faults.corrupted.min(counters.faults.duplicated),
    },
    Verified {
        settings: "delay=1ms,burst=0.2%x10",
        arguments: "--op read --size 65536 --iterations 300",
        happened: |counters| counters.faults.lost,
    },
    Verified {
        settings: "delay=1ms,early=1%",
        arguments: "--op write --size 65536 --iterations 1000",
        happened: |counters| counters.faults.reordered,
    },
    Verified {
        settings: "delay=2ms,rate=50mbit,queue=100000,red=15000:45000:10%",
        arguments: "--op write --size 65536 --iterations 100",
        happened: |counters| counters.marked + counters.dropped_early,
    },
];

/// Wires on which nonic must not be slower than this part of TCP with the kernel's default control.
const COMPARED: [(&str, f64); 3] = [
    ("delay=500us,rate=200mbit", 0.5),
    ("delay=2ms,jitter=1ms,rate=100mbit", 0.3),
    ("delay=5ms,loss=1%,rate=100mbit", 0.5),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(is_root(), "only root can make network namespaces");
    let built = Built::new(&options.dist)?;
    let mut complaints = Vec::new();
    let mut tell = |name: String, began: Instant, outcome: Result<String>| {
        let seconds = began.elapsed().as_secs_f32();
        match outcome {
            Ok(told) => println!("{name}: ok ({seconds:.1} s): {told}"),
            Err(error) => {
                println!("{name}: FAILED ({seconds:.1} s): {error:#}");
                complaints.push(name);
            }
        }
    };
    for case in &VERIFIED {
        let name = format!("{}: nonic perf --verify {}", case.settings, case.arguments);
        tell(name, Instant::now(), verify(&built, case));
    }
    let changed = "a wire that changes while it is used".to_owned();
    tell(changed, Instant::now(), change_while_used(&built));
    for (settings, least) in COMPARED {
        let name = format!("{settings}: at least {least} of TCP");
        tell(name, Instant::now(), compare(&built, settings, least));
    }
    ensure!(
        complaints.is_empty(),
        "not as expected: {}",
        complaints.join("; ")
    );
    Ok(())
}

fn network(settings: &str) -> Result<Network> {
    let mut both = LinkSettings::default();
    both.change(settings)?;
    Network::new(&Plan {
        left: 1,
        right: 1,
        mtu: 1500,
        settings: [both.clone(), both],
        seed: 1,
        offload: true,
    })
}

/// Starts `nonic perf --verify` between both hosts.
fn start(built: &Built, network: &Network, arguments: &str) -> Result<[Process; 2]> {
    let port = fresh_port();
    let address = format!("{}:{port}", network.right[0].address);
    let mut command = network.right[0].run_as(&[]).command(&built.nonic);
    let server = Process::start(command.args(["perf", "--server", "--once", "--bind", &address]))?;
    server.wait_until_within(Ready::Service(port), &topology(), Duration::from_secs(20))?;
    let mut command = network.left[0].run_as(&[]).command(&built.nonic);
    command.args(["perf", &address, "--verify", "--events", "--ack-timeout", "250ms"]);
    let client = Process::start(command.args(arguments.split(' ')))?;
    Ok([server, client])
}

fn finish([server, client]: [Process; 2]) -> Result<()> {
    match client.finish_within(Duration::from_secs(40)) {
        Ok(_) => Ok(()),
        Err(error) => bail!("{error:#}; the server: {}", server.stop()),
    }
}

fn verify(built: &Built, case: &Verified) -> Result<String> {
    let network = network(case.settings)?;
    finish(start(built, &network, case.arguments)?)?;
    let [there, back] = network.wire.counters();
    let happened = (case.happened)(&there.link) + (case.happened)(&back.link);
    ensure!(
        happened > 0,
        "nothing happened on this wire: {}",
        describe(&there)
    );
    Ok(describe(&there))
}

/// Good, then bad, then good again.
fn change_while_used(built: &Built) -> Result<String> {
    let network = network("delay=1ms,rate=50mbit")?;
    let both = start(built, &network, "--op write --size 65536 --iterations 160")?;
    for settings in ["delay=3ms,rate=20mbit,loss=5%", "delay=1ms,rate=100mbit"] {
        // Some time on each: 160 messages are 84 Mbit.
        std::thread::sleep(Duration::from_millis(400));
        let mut changed = LinkSettings::default();
        changed.change(settings)?;
        network.wire.change(Side::Left, changed.clone());
        network.wire.change(Side::Right, changed);
    }
    finish(both)?;
    let [there, _] = network.wire.counters();
    ensure!(
        there.link.faults.lost > 0,
        "nothing got lost: {}",
        describe(&there)
    );
    Ok(describe(&there))
}

fn compare(built: &Built, settings: &str, least: f64) -> Result<String> {
    let meter = Meter {
        nonic: &built.nonic,
        duration: Duration::from_millis(1500),
        depth: 16,
    };
    let measure = |subject: Subject| {
        let figure = meter.measure(&network(settings)?, subject);
        Ok::<_, anyhow::Error>(figure.with_context(|| subject.name())?.mbit)
    };
    let (ours, theirs) = (measure(Subject::Roce)?, measure(Subject::Tcp(""))?);
    let told = format!("{ours:.1} Mbit/s, TCP {theirs:.1}");
    ensure!(ours >= least * theirs, "{told}");
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_wires_are_readable() {
        let verified = VERIFIED.iter().map(|case| case.settings);
        for settings in verified.chain(COMPARED.map(|(settings, _)| settings)) {
            assert!(LinkSettings::default().change(settings).is_ok(), "{settings}");
        }
    }
}
