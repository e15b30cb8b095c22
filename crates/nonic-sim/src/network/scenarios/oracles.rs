//! Oracles: published laws must behave as published.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, Scenario};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::metrics::Metrics;
use crate::network::topology::{Cable, Topology};
use nonic_netem::{Beyond, Marking};

/// No flow of an oracle is kept from sending by a window.
const NO_WINDOW: u64 = 1 << 40;
const MTU: u32 = 1024;

pub(super) const DCQCN: Scenario = Scenario {
    name: "oracle-dcqcn",
    title: "Oracle: DCQCN as published",
    about: "K:1 at 40 Gbit/s with the marking and constants of the SIGCOMM 2015 paper. The link stays full, flows that begin with \
            different rates converge, and the queue settles where the analysis of CoNEXT 2016 puts its fixed point. For 20:1 that is \
            beyond what the marking can express, so the queue swings about the threshold above which everything is marked.",
    run: dcqcn,
};

pub(super) const TIMELY: Scenario = Scenario {
    name: "oracle-timely",
    title: "Oracle: TIMELY as published",
    about: "Two flows that begin with 7 and 3 Gbit/s on a link of 10. TIMELY keeps the link full and round trips below T_high, but has no \
            unique fixed point, so the flows stay unequal; patched, they converge (CoNEXT 2016).",
    run: timely,
};

fn dcqcn(quick: bool, outcome: &mut Outcome) {
    let line = 40_000_000_000;
    let until_ns = if quick { 120 * MS } else { 300 * MS };
    for senders in [2, 4, 20] {
        let mut topology = Topology::star(senders + 1, Cable::gigabits(40, 1_000));
        topology.buffer = 256 << 20;
        topology.marking = Some(Marking {
            low: 5_000,
            high: 200_000,
            most_ppm: 10_000,
            beyond: Beyond::All,
        });
        let flows = (0..senders).map(|from| FlowSpec {
            from,
            to: senders,
            packets: ENDLESS,
            mtu: MTU,
            start_ns: 0,
            ends: Ends::Dcqcn {
                begins: if from == 0 { line } else { line / 8 },
                line,
                window: NO_WINDOW,
            },
        });
        let plan = Plan {
            capacity: topology.host.carries(super::SECOND),
            flows: flows.collect(),
            topology,
            from_ns: until_ns / 3 * 2,
            until_ns,
            sample_ns: until_ns / SAMPLES,
        };
        let (_, metrics) = plan.run(&format!("DCQCN {senders}:1"));
        outcome.at_least(format!("{senders}:1 goodput"), metrics.goodput, 0.93);
        outcome.at_least(format!("{senders}:1 fairness"), metrics.fairness, 0.95);
        outcome.at_most(
            format!("{senders}:1 queue, P99, KB"),
            kilobytes(metrics.queue[1]),
            300.0,
        );
        if let Some(expected) = fixed_point(senders as f64) {
            let found = metrics.queue[0] as f64 / expected;
            outcome.at_least(format!("{senders}:1 queue, P50, of the fixed point"), found, 0.6);
            outcome.at_most(format!("{senders}:1 queue, P50, of the fixed point"), found, 1.4);
        }
        outcome.runs.push(metrics);
    }
}

/// Bytes in the queue where marks and increases balance (Zhu et al., CoNEXT 2016, equation 14), unless that takes more marks than
/// there can be.
fn fixed_point(flows: f64) -> Option<f64> {
    let packet = f64::from(MTU + crate::network::packet::HEADERS) * 8.0;
    let (capacity, step) = (40e9 / packet, 40e6 / packet);
    let (timer, byte_counter) = (55e-6, 10e6 * 8.0 / packet);
    let steps = step * flows * flows / (timer * capacity * capacity);
    let stages = 1.0 / byte_counter + flows / (timer * capacity);
    let marked = (steps * stages * stages).cbrt();
    (marked < 0.01).then_some(5_000.0 + 195_000.0 * marked / 0.01)
}

fn timely(quick: bool, outcome: &mut Outcome) {
    let until_ns = if quick { 200 * MS } else { 600 * MS };
    let mut run = |name: &str, patched: bool| -> Metrics {
        let mut topology = Topology::star(3, Cable::gigabits(10, 1_000));
        topology.buffer = 256 << 20;
        topology.marking = None;
        let flows = [7_000_000_000, 3_000_000_000].into_iter().enumerate();
        let flows = flows.map(|(from, begins)| FlowSpec {
            from,
            to: 2,
            packets: ENDLESS,
            mtu: MTU,
            start_ns: 0,
            ends: Ends::Timely {
                begins,
                line: 10_000_000_000,
                window: NO_WINDOW,
                patched,
            },
        });
        let plan = Plan {
            capacity: topology.host.carries(super::SECOND),
            flows: flows.collect(),
            topology,
            from_ns: until_ns / 2,
            until_ns,
            sample_ns: until_ns / SAMPLES,
        };
        let (_, metrics) = plan.run(name);
        outcome.runs.push(metrics.clone());
        metrics
    };
    let (original, patched) = (run("TIMELY", false), run("TIMELY, patched", true));
    outcome.at_least("goodput", original.goodput, 0.95);
    // T_high at 10 Gbit/s.
    outcome.at_most("queue, P99, KB", kilobytes(original.queue[1]), 625.0);
    outcome.at_most("fairness, which it lacks", original.fairness, 0.97);
    outcome.at_least("goodput, patched", patched.goodput, 0.95);
    outcome.at_least("fairness, patched", patched.fairness, 0.99);
}

fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}
