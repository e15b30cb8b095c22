//! Makes the figures of a run from its network.

use super::metrics::Metrics;
use super::net::Net;
use super::statistics::{jain, rank};

impl Metrics {
    /// What a network came to. `capacity` are the bytes that its bottleneck carries in a second.
    pub(super) fn of(law: &str, net: &Net, capacity: u64) -> Metrics {
        let seconds = net.now_ns as f64 / 1e9;
        let counted = (net.now_ns - net.counted_from_ns) as f64 / 1e9;
        let shares: Vec<f64> = net.flows.iter().map(|flow| flow.counted_bytes() as f64).collect();
        let mut took: Vec<f64> = net
            .flows
            .iter()
            .filter_map(|flow| flow.done_ns.map(|done| (done - flow.start_ns) as f64 / 1e9))
            .collect();
        took.sort_by(f64::total_cmp);
        let mut queue = net.samples.queue[net.counted_from_sample..].to_vec();
        queue.sort_unstable();
        let longest = net.switch_ports().map(|port| port.counts.longest).max();
        let sum = |count: fn(&super::sender::SenderCounts) -> u64| -> u64 {
            net.flows.iter().map(|flow| count(&flow.sender.counts)).sum()
        };
        let interval = net.sample_ns() as f64 / 1e9;
        let at = |index: usize| (index + 1) as f64 * interval;
        let series = net.samples.arrived.iter().enumerate();
        let queues = net.samples.queue.iter().enumerate();
        Metrics {
            law: law.to_owned(),
            seconds,
            goodput: shares.iter().sum::<f64>() / (capacity as f64 * counted),
            fairness: jain(&shares),
            queue: [rank(&queue, 500), rank(&queue, 990), longest.unwrap_or(0)],
            completion: [rank(&took, 500), rank(&took, 990), rank(&took, 999)],
            flows: net.flows.len(),
            finished: took.len(),
            sent: sum(|counts| counts.sent),
            repeated: sum(|counts| counts.repeated),
            dropped: net.switch_ports().map(|port| port.counts.dropped).sum(),
            marked: net.switch_ports().map(|port| port.counts.marked).sum(),
            silences: sum(|counts| counts.silences),
            timeouts: sum(|counts| counts.timeouts),
            goodput_series: series
                .map(|(index, bytes)| (at(index), *bytes as f64 / (capacity as f64 * interval)))
                .collect(),
            queue_series: queues
                .map(|(index, bytes)| (at(index), *bytes as f64 / 1e3))
                .collect(),
            events: net.events,
        }
    }
}
