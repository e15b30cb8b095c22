//! What links count.

nonic_core::counters! {
    /// What those who carry packets saw.
    pub struct LinkCounters {
        sends,
        send_errors,
        receives,
        /// Batches that went through memory to another process of this host.
        lane_sends,
        /// Those that were lost because nobody read them.
        lane_drops,
        /// Batches that came through memory.
        lane_receives,
        /// TCP connections that peers opened, and those of them that a full backlog refused.
        streams_accepted,
        streams_refused,
        /// Processes of this host whose memory was found to be reached directly.
        direct_peers,
        /// Those to which there is a lane, and the kernel does not let us.
        direct_forbidden,
        /// Regions of theirs that we have mapped.
        direct_mapped,
        /// Regions of ours that were given to others to map.
        direct_given,
        /// Batches for other processes that came to our socket at port 4791 and were passed on.
        handed_over,
        /// Packets for queue pairs nobody on this host has.
        nobody,
        /// Batches that came through another process.
        handed_in,
        /// Received packets that `NONIC_FAULTS` had lost.
        faults_lost,
        /// Those it had come twice.
        faults_duplicated,
        /// Those it had others overtake.
        faults_reordered,
        /// Those it damaged.
        faults_corrupted,
        /// Those it delivered later: all that were delayed, and most that were duplicated or reordered.
        faults_held,
        /// Those it lost because it held too many back already.
        faults_overflow,
    }
}
