//! Scenarios in which many hosts all talk to each other, and in which some hosts are slower than the rest.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, SECOND, Scenario, laws};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::packet::HEADERS;
use crate::network::statistics::jain;
use crate::network::topology::{Cable, Topology};
use nonic_netem::Rate;

pub(super) const ALL_TO_ALL: Scenario = Scenario {
    name: "all-to-all",
    title: "All to all, 256 hosts",
    about: "Each of 256 hosts on eight leaves sends the same to each other, all at once: 65,280 flows over eight spines that could just \
            carry it. All of them must end, within a multiple of what the cables need.",
    run: all_to_all,
};

pub(super) const STRAGGLERS: Scenario = Scenario {
    name: "stragglers",
    title: "Stragglers",
    about: "Each of 32 hosts sends to two: one with a cable of 10 Gbit/s, one with a twentieth of that. What goes to the slow one must not \
            keep the fast one from its full rate, neither in the senders nor in the switch's shared buffer.",
    run: stragglers,
};

fn all_to_all(quick: bool, outcome: &mut Outcome) {
    let mtu = 4096;
    let packets: u32 = if quick { 8 } else { 32 };
    let mut ideal = 0.0;
    for (name, ends) in laws(quick, 10_000_000_000, 64 << 10) {
        let topology = Topology::clos(8, 32, 8, Cable::gigabits(10, 1_000), Cable::gigabits(40, 1_000));
        let hosts = topology.hosts();
        // Each begins with its neighbour, so that not all begin with the same.
        let pairs = (1..hosts).flat_map(|step| (0..hosts).map(move |from| (from, (from + step) % hosts)));
        let flows = pairs.map(|(from, to)| FlowSpec {
            from,
            to,
            packets,
            mtu,
            start_ns: 0,
            ends,
        });
        let each = u64::from(packets) * u64::from(mtu + HEADERS) * (hosts as u64 - 1);
        let capacity = topology.host.carries(SECOND);
        ideal = each as f64 / capacity as f64;
        let plan = Plan {
            flows: flows.collect(),
            capacity: capacity * hosts as u64,
            topology,
            from_ns: 0,
            until_ns: 1000 * MS,
            sample_ns: MS / 10,
        };
        let (_, metrics) = plan.run(name);
        outcome.runs.push(metrics);
    }
    let ours = outcome.runs[0].clone();
    outcome.at_least("flows that ended", ours.finished as f64, ours.flows as f64);
    outcome.at_most(
        "P99.9 of completion, as a multiple of the ideal",
        ours.completion[2] / ideal,
        4.0,
    );
    outcome.at_most(
        "timeouts in 1,000 flows",
        ours.timeouts as f64 * 1e3 / ours.flows as f64,
        1.0,
    );
}

const SENDERS: usize = 32;
const FAST: usize = SENDERS;
const SLOW: usize = SENDERS + 1;

fn stragglers(quick: bool, outcome: &mut Outcome) {
    let until_ns = if quick { 500 * MS } else { 1000 * MS };
    let mut parts = Vec::new();
    for (name, ends) in laws(quick, 10_000_000_000, 64 << 10) {
        let mut topology = Topology::star(SENDERS + 2, Cable::gigabits(10, 2_000));
        let slow = Cable {
            rate: Rate::bits_per_second(500_000_000),
            ..topology.host
        };
        topology.other = vec![(SLOW, slow)];
        let flow = |from: usize, to: usize, ends: Ends| FlowSpec {
            from,
            to,
            packets: ENDLESS,
            mtu: 1024,
            start_ns: from as u64 * 10_000,
            ends,
        };
        let flows = (0..SENDERS).flat_map(|from| [SLOW, FAST].map(|to| flow(from, to, ends)));
        let plan = Plan {
            flows: flows.collect(),
            capacity: topology.host.carries(SECOND) + slow.carries(SECOND),
            topology,
            from_ns: until_ns / 2,
            until_ns,
            sample_ns: until_ns / SAMPLES,
        };
        let (net, metrics) = plan.run(name);
        let counted_ns = net.now_ns - net.counted_from_ns;
        let got = |to: usize| -> Vec<f64> {
            let flows = net.flows.iter().filter(|flow| flow.to == to);
            flows.map(|flow| flow.counted_bytes() as f64).collect()
        };
        let part = |to: usize| {
            let capacity = net.topology.cable_of(to).carries(counted_ns) as f64;
            got(to).iter().sum::<f64>() / capacity
        };
        parts.push([part(FAST), part(SLOW), jain(&got(FAST)), jain(&got(SLOW))]);
        outcome.runs.push(metrics);
    }
    let [fast, slow, fast_jain, slow_jain] = parts[0];
    outcome.at_least("goodput to the fast one", fast, 0.9);
    outcome.at_least("goodput to the slow one", slow, 0.9);
    outcome.at_least("fairness among flows to the fast one", fast_jain, 0.9);
    outcome.at_least("fairness among flows to the slow one", slow_jain, 0.8);
}
