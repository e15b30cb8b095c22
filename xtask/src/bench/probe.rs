//! A probe: one subject, doing one thing with messages of one size, at one place.

use bare_loops::Loop;

/// Where the two processes are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// In one network namespace, on its loopback.
    OneHost,
    /// In two, with a virtual cable between them.
    TwoHosts,
}

/// What the figure is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Quantity {
    /// Microseconds: less is better.
    Time,
    /// Bytes per second.
    Bandwidth,
    /// Messages per second.
    Rate,
}

impl Place {
    /// A word to choose rows by.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Place::OneHost => "onehost",
            Place::TwoHosts => "twohosts",
        }
    }
}

impl Quantity {
    /// What a figure counts.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Quantity::Time => "microseconds",
            Quantity::Bandwidth => "bytes per second",
            Quantity::Rate => "messages per second",
        }
    }

    /// A figure for people.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Quantity::Time => format!("{} µs", significant(value)),
            Quantity::Bandwidth => format!("{} GB/s", significant(value / 1e9)),
            Quantity::Rate => format!("{} M/s", significant(value / 1e6)),
        }
    }
}

/// Three digits, or the whole number if there are more.
pub(crate) fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        above if above >= 100.0 => 0,
        above if above >= 10.0 => 1,
        above if above >= 0.1 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// By what a subject of UCX moves bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp,
    Shm,
    /// nonic's libibverbs: reliable connections.
    Verbs,
}

/// The subject of a measurement.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// None: the machine itself.
    Bare(Loop),
    /// nonic through C: perftest, unmodified.
    Perftest {
        program: &'static str,
        /// Beside device, size and number of messages.
        arguments: &'static [&'static str],
    },
    /// nonic through Rust: its own command.
    NonicPerf { test: &'static str, op: &'static str },
    /// The same over TCP.
    Iwarp {
        test: &'static str,
        op: &'static str,
        crc: bool,
    },
    /// ucx_perftest.
    Ucx {
        transport: Transport,
        test: &'static str,
    },
    /// fi_pingpong.
    Libfabric(Transport),
}

impl Subject {
    /// Whether what it measures is nonic.
    pub(crate) fn is_nonic(self) -> bool {
        match self {
            Subject::Perftest { .. } | Subject::NonicPerf { .. } | Subject::Iwarp { .. } => true,
            Subject::Ucx { transport, .. } | Subject::Libfabric(transport) => transport == Transport::Verbs,
            Subject::Bare(_) => false,
        }
    }

    /// The file without which it cannot be measured, and the Debian package that has it.
    pub(crate) fn needs(self) -> Option<(String, &'static str)> {
        match self {
            Subject::Bare(_) | Subject::NonicPerf { .. } | Subject::Iwarp { .. } => None,
            Subject::Perftest { program, .. } => Some((format!("/usr/bin/{program}"), "perftest")),
            Subject::Ucx { .. } => Some(("/usr/bin/ucx_perftest".to_owned(), "ucx-utils")),
            Subject::Libfabric(_) => Some(("/usr/bin/fi_pingpong".to_owned(), "libfabric-bin")),
        }
    }

    /// Its name, for the key of a plot.
    pub(crate) fn name(self) -> String {
        match self {
            Subject::Bare(which) => match which {
                Loop::UdpLatency | Loop::UdpBandwidth => "bare UDP".to_owned(),
                Loop::UdpDutiesCopied => "bare UDP with a NIC's duties".to_owned(),
                Loop::UdpDutiesGathered => "bare UDP with a NIC's duties, gathered".to_owned(),
                Loop::TcpLatency | Loop::TcpBandwidth => "bare TCP".to_owned(),
                Loop::RingLatency | Loop::RingBandwidth => "bare ring".to_owned(),
                Loop::RingTail => "bare ring, each message timed".to_owned(),
                Loop::VmWrite => "bare process_vm_writev".to_owned(),
                Loop::VmRead => "bare process_vm_readv".to_owned(),
                Loop::FutexThere => "bare futex, target sleeps, there and back".to_owned(),
                Loop::FutexBoth => "bare futex, both sleep".to_owned(),
                Loop::Eventfd => "bare eventfd, both sleep".to_owned(),
            },
            Subject::Perftest { program, arguments } => [&[program], arguments].concat().join(" "),
            Subject::NonicPerf { test, op } => format!("nonic perf --test {test} --op {op}"),
            Subject::Iwarp { test, op, crc } => {
                let crc = if crc { "with CRC" } else { "without CRC" };
                format!("nonic perf --test {test} --op {op}, iWARP {crc}")
            }
            Subject::Ucx { transport, test } => {
                let transport = match transport {
                    Transport::Tcp => "tcp",
                    Transport::Shm => "shm+cma",
                    Transport::Verbs => "rc over nonic",
                };
                format!("UCX {transport} {test}")
            }
            Subject::Libfabric(Transport::Tcp) => "libfabric tcp".to_owned(),
            Subject::Libfabric(Transport::Shm) => "libfabric shm".to_owned(),
            Subject::Libfabric(Transport::Verbs) => "libfabric verbs over nonic".to_owned(),
        }
    }
}

/// One subject, one size, one place.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Probe {
    pub(crate) subject: Subject,
    pub(crate) size: usize,
    pub(crate) quantity: Quantity,
    pub(crate) place: Place,
}

impl Probe {
    /// For people: the options as the program takes them, where it is one of theirs.
    pub(crate) fn name(&self) -> String {
        let name = self.subject.name();
        match self.subject {
            Subject::Perftest { program, .. } if program.contains("atomic") => name,
            Subject::Perftest { .. } => format!("{name} -s {}", self.size),
            Subject::NonicPerf { .. } => format!("{name} --size {}", self.size),
            Subject::Bare(Loop::FutexThere | Loop::FutexBoth | Loop::Eventfd) => name,
            _ => format!("{name}, {}", size_name(self.size)),
        }
    }
}

/// `64 B`, `64 KiB` or `4 MiB`.
pub(crate) fn size_name(size: usize) -> String {
    match size {
        mega if mega >= 1 << 20 && mega % (1 << 20) == 0 => format!("{} MiB", mega >> 20),
        kilo if kilo >= 1 << 10 && kilo % (1 << 10) == 0 => format!("{} KiB", kilo >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(Quantity::Time.show(0.4234), "0.42 µs");
        assert_eq!(Quantity::Time.show(20.94), "20.9 µs");
        assert_eq!(Quantity::Bandwidth.show(3.14e9), "3.14 GB/s");
        assert_eq!(Quantity::Rate.show(70_000.0), "0.070 M/s");
        assert_eq!(Quantity::Time.show(1577.6), "1578 µs");
    }

    #[test]
    fn sizes_are_named_by_the_largest_unit_that_fits() {
        assert_eq!(size_name(64), "64 B");
        assert_eq!(size_name(1500), "1500 B");
        assert_eq!(size_name(65536), "64 KiB");
        assert_eq!(size_name(4 << 20), "4 MiB");
    }
}
