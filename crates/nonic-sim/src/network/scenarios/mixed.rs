//! Scenarios with nonic beside other implementations, and with real devices instead of models.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, SECOND, Scenario};
use crate::network::device::{Devices, Transfer};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::statistics::jain;
use crate::network::topology::{Cable, Topology};
use nonic_core::PathMtu;
use nonic_netem::Marking;

pub(super) const MIXED: Scenario = Scenario {
    name: "mixed",
    title: "Peers that go back",
    about: "Eight flows between nonics, eight from nonic to peers that throw away what comes after a gap and know nothing of marks (rxe), \
            and two between such peers, which do not slow down for anything, share a link of 10 Gbit/s. The link must be full, and \
            nobody may starve. If the link marks, only flows between nonics hear of it: they are left with the two packets that each \
            may always have under way.",
    run: mixed,
};

pub(super) const DEVICES: Scenario = Scenario {
    name: "devices",
    title: "Real devices",
    about: "32 whole devices of nonic-core, of which 31 write to one, and the same with flows: what holds for the model must hold for the \
            device. Every request must succeed.",
    run: devices,
};

const EACH: usize = 8;
const OTHERS: usize = 2;
const ENDS: [Ends; 3] = [Ends::Nonic, Ends::NonicToRxe, Ends::Rxe];

/// Nonic's flows alternate between the two groups, so that it does not matter which began first.
fn group(from: usize) -> usize {
    if from < 2 * EACH { from % 2 } else { 2 }
}

fn mixed(quick: bool, outcome: &mut Outcome) {
    for (name, marking, least) in [
        ("without marks", None, 0.2),
        ("with marks", Some(Marking::USUAL), 0.01),
    ] {
        mix(quick, outcome, name, marking, least);
    }
}

/// Runs it with or without marks; between nonics, each flow must get at least so much of a fair share.
fn mix(quick: bool, outcome: &mut Outcome, name: &str, marking: Option<Marking>, least: f64) {
    let until_ns = if quick { 500 * MS } else { 2 * SECOND };
    let senders = 2 * EACH + OTHERS;
    let mut topology = Topology::star(senders + 1, Cable::gigabits(10, 5_000));
    topology.marking = marking;
    let flow = |from: usize| FlowSpec {
        from,
        to: senders,
        packets: ENDLESS,
        mtu: 1024,
        start_ns: from as u64 * 10_000,
        ends: ENDS[group(from)],
    };
    let plan = Plan {
        flows: (0..senders).map(flow).collect(),
        capacity: topology.host.carries(SECOND),
        topology,
        from_ns: until_ns / 4,
        until_ns,
        sample_ns: until_ns / SAMPLES,
    };
    let (net, metrics) = plan.run(name);
    let mut groups: [Vec<f64>; 3] = Default::default();
    for (from, flow) in net.flows.iter().enumerate() {
        groups[group(from)].push(flow.counted_bytes() as f64);
    }
    let fair = groups.iter().flatten().sum::<f64>() / senders as f64;
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64 / fair;
    outcome.at_least(format!("{name}: goodput"), metrics.goodput, 0.9);
    outcome.at_least(
        format!("{name}: nonic to nonic, of a fair share"),
        mean(&groups[0]),
        least,
    );
    outcome.at_least(
        format!("{name}: nonic to rxe, of a fair share"),
        mean(&groups[1]),
        0.2,
    );
    outcome.at_least(
        format!("{name}: rxe to rxe, of a fair share"),
        mean(&groups[2]),
        0.2,
    );
    // Without marks, the flows that came first have less: another scenario is about that.
    if marking.is_some() {
        outcome.at_least(
            format!("{name}: fairness among nonic to nonic"),
            jain(&groups[0]),
            0.8,
        );
    }
    let timeouts = metrics.timeouts as f64 / senders as f64;
    outcome.at_most(format!("{name}: timeouts for each flow"), timeouts, 1.0);
    outcome.runs.push(metrics);
}

const DEVICES_SENDING: usize = 31;
const MESSAGE: u32 = 64 << 10;

fn devices(quick: bool, outcome: &mut Outcome) {
    let messages = if quick { 24 } else { 96 };
    let star = || Topology::star(DEVICES_SENDING + 1, Cable::gigabits(10, 5_000));
    let capacity = star().host.carries(SECOND);
    let plan = |flows| Plan {
        topology: star(),
        flows,
        from_ns: 0,
        until_ns: 4 * SECOND,
        sample_ns: MS / 4,
        capacity,
    };
    let transfers: Vec<Transfer> = (0..DEVICES_SENDING)
        .map(|from| Transfer {
            from,
            to: DEVICES_SENDING,
            message: MESSAGE,
            messages,
            depth: 8,
        })
        .collect();
    let (net, mut metrics) = plan(Vec::new()).run_with("devices", |net| {
        net.devices = Devices::new(DEVICES_SENDING + 1, PathMtu::Mtu1024, &transfers);
        (0..=DEVICES_SENDING).for_each(|host| net.start_device(host));
    });
    net.devices.complete_metrics(&mut metrics, net.now_ns, capacity);
    outcome.at_most("requests that failed", net.devices.failures.len() as f64, 0.0);
    outcome.at_least(
        "transfers that ended",
        metrics.finished as f64,
        DEVICES_SENDING as f64,
    );
    let flow = |from: usize| FlowSpec {
        from,
        to: DEVICES_SENDING,
        packets: MESSAGE / 1024 * messages,
        mtu: 1024,
        start_ns: 0,
        ends: Ends::Nonic,
    };
    let (_, modelled) = plan((0..DEVICES_SENDING).map(flow).collect()).run("flows");
    outcome.at_least("goodput of devices", metrics.goodput, 0.8);
    outcome.at_least(
        "goodput of devices, of that of flows",
        metrics.goodput / modelled.goodput,
        0.8,
    );
    outcome.runs.extend([metrics, modelled]);
}
