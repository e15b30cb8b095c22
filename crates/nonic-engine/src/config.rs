//! The configuration of a device: by the environment, or by a program that opens one itself.
//!
//! `nonic-settings` reads the environment; this module decides what a value means.

mod faults;

pub use faults::{Direction, FaultPlan, InvalidFaults, PlannedRule};

use crate::netdev::Wire;
use nonic_settings::{self as settings, Environment, SettingError};
use std::path::PathBuf;
use std::time::Duration;

/// For so long, a port without a listener may get one, on either transport. Servers that take one connection at a time
/// listen anew for the next while clients come at once. Other programs agree to connect and then begin to listen. On a
/// machine with too much to do that takes a while. A client that asks for a port that never has a listener waits no longer
/// for the answer: less than a second in all, also where the server was killed and another process of its host answers.
pub(crate) const UNSERVED_GRACE: Duration = Duration::from_millis(750);

/// The configuration of a device. `Config::default()` changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Refuse IPv4 packets whose Identification nonic does not send.
    pub strict_icrc: bool,
    /// Hand every packet to the kernel alone.
    pub single_packets: bool,
    /// Send acknowledgements and short requests at once.
    pub prompt_acks: bool,
    /// Send to processes of this host over port 4791, as other hosts would.
    pub no_shortcut: bool,
    /// Send to processes of this user and host through memory.
    pub lanes: bool,
    /// Execute WRITEs and READs in the memory of processes of this user and host, and let them do so in ours.
    pub direct: bool,
    /// Whether programs are shown loopback devices.
    pub loopback: Loopback,
    /// What the devices speak that programs are shown.
    pub wires: Wires,
    /// Ask peers of iWARP for checksums.
    pub iwarp_crc: bool,
    /// How many shards: pipelines, each with sockets and a thread of its own.
    pub shards: usize,
    /// The fault plan: what is to be done to packets, and what the NIC is to lack.
    pub faults: Option<FaultPlan>,
    /// Where to write packets.
    pub pcap: Option<PathBuf>,
    /// Where to write counters at the end.
    pub counters: Option<PathBuf>,
    /// The folder in which other processes see counters.
    pub files: Option<PathBuf>,
    /// Let processes of the same user, and root, inspect this one.
    pub inspect: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            strict_icrc: false,
            single_packets: false,
            prompt_acks: false,
            no_shortcut: false,
            lanes: true,
            direct: true,
            loopback: Loopback::Auto,
            wires: Wires::Roce,
            iwarp_crc: true,
            shards: 1,
            faults: None,
            pcap: None,
            counters: None,
            files: None,
            inspect: true,
        }
    }
}

impl Config {
    /// What the environment of this process asks for; `docs/settings.md` has the list. What it says of the log is done at once.
    pub fn from_environment() -> Result<Self, SettingError> {
        let environment = Environment::read()?;
        crate::log::install(&environment)?;
        Self::from_settings(&environment)
    }

    fn from_settings(environment: &Environment) -> Result<Self, SettingError> {
        Ok(Config {
            strict_icrc: environment.is_unusual(&settings::ICRC),
            single_packets: environment.is_unusual(&settings::GSO),
            prompt_acks: environment.is_unusual(&settings::PROMPT_ACKS),
            no_shortcut: environment.is_unusual(&settings::NO_SHORTCUT),
            lanes: !environment.is_unusual(&settings::LANE),
            direct: !environment.is_unusual(&settings::DIRECT),
            loopback: Loopback::from_settings(environment),
            wires: Wires::from_settings(environment),
            iwarp_crc: !environment.is_unusual(&settings::IWARP_CRC),
            shards: environment.number(&settings::SHARDS) as usize,
            faults: environment
                .text(&settings::FAULTS)
                .map(FaultPlan::from_setting)
                .transpose()?,
            pcap: environment.file(&settings::PCAP).map(PathBuf::from),
            counters: environment.file(&settings::COUNTERS).map(PathBuf::from),
            files: environment.file(&settings::FILES).map(PathBuf::from),
            inspect: !environment.is_unusual(&settings::INSPECT),
        })
    }
}

/// Whether programs are shown loopback devices. What follows from it is decided in `device/listing.rs`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Loopback {
    /// Where no other device reaches other hosts.
    #[default]
    Auto,
    /// Always, after all others.
    On,
    /// Always, and no others.
    Only,
    /// Never.
    Off,
}

impl Loopback {
    fn from_settings(environment: &Environment) -> Self {
        match environment.choice(&settings::LOOPBACK) {
            "on" => Loopback::On,
            "only" => Loopback::Only,
            "off" => Loopback::Off,
            _ => Loopback::Auto,
        }
    }
}

/// What the devices speak that programs are shown.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Wires {
    /// RoCEv2.
    #[default]
    Roce,
    /// iWARP.
    Iwarp,
    /// Both: each interface is two devices.
    Both,
}

impl Wires {
    fn from_settings(environment: &Environment) -> Self {
        match environment.choice(&settings::WIRE) {
            "iwarp" => Wires::Iwarp,
            "both" => Wires::Both,
            _ => Wires::Roce,
        }
    }

    /// Which devices of an interface there are, in the order of the list.
    pub fn shown(self) -> &'static [Wire] {
        match self {
            Wires::Roce => &[Wire::Roce],
            Wires::Iwarp => &[Wire::Iwarp],
            Wires::Both => &Wire::ALL,
        }
    }

    /// What a program gets that names an interface, or an address.
    pub fn usual(self) -> Wire {
        self.shown()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Config {
        let environment = Environment::of([(name.into(), value.into())]).expect("known");
        Config::from_settings(&environment).expect("a value")
    }

    #[test]
    fn nothing_asked_changes_nothing() {
        let config = Config::from_settings(&Environment::default()).expect("nothing to refuse");
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_setting_of_a_device_reaches_it() {
        assert!(with("NONIC_ICRC", "strict").strict_icrc);
        assert!(with("NONIC_GSO", "off").single_packets);
        assert!(with("NONIC_PROMPT_ACKS", "on").prompt_acks);
        assert!(with("NONIC_NO_SHORTCUT", "1").no_shortcut);
        assert!(!with("NONIC_LANE", "off").lanes);
        assert!(!with("NONIC_DIRECT", "off").direct);
        assert_eq!(with("NONIC_LOOPBACK", "on").loopback, Loopback::On);
        assert_eq!(with("NONIC_LOOPBACK", "only").loopback, Loopback::Only);
        assert_eq!(with("NONIC_LOOPBACK", "off").loopback, Loopback::Off);
        assert_eq!(with("NONIC_WIRE", "iwarp").wires, Wires::Iwarp);
        assert_eq!(with("NONIC_WIRE", "both").wires, Wires::Both);
        assert!(!with("NONIC_IWARP_CRC", "off").iwarp_crc);
        assert_eq!(with("NONIC_SHARDS", "2").shards, 2);
        assert!(with("NONIC_FAULTS", "loss=1%").faults.is_some());
        assert_eq!(with("NONIC_PCAP", "file").pcap, Some("file".into()));
        assert_eq!(with("NONIC_COUNTERS", "file").counters, Some("file".into()));
        assert_eq!(with("NONIC_FILES", "folder").files, Some("folder".into()));
        assert!(!with("NONIC_INSPECT", "off").inspect);
    }
}
