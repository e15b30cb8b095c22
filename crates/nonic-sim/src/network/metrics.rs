//! Measurements of a run, as numbers that can be judged.

use super::net::Net;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// What the flows are governed by.
    pub law: String,
    /// Virtual time.
    pub seconds: f64,
    /// Useful bytes that arrived, each once and headers included, as a part of what the bottleneck could carry.
    pub goodput: f64,
    /// Jain's index of what the flows got: 1 if all have the same.
    pub fairness: f64,
    /// Bytes in the longest queue of any switch: 50 % and 99 % of the samples were no longer, and none at all.
    pub queue: [u64; 3],
    /// Seconds a flow took, by 50 %, 99 % and 99.9 % of those that ended. Zero if none did.
    pub completion: [f64; 3],
    /// How many flows there were.
    pub flows: usize,
    /// How many of them ended.
    pub finished: usize,
    /// Packets sent.
    pub sent: u64,
    /// Packets sent again.
    pub repeated: u64,
    /// Packets lost in queues and cables.
    pub dropped: u64,
    /// Packets marked.
    pub marked: u64,
    /// How often everything under way was given up after silence.
    pub silences: u64,
    /// How often the program's timeout passed.
    pub timeouts: u64,
    /// Goodput at intervals, from the first packet on: seconds, and the part of the bottleneck.
    pub goodput_series: Vec<(f64, f64)>,
    /// The longest queue at these times: seconds, and kilobytes.
    pub queue_series: Vec<(f64, f64)>,
    /// Events simulated.
    pub events: u64,
}

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

impl Metrics {
    /// Goodput from the first packet on, whatever was counted.
    pub(super) fn goodput_from_start(&self) -> f64 {
        let sum: f64 = self.goodput_series.iter().map(|(_, part)| part).sum();
        sum / self.goodput_series.len().max(1) as f64
    }
}

/// Jain's index.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The value below which so many of a thousand are, of sorted ones.
pub(super) fn rank<T: Copy + Default>(sorted: &[T], of_1000: usize) -> T {
    let Some(last) = sorted.len().checked_sub(1) else {
        return T::default();
    };
    sorted[(sorted.len() * of_1000 / 1000).min(last)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_in_n_for_a_monopoly() {
        assert_eq!(jain(&[3.0; 7]), 1.0);
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 0.0);
    }

    #[test]
    fn ranks_are_of_what_is_there() {
        let values: Vec<u64> = (0..1000).collect();
        assert_eq!((rank(&values, 500), rank(&values, 999)), (500, 999));
        assert_eq!(rank::<u64>(&[], 500), 0);
        assert_eq!(rank(&[7], 999), 7);
    }
}
