//! What happened, in numbers. Plain fields; the engine adds them up over shards and exports them. What is said of each is shown
//! alone, by `nonic metrics`.

/// Makes a structure of counters that can be added up and listed by name, so that one that is added is not forgotten
/// where they are exported.
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[doc = $field_about:literal])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
        #[allow(missing_docs, reason = "most names say it")]
        pub struct $name {
            $($(#[doc = $field_about])* pub $field: u64,)*
        }

        impl $name {
            /// All of them, by name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// What each of them counts, by name, for those who show them to people; empty where the name says it.
            pub fn descriptions() -> impl Iterator<Item = (&'static str, &'static str)> {
                [$((stringify!($field), concat!($($field_about,)*).trim_ascii())),*].into_iter()
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// Counters of one NIC.
    pub struct Counters {
        tx_packets,
        tx_bytes,
        rx_packets,
        rx_bytes,
        /// Dropped because the ICRC was wrong.
        rx_icrc_errors,
        /// Accepted after solving for an IPv4 Identification the socket does not show.
        rx_identification_solved,
        /// Dropped because no header could be made of it.
        rx_malformed,
        /// Dropped because no queue pair of that number, state, service or peer takes it.
        rx_unclaimed,
        /// Dropped because it is of another partition.
        rx_pkey_violations,
        /// Datagrams with a wrong Q_Key.
        rx_qkey_violations,
        /// Requests seen before.
        rx_duplicates,
        /// Requests that came after a gap.
        rx_out_of_sequence,
        /// Requests that came after a gap and were kept until their turn came.
        rx_kept,
        /// Requests that came after a gap and for which there was no room.
        rx_not_kept,
        /// Datagrams and unreliable messages dropped for want of a receive, or because of a gap.
        rx_dropped,
        naks_sent,
        /// NAKs for packets that were late, not lost.
        naks_unneeded,
        /// Acknowledgements that said what is kept.
        selective_acks_sent,
        naks_received,
        rnr_naks_sent,
        rnr_naks_received,
        /// Congestion notifications, provoked by packets that came with a mark.
        cnps_sent,
        /// Congestion notifications from peers.
        cnps_received,
        /// Packets that came with a mark: the path is congested.
        rx_marked,
        /// Acknowledgement timeouts.
        timeouts,
        /// Packets sent again.
        retransmitted_packets,
        /// WRITEs executed in the memory of a peer on this host, without packets.
        direct_writes,
        /// READs executed in the memory of a peer on this host, without packets.
        direct_reads,
        /// Atomics executed in the memory of a peer on this host, without packets.
        direct_atomics,
        /// Bytes that WRITEs and READs moved in the memory of peers on this host, without packets.
        direct_bytes,
        /// Streams of iWARP that this side ended with a Terminate.
        terminates_sent,
        /// Streams of iWARP that the peer ended with a Terminate.
        terminates_received,
        /// Streams of iWARP whose bytes made no sense: a wrong CRC or marker.
        rx_fpdu_errors,
        /// Completions published.
        completions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counters_count_is_known_by_name() {
        let descriptions: Vec<_> = Counters::descriptions().collect();
        let names: Vec<_> = Counters::default().named().map(|(name, _)| name).collect();
        assert!(descriptions.iter().map(|(name, _)| *name).eq(names));
        assert!(descriptions.contains(&("timeouts", "Acknowledgement timeouts.")));
        assert!(descriptions.contains(&("tx_packets", "")));
    }
}
