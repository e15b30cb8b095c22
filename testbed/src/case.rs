//! What a case is expected to do at a place, and whether it did.
//!
//! A case is a command that is run at some of the four places, and may be known to fail at some. A known failure is judged, too: a
//! case that begins to run has to be taken off the list. The chore decides what a run is and whether its cases run side by side
//! ([`crate::side_by_side`]) or one after another; [`Judge`] counts the runs and tells of each.

use anyhow::Result;
use std::time::Instant;

/// Where a case is run: on how many hosts, and which of the Internet's protocols is between its processes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One host, IPv4.
    OneHost,
    /// Two hosts, IPv4.
    TwoHosts,
    /// One host, IPv6.
    OneHostIpv6,
    /// Two hosts, IPv6.
    TwoHostsIpv6,
}

impl Place {
    /// In the order of the columns of a table, and of the runs of a case.
    pub const ALL: [Place; 4] = [
        Place::OneHost,
        Place::TwoHosts,
        Place::OneHostIpv6,
        Place::TwoHostsIpv6,
    ];
    /// Those with IPv4.
    pub const IPV4: [Place; 2] = [Place::OneHost, Place::TwoHosts];
    /// Those with IPv6.
    pub const IPV6: [Place; 2] = [Place::OneHostIpv6, Place::TwoHostsIpv6];

    /// As the documentation calls it.
    pub fn name(self) -> &'static str {
        match self {
            Place::OneHost => "one host",
            Place::TwoHosts => "two hosts",
            Place::OneHostIpv6 => "one host, IPv6",
            Place::TwoHostsIpv6 => "two hosts, IPv6",
        }
    }
}

/// Where a case does not run, and why: from the program's source, or its documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFailure {
    /// Where.
    pub places: Vec<Place>,
    /// Why, for people.
    pub why: &'static str,
}

/// A command, and what is known of it.
pub trait Case {
    /// The command as people give it.
    fn line(&self) -> String;

    /// Where it does not run, if anywhere.
    fn known_failure(&self) -> Option<&KnownFailure>;

    /// Whether it is known to fail there.
    fn is_known_to_fail(&self, place: Place) -> bool {
        let known = self.known_failure();
        known.is_some_and(|known| known.places.contains(&place))
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What the run has to tell beside that it went well, or its complaint.
    pub result: Result<Option<String>, String>,
    seconds: f32,
}

impl Ended {
    /// Runs it and takes the time.
    pub fn after(run: impl FnOnce() -> Result<Option<String>>) -> Self {
        let started = Instant::now();
        let result = run().map_err(|error| format!("{error:#}"));
        Self {
            result,
            seconds: started.elapsed().as_secs_f32(),
        }
    }
}

/// Compares runs with what is known of their cases, and prints a line for each.
#[derive(Debug)]
pub struct Judge {
    total: usize,
    told: usize,
    passed: usize,
    known: usize,
    unexpected: Vec<String>,
}

impl Judge {
    /// Of so many runs.
    pub fn new(total: usize) -> Self {
        Self {
            total,
            told: 0,
            passed: 0,
            known: 0,
            unexpected: Vec::new(),
        }
    }

    /// The same runs follow once more.
    pub fn begin_again(&mut self) {
        self.told = 0;
    }

    /// Judges a run, and prints its line. `name` is the place, as the chore calls it.
    pub fn tell(&mut self, case: &impl Case, place: Place, name: &str, ended: &Ended) {
        let run = format!("{} ({name})", case.line());
        let verdict = self.verdict(&run, case.is_known_to_fail(place), ended);
        self.told += 1;
        println!("{}/{} {run}: {verdict}", self.told, self.total);
    }

    fn verdict(&mut self, run: &str, is_known_to_fail: bool, ended: &Ended) -> String {
        let seconds = ended.seconds;
        match (&ended.result, is_known_to_fail) {
            (Ok(told), false) => {
                self.passed += 1;
                let told = told.as_ref().map_or(String::new(), |told| format!(", {told}"));
                format!("ok ({seconds:.1} s{told})")
            }
            (Err(_), true) => {
                self.known += 1;
                format!("does not run, as known ({seconds:.1} s)")
            }
            (Ok(_), true) => {
                self.unexpected
                    .push(format!("{run} runs: take it off the known failures"));
                "FAILED: it runs, and is known not to".to_owned()
            }
            (Err(complaint), false) => {
                self.unexpected.push(format!("{run} fails: {complaint}"));
                format!("FAILED after {seconds:.1} s: {complaint}")
            }
        }
    }

    /// How many runs there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How many ran that should.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// How many did not run, and are known not to.
    pub fn known(&self) -> usize {
        self.known
    }

    /// What was not as expected, for people.
    pub fn unexpected(&self) -> &[String] {
        &self.unexpected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Example(KnownFailure);

    impl Case for Example {
        fn line(&self) -> String {
            "ucx_perftest -t tag_bw".to_owned()
        }

        fn known_failure(&self) -> Option<&KnownFailure> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_failure_is_known_where_it_is() {
        let case = Example(KnownFailure {
            places: Place::IPV6.to_vec(),
            why: "it knows IPv4 only",
        });
        let known = Place::ALL.map(|place| case.is_known_to_fail(place));
        assert_eq!(known, [false, false, true, true]);
    }

    #[test]
    fn what_runs_and_what_fails_is_judged_by_what_is_known() {
        let ended = |result| Ended {
            result,
            seconds: 1.25,
        };
        let well = || ended(Ok(Some("3.0 MB moved".to_owned())));
        let badly = || ended(Err("no device".to_owned()));
        let mut judge = Judge::new(4);
        let mut verdict = |known, ended| judge.verdict("prog (one host)", known, &ended);
        assert_eq!(verdict(false, well()), "ok (1.2 s, 3.0 MB moved)");
        assert_eq!(verdict(false, ended(Ok(None))), "ok (1.2 s)");
        assert_eq!(verdict(true, badly()), "does not run, as known (1.2 s)");
        assert_eq!(verdict(true, well()), "FAILED: it runs, and is known not to");
        assert_eq!(verdict(false, badly()), "FAILED after 1.2 s: no device");
        assert_eq!((judge.passed(), judge.known()), (2, 1));
        let unexpected = [
            "prog (one host) runs: take it off the known failures",
            "prog (one host) fails: no device",
        ];
        assert_eq!(judge.unexpected(), unexpected);
    }
}
