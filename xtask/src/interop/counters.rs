//! The counters of both NICs.

use super::case::{Opposite, Wire};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use testbed::lab::Guest;

/// Lines in the guest's kernel log about a wrong ICRC: rxe has no counter for it.
const BAD_ICRC: &str = "bad_icrc_in_log";

/// Counters of either side that stay at zero on an undisturbed wire; the checksums first. nonic's `rx_duplicates` is
/// not among them: rxe retransmits when a timer fires that it forgot to stop.
const UNPROVOKED: [&str; 7] = [
    BAD_ICRC,
    "rx_icrc_errors",
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_seq_err",
    "rx_out_of_sequence",
    "retransmitted_packets",
];
const WRONG_CHECKSUMS: usize = 2;

/// What nonic sends again and rxe has seen before. If these are the same packets, nothing was lost: a guest that took longer than usual was
/// asked for an answer with one packet more (nonic's tail probe).
const ASKED_AGAIN: [&str; 2] = ["duplicate_request", "retransmitted_packets"];

/// How often nonic gave up waiting for an acknowledgement.
const TIMEOUTS: &str = "timeouts";

type Values = BTreeMap<String, u64>;

/// rxe's `hw_counters`, and how many packets it refused for their ICRC.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    values: Values,
}

impl Counters {
    /// siw has no counters.
    pub(super) fn read(guest: &mut Guest, opposite: Opposite) -> Result<Self> {
        let counters = match opposite {
            Opposite::Rxe => format!(
                "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && for name in *; do echo $name $(<$name); done; \
             echo {BAD_ICRC} $(dmesg | grep -ci icrc)"
            ),
            Opposite::Siw => return Ok(Self::default()),
        };
        let text = guest.run(&counters)?;
        Ok(Self { values: parse(&text) })
    }

    fn since(&self, before: &Self) -> Values {
        let change = |(name, value): (&String, &u64)| {
            let change = value.saturating_sub(before.values.get(name).copied().unwrap_or(0));
            (change > 0).then(|| (name.clone(), change))
        };
        self.values.iter().filter_map(change).collect()
    }
}

/// The sum of what nonic's processes counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    values: Values,
}

impl Seen {
    /// Adds a file that a process wrote when it ended, and removes it. A killed one wrote none.
    pub(super) fn add(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let _ = std::fs::remove_file(file);
        for (name, value) in parse(&text).into_iter().filter(|(_, value)| *value > 0) {
            *self.values.entry(name).or_default() += value;
        }
    }
}

/// What both counted over some rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    rxe: Values,
    nonic: Values,
}

impl Tally {
    pub(super) fn new(before: &Counters, after: &Counters, nonic: Seen) -> Self {
        Self {
            rxe: after.since(before),
            nonic: nonic.values,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, values) in [(&mut self.rxe, &other.rxe), (&mut self.nonic, &other.nonic)] {
            for (name, value) in values {
                *sum.entry(name.clone()).or_default() += value;
            }
        }
    }

    /// What was counted without a cause. A guest that was not given a processor for longer than the timeout causes
    /// nonic to retransmit everything.
    pub(super) fn complaint(&self, wire: Wire) -> Option<String> {
        let names: &[&str] = match wire {
            Wire::Calm if !self.nonic.contains_key(TIMEOUTS) => &UNPROVOKED,
            Wire::Calm | Wire::Mistaken => &UNPROVOKED[..WRONG_CHECKSUMS],
            Wire::Disturbed => &[],
        };
        let explained = |name: &&&str| self.only_asked_again() && ASKED_AGAIN.contains(name);
        let names: Vec<&str> = names.iter().filter(|name| !explained(name)).copied().collect();
        self.counted(&names)
    }

    /// Whether rxe had already seen each packet that nonic sent again. One or two may have found their queue pair gone: the last
    /// question of a program can come after the other one has ended.
    fn only_asked_again(&self) -> bool {
        let [seen, sent] = ASKED_AGAIN;
        let seen = self.rxe.get(seen).copied().unwrap_or(0);
        let sent = self.nonic.get(sent).copied().unwrap_or(0);
        (seen..=seen + 2).contains(&sent)
    }

