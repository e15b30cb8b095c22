//! The comparisons: what is compared with what, and what must show.
//!
//! A [`Comparison`] is measured as a whole in every round, back to back; its [`Row`]s are what a reader sees of it. The
//! rows of [`Part::MustShow`] are the project's promises, and come first wherever rows are printed.

use super::probe::{Place, Probe, Quantity, Subject, Transport, size_name};
use bare_loops::Loop;

/// Which table a row is in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    MustShow,
    OneHost,
    TwoHosts,
    Iwarp,
    Doors,
}

impl Part {
    pub(crate) const ALL: [Part; 5] = [
        Part::MustShow,
        Part::OneHost,
        Part::TwoHosts,
        Part::Iwarp,
        Part::Doors,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Part::MustShow => "It must show",
            Part::OneHost => "On one host, beside what one would use instead",
            Part::TwoHosts => "Between two network namespaces (UDP), beside what one would use instead",
            Part::Iwarp => "iWARP, beside bare TCP",
            Part::Doors => "The same through C and through Rust",
        }
    }
}

/// What a row promises.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Must {
    /// So many times the other's figure at most.
    AtMostTimes(f64),
    /// So many times the other's figure at least.
    AtLeastTimes(f64),
    /// A figure of our own at most.
    AtMost(f64),
    /// A figure of our own at least.
    AtLeast(f64),
    /// The slowest in a hundred take so many times the median at most.
    TailAtMostTimes(f64),
    /// Better than the other.
    Ahead,
    /// Not worse than the other by more than a tenth, which is what rounds differ by anyway.
    Level,
    /// Nothing: it is told for information.
    Nothing,
}

/// One line of a table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) part: Part,
    pub(crate) title: String,
    pub(crate) ours: Probe,
    pub(crate) against: Option<Probe>,
    pub(crate) must: Must,
}

impl Row {
    /// Whether a word is in its title or in the name of what is measured for it, or is its place's.
    pub(crate) fn mentions(&self, pattern: &str) -> bool {
        let names = [
            Some(self.title.clone()),
            Some(self.ours.name()),
            self.against.map(|probe| probe.name()),
            Some(self.ours.place.word().to_owned()),
        ];
        let pattern = pattern.to_lowercase();
        names
            .iter()
            .flatten()
            .any(|name| name.to_lowercase().contains(&pattern))
    }
}

/// What is measured back to back.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Row>,
}

impl Comparison {
    /// Everything that must be measured for its rows, each once.
    pub(crate) fn probes(&self) -> Vec<Probe> {
        let mut probes: Vec<Probe> = Vec::new();
        for probe in self
            .rows
            .iter()
            .flat_map(|row| [Some(row.ours), row.against])
            .flatten()
        {
            if !probes.contains(&probe) {
                probes.push(probe);
            }
        }
        probes
    }
}

/// Everything.
pub(crate) fn all() -> Vec<Comparison> {
    vec![
        one_sided(),
        two_sided(),
        asleep(),
        write_bandwidth(),
        send_bandwidth(),
        message_rate(),
        long_messages(),
        udp_bandwidth(),
        udp_queue_pairs(),
        udp_latency(),
        udp_long_messages(),
        iwarp_bandwidth(Place::OneHost),
        iwarp_latency(Place::OneHost),
        iwarp_bandwidth(Place::TwoHosts),
        iwarp_latency(Place::TwoHosts),
    ]
}

const KIB64: usize = 65536;
const MIB: usize = 1 << 20;

const fn perftest(program: &'static str) -> Subject {
    perftest_with(program, &[])
}

