//! A case: one program, its options, how its processes find each other, and where it is known to fail.

pub(super) use testbed::case::{KnownFailure, Place};
pub(super) use testbed::topology::Wire;

/// Latencies in cycles of the processor. For any other unit perftest calibrates its clock before each line it prints, a fifth of a
/// second in which both sides do nothing else.
pub(super) const IN_CYCLES: &str = "-C";

/// How many processes a case has, and how they find each other.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// One process that looks and ends.
    Alone,
    /// A server and a client that ends with it, by TCP; both get the same options.
    Pair,
    /// By the connection manager.
    Connected(Connected),
}

/// One command line.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) wire: Wire,
    pub(super) shape: Shape,
    pub(super) program: &'static str,
    /// What the table groups by: a connection type, or nothing.
    pub(super) service: &'static str,
    /// The options the table shows.
    pub(super) options: Vec<&'static str>,
    /// Options that only keep the run short.
    pub(super) limits: Vec<&'static str>,
    /// Left out unless everything is asked for.
    pub(super) takes_long: bool,
    pub(super) known_failure: Option<KnownFailure>,
}

impl Case {
    /// The command line, for people.
    pub(super) fn line(&self) -> String {
        let mut words = match self.wire {
            Wire::Roce => Vec::new(),
            Wire::Iwarp => vec!["--wire iwarp --"],
        };
        words.push(self.program);
        if !self.service.is_empty() && self.program.starts_with("ib_") {
            words.extend(["-c", self.service]);
        }
        words.extend(&self.options);
        words.join(" ")
    }

    /// Whether it is run at a place: programs that connect by TCP have one address family, and one is enough.
    pub(super) fn runs_at(&self, place: Place) -> bool {
        matches!(self.shape, Shape::Connected(_)) || Place::IPV4.contains(&place)
    }

    /// Whether nothing may run beside it. `ibv_srq_pingpong` ends when it has counted enough on all of its queue pairs together, while its
    /// peer still has SENDs under way on some. Those fail as soon as nonic says that their queue pair is gone, where hardware would
    /// retry for half a second, and a peer that the processors are too busy to run finds that failure before it has counted enough.
    pub(super) fn must_be_alone(&self) -> bool {
        self.program == "ibv_srq_pingpong"
    }

    pub(super) fn pair(program: &'static str, options: &[&'static str], limits: &[&'static str]) -> Self {
        Self {
            wire: Wire::Roce,
            shape: Shape::Pair,
            program,
            service: "",
            options: options.to_vec(),
            limits: limits.to_vec(),
            takes_long: false,
            known_failure: None,
        }
    }
}

impl testbed::case::Case for Case {
    fn line(&self) -> String {
        Case::line(self)
    }

    fn known_failure(&self) -> Option<&KnownFailure> {
        self.known_failure.as_ref()
    }
}

/// Both command lines, and how they belong together.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) server: String,
    pub(crate) client: String,
    pub(crate) reached: Reached,
    /// How many clients the server gets, one after another.
    pub(crate) clients: usize,
    /// The server ends by itself when its client has; if not, it is there for the next.
    pub(crate) server_ends: bool,
    /// What the last client prints.
    pub(crate) prints: &'static str,
    /// There is a file of so many bytes, and afterwards a copy that is the same.
    pub(crate) copied_bytes: Option<u64>,
}

/// How a client reaches the server.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Reached {
    /// By the connection manager, at `{port}`.
    Port,
    /// By the connection manager, at a port the program has chosen.
    Fixed(u16),
    /// By the topology's multicast group.
    Group,
    /// By UDP, at `{port}`; only then by its queue pair.
    Udp,
    /// By TCP, at `{port}`; only then by the connection manager.
    Tcp,
}

/// The outcome of a case: what there is to complain about, by place.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) case: Case,
    pub(super) complaints: Vec<(Place, String)>,
}

impl Outcome {
    /// Whether nothing is to be complained about there.
    pub(super) fn is_good_at(&self, place: Place) -> bool {
        self.complaints.iter().all(|(complained, _)| *complained != place)
    }
}
