//! The availability of lanes and direct access to processes of this host, and why not, for users who ask.

use super::access;
use crate::config::Config;
use std::fmt;

/// What carries packets to processes of the same user and host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LaneRoad {
    /// Shared memory.
    SharedMemory,
    /// UDP, because this setting says so or needs it.
    Udp(&'static str),
}

/// The side that executes WRITEs and READs to the memory of processes of the same user and host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DirectRoad {
    /// The requester, as far as the kernel lets it trace the other process.
    Requester,
    /// The same, after the target has permitted it (Yama's `ptrace_scope` is 1): one peer at a time.
    RequesterPermitted,
    /// The target, because this setting says so or needs it.
    Setting(&'static str),
    /// The target: the kernel lets no process trace others without privilege (Yama's `ptrace_scope`).
    Yama(u8),
    /// The target: a filter of system calls, or a kernel without them, refuses `process_vm_readv` or `process_vm_writev`.
    Refused,
}

/// The roads that a device opened with these settings takes.
pub fn roads(config: &Config) -> (LaneRoad, DirectRoad) {
    let on_the_wire = match config {
        Config { lanes: false, .. } => Some("NONIC_LANE"),
        Config { pcap: Some(_), .. } => Some("NONIC_PCAP"),
        Config { faults: Some(_), .. } => Some("NONIC_FAULTS"),
        _ => None,
    };
    let lane = on_the_wire.map_or(LaneRoad::SharedMemory, LaneRoad::Udp);
    let setting = on_the_wire.or((!config.direct).then_some("NONIC_DIRECT"));
    let direct = match (setting, access::ptrace_scope()) {
        (Some(setting), _) => DirectRoad::Setting(setting),
        (None, _) if !access::is_offered() => DirectRoad::Refused,
        (None, None | Some(0)) => DirectRoad::Requester,
        (None, Some(1)) => DirectRoad::RequesterPermitted,
        (None, Some(scope)) => DirectRoad::Yama(scope),
    };
    (lane, direct)
}

impl DirectRoad {
    /// Whether memory that we allocated is mapped by requesters: then atomics are done by them, too.
    pub fn maps_memory(&self) -> bool {
        matches!(self, DirectRoad::Requester | DirectRoad::RequesterPermitted)
    }
}

impl fmt::Display for LaneRoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneRoad::SharedMemory => f.write_str("through shared memory"),
            LaneRoad::Udp(setting) => write!(f, "over UDP, because of {setting}"),
        }
    }
}

impl fmt::Display for DirectRoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectRoad::Requester => f.write_str("by the requester, in the target's memory"),
            DirectRoad::RequesterPermitted => {
                f.write_str("by the requester, in the target's memory, if the target permits it (Yama's ptrace_scope is 1)")
            }
            DirectRoad::Setting(setting) => write!(f, "by the target, from packets, because of {setting}"),
            DirectRoad::Yama(scope) => write!(
                f,
                "by the target, from packets, because Yama's ptrace_scope is {scope}"
            ),
            DirectRoad::Refused => f.write_str(
                "by the target, from packets, because process_vm_readv or process_vm_writev is refused (a system call filter?)",
            ),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_as_the_reason() {
        let off = Config {
            lanes: false,
            ..Config::default()
        };
        let (lane, direct) = roads(&off);
        assert_eq!(lane, LaneRoad::Udp("NONIC_LANE"));
        assert_eq!(direct, DirectRoad::Setting("NONIC_LANE"));
        assert!(!direct.maps_memory());
        let packets = Config {
            direct: false,
            ..Config::default()
        };
        let (lane, direct) = roads(&packets);
        assert_eq!(lane, LaneRoad::SharedMemory);
        assert!(direct.to_string().contains("NONIC_DIRECT"));
    }
}