    /// What people should see, though it is no reason to complain.
    pub(super) fn remark(&self, wire: Wire) -> Option<String> {
        let [_, sent] = ASKED_AGAIN;
        (wire == Wire::Calm)
            .then(|| self.counted(&[TIMEOUTS, sent]))
            .flatten()
    }

    fn counted(&self, names: &[&str]) -> Option<String> {
        let counted = |name: &&str| {
            let (who, values) = if self.rxe.contains_key(*name) {
                ("rxe", &self.rxe)
            } else {
                ("nonic", &self.nonic)
            };
            Some(format!("{who}: {name} {}", values.get(*name)?))
        };
        let complaints: Vec<String> = names.iter().filter_map(counted).collect();
        (!complaints.is_empty()).then(|| complaints.join(", "))
    }

    /// A paragraph for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (who, values) in [("rxe", &self.rxe), ("nonic", &self.nonic)] {
            if values.is_empty() {
                continue;
            }
            let values: Vec<String> = values
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            let _ = writeln!(text, "  {who}: {}", values.join(", "));
        }
        text
    }
}

/// Values of one name are added: a process may have several devices.
fn parse(text: &str) -> Values {
    let pairs = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse::<u64>().ok()?))
    });
    pairs.fold(Values::new(), |mut values, (name, value)| {
        *values.entry(name).or_default() += value;
        values
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rxe: [&str; 2], nonic: &str) -> Tally {
        let [before, after] = rxe.map(|text| Counters { values: parse(text) });
        let seen = Seen { values: parse(nonic) };
        Tally::new(&before, &after, seen)
    }

    #[test]
    fn a_wrong_icrc_is_only_explained_by_a_disturbed_wire() {
        let tally = tally(
            ["sent_pkts 5\nbad_icrc_in_log 1", "sent_pkts 7\nbad_icrc_in_log 3"],
            "",
        );
        let complaint = Some("rxe: bad_icrc_in_log 2".to_owned());
        assert_eq!(tally.complaint(Wire::Calm), complaint);
        assert_eq!(tally.complaint(Wire::Mistaken), complaint);
        assert_eq!(tally.complaint(Wire::Disturbed), None);
        assert!(tally.text().contains("sent_pkts 2"));
    }

    #[test]
    fn a_gap_is_also_explained_by_a_mistake() {
        let tally = tally(
            ["sent_pkts 5", "sent_pkts 5"],
            "rx_packets 9\nrx_out_of_sequence 1",
        );
        assert_eq!(
            tally.complaint(Wire::Calm).as_deref(),
            Some("nonic: rx_out_of_sequence 1")
        );
        assert_eq!(tally.complaint(Wire::Mistaken), None);
    }

    #[test]
    fn a_guest_that_stood_still_explains_what_was_said_again_but_no_wrong_icrc() {
        let slow = tally(["duplicate_request 0", "duplicate_request 3"], "timeouts 1");
        assert_eq!(slow.complaint(Wire::Calm), None);
        assert_eq!(slow.remark(Wire::Calm).as_deref(), Some("nonic: timeouts 1"));
        let wrong = tally(["bad_icrc_in_log 0", "bad_icrc_in_log 1"], "timeouts 1");
        assert!(wrong.complaint(Wire::Calm).is_some());
    }

    #[test]
    fn a_guest_that_was_slow_explains_a_question_but_no_loss() {
        let asked = tally(
            ["duplicate_request 1", "duplicate_request 3"],
            "retransmitted_packets 2",
        );
        assert_eq!(asked.complaint(Wire::Calm), None);
        assert_eq!(
            asked.remark(Wire::Calm).as_deref(),
            Some("nonic: retransmitted_packets 2")
        );
        let lost = tally(
            ["duplicate_request 1", "duplicate_request 2"],
            "retransmitted_packets 5",
        );
        assert!(lost.complaint(Wire::Calm).is_some());
    }

    #[test]
    fn nothing_new_is_nothing_to_complain_about() {
        let tally = tally(["duplicate_request 5", "duplicate_request 5"], "rx_packets 9");
        assert_eq!(tally.complaint(Wire::Calm), None);
    }
}
