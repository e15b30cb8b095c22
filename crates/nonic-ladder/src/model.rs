//! The ladder as a value: ends, and the events at and between them.

/// Events of several ends, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// What it is of.
    pub title: String,
    /// The ends, from left to right.
    pub ends: Vec<String>,
    /// What happened, in the order of time.
    pub events: Vec<Event>,
    /// Sentences about what is not shown.
    pub notes: Vec<String>,
    /// When the first event of all was; what is shown may begin later.
    pub start_ns: Option<u64>,
    /// Where events were left out: in front of the event with this index, so many.
    pub left_out: Option<(usize, usize)>,
    /// Whether queue pairs are named by their numbers on the wire, which people know in hexadecimal.
    pub wire_numbers: bool,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of a clock that all events share.
    pub at_ns: u64,
    /// At which end; for a packet, the end that sent it.
    pub end: usize,
    /// Whether it is a packet.
    pub kind: EventKind,
    /// How to show it.
    pub tone: Tone,
    /// What it was, in words.
    pub text: String,
    /// What is remarkable about it, in a few words.
    pub mark: Option<String>,
    /// The queue pair at the end.
    pub qp: Option<u32>,
    /// The queue pair that a packet is for.
    pub peer_qp: Option<u32>,
    /// Whether it is of a connection over which two processes only agree on what to do.
    pub control: bool,
}

/// Whether an event stayed at its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It did.
    Local,
    /// A packet left for another end, or for this very one.
    Packet {
        /// The other end.
        to: usize,
        /// Whether it got there.
        arrival: Arrival,
    },
}

/// What became of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It arrived then.
    At(u64),
    /// Not known: it was seen in one place only.
    Unknown,
    /// It did not arrive.
    Never,
}

/// What kind of thing an event is, for colours.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something asked of the peer.
    Request,
    /// An answer.
    Answer,
    /// Something a program did, or a completion or event that it got.
    Program,
    /// Something that went wrong, or repairs it.
    Trouble,
}

impl Event {
    /// Something that a program did, or that happened in memory, without a packet.
    #[must_use]
    pub fn local(at_ns: u64, end: usize, qp: Option<u32>, text: String) -> Self {
        Event {
            at_ns,
            end,
            kind: EventKind::Local,
            tone: Tone::Program,
            text,
            mark: None,
            qp,
            peer_qp: None,
            control: false,
        }
    }

    /// The other end of a packet.
    #[must_use]
    pub fn peer(&self) -> Option<usize> {
        match self.kind {
            EventKind::Local => None,
            EventKind::Packet { to, .. } => Some(to),
        }
    }
}

impl Ladder {
    /// Puts the events in the order of time; those of one instant stay as they are.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.at_ns);
    }

    /// The time that times are shown relative to: that of the first event of all.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        let first_ns = self.events.first().map_or(0, |event| event.at_ns);
        self.start_ns.unwrap_or(first_ns)
    }

    fn queue_pair(&self, number: u32) -> String {
        match self.wire_numbers {
            true => format!("QP {number:#08x}"),
            false => format!("QP {number}"),
        }
    }
}

/// The words above and beside a ladder: the queue pair of an event is named once, above, where an end has only one.
#[derive(Clone, Debug)]
pub(crate) struct Headings {
    /// What is written above each end.
    pub(crate) names: Vec<String>,
    /// Whether some end has several queue pairs.
    several: bool,
}

impl Headings {
    pub(crate) fn of(ladder: &Ladder) -> Self {
        let mut seen: Vec<Option<u32>> = vec![None; ladder.ends.len()];
        let mut several = false;
        for event in &ladder.events {
            let own = event.qp.map(|number| (event.end, number));
            let peer = event.peer().zip(event.peer_qp);
            for (end, number) in [own, peer].into_iter().flatten() {
                several |= *seen[end].get_or_insert(number) != number;
            }
        }
        let heading = |(name, number): (&String, &Option<u32>)| match number {
            Some(number) if !several => format!("{name}, {}", ladder.queue_pair(*number)),
            _ => name.clone(),
        };
        Headings {
            names: ladder.ends.iter().zip(&seen).map(heading).collect(),
            several,
        }
    }

    /// What is written beside an event, or on its arrow.
    pub(crate) fn label(&self, ladder: &Ladder, event: &Event) -> String {
        let number = event.peer_qp.or(event.qp).filter(|_| self.several);
        let which = number.map_or(String::new(), |number| format!("{} ", ladder.queue_pair(number)));
        let mark = event
            .mark
            .as_ref()
            .map_or(String::new(), |mark| format!(": {mark}"));
        format!("{which}{}{mark}", event.text)
    }
}

/// Durations in one unit, so that they can be compared at a glance.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
    unit_ns: f64,
    digits: usize,
    /// The unit's name.
    pub(crate) unit: &'static str,
}

impl Clock {
    /// The clock of a ladder. The fewer digits stand before the point, the better it reads.
    pub(crate) fn of(ladder: &Ladder, start_ns: u64) -> Self {
        let end_ns = ladder.events.last().map_or(start_ns, |event| event.at_ns);
        Self::up_to(start_ns, end_ns)
    }

    pub(crate) fn up_to(start_ns: u64, end_ns: u64) -> Self {
        let (unit_ns, digits, unit) = match end_ns.saturating_sub(start_ns) {
            0..100_000_000 => (1e3, 1, "µs"),
            100_000_000..100_000_000_000 => (1e6, 3, "ms"),
            _ => (1e9, 3, "s"),
        };
        Clock {
            start_ns,
            unit_ns,
            digits,
            unit,
        }
    }

    /// The time since the start.
    pub(crate) fn time(&self, at_ns: u64) -> String {
        let since_ns = at_ns.saturating_sub(self.start_ns) as f64;
        format!("{:.*}", self.digits, since_ns / self.unit_ns)
    }
}
