//! Latency and bandwidth against the size of messages, for the plots.

use super::measure::{Absence, Bench};
use super::probe::{Place, Probe, Quantity, Subject, Transport};
use super::svg::{Across, Chart, Series, Style};
use bare_loops::Loop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testbed::stats::median;

/// Sizes of the plots of latency: 8 B to 1 MiB.
const LATENCY_SIZES: [usize; 7] = [8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20];
/// Sizes of the plots of bandwidth: 4 KiB to 4 MiB.
const BANDWIDTH_SIZES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// A bare datagram is one packet of the virtual cable.
const LONGEST_DATAGRAM: usize = 8192;

/// A plot to be.
pub(super) struct Plot {
    /// Without its ending.
    pub(super) file: &'static str,
    title: &'static str,
    place: Place,
    quantity: Quantity,
    lines: Vec<Line>,
}

struct Line {
    name: &'static str,
    subject: Subject,
    /// What the rounds found, by size.
    values: BTreeMap<usize, Vec<f64>>,
}

/// All plots, without figures.
pub(super) fn all() -> Vec<Plot> {
    let perftest = |program| Subject::Perftest {
        program,
        arguments: &[],
    };
    let ucx = |transport, test| Subject::Ucx { transport, test };
    let (shm, tcp) = (Transport::Shm, Transport::Tcp);
    vec![
        Plot::new(
            "latency-one-host",
            "Latency on one host",
            Place::OneHost,
            Quantity::Time,
            &[
                ("nonic, ib_send_lat", perftest("ib_send_lat")),
                ("nonic, ib_write_lat", perftest("ib_write_lat")),
                ("UCX shm+cma, tag", ucx(shm, "tag_lat")),
                ("UCX shm+cma, put", ucx(shm, "ucp_put_lat")),
                ("libfabric shm", Subject::Libfabric(shm)),
                ("bare ring", Subject::Bare(Loop::RingLatency)),
                ("bare process_vm_writev", Subject::Bare(Loop::VmWrite)),
            ],
        ),
        Plot::new(
            "bandwidth-one-host",
            "Bandwidth on one host",
            Place::OneHost,
            Quantity::Bandwidth,
            &[
                ("nonic, ib_send_bw", perftest("ib_send_bw")),
                ("nonic, ib_write_bw", perftest("ib_write_bw")),
                ("UCX shm+cma, tag", ucx(shm, "tag_bw")),
                ("UCX shm+cma, put", ucx(shm, "ucp_put_bw")),
                ("bare ring", Subject::Bare(Loop::RingBandwidth)),
                ("bare process_vm_writev", Subject::Bare(Loop::VmWrite)),
            ],
        ),
        Plot::new(
            "latency-two-hosts",
            "Latency between two network namespaces",
            Place::TwoHosts,
            Quantity::Time,
            &[
                ("nonic, ib_send_lat", perftest("ib_send_lat")),
                ("UCX tcp, tag", ucx(tcp, "tag_lat")),
                ("libfabric tcp", Subject::Libfabric(tcp)),
                ("bare UDP, one packet", Subject::Bare(Loop::UdpLatency)),
                ("bare TCP", Subject::Bare(Loop::TcpLatency)),
            ],
        ),
        Plot::new(
            "bandwidth-two-hosts",
            "Bandwidth between two network namespaces",
            Place::TwoHosts,
            Quantity::Bandwidth,
            &[
                ("nonic, ib_write_bw", perftest("ib_write_bw")),
                ("UCX tcp, tag", ucx(tcp, "tag_bw")),
                ("bare UDP, in batches", Subject::Bare(Loop::UdpBandwidth)),
                ("bare TCP", Subject::Bare(Loop::TcpBandwidth)),
            ],
        ),
    ]
}

