//! Measurements of a run, as numbers that can be judged.

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
    /// Goodput from the first packet on, whatever was counted.
    pub(super) fn goodput_from_start(&self) -> f64 {
        let sum: f64 = self.goodput_series.iter().map(|(_, part)| part).sum();
        sum / self.goodput_series.len().max(1) as f64
    }
}