const fn perftest_with(program: &'static str, arguments: &'static [&'static str]) -> Subject {
    Subject::Perftest { program, arguments }
}

const fn ucx(transport: Transport, test: &'static str) -> Subject {
    Subject::Ucx { transport, test }
}

const fn nonic_perf(test: &'static str, op: &'static str) -> Subject {
    Subject::NonicPerf { test, op }
}

/// Makes the rows of one comparison: all of its probes are at one place and tell one quantity.
struct Rows {
    place: Place,
    quantity: Quantity,
    rows: Vec<Row>,
}

impl Rows {
    fn new(place: Place, quantity: Quantity) -> Self {
        let rows = Vec::new();
        Self {
            place,
            quantity,
            rows,
        }
    }

    fn add(
        &mut self,
        part: Part,
        ours: Subject,
        against: Option<Subject>,
        size: usize,
        must: Must,
    ) -> &mut Self {
        let probe = |subject| Probe {
            subject,
            size,
            quantity: self.quantity,
            place: self.place,
        };
        let ours = probe(ours);
        self.rows.push(Row {
            part,
            title: format!("`{}`", ours.name()),
            ours,
            against: against.map(probe),
            must,
        });
        self
    }

    /// Gives the row added last another title.
    fn called(&mut self, title: impl Into<String>) -> &mut Self {
        if let Some(row) = self.rows.last_mut() {
            row.title = title.into();
        }
        self
    }

    fn compare(&mut self, title: &'static str) -> Comparison {
        let rows = std::mem::take(&mut self.rows);
        Comparison { title, rows }
    }
}

fn one_sided() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Time);
    let (write, read) = (perftest("ib_write_lat"), perftest("ib_read_lat"));
    let (vm_write, vm_read) = (Subject::Bare(Loop::VmWrite), Subject::Bare(Loop::VmRead));
    let put = ucx(Transport::Shm, "ucp_put_lat");
    rows.add(Part::MustShow, write, Some(vm_write), 64, Must::AtMostTimes(1.5));
    rows.add(Part::MustShow, read, Some(vm_read), 64, Must::AtMostTimes(1.5));
    let rust = nonic_perf("lat", "write");
    rows.add(Part::MustShow, rust, Some(put), 64, Must::AtMostTimes(1.5))
        .called("Rust: `write` into exposed memory, 64 B");
    rows.add(Part::OneHost, write, Some(put), 64, Must::Level);
    rows.add(Part::Doors, write, Some(rust), 64, Must::Nothing);
    rows.compare("one-sided, 64 B")
}

fn two_sided() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Time);
    let (send, rust) = (perftest("ib_send_lat"), nonic_perf("lat", "send"));
    let ring = Subject::Bare(Loop::RingLatency);
    let ucx_tag = ucx(Transport::Shm, "tag_lat");
    let libfabric = Subject::Libfabric(Transport::Shm);
    rows.add(Part::MustShow, send, Some(libfabric), 64, Must::Ahead);
    rows.add(Part::MustShow, send, Some(ucx_tag), 64, Must::Level);
    rows.add(Part::MustShow, rust, None, 64, Must::TailAtMostTimes(2.0))
        .called("P99 of `nonic perf --test lat --op send --size 64`");
    let ring_tail = Subject::Bare(Loop::RingTail);
    rows.add(Part::OneHost, ring_tail, None, 64, Must::TailAtMostTimes(2.0))
        .called("P99 of the bare ring");
    rows.add(Part::OneHost, send, Some(ring), 64, Must::Nothing);
    let over_verbs = ucx(Transport::Verbs, "tag_lat");
    rows.add(Part::OneHost, over_verbs, Some(ucx_tag), 64, Must::Nothing);
    for bare in [Loop::UdpLatency, Loop::TcpLatency] {
        rows.add(Part::OneHost, send, Some(Subject::Bare(bare)), 64, Must::Ahead);
    }
    rows.add(Part::Doors, send, Some(rust), 64, Must::Nothing);
    rows.compare("two-sided, 64 B")
}

fn asleep() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Time);
    let atomic = perftest("ib_atomic_lat");
    let events = perftest_with("ib_send_lat", &["-e"]);
    rows.add(
        Part::MustShow,
        atomic,
        Some(Subject::Bare(Loop::FutexThere)),
        8,
        Must::AtMost(3.0),
    );
    rows.add(
        Part::MustShow,
        events,
        Some(Subject::Bare(Loop::Eventfd)),
        64,
        Must::AtMost(10.0),
    );
    rows.add(
        Part::OneHost,
        events,
        Some(Subject::Bare(Loop::FutexBoth)),
        64,
        Must::Nothing,
    );
    rows.compare("with a target that sleeps")
}

fn write_bandwidth() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Bandwidth);
    let (write, read) = (perftest("ib_write_bw"), perftest("ib_read_bw"));
    for size in [4096, KIB64, MIB] {
        let bare = Subject::Bare(Loop::VmWrite);
        rows.add(Part::MustShow, write, Some(bare), size, Must::AtLeastTimes(0.9));
    }
    let put = ucx(Transport::Shm, "ucp_put_bw");
    rows.add(Part::OneHost, write, Some(put), KIB64, Must::Level);
    rows.add(
        Part::OneHost,
        read,
        Some(Subject::Bare(Loop::VmRead)),
        KIB64,
        Must::Nothing,
    );
    rows.add(
        Part::Doors,
        write,
        Some(nonic_perf("bw", "write")),
        KIB64,
        Must::Nothing,
    );
    rows.compare("one-sided bandwidth")
}