/// Measures all plots once more. Subjects take turns at every size.
pub(super) fn measure_round(bench: &Bench<'_>, plots: &mut [Plot], round: usize) {
    for plot in plots {
        eprintln!("plots, round {}: {}", round + 1, plot.title);
        for line in &mut plot.lines {
            if let Subject::Libfabric(transport) = line.subject {
                // All sizes at once: it takes a second to start.
                let found = bench.pingpong_sizes(transport, plot.place);
                let found = found.unwrap_or_else(|absence| {
                    tell(line.name, &absence);
                    Vec::new()
                });
                for (size, value) in found {
                    if plot.quantity.sizes().contains(&size) {
                        line.values.entry(size).or_default().push(value);
                    }
                }
            }
        }
        let (place, quantity) = (plot.place, plot.quantity);
        for size in quantity.sizes() {
            let count = plot.lines.len();
            for turn in 0..count {
                let line = &mut plot.lines[(turn + round) % count];
                let is_datagram = line.subject == Subject::Bare(Loop::UdpLatency);
                let is_done = matches!(line.subject, Subject::Libfabric(_));
                if is_done || is_datagram && *size > LONGEST_DATAGRAM {
                    continue;
                }
                let probe = Probe {
                    subject: line.subject,
                    size: *size,
                    quantity,
                    place,
                };
                match bench.measure(&probe) {
                    Ok(figure) => line.values.entry(*size).or_default().push(figure.value),
                    Err(absence) => tell(&probe.name(), &absence),
                }
            }
        }
    }
}

/// Says what could not be measured.
fn tell(name: &str, absence: &Absence) {
    eprintln!("  {name}: {absence:?}");
}

impl Quantity {
    /// The sizes that a plot of it has.
    fn sizes(self) -> &'static [usize] {
        match self {
            Quantity::Time => &LATENCY_SIZES,
            Quantity::Bandwidth | Quantity::Rate => &BANDWIDTH_SIZES,
        }
    }
}

impl Plot {
    fn new(
        file: &'static str,
        title: &'static str,
        place: Place,
        quantity: Quantity,
        lines: &[(&'static str, Subject)],
    ) -> Self {
        let line = |(name, subject): &(&'static str, Subject)| Line {
            name,
            subject: *subject,
            values: BTreeMap::new(),
        };
        Self {
            file,
            title,
            place,
            quantity,
            lines: lines.iter().map(line).collect(),
        }
    }

    pub(super) fn title(&self) -> &'static str {
        self.title
    }

    /// For scripts: every figure of every round, by size.
    pub(super) fn json(&self) -> Value {
        let lines = self.lines.iter();
        let lines = lines.map(|line| json!({ "name": line.name, "values": line.values }));
        json!({
            "title": self.title,
            "unit": self.quantity.unit(),
            "lines": lines.collect::<Vec<_>>(),
        })
    }

    /// The medians of the rounds.
    pub(super) fn chart(&self) -> Chart {
        let (y_label, unit) = match self.quantity {
            Quantity::Time => ("half a round trip, µs (less is better)", 1.0),
            Quantity::Bandwidth => ("GB/s (more is better)", 1e9),
            Quantity::Rate => ("M/s (more is better)", 1e6),
        };
        let series = self.lines.iter().map(|line| Series {
            name: line.name.to_owned(),
            style: match line.subject {
                Subject::Perftest { .. } | Subject::NonicPerf { .. } | Subject::Iwarp { .. } => Style::Nonic,
                Subject::Ucx { .. } => Style::Ucx,
                Subject::Libfabric(_) => Style::Libfabric,
                Subject::Bare(_) => Style::Bare,
            },
            points: line
                .values
                .iter()
                .filter_map(|(size, values)| Some((*size, median(values)? / unit)))
                .collect(),
        });
        Chart {
            title: self.title.to_owned(),
            y_label: y_label.to_owned(),
            across: Across::Sizes,
            sizes: self.quantity.sizes().to_vec(),
            series: series.collect(),
        }
    }
}
