//! The cells of the table: the wires, and what must show on them.

use super::network::Plan;
use super::subject::Subject;
use anyhow::Result;
use nonic_netem::LinkSettings;

/// One wire, on which every subject is measured in turn.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) group: Group,
    /// As a row names it.
    pub(super) name: String,
    pub(super) there: String,
    pub(super) back: String,
    /// What is measured of ours.
    pub(super) ours: Subject,
    /// The subjects beside it. The first decides.
    pub(super) rivals: Vec<Subject>,
    /// The least ratio of ours to the first rival that must show.
    pub(super) must_show: Option<f64>,
}

/// The tables.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Loss,
    Faults,
    Reordering,
    Iwarp,
}

impl Group {
    pub(super) const ALL: [Group; 4] = [Group::Loss, Group::Faults, Group::Reordering, Group::Iwarp];

    pub(super) fn title(self) -> &'static str {
        match self {
            Group::Loss => "Loss of what is sent, by round trip",
            Group::Faults => "Faults in both directions",
            Group::Reordering => "Reordering, nothing lost",
            Group::Iwarp => "iWARP beside bare TCP",
        }
    }
}

/// Round trips and losses of the first table.
pub(super) const TRIPS: [(&str, &str); 5] = [
    ("~0", "0s"),
    ("1 ms", "500us"),
    ("10 ms", "5ms"),
    ("20 ms", "10ms"),
    ("50 ms", "25ms"),
];
pub(super) const LOSSES: [&str; 4] = ["0", "0.1%", "1%", "5%"];

const RIVALS: [Subject; 2] = [Subject::Tcp("bbr"), Subject::Tcp("cubic")];

/// Faults of both directions: the name, the settings, and what nonic must reach of TCP.
const FAULTS: [(&str, &str, Option<f64>); 11] = [
    ("loss 0.1 %", "loss=0.1%", Some(0.7)),
    ("loss 1 %", "loss=1%", Some(0.7)),
    ("loss 5 %", "loss=5%", Some(0.5)),
    ("loss 20 %", "loss=20%", None),
    (
        "bursts of 8, 1 % in all, round trip 10 ms",
        "burst=1263ppmx8,delay=5ms",
        None,
    ),
    ("delay 25 ms, loss 1 %", "delay=25ms,loss=1%", Some(0.7)),
    ("duplicates 5 %", "dup=5%,hold=0s", Some(0.7)),
    ("corruption 1 %", "corrupt=1%", Some(0.7)),
    (
        "10 Mbit/s, queue of 150 kB",
        "rate=10mbit,queue=150000",
        Some(0.7),
    ),
    (
        "1 Gbit/s, queue of 1 MiB, round trip 10 ms",
        "rate=1gbit,delay=5ms",
        Some(0.7),
    ),
    (
        "1 Gbit/s, queue of 1 MiB, round trip 10 ms, loss 1 %",
        "rate=1gbit,delay=5ms,loss=1%",
        Some(0.7),
    ),
];

/// Wires on which packets overtake each other.
const REORDERING: [(&str, &str); 5] = [
    ("delay 2 ± 2 ms", "delay=2ms,jitter=2ms"),
    ("round trip 1 ms, 0.01 % early", "delay=500us,early=0.01%"),
    ("round trip 1 ms, 0.1 % early", "delay=500us,early=0.1%"),
    ("round trip 1 ms, 1 % early", "delay=500us,early=1%"),
    ("round trip 1 ms, ± 10 µs", "delay=500us,jitter=10us"),
];

/// A wire with the same settings in both directions.
fn both(group: Group, name: &str, settings: &str, must_show: Option<f64>) -> Cell {
    Cell {
        group,
        name: name.to_owned(),
        there: settings.to_owned(),
        back: settings.to_owned(),
        ours: Subject::Roce,
        rivals: RIVALS.to_vec(),
        must_show,
    }
}

pub(super) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (trip, delay) in TRIPS {
        for loss in LOSSES {
            cells.push(Cell {
                group: Group::Loss,
                name: format!("{trip}, {loss}"),
                there: format!("delay={delay},loss={}%", loss.trim_end_matches('%')),
                back: format!("delay={delay}"),
                ours: Subject::Roce,
                rivals: RIVALS.to_vec(),
                must_show: Some(if loss == "5%" { 0.5 } else { 0.7 }),
            });
        }
    }
    cells.extend(FAULTS.map(|(name, settings, must)| both(Group::Faults, name, settings, must)));
    cells.extend(REORDERING.map(|(name, settings)| both(Group::Reordering, name, settings, Some(0.7))));
    for (name, settings, must_show) in [
        ("round trip 20 ms", "delay=10ms", Some(0.7)),
        ("round trip 20 ms, loss 1 %", "delay=10ms,loss=1%", Some(0.7)),
    ] {
        cells.push(Cell {
            ours: Subject::Iwarp,
            rivals: vec![Subject::Tcp("")],
            ..both(Group::Iwarp, name, settings, must_show)
        });
    }
    cells
}

impl Cell {
    /// The wire of one round.
    pub(super) fn plan(&self, seed: u64) -> Plan {
        let read = |text: &str| {
            let mut settings = LinkSettings::default();
            settings.change(text).expect("a test reads all of them");
            settings
        };
        Plan {
            left: 1,
            right: 1,
            mtu: 1500,
            settings: [read(&self.there), read(&self.back)],
            seed,
            offload: true,
        }
    }

    /// Gives both directions more settings.
    pub(super) fn add(&mut self, settings: &str) -> Result<()> {
        LinkSettings::default().change(settings)?;
        for direction in [&mut self.there, &mut self.back] {
            *direction = format!("{direction},{settings}");
        }
        Ok(())
    }

    pub(super) fn mentions(&self, pattern: &str) -> bool {
        let described = format!("{}: {} {}", self.group.title(), self.name, self.there);
        described.to_lowercase().contains(&pattern.to_lowercase())
    }

    /// Every subject, beginning with another one in each round.
    pub(super) fn subjects(&self, round: usize) -> Vec<Subject> {
        let mut subjects = vec![self.ours];
        subjects.extend(&self.rivals);
        let first = round % subjects.len();
        subjects.rotate_left(first);
        subjects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_wires_are_readable_and_differ() {
        let cells = all();
        let plans: Vec<String> = cells
            .iter()
            .map(|cell| format!("{:?} {:?}", cell.ours, cell.plan(1)))
            .collect();
        for (index, plan) in plans.iter().enumerate() {
            assert!(
                !plans[..index].contains(plan),
                "{} is there twice",
                cells[index].name
            );
        }
    }

    #[test]
    fn a_pattern_finds_a_cell() {
        let found: Vec<Cell> = all().into_iter().filter(|cell| cell.mentions("2 ± 2")).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].subjects(0)[0], Subject::Roce);
        assert_ne!(found[0].subjects(1)[0], Subject::Roce);
    }
}
