//! What the environment may ask of a device, for interoperability and for measuring.
//!
//! - `NONIC_ICRC=strict`: refuse IPv4 packets whose Identification our kind does not send. A socket cannot see the
//!   field, so for others (Linux's rxe, hardware) it is solved for, at the cost of half the checksum; see
//!   `nonic_wire::icrc`. The default is `lenient`.
//! - `NONIC_GSO=off`: hand every packet to the kernel alone.
//! - `NONIC_COUNTERS=FILE`: append each device's counters there when it is closed or the process exits, one `name
//!   value` per line. `%p` in the name becomes the process id.
//!
//! It refuses values it does not know: a misspelt wish must not look granted.

use crate::shard::LinkCounters;
use nonic_core::Counters;
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// What was asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) strict_icrc: bool,
    pub(crate) single_packets: bool,
    pub(crate) counters: Option<String>,
}

impl Settings {
    pub(crate) fn from_environment() -> io::Result<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let choice = |name: &str, usual: &str, other: &str| match variable(name) {
            Some(value) if value == other => Ok(true),
            Some(value) if value != usual => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name}={value}: must be {usual} or {other}"),
            )),
            _ => Ok(false),
        };
        Ok(Self {
            strict_icrc: choice("NONIC_ICRC", "lenient", "strict")?,
            single_packets: choice("NONIC_GSO", "on", "off")?,
            counters: variable("NONIC_COUNTERS")
                .map(|name| name.replace("%p", &std::process::id().to_string())),
        })
    }

    /// Writes the counters, if somebody asked. The program is on its way out; a file that cannot be written is not
    /// its business.
    pub(crate) fn report(&self, nic: &Counters, link: &LinkCounters) {
        if let Some(file) = &self.counters {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
            let _ = file.and_then(|mut file| file.write_all(text(nic, link).as_bytes()));
        }
    }
}

fn text(nic: &Counters, link: &LinkCounters) -> String {
    let rows = [
        ("tx_packets", nic.tx_packets),
        ("tx_bytes", nic.tx_bytes),
        ("rx_packets", nic.rx_packets),
        ("rx_bytes", nic.rx_bytes),
        ("rx_icrc_errors", nic.rx_icrc_errors),
        ("rx_identification_solved", nic.rx_identification_solved),
        ("rx_malformed", nic.rx_malformed),
        ("rx_unclaimed", nic.rx_unclaimed),
        ("rx_pkey_violations", nic.rx_pkey_violations),
        ("rx_qkey_violations", nic.rx_qkey_violations),
        ("rx_duplicates", nic.rx_duplicates),
        ("rx_out_of_sequence", nic.rx_out_of_sequence),
        ("rx_dropped", nic.rx_dropped),
        ("naks_sent", nic.naks_sent),
        ("naks_received", nic.naks_received),
        ("rnr_naks_sent", nic.rnr_naks_sent),
        ("rnr_naks_received", nic.rnr_naks_received),
        ("timeouts", nic.timeouts),
        ("retransmitted_packets", nic.retransmitted_packets),
        ("completions", nic.completions),
        ("sends", link.sends),
        ("send_errors", link.send_errors),
        ("receives", link.receives),
        ("handed_over", link.handed_over),
        ("nobody", link.nobody),
        ("handed_in", link.handed_in),
    ];
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name} {value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, value: &str) -> io::Result<Settings> {
        Settings::from_variables(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        let settings = Settings::from_variables(|_| None).expect("no wish is a good wish");
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn wishes_are_granted() {
        assert!(parse("NONIC_ICRC", "strict").is_ok_and(|settings| settings.strict_icrc));
        assert!(parse("NONIC_ICRC", "lenient").is_ok_and(|settings| !settings.strict_icrc));
        assert!(parse("NONIC_GSO", "off").is_ok_and(|settings| settings.single_packets));
    }

    #[test]
    fn a_misspelt_wish_is_refused_by_name() {
        let error = parse("NONIC_ICRC", "strickt").expect_err("no such mode");
        assert_eq!(error.to_string(), "NONIC_ICRC=strickt: must be lenient or strict");
    }

    #[test]
    fn counters_are_one_to_a_line() {
        let nic = Counters {
            rx_identification_solved: 7,
            ..Counters::default()
        };
        let text = text(&nic, &LinkCounters::default());
        assert!(text.lines().any(|line| line == "rx_identification_solved 7"));
        assert!(text.lines().all(|line| line.split(' ').count() == 2));
    }
}
