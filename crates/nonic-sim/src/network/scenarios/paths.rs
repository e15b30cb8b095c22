//! Scenarios with several paths: some of them cut, or all of them used by each flow.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, SECOND, Scenario};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::net::Net;
use crate::network::topology::{Cable, Spread, Topology};

pub(super) const FLAPS: Scenario = Scenario {
    name: "flaps",
    title: "Cables that are cut and mended",
    about: "16 hosts send across four spines. A cable between a leaf and a spine is cut every 35 ms, for 15 ms each; the switches notice \
            after 5 ms, so until then everything that goes there is lost. Goodput must stay near what the cables carry, and be back \
            at once when the last is mended.",
    run: flaps,
};

pub(super) const SPRAYING: Scenario = Scenario {
    name: "spraying",
    title: "Packets sprayed over several paths",
    about: "The same hosts, with spines that can just carry everything, and paths that differ by 40 µs. If each flow takes one path, some \
            paths are overloaded and others idle. If each packet takes any, all of the capacity is used, and almost nothing must \
            be sent again although packets overtake each other all the time.",
    run: spraying,
};

const HOSTS: usize = 16;
const HOSTS_PER_LEAF: usize = 4;

fn topology(uplink_gigabits: u64, spread: Spread) -> Topology {
    let host = Cable::gigabits(10, 1_000);
    let mut topology = Topology::clos(
        4,
        HOSTS_PER_LEAF,
        4,
        host,
        Cable::gigabits(uplink_gigabits, 2_000),
    );
    topology.spread = spread;
    topology
}

fn plan(topology: Topology, ends: Ends, from_ns: u64, until_ns: u64) -> Plan {
    let flow = |from: usize| FlowSpec {
        from,
        to: (from + HOSTS_PER_LEAF) % HOSTS,
        packets: ENDLESS,
        mtu: 4096,
        start_ns: from as u64 * 10_000,
        ends,
    };
    Plan {
        flows: (0..HOSTS).map(flow).collect(),
        capacity: topology.host.carries(SECOND) * HOSTS as u64,
        topology,
        from_ns,
        until_ns,
        sample_ns: until_ns / SAMPLES,
    }
}

fn flaps(_: bool, outcome: &mut Outcome) {
    let until_ns = 160 * MS;
    let cut = |net: &mut Net| {
        for (index, leaf) in [0, 1, 2].into_iter().enumerate() {
            let at_ns = (20 + 35 * index as u64) * MS;
            net.flap(leaf, index, at_ns, at_ns + 15 * MS);
        }
    };
    for (name, ends) in [("nonic", Ends::Nonic), ("rxe", Ends::Rxe)] {
        let (_, metrics) = plan(topology(20, Spread::Flows), ends, 0, until_ns).run_with(name, cut);
        outcome.runs.push(metrics);
    }
    // The same without a cut cable: flows that share a path share it then too.
    let (_, undisturbed) =
        plan(topology(20, Spread::Flows), Ends::Nonic, 0, until_ns).run("nonic, undisturbed");
    let ours = outcome.runs[0].clone();
    outcome.at_least(
        "goodput, of the undisturbed one",
        ours.goodput / undisturbed.goodput,
        0.9,
    );
    let last = |series: &[(f64, f64)]| {
        let last = &series[series.len() * 3 / 4..];
        last.iter().map(|(_, part)| part).sum::<f64>() / last.len() as f64
    };
    let recovered = last(&ours.goodput_series) / last(&undisturbed.goodput_series);
    outcome.at_least(
        "goodput in the last quarter, of the undisturbed one",
        recovered,
        0.95,
    );
    outcome.at_most("timeouts for each flow", ours.timeouts as f64 / HOSTS as f64, 1.0);
    outcome.runs.push(undisturbed);
}

fn spraying(quick: bool, outcome: &mut Outcome) {
    let until_ns = if quick { 100 * MS } else { 400 * MS };
    for (name, spread) in [
        ("nonic, each packet any path", Spread::Packets),
        ("nonic, each flow one path", Spread::Flows),
    ] {
        let mut topology = topology(10, spread);
        topology.skew_ns = 10_000;
        let (_, metrics) = plan(topology, Ends::Nonic, until_ns / 4, until_ns).run(name);
        outcome.runs.push(metrics);
    }
    let mut topology = topology(10, Spread::Packets);
    topology.skew_ns = 10_000;
    let (_, rxe) = plan(topology, Ends::Rxe, until_ns / 4, until_ns).run("rxe, each packet any path");
    outcome.runs.push(rxe);
    let (sprayed, hashed) = (outcome.runs[0].clone(), outcome.runs[1].clone());
    outcome.at_least("goodput, sprayed", sprayed.goodput, 0.9);
    outcome.at_least("fairness, sprayed", sprayed.fairness, 0.95);
    outcome.at_least(
        "goodput, sprayed, of that by flow",
        sprayed.goodput / hashed.goodput,
        1.0,
    );
    let again = sprayed.repeated as f64 * 100.0 / sprayed.sent as f64;
    outcome.at_most("sent again, sprayed, %", again, 1.0);
}
