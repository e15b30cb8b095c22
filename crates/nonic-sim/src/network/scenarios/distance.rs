//! Scenarios with long paths, and with long and short ones together.

use super::{ENDLESS, MS, Outcome, Plan, SAMPLES, SECOND, Scenario, laws};
use crate::network::flow::{Ends, FlowSpec};
use crate::network::topology::{Cable, Topology};

pub(super) const LONG_PIPE: Scenario = Scenario {
    name: "long-pipe",
    title: "10 Gbit/s over 50 ms",
    about: "One flow over a path of 62 MB. It must be filled within a second, and stay full; also if one packet in 10,000 is lost.",
    run: long_pipe,
};

pub(super) const TWO_DISTANCES: Scenario = Scenario {
    name: "two-distances",
    title: "Near and far through one bottleneck",
    about: "Eight senders at 0.1 ms and eight at 1 ms share a link of 10 Gbit/s that marks. It must be full, and who is far \
            must get no less than in proportion to how often it hears of the path: the window law adds and takes by round trips.",
    run: two_distances,
};

fn long_pipe(_: bool, outcome: &mut Outcome) {
    let until_ns = 2 * SECOND;
    for (name, ends, lost_ppm) in [
        ("nonic", Ends::Nonic, 0),
        ("nonic, 0.01 % lost", Ends::Nonic, 100),
        ("rxe", Ends::Rxe, 0),
    ] {
        let mut topology = Topology::star(2, Cable::gigabits(10, 12_500_000));
        topology.marking = None;
        topology.lost_ppm = lost_ppm;
        let flow = FlowSpec {
            from: 0,
            to: 1,
            packets: ENDLESS,
            mtu: 4096,
            start_ns: 0,
            ends,
        };
        let plan = Plan {
            flows: vec![flow],
            capacity: topology.host.carries(SECOND),
            topology,
            from_ns: SECOND,
            until_ns,
            sample_ns: until_ns / SAMPLES,
        };
        let (_, metrics) = plan.run(name);
        outcome.runs.push(metrics);
    }
    for index in 0..2 {
        let run = outcome.runs[index].clone();
        outcome.at_most(
            format!("{}: seconds until it is full", run.law),
            filled(&run.goodput_series),
            1.0,
        );
        outcome.at_least(
            format!("{}: goodput in the second second", run.law),
            run.goodput,
            0.9,
        );
    }
}

/// When a whole round trip was full for the first time.
fn filled(series: &[(f64, f64)]) -> f64 {
    let samples = series.iter().take_while(|(at, _)| *at <= 0.050 + 1e-9).count();
    let full =
        |window: &&[(f64, f64)]| window.iter().map(|(_, part)| part).sum::<f64>() >= 0.9 * samples as f64;
    let found = series.windows(samples.max(1)).find(full);
    found.map_or(f64::INFINITY, |window| window[samples - 1].0)
}

const EACH: usize = 8;

fn two_distances(quick: bool, outcome: &mut Outcome) {
    let until_ns = if quick { 600 * MS } else { 2 * SECOND };
    let mut ratio = 0.0;
    for (name, ends) in laws(quick, 10_000_000_000, 2 << 20).into_iter().rev() {
        let mut topology = Topology::star(2 * EACH + 1, Cable::gigabits(10, 2_000));
        let far = Cable::gigabits(10, 498_000);
        let near = Cable::gigabits(10, 48_000);
        topology.other = (0..2 * EACH)
            .map(|host| (host, if host < EACH { near } else { far }))
            .collect();
        let flow = |from: usize| FlowSpec {
            from,
            to: 2 * EACH,
            packets: ENDLESS,
            mtu: 1024,
            start_ns: from as u64 * 50_000,
            ends,
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
        ratio = net.counted_bytes(EACH..2 * EACH) as f64 / net.counted_bytes(0..EACH).max(1) as f64;
        outcome.runs.insert(0, metrics);
    }
    let ours = outcome.runs[0].clone();
    outcome.at_least("goodput", ours.goodput, 0.95);
    outcome.at_least("fairness", ours.fairness, 0.6);
    outcome.at_least("what the far get, of what the near get", ratio, 0.15);
    outcome.at_most("queue, P99, KB", ours.queue[1] as f64 / 1e3, 800.0);
}