fn send_bandwidth() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Bandwidth);
    let send = perftest("ib_send_bw");
    let bare = |which| Some(Subject::Bare(which));
    let ucx_tag = ucx(Transport::Shm, "tag_bw");
    rows.add(
        Part::MustShow,
        send,
        Some(ucx_tag),
        KIB64,
        Must::AtLeastTimes(0.95),
    );
    rows.add(
        Part::OneHost,
        send,
        bare(Loop::RingBandwidth),
        KIB64,
        Must::Nothing,
    );
    let over_verbs = ucx(Transport::Verbs, "tag_bw");
    rows.add(Part::OneHost, over_verbs, Some(ucx_tag), KIB64, Must::Nothing);
    rows.add(Part::OneHost, send, bare(Loop::UdpBandwidth), KIB64, Must::Ahead);
    rows.add(Part::OneHost, send, bare(Loop::TcpBandwidth), KIB64, Must::Ahead);
    rows.compare("two-sided bandwidth, 64 KiB")
}

fn message_rate() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Rate);
    let (send, write) = (perftest("ib_send_bw"), perftest("ib_write_bw"));
    let bare = |which| Some(Subject::Bare(which));
    let ucx_tag = ucx(Transport::Shm, "tag_bw");
    rows.add(Part::MustShow, send, Some(ucx_tag), 64, Must::AtLeastTimes(1.0));
    let many = perftest_with("ib_send_bw", &["-q", "512"]);
    rows.add(Part::MustShow, many, Some(send), 64, Must::AtLeastTimes(0.8));
    let lists = perftest_with("ib_write_bw", &["-l", "32"]);
    rows.add(Part::MustShow, lists, bare(Loop::VmWrite), 64, Must::AtLeast(5e6));
    rows.add(
        Part::MustShow,
        write,
        bare(Loop::VmWrite),
        64,
        Must::AtLeast(1.8e6),
    );
    rows.add(Part::OneHost, send, bare(Loop::RingBandwidth), 64, Must::Nothing);
    let over_verbs = ucx(Transport::Verbs, "tag_bw");
    rows.add(Part::OneHost, over_verbs, Some(ucx_tag), 64, Must::Nothing);
    rows.add(
        Part::Doors,
        send,
        Some(nonic_perf("rate", "send")),
        64,
        Must::Nothing,
    );
    rows.compare("messages of 64 B per second")
}

fn long_messages() -> Comparison {
    let mut rows = Rows::new(Place::OneHost, Quantity::Time);
    let (send, rival) = (perftest("ib_send_lat"), Subject::Libfabric(Transport::Shm));
    for size in [KIB64, MIB] {
        rows.add(Part::MustShow, send, Some(rival), size, Must::Ahead);
        rows.add(
            Part::OneHost,
            send,
            Some(ucx(Transport::Shm, "tag_lat")),
            size,
            Must::Level,
        );
    }
    rows.compare("long messages, one at a time")
}

fn udp_bandwidth() -> Comparison {
    let mut rows = Rows::new(Place::TwoHosts, Quantity::Bandwidth);
    let (rust, write, send) = (
        nonic_perf("bw", "write"),
        perftest("ib_write_bw"),
        perftest("ib_send_bw"),
    );
    let read = perftest("ib_read_bw");
    let bare = |which| Some(Subject::Bare(which));
    let duties = bare(Loop::UdpDutiesCopied);
    let between = |size, what| format!("UDP between two namespaces, {} {what}", size_name(size));
    rows.add(Part::MustShow, rust, duties, KIB64, Must::AtLeastTimes(0.95))
        .called(between(KIB64, "WRITE"));
    for (subject, what) in [(read, "READ"), (send, "SEND")] {
        rows.add(Part::MustShow, subject, duties, KIB64, Must::AtLeastTimes(0.9))
            .called(between(KIB64, what));
    }
    rows.add(Part::MustShow, write, duties, MIB, Must::AtLeastTimes(0.9))
        .called(between(MIB, "WRITE"));
    for which in [Loop::UdpBandwidth, Loop::UdpDutiesGathered] {
        rows.add(Part::TwoHosts, rust, bare(which), KIB64, Must::Nothing)
            .called(between(KIB64, "WRITE"));
    }
    rows.add(
        Part::TwoHosts,
        write,
        Some(ucx(Transport::Tcp, "ucp_put_bw")),
        KIB64,
        Must::Ahead,
    );
    rows.add(
        Part::TwoHosts,
        send,
        Some(ucx(Transport::Tcp, "tag_bw")),
        KIB64,
        Must::Ahead,
    );
    rows.add(
        Part::TwoHosts,
        send,
        Some(Subject::Bare(Loop::TcpBandwidth)),
        KIB64,
        Must::Nothing,
    );
    rows.add(Part::Doors, write, Some(rust), KIB64, Must::Nothing)
        .called(format!("`ib_write_bw -s {KIB64}` between two namespaces"));
    rows.compare("UDP bandwidth, 64 KiB")
}

