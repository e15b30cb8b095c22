//! The rows of the matrix: which programs, with which options, over which kind of wire.

use super::pair::Family;

/// Which IP versions a row makes sense for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Families {
    Both,
    OnlyIpv4,
    OnlyIpv6,
}

impl Families {
    pub(super) fn contains(self, family: Family) -> bool {
        match self {
            Families::Both => true,
            Families::OnlyIpv4 => family == Family::Ipv4,
            Families::OnlyIpv6 => family == Family::Ipv6,
        }
    }
}

/// What is run on both sides.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// rdma-core's examples: `-g` is the GID index, `-m` the MTU.
    Example,
    /// perftest: `-x` is the GID index.
    Perftest,
    /// Our own `peer.py`.
    Script,
    /// rdma-core's programs that connect by rdma_cm.
    Connected,
}

/// What may be expected of the wire while a row runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Every packet arrives, once and in order.
    Calm,
    /// Packets arrive, but one side does something wrong on purpose.
    Mistaken,
    /// netem has its way.
    Disturbed,
}

impl Wire {
    /// In the order in which rows are run.
    pub(super) const ALL: [Self; 3] = [Self::Calm, Self::Mistaken, Self::Disturbed];
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) group: &'static str,
    pub(super) kind: Kind,
    pub(super) program: &'static str,
    /// The options the table shows.
    pub(super) options: Vec<&'static str>,
    /// Options that only keep the run short.
    pub(super) limits: Vec<&'static str>,
    /// What netem does to everything the guest sends and receives.
    pub(super) fault: Option<&'static str>,
    /// Wishes to nonic.
    pub(super) environment: Option<(&'static str, &'static str)>,
    pub(super) families: Families,
    /// Part of the short run.
    pub(super) core: bool,
}

impl Case {
    /// The row's name.
    pub(super) fn name(&self) -> String {
        let mut words = Vec::new();
        let wish = self.environment.map(|(name, value)| format!("{name}={value}"));
        words.extend(wish.as_deref());
        words.push(self.program);
        words.extend(&self.options);
        let name = words.join(" ");
        match self.fault {
            Some(fault) => format!("{name}, {fault}"),
            None => name,
        }
    }

    pub(super) fn wire(&self) -> Wire {
        match (self.fault, self.group) {
            (Some(_), _) => Wire::Disturbed,
            (None, ERRORS_GROUP) => Wire::Mistaken,
            (None, _) => Wire::Calm,
        }
    }

    /// Whether the program connects by address and port, through the connection manager.
    pub(super) fn by_rdma_cm(&self) -> bool {
        self.kind == Kind::Connected || self.options.contains(&"-R")
    }

    fn new(group: &'static str, kind: Kind, program: &'static str, options: &[&'static str]) -> Self {
        // `-u`: half a second without an answer is not yet a lost packet; a guest on a busy machine may be that slow.
        let limits: &[&str] = match kind {
            Kind::Example => &["-n", "100"],
            Kind::Perftest if options.contains(&"-a") => &["-F", "-u", "17", "-n", "5"],
            Kind::Perftest => &["-F", "-u", "17", "-n", "100"],
            Kind::Script | Kind::Connected => &[],
        };
        Self {
            group,
            kind,
            program,
            options: options.to_vec(),
            limits: limits.to_vec(),
            fault: None,
            environment: None,
            families: Families::Both,
            core: false,
        }
    }

    fn core(self) -> Self {
        Self { core: true, ..self }
    }

    fn wish(self, name: &'static str, value: &'static str) -> Self {
        Self {
            environment: Some((name, value)),
            ..self
        }
    }

    fn fault(self, fault: &'static str) -> Self {
        Self {
            fault: Some(fault),
            ..self
        }
    }
}

/// Rows in which one side errs.
const ERRORS_GROUP: &str = "errors";

/// The errors `peer.py` knows.
const ERRORS: [&str; 13] = [
    "write-wrong-key",
    "read-wrong-key",
    "atomic-wrong-key",
    "write-out-of-bounds",
    "read-out-of-bounds",
    "write-forbidden",
    "read-forbidden",
    "atomic-misaligned",
    "send-too-long",
    "no-receive",
    "late-receive",
    "peer-killed",
    "qp-destroyed",
];

/// netem's words.
const FAULTS: [&str; 5] = [
    "loss 1%",
    "loss 5%",
    "delay 2ms reorder 75%",
    "duplicate 5%",
    "corrupt 2%",
];

/// Everything, in the order of the table.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    examples(&mut cases);
    for (operation, services) in [
        ("send", &["RC", "UC", "UD"][..]),
        ("write", &["RC", "UC"][..]),
        ("read", &["RC"][..]),
        ("atomic", &["RC"][..]),
    ] {
        for service in services {
            perftest(&mut cases, operation, service);
        }
    }
    connected(&mut cases);
    cases.push(Case::new("every byte compared", Kind::Script, "peer.py", &["transfer"]).core());
    for error in ERRORS {
        let case = Case::new(ERRORS_GROUP, Kind::Script, "peer.py", &[error]);
        let core = matches!(error, "write-wrong-key" | "send-too-long" | "no-receive");
        cases.push(Case { core, ..case });
    }
    habits(&mut cases);
    // Last, so that what was counted before them is what an undisturbed wire gives.
    // Not rdma-core's examples: they end with their last message, and if the acknowledgement of it is lost, nobody is left
    // to repeat it. rxe then asks for ever.
    for fault in FAULTS {
        let case = Case::new("faults", Kind::Script, "peer.py", &["transfer"]).fault(fault);
        cases.push(Case {
            core: fault == "loss 1%",
            ..case
        });
        let case = Case::new("faults", Kind::Connected, "rping", &["-V", "-C", "10"]);
        cases.push(case.fault(fault));
    }
    cases
}

