//! A row of the matrix: a program, its options, and where it makes sense.

/// Rows in which one side errs.
pub(super) const ERRORS_GROUP: &str = "errors";

/// What is at the other end of the wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Opposite {
    /// Linux's soft-RoCE driver.
    Rxe,
    /// Linux's soft-iWARP driver.
    Siw,
}

impl Opposite {
    /// The driver, and the type of link that makes a device of it.
    pub(super) fn driver(self) -> &'static str {
        match self {
            Opposite::Rxe => "rxe",
            Opposite::Siw => "siw",
        }
    }

    /// Its device.
    pub(super) fn device(self) -> &'static str {
        match self {
            Opposite::Rxe => "rxe0",
            Opposite::Siw => "siw0",
        }
    }

    /// What nonic speaks with it.
    pub(super) fn wire(self) -> &'static str {
        match self {
            Opposite::Rxe => "roce",
            Opposite::Siw => "iwarp",
        }
    }
}

/// Which side nonic is on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    NonicAsks,
    NonicServes,
}

/// Which GIDs are used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

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
    /// Our own `stream.py`, which connects by rdma_cm.
    Stream,
    /// fio's engine for RDMA: its server is a job that reads, its client one that writes.
    Fio,
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
    /// A setting of nonic.
    pub(super) environment: Option<(&'static str, &'static str)>,
    /// A parameter of siw, with its value for this row and its usual one.
    pub(super) parameter: Option<(&'static str, [&'static str; 2])>,
    pub(super) families: Families,
    /// Part of the short run.
    pub(super) core: bool,
}

impl Case {
    /// The row's name.
    pub(super) fn name(&self) -> String {
        let mut words = Vec::new();
        let setting = self.environment.map(|(name, value)| format!("{name}={value}"));
        words.extend(setting.as_deref());
        words.push(self.program);
        words.extend(&self.options);
        let mut name = words.join(" ");
        if let Some((parameter, [value, _])) = self.parameter {
            name = format!("{name}, siw with {parameter}={value}");
        }
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

    pub(super) fn new(
        group: &'static str,
        kind: Kind,
        program: &'static str,
        options: &[&'static str],
    ) -> Self {
        // `-u`: half a second without an answer is not yet a lost packet; a guest on a busy machine may be that slow.
        let limits: &[&str] = match kind {
            Kind::Example => &["-n", "100"],
            Kind::Perftest if options.contains(&"-a") => &["-F", "-u", "17", "-n", "5"],
            Kind::Perftest => &["-F", "-u", "17", "-n", "100"],
            Kind::Script | Kind::Stream | Kind::Fio | Kind::Connected => &[],
        };
        Self {
            group,
            kind,
            program,
            options: options.to_vec(),
            limits: limits.to_vec(),
            fault: None,
            environment: None,
            parameter: None,
            families: Families::Both,
            core: false,
        }
    }

    /// Leaves out what the short run can do without: over streams, above TCP, nothing depends on the IP version.
    pub(super) fn shorten(&mut self) {
        if self.kind == Kind::Stream {
            self.families = Families::OnlyIpv4;
        }
    }

    pub(super) fn core(self) -> Self {
        Self { core: true, ..self }
    }

    pub(super) fn with_environment(self, name: &'static str, value: &'static str) -> Self {
        Self {
            environment: Some((name, value)),
            ..self
        }
    }

    pub(super) fn with_parameter(self, name: &'static str, value: &'static str, usual: &'static str) -> Self {
        Self {
            parameter: Some((name, [value, usual])),
            ..self
        }
    }

    pub(super) fn only_ipv4(self) -> Self {
        Self {
            families: Families::OnlyIpv4,
            ..self
        }
    }

    pub(super) fn fault(self, fault: &'static str) -> Self {
        Self {
            fault: Some(fault),
            ..self
        }
    }
}
