//! Incast: a thousand senders, one receiver.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, Scenario, laws};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::topology::{Cable, Topology};

const SENDERS: usize = 1000;
const HOSTS_PER_LEAF: usize = 50;
const MTU: u32 = 1024;
const LINE: u64 = 10_000_000_000;

pub(super) const LONG: Scenario = Scenario {
    name: "incast",
    title: "Incast, 1,000 to 1",
    about: "A thousand hosts on twenty leaves begin to send to one within a millisecond, and go on. The \
            link of 10 Gbit/s must carry useful data for 0.9 of its capacity, the queue must stay within half of the switch's \
            buffer, and no storm of timeouts may come.",
    run: long,
};

pub(super) const SHORT: Scenario = Scenario {
    name: "incast-short",
    title: "Incast of short messages, 1,000 to 1",
    about: "A thousand hosts send 64 KiB each to one at the same time, as in a partition-aggregate step. All of them must end, 99.9 % of \
            them within 2.5 times what the link needs for all.",
    run: short,
};

fn topology() -> Topology {
    // One leaf more, for the receiver.
    let leaves = SENDERS / HOSTS_PER_LEAF + 1;
    Topology::clos(
        leaves,
        HOSTS_PER_LEAF,
        8,
        Cable::gigabits(10, 1_000),
        Cable::gigabits(40, 1_000),
    )
}

fn flows(topology: &Topology, packets: u32, spread_ns: u64, ends: Ends) -> Vec<FlowSpec> {
    let flow = |from: usize| FlowSpec {
        from,
        to: topology.hosts() - 1,
        packets,
        mtu: MTU,
        start_ns: spread_ns * from as u64 / SENDERS as u64,
        ends,
    };
    (0..SENDERS).map(flow).collect()
}

fn long(quick: bool, outcome: &mut Outcome) {
    let until_ns = if quick { 250 * MS } else { 1000 * MS };
    for (name, ends) in laws(quick, LINE, 64 << 10) {
        let topology = topology();
        let plan = Plan {
            flows: flows(&topology, ENDLESS, MS, ends),
            capacity: topology.host.carries(super::SECOND),
            topology,
            from_ns: until_ns / 2,
            until_ns,
            sample_ns: until_ns / SAMPLES,
        };
        let (_, metrics) = plan.run(name);
        outcome.runs.push(metrics);
    }
    let ours = outcome.runs[0].clone();
    outcome.at_least("goodput", ours.goodput, 0.9);
    outcome.at_least("goodput from the first packet on", ours.goodput_from_start(), 0.9);
    outcome.at_least("fairness", ours.fairness, 0.9);
    outcome.at_most("queue, P99, KB", ours.queue[1] as f64 / 1e3, 8_400.0);
    outcome.at_most("timeouts for each flow", per_flow(ours.timeouts), 1.0);
    outcome.at_most("silences for each flow", per_flow(ours.silences), 2.0);
}

fn short(quick: bool, outcome: &mut Outcome) {
    let packets = (64 << 10) / MTU;
    for (name, ends) in laws(quick, LINE, 64 << 10) {
        let topology = topology();
        let plan = Plan {
            flows: flows(&topology, packets, 0, ends),
            capacity: topology.host.carries(super::SECOND),
            topology,
            from_ns: 0,
            until_ns: 4000 * MS,
            sample_ns: MS / 2,
        };
        let (_, metrics) = plan.run(name);
        outcome.runs.push(metrics);
    }
    let ours = outcome.runs[0].clone();
    let wire = u64::from(packets) * u64::from(MTU + crate::network::packet::HEADERS) * SENDERS as u64;
    let ideal = wire as f64 * 8.0 / LINE as f64;
    outcome.at_least("flows that ended", ours.finished as f64, SENDERS as f64);
    // Most wait for the program's timeout: their first burst was lost whole, so no round trip is known yet.
    outcome.at_most(
        "P99.9 of completion, as a multiple of the ideal",
        ours.completion[2] / ideal,
        2.5,
    );
    outcome.at_most("timeouts for each flow", per_flow(ours.timeouts), 1.0);
}

fn per_flow(count: u64) -> f64 {
    count as f64 / SENDERS as f64
}
