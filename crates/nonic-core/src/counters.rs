//! Counters of a NIC: plain fields that the engine adds up over shards and exports. `nonic metrics` shows the
//! description of each by itself, so it must be understood alone.

/// Makes a structure of counters that can be added up and listed by name, so that a counter that is added is not
/// forgotten where they are exported.
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

            /// What each of them counts, by name, for tools that show them to people.
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
        /// Packets sent, repetitions and those of the connection manager included. Those of iWARP are the kernel's, and not counted.
        tx_packets,
        /// Bytes sent, with RDMA's headers and without those below.
        tx_bytes,
        /// Packets that came, those that were dropped included. Those of iWARP are the kernel's, and not counted.
        rx_packets,
        /// Bytes that came, with RDMA's headers and without those below.
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
        /// Requests that came after a gap and were not kept: for want of room, from too far away, or because another was kept under
        /// their number.
        rx_not_kept,
        /// Datagrams and unreliable messages dropped for want of a receive, or because of a gap.
        rx_dropped,
        /// Datagrams and unreliable messages for a process of this host that were dropped because it does not read them.
        lane_drops,
        /// Requests that were refused, or came after a gap: NAKs, without those for want of a receive.
        naks_sent,
        /// NAKs for packets that were late, not lost.
        naks_unneeded,
        /// Acknowledgements that said what is kept.
        selective_acks_sent,
        /// NAKs from peers, without those for want of a receive.
        naks_received,
        /// Requests for which there was no receive: the peer was asked to come again.
        rnr_naks_sent,
        /// Requests for which the peer had no receive: they are sent again.
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
        assert!(descriptions.iter().all(|(_, about)| about.ends_with('.')));
    }
}