/// What a host pays for having many queue pairs with something to send.
fn udp_queue_pairs() -> Comparison {
    const SIZE: usize = 4096;
    let mut rows = Rows::new(Place::TwoHosts, Quantity::Bandwidth);
    let one = perftest("ib_write_bw");
    for (count, arguments) in [
        ("8", &["-q", "8"]),
        ("64", &["-q", "64"]),
        ("512", &["-q", "512"]),
    ] {
        let several = perftest_with("ib_write_bw", arguments);
        rows.add(Part::MustShow, several, Some(one), SIZE, Must::AtLeastTimes(0.8))
            .called(format!(
                "UDP between two namespaces, WRITE of {SIZE} B over {count} queue pairs"
            ));
    }
    rows.compare("UDP bandwidth, many queue pairs")
}

fn udp_latency() -> Comparison {
    let mut rows = Rows::new(Place::TwoHosts, Quantity::Time);
    let (rust, send) = (nonic_perf("lat", "send"), perftest("ib_send_lat"));
    let bare = |which| Some(Subject::Bare(which));
    rows.add(
        Part::MustShow,
        rust,
        bare(Loop::UdpLatency),
        64,
        Must::AtMostTimes(1.35),
    )
    .called("UDP between two namespaces, 64 B SEND, half round trip");
    rows.add(
        Part::TwoHosts,
        send,
        Some(ucx(Transport::Tcp, "tag_lat")),
        64,
        Must::Ahead,
    );
    rows.add(
        Part::TwoHosts,
        send,
        Some(Subject::Libfabric(Transport::Tcp)),
        64,
        Must::Ahead,
    );
    rows.add(Part::TwoHosts, send, bare(Loop::TcpLatency), 64, Must::Nothing);
    rows.add(Part::Doors, send, Some(rust), 64, Must::Nothing)
        .called("`ib_send_lat -s 64` between two namespaces");
    rows.compare("UDP latency, 64 B")
}

fn udp_long_messages() -> Comparison {
    let mut rows = Rows::new(Place::TwoHosts, Quantity::Time);
    let send = perftest("ib_send_lat");
    for size in [KIB64, MIB] {
        let rival = Subject::Libfabric(Transport::Tcp);
        rows.add(Part::TwoHosts, send, Some(rival), size, Must::Ahead);
        rows.add(
            Part::TwoHosts,
            send,
            Some(ucx(Transport::Tcp, "tag_lat")),
            size,
            Must::Ahead,
        );
    }
    rows.compare("UDP, long messages, one at a time")
}

fn iwarp_bandwidth(place: Place) -> Comparison {
    let mut rows = Rows::new(place, Quantity::Bandwidth);
    let tcp = Some(Subject::Bare(Loop::TcpBandwidth));
    let iwarp = |op, crc| Subject::Iwarp { test: "bw", op, crc };
    let size = size_name(KIB64);
    let at = where_(place);
    for (crc, times, how) in [(false, 0.85, "without CRC"), (true, 0.7, "with CRC")] {
        rows.add(
            Part::Iwarp,
            iwarp("write", crc),
            tcp,
            KIB64,
            Must::AtLeastTimes(times),
        )
        .called(format!("{size} WRITE {how}, {at}"));
    }
    for op in ["send", "read"] {
        rows.add(Part::Iwarp, iwarp(op, true), tcp, KIB64, Must::Nothing)
            .called(format!("{size} {} with CRC, {at}", op.to_uppercase()));
    }
    rows.compare("iWARP bandwidth, 64 KiB")
}

fn iwarp_latency(place: Place) -> Comparison {
    let mut rows = Rows::new(place, Quantity::Time);
    let send = Subject::Iwarp {
        test: "lat",
        op: "send",
        crc: true,
    };
    let tcp = Some(Subject::Bare(Loop::TcpLatency));
    rows.add(Part::Iwarp, send, tcp, 64, Must::AtMostTimes(1.35))
        .called(format!("64 B SEND, half round trip, {}", where_(place)));
    rows.compare("iWARP latency, 64 B")
}

/// Where a row of a wire that runs anywhere was measured.
fn where_(place: Place) -> &'static str {
    match place {
        Place::OneHost => "on loopback",
        Place::TwoHosts => "between two namespaces",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_measures_each_subject_once_a_round() {
        for comparison in all() {
            let probes = comparison.probes();
            for (index, probe) in probes.iter().enumerate() {
                assert!(!probes[..index].contains(probe), "{} twice", probe.name());
            }
        }
    }

    #[test]
    fn a_row_is_found_by_its_title_and_by_its_rival() {
        let comparisons = all();
        let mentions = |pattern: &str| {
            comparisons
                .iter()
                .flat_map(|one| &one.rows)
                .filter(|row| row.mentions(pattern))
                .count()
        };
        assert!(mentions("IB_WRITE_LAT") >= 2);
        assert!(mentions("libfabric") >= 4);
        assert_eq!(mentions("no such thing"), 0);
        assert!(mentions("onehost") >= 20 && mentions("twohosts") >= 10);
    }
}
