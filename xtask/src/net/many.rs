//! Many processes that send through one bottleneck: whether they fill it, share it, and keep its queue short.

use super::network::{Network, Plan};
use super::subject::{Meter, Server, Subject};
use super::wire::Counters;
use anyhow::{Context, Result};
use nonic_netem::LinkSettings;
use std::time::Duration;

/// Of the bottleneck.
pub(super) const RATE_MBIT: f64 = 100.0;
/// A round trip of 10 ms; up to 40 ms of queue, marked from 5 ms on.
pub(super) const LINK: &str = "rate=100mbit,delay=5ms,queue=500000,red=60000:180000:10%";
/// Senders, each on a host of its own.
pub(super) const SENDERS: usize = 32;

/// The senders.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    All(Subject),
    /// One half each.
    Halves(Subject, Subject),
}

impl Mix {
    pub(super) fn name(self) -> String {
        match self {
            Mix::All(subject) => format!("{SENDERS} × {}", subject.name()),
            Mix::Halves(one, other) => {
                format!("{} × {}, {0} × {}", SENDERS / 2, one.name(), other.name())
            }
        }
    }

    pub(super) fn subject(self, index: usize) -> Subject {
        match self {
            Mix::All(subject) => subject,
            Mix::Halves(one, _) if index % 2 == 0 => one,
            Mix::Halves(_, other) => other,
        }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) mix: Mix,
    /// What arrived for each, in Mbit/s, in the order of the senders.
    pub(super) rates: Vec<f64>,
    /// Of the bottleneck in the second half of the time.
    pub(super) steady: Counters,
    pub(super) steady_time: Duration,
}

impl Found {
    /// The part of the link that was used, headers and repetitions included.
    pub(super) fn use_of_link(&self) -> f64 {
        let counters = &self.steady.link;
        // What was dropped before the link did not use it: those packets are taken to be of mean size.
        let dropped = counters.overflowed + counters.dropped_early;
        let passed = 1.0 - dropped as f64 / counters.packets.max(1) as f64;
        let bits = counters.bytes as f64 * passed * 8.0;
        bits / 1e6 / self.steady_time.as_secs_f64() / RATE_MBIT
    }

    /// The part of the link that arrived as payload.
    pub(super) fn goodput(&self) -> f64 {
        self.rates.iter().sum::<f64>() / RATE_MBIT
    }

    /// The part of all payload that the senders of a subject had.
    pub(super) fn share(&self, subject: Subject) -> f64 {
        let rates = self.rates.iter().enumerate();
        let theirs: f64 = rates
            .filter(|(index, _)| self.mix.subject(*index) == subject)
            .map(|(_, rate)| *rate)
            .sum();
        theirs / self.rates.iter().sum::<f64>()
    }

    /// The mean of the queues that packets found, in milliseconds, and the longest.
    pub(super) fn queue_ms(&self) -> (f64, f64) {
        let ms = |bytes: f64| bytes * 8.0 / (RATE_MBIT * 1e3);
        let link = &self.steady.link;
        (ms(link.mean_queue()), ms(link.longest_queue as f64))
    }
}

/// Jain's index: one if all have the same, and one in n if one of n has everything.
pub(super) fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (rates.len() as f64 * squares)
}

/// Runs all senders at once.
pub(super) fn measure(meter: &Meter<'_>, mix: Mix, seed: u64) -> Result<Found> {
    let mut there = LinkSettings::default();
    there.change(LINK)?;
    let mut back = LinkSettings::default();
    back.change("delay=5ms")?;
    let network = Network::new(&Plan {
        left: SENDERS as u8,
        right: 1,
        mtu: 1500,
        settings: [there, back],
        seed,
        offload: true,
    })?;
    let hosts = || network.left.iter().chain(&network.right);
    for host in hosts() {
        host.sysctl("net.ipv4.tcp_ecn", "1")?;
    }
    let servers: Vec<Server> = (0..SENDERS)
        .map(|index| meter.serve(mix.subject(index), &network.right[0], &[]))
        .collect::<Result<_>>()?;
    let mut flows = Vec::new();
    for (server, host) in servers.into_iter().zip(&network.left) {
        flows.push(server.connect(meter, host, &[])?);
    }
    // The second half is steady; the last of them started a little later than the first.
    std::thread::sleep(meter.duration / 2);
    network.wire.counters();
    let steady_time = meter.duration * 3 / 8;
    std::thread::sleep(steady_time);
    let [steady, _] = network.wire.counters();
    let rates = flows
        .into_iter()
        .enumerate()
        .map(|(index, flow)| {
            let rate = flow.finish(meter.duration + Duration::from_secs(60));
            rate.with_context(|| format!("sender {index}"))
        })
        .collect::<Result<_>>()?;
    Ok(Found {
        mix,
        rates,
        steady,
        steady_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_netem::LinkCounters;

    #[test]
    fn the_index_is_one_for_equals_and_one_in_n_for_a_tyrant() {
        assert!((jain(&[3.0; 8]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!(jain(&[0.0, 0.0]) == 0.0);
    }

    #[test]
    fn what_is_told_follows_from_what_was_counted() {
        let found = Found {
            mix: Mix::Halves(Subject::Roce, Subject::Tcp("cubic")),
            rates: (0..SENDERS)
                .map(|index| if index % 2 == 0 { 2.0 } else { 4.0 })
                .collect(),
            steady: Counters {
                link: LinkCounters {
                    packets: 10_000,
                    bytes: 12_500_000,
                    queue_sum: 10_000.0 * 125_000.0,
                    longest_queue: 250_000,
                    ..LinkCounters::default()
                },
                unwritten: 0,
            },
            steady_time: Duration::from_secs(1),
        };
        assert!((found.use_of_link() - 1.0).abs() < 1e-9);
        assert!((found.goodput() - 0.96).abs() < 1e-9);
        assert!((found.share(Subject::Roce) - 1.0 / 3.0).abs() < 1e-9);
        let (mean, longest) = found.queue_ms();
        assert!((mean - 10.0).abs() < 1e-9 && (longest - 20.0).abs() < 1e-9);
    }
}