/// rdma-core's examples; `-c` compares what arrives.
fn examples(cases: &mut Vec<Case>) {
    let group = "rdma-core's examples";
    for (program, variants) in [
        (
            "ibv_rc_pingpong",
            &[&["-c"][..], &["-c", "-e"], &["-c", "-s", "100000"]][..],
        ),
        (
            "ibv_uc_pingpong",
            &[&["-c"][..], &["-c", "-e"], &["-c", "-s", "20000"]],
        ),
        (
            "ibv_ud_pingpong",
            &[&["-c", "-s", "1000"][..], &["-c", "-e", "-s", "1000"]],
        ),
        (
            "ibv_srq_pingpong",
            &[&["-c"][..], &["-c", "-e"], &["-c", "-q", "4"]],
        ),
    ] {
        for (index, options) in variants.iter().enumerate() {
            let case = Case::new(group, Kind::Example, program, options);
            cases.push(Case {
                core: index == 0,
                ..case
            });
        }
    }
}

fn perftest(cases: &mut Vec<Case>, operation: &str, service: &'static str) {
    let (bandwidth, latency) = match operation {
        "send" => ("ib_send_bw", "ib_send_lat"),
        "write" => ("ib_write_bw", "ib_write_lat"),
        "read" => ("ib_read_bw", "ib_read_lat"),
        _ => ("ib_atomic_bw", "ib_atomic_lat"),
    };
    // Unreliable messages that overrun a queue are lost, and perftest then waits for ever.
    let small = match service {
        "UC" => &["-s", "4096"][..],
        "UD" => &["-s", "1024"][..],
        _ => &[],
    };
    let mut add = |program: &'static str, extra: &[&'static str], core: bool| {
        let options = [&["-c", service][..], extra, small].concat();
        let case = Case::new("perftest", Kind::Perftest, program, &options);
        cases.push(Case { core, ..case });
    };
    add(bandwidth, &[], service == "RC");
    if operation != "write" {
        add(bandwidth, &["-e"], false);
    }
    add(bandwidth, &["-q", "4"], false);
    add(bandwidth, &["-b"], false);
    if service == "RC" && operation != "atomic" {
        add(bandwidth, &["-a"], false);
    }
    add(latency, &[], service != "RC");
    if service == "RC" && operation != "atomic" {
        add(latency, &["-a"], false);
    }
}

/// What nonic may be asked to do differently. With the strict checksum it takes from rxe what has no Identification to
/// solve for: IPv6.
fn habits(cases: &mut Vec<Case>) {
    let group = "nonic's habits";
    let bandwidth = |program, options: &[&'static str]| Case::new(group, Kind::Perftest, program, options);
    for program in ["ib_write_bw", "ib_send_bw", "ib_read_bw"] {
        let case = bandwidth(program, &[]).wish("NONIC_GSO", "off");
        cases.push(Case {
            core: program == "ib_write_bw",
            ..case
        });
    }
    cases.push(Case::new(group, Kind::Script, "peer.py", &["transfer"]).wish("NONIC_GSO", "off"));
    for case in [
        bandwidth("ib_write_bw", &[]),
        bandwidth("ib_read_bw", &[]),
        Case::new(group, Kind::Script, "peer.py", &["transfer"]),
    ] {
        cases.push(Case {
            families: Families::OnlyIpv6,
            ..case.wish("NONIC_ICRC", "strict")
        });
    }
    cases.push(bandwidth("ib_write_bw", &[]).wish("NONIC_ICRC", "lenient"));
}

/// What connects by address and port: nonic's connection manager against the kernel's.
fn connected(cases: &mut Vec<Case>) {
    let group = "connected by rdma_cm";
    for (program, options, core) in [
        ("rping", &["-V", "-C", "10"][..], true),
        ("rping", &["-V", "-C", "3", "-S", "65000"], false),
        ("ucmatose", &["-C", "10"], true),
        ("ucmatose", &["-c", "8", "-C", "10", "-S", "5000"], false),
        ("udaddy", &["-C", "10"], true),
        ("udaddy", &["-c", "4", "-C", "10"], false),
        ("mckey", &["-C", "10"], false),
        ("rdma_client, rdma_server", &[], false),
        (
            "rstream",
            &["-T", "v", "-S", "10000", "-C", "20", "-I", "5"],
            true,
        ),
        (
            "rstream",
            &["-T", "v", "-T", "n", "-S", "1000000", "-C", "3", "-I", "2"],
            false,
        ),
        (
            "riostream",
            &["-T", "v", "-S", "10000", "-C", "20", "-I", "5"],
            false,
        ),
    ] {
        let families = match program {
            // The kernel refuses to join IPv6 groups for RoCE (ENOTSUPP).
            "mckey" => Families::OnlyIpv4,
            _ => Families::Both,
        };
        let case = Case::new(group, Kind::Connected, program, options);
        cases.push(Case {
            core,
            families,
            ..case
        });
    }
    for (program, options) in [
        ("ib_send_bw", &["-R"][..]),
        ("ib_write_bw", &["-R"]),
        ("ib_read_bw", &["-R"]),
        ("ib_atomic_bw", &["-R"]),
        ("ib_send_lat", &["-R"]),
        ("ib_send_lat", &["-R", "-c", "UD"]),
        ("ib_write_bw", &["-R", "-q", "4"]),
    ] {
        // perftest looks IPv4 addresses up, and no others.
        cases.push(Case {
            families: Families::OnlyIpv4,
            ..Case::new("perftest by rdma_cm", Kind::Perftest, program, options)
        });
    }
}
