//! Scenarios in which some flows begin later, and find a queue.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, SECOND, Scenario};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::topology::{Cable, Topology};
use nonic_netem::Marking;

pub(super) const LATECOMERS: Scenario = Scenario {
    name: "latecomers",
    title: "Who comes late",
    about: "Eight flows share a link of 10 Gbit/s, and eight more join them after 50 ms, when there is a queue. With marks they must come to \
            have the same. Without marks all that tells of the queue is delay, and who found one takes it for the path: those who came first \
            give way to them until the path is measured again. They must not be left with nothing.",
    run: latecomers,
};

const EACH: usize = 8;

fn latecomers(quick: bool, outcome: &mut Outcome) {
    let until_ns = if quick { SECOND } else { 4 * SECOND };
    for (name, marking, [fair, early]) in [
        ("nonic, marks", Some(Marking::USUAL), [0.9, 0.8]),
        ("nonic, no marks", None, [0.35, 0.04]),
    ] {
        let mut topology = Topology::star(2 * EACH + 1, Cable::gigabits(10, 5_000));
        topology.marking = marking;
        let flow = |from: usize| FlowSpec {
            from,
            to: 2 * EACH,
            packets: ENDLESS,
            mtu: 4096,
            start_ns: from as u64 * 10_000 + if from < EACH { 0 } else { 50 * MS },
            ends: Ends::Nonic,
        };
        let plan = Plan {
            flows: (0..2 * EACH).map(flow).collect(),
            capacity: topology.host.carries(SECOND),
            topology,
            from_ns: until_ns / 2,
            until_ns,
            sample_ns: until_ns / SAMPLES,
        };
        let (net, metrics) = plan.run(name);
        let ratio = net.counted_bytes(0..EACH) as f64 / net.counted_bytes(EACH..2 * EACH) as f64;
        outcome.at_least(format!("{name}: goodput"), metrics.goodput, 0.95);
        outcome.at_least(format!("{name}: fairness"), metrics.fairness, fair);
        outcome.at_least(
            format!("{name}: what the early get, of what the late get"),
            ratio,
            early,
        );
        // Without marks, each may have what a socket's buffer holds, and all of that may wait in the queue.
        if marking.is_some() {
            outcome.at_most(
                format!("{name}: queue, P99, KB"),
                metrics.queue[1] as f64 / 1e3,
                800.0,
            );
        }
        outcome.runs.push(metrics);
    }
}
