//! The counter files, and which of the engine's counters each of them shows.
//!
//! The names are those of Linux's RDMA devices (`counters`) and of `rxe` (`hw_counters`) where the meaning is the same; a
//! counter of ours that they do not have keeps its own name. What cannot happen here, such as a symbol error, is zero.

/// A counter file.
#[derive(Debug, PartialEq, Eq)]
pub struct Counter {
    /// The folder below the port's.
    pub folder: &'static str,
    /// The file.
    pub name: &'static str,
    /// The engine's counters whose sum it shows, as `NONIC_COUNTERS` names them.
    pub sources: &'static [&'static str],
    /// What the sum is divided by: data are counted in words of four bytes.
    pub divisor: u64,
}

/// The folder of the counters that every device has.
pub const STANDARD: &str = "counters";
/// The folder of those that are a device's own.
pub const HARDWARE: &str = "hw_counters";

const fn standard(name: &'static str, sources: &'static [&'static str]) -> Counter {
    Counter {
        folder: STANDARD,
        name,
        sources,
        divisor: 1,
    }
}

const fn words(name: &'static str, sources: &'static [&'static str]) -> Counter {
    Counter {
        folder: STANDARD,
        name,
        sources,
        divisor: 4,
    }
}

const fn hardware(name: &'static str, sources: &'static [&'static str]) -> Counter {
    Counter {
        folder: HARDWARE,
        name,
        sources,
        divisor: 1,
    }
}

/// All of them.
pub static ALL: [Counter; 40] = [
    words("port_xmit_data", &["tx_bytes"]),
    words("port_rcv_data", &["rx_bytes"]),
    standard("port_xmit_packets", &["tx_packets"]),
    standard("port_rcv_packets", &["rx_packets"]),
    standard("port_rcv_errors", &["rx_icrc_errors", "rx_malformed"]),
    standard("port_xmit_discards", &["send_errors"]),
    standard("port_rcv_constraint_errors", &["rx_pkey_violations"]),
    standard("port_xmit_constraint_errors", &[]),
    standard("port_rcv_remote_physical_errors", &[]),
    standard("port_rcv_switch_relay_errors", &[]),
    standard("port_xmit_wait", &[]),
    standard("symbol_error", &[]),
    standard("link_error_recovery", &[]),
    standard("link_downed", &[]),
    standard("local_link_integrity_errors", &[]),
    standard("excessive_buffer_overrun_errors", &[]),
    standard("VL15_dropped", &[]),
    hardware("sent_pkts", &["tx_packets"]),
    hardware("rcvd_pkts", &["rx_packets"]),
    hardware("duplicate_request", &["rx_duplicates"]),
    hardware("out_of_seq_request", &["rx_out_of_sequence"]),
    hardware("rcvd_rnr_err", &["rnr_naks_received"]),
    hardware("send_rnr_err", &["rnr_naks_sent"]),
    hardware("completer_retry_err", &["timeouts"]),
    hardware("send_err", &["send_errors"]),
    hardware("naks_sent", &["naks_sent"]),
    hardware("naks_received", &["naks_received"]),
    hardware("retransmitted_packets", &["retransmitted_packets"]),
    hardware("completions", &["completions"]),
    hardware("rx_icrc_errors", &["rx_icrc_errors"]),
    hardware("rx_identification_solved", &["rx_identification_solved"]),
    hardware("rx_malformed", &["rx_malformed"]),
    hardware("rx_unclaimed", &["rx_unclaimed"]),
    hardware("rx_pkey_violations", &["rx_pkey_violations"]),
    hardware("rx_qkey_violations", &["rx_qkey_violations"]),
    hardware("rx_dropped", &["rx_dropped"]),
    hardware("sends", &["sends"]),
    hardware("receives", &["receives"]),
    hardware("handed_over", &["handed_over"]),
    hardware("handed_in", &["handed_in"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_counters_have_one_file() {
        let mut names: Vec<_> = ALL.iter().map(|counter| (counter.folder, counter.name)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    /// The engine would have to publish what is shown.
    #[cfg(feature = "generate")]
    #[test]
    fn every_source_is_a_counter_of_the_engines() {
        let nic = nonic_core::Counters::default();
        let link = nonic_engine::LinkCounters::default();
        let known: Vec<_> = nic.named().chain(link.named()).map(|(name, _)| name).collect();
        for source in ALL.iter().flat_map(|counter| counter.sources) {
            assert!(known.contains(source), "{source}");
        }
    }
}
