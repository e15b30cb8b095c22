//! The counters of links. `nonic metrics` shows the description of each counter alone.

nonic_core::counters! {
    /// The counters of links, and of the streams of iWARP.
    pub struct LinkCounters {
        /// Calls that gave packets, or bytes of a stream, to the kernel.
        sends,
        /// Calls that the kernel refused for another reason than want of room.
        send_errors,
        /// Calls that brought packets, or bytes of a stream, from the kernel.
        receives,
        /// Records that went through memory to another process of this host.
        lane_sends,
        /// Records that came through memory from another process of this host.
        lane_receives,
        /// TCP connections that peers opened.
        streams_accepted,
        /// TCP connections that peers opened and that were hung up on before the program was told: too many silent ones, or too many requests beyond the backlog.
        streams_refused,
        /// Processes of this host whose memory was found to be reached directly.
        direct_peers,
        /// Processes of this host whose memory the kernel does not let us reach directly.
        direct_forbidden,
        /// Regions of other processes that we have mapped.
        direct_mapped,
        /// Regions of ours that were given to others to map.
        direct_given,
        /// Batches for other processes that came to our socket at port 4791 and were passed on.
        handed_over,
        /// Packets for queue pairs nobody on this host has.
        nobody,
        /// Batches that came through another process.
        handed_in,
        /// Packets that `NONIC_FAULTS` had lost.
        faults_lost,
        /// Packets that `NONIC_FAULTS` had come twice.
        faults_duplicated,
        /// Packets that `NONIC_FAULTS` had others overtake, or overtake others.
        faults_reordered,
        /// Packets that `NONIC_FAULTS` damaged.
        faults_corrupted,
        /// Received packets whose payload `NONIC_FAULTS` changed, so that nobody noticed.
        faults_garbled,
        /// Packets that `NONIC_FAULTS` delivered or sent later: all that were delayed, and most that were duplicated or reordered.
        faults_held,
        /// Packets that `NONIC_FAULTS` lost because it held too many back already.
        faults_overflow,
    }
}

#[cfg(test)]
mod tests {
    use super::LinkCounters;
    use nonic_core::Counters;

    /// `docs/counters.md`, with what is written above its tables kept as it is.
    fn page(written: &str) -> String {
        let above = written.split("| counter |").collect::<Vec<_>>();
        let heads = above
            .iter()
            .map(|part| part.rsplit_once("|\n").map_or(*part, |(_, head)| head));
        let tables = [
            table(Counters::descriptions()),
            table(LinkCounters::descriptions()),
            String::new(),
        ];
        heads
            .zip(tables)
            .map(|(head, table)| format!("{head}{table}"))
            .collect()
    }

    fn table(counters: impl Iterator<Item = (&'static str, &'static str)>) -> String {
        let rows = counters.map(|(name, about)| format!("| `{name}` | {about} |\n"));
        format!(
            "| counter | what it counts |\n|---|---|\n{}",
            rows.collect::<String>()
        )
    }

    /// With `NONIC_TEST_WRITE` set it writes the page instead.
    #[test]
    fn the_page_of_counters_is_made_from_the_lists() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/counters.md");
        let written = std::fs::read_to_string(file).expect("it is there");
        let made = page(&written);
        if std::env::var_os("NONIC_TEST_WRITE").is_some() {
            std::fs::write(file, &made).expect("written");
        } else {
            assert_eq!(
                written, made,
                "NONIC_TEST_WRITE=1 cargo test -p nonic-engine page_of_counters"
            );
        }
    }
}
