//! Statistics of a device: its counters, and what it holds, by which a program shows that it left nothing behind.

use super::{Device, Inner};
use crate::host::PortState;
use crate::link::LinkCounters;
use crate::log;
use nonic_core::cm::CmUsage;
use nonic_core::{Counters, Usage};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::PoisonError;

/// What a device holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceUsage {
    /// Queue pairs, their requests and their timers.
    pub nic: Usage,
    /// Connections, listeners and their timers.
    pub connections: CmUsage,
    /// Memory keys.
    pub memory_keys: usize,
    /// Completion queues with a listener to notify.
    pub completion_queues: usize,
    /// Descriptors that were made when they were first needed, and are kept: for lanes to and from processes of this host,
    /// as long as those live, and for threads that wait for completions, as long as their queue is there.
    pub kept_descriptors: usize,
}

impl Device {
    /// What the NIC and its links have seen.
    pub fn counters(&self) -> (Counters, LinkCounters) {
        self.inner.counters()
    }

    /// For each address, in the order of the GID table, whether this process has a socket at port 4791.
    pub fn port_states(&self) -> Vec<PortState> {
        let turn = self.inner.home();
        turn.presences().map(|presence| presence.port_state()).collect()
    }

    /// What it holds at this moment. Looks at every queue pair: not for hot paths.
    pub fn usage(&self) -> DeviceUsage {
        let mut nic = Usage::default();
        let mut lane_descriptors = 0;
        for driver in &self.inner.drivers {
            let turn = driver.turn();
            nic += turn.nic.usage();
            lane_descriptors += turn
                .presences()
                .map(|presence| presence.lane_descriptors())
                .sum::<usize>();
        }
        let connections = self.inner.common.connections.with(|cm| cm.usage());
        let listeners = self.inner.common.listeners.read();
        let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        let for_waiting: usize = listeners.values().map(|listener| listener.descriptors()).sum();
        DeviceUsage {
            nic,
            connections,
            memory_keys: self.inner.keys.len(),
            completion_queues: listeners.len(),
            kept_descriptors: lane_descriptors + for_waiting,
        }
    }
}

impl Inner {
    fn counters(&self) -> (Counters, LinkCounters) {
        let mut sum = (Counters::default(), LinkCounters::default());
        for driver in &self.drivers {
            let turn = driver.turn();
            sum.0 += *turn.nic.counters();
            sum.1 += turn.link_counters();
        }
        sum
    }

    /// Publishes the counters and writes them to the file of `NONIC_COUNTERS`, if it is set. The program is on its way out;
    /// a file that cannot be written is reported, and changes nothing.
    pub(super) fn report_counters(&self) {
        for driver in &self.drivers {
            driver.turn().publish_counters();
        }
        let Some(file) = &self.settings.counters else {
            return;
        };
        let (nic, link) = self.counters();
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        let written = opened.and_then(|mut file| file.write_all(text(&nic, &link).as_bytes()));
        if let Err(error) = written {
            log::counters_unwritten(file, &error);
        }
    }
}

fn text(nic: &Counters, link: &LinkCounters) -> String {
    nic.named()
        .chain(link.named())
        .fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name} {value}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_one_to_a_line() {
        let nic = Counters {
            rx_identification_solved: 7,
            ..Counters::default()
        };
        let link = LinkCounters {
            faults_lost: 3,
            ..LinkCounters::default()
        };
        let text = text(&nic, &link);
        for line in ["rx_identification_solved 7", "faults_lost 3"] {
            assert!(text.lines().any(|found| found == line));
        }
        assert!(text.lines().all(|line| line.split(' ').count() == 2));
    }
}
