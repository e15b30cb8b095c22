//! Explains why two ends did not connect.

use super::Explanation;
use crate::topics;
use nonic_wire::cm::RejectReason;

impl Explanation {
    /// The peer rejected a connection for the reason of this number.
    pub fn of_rejection(reason: u16) -> Self {
        let text = RejectReason(reason).text();
        let happened = format!("The peer rejected the connection: {text} (reason {reason}).");
        match topics::of_rejection(reason) {
            Some(topic) => Explanation::known(happened, topic.causes, topic.steps),
            None => Explanation::known(
                happened,
                &["the two sides do not offer the same"],
                &["look at what the peer's program and its device offer"],
            ),
        }
    }

    /// The peer accepted, and ended the connection before this side was ready.
    pub fn of_early_end() -> Self {
        Explanation::known(
            "The peer accepted the connection and ended it again before this side had its queue pair ready.",
            &[
                "the peer's program failed after it accepted: memory that could not be registered, a limit, a version it does not speak",
                "its process ended",
            ],
            &["look at what the peer's program says, and at NONIC_LOG=warn there"],
        )
    }

    /// The peer did not answer a request to connect.
    pub fn of_unreachable() -> Self {
        Explanation::known(
            "The peer did not answer the request to connect.",
            &[
                "no RDMA program runs there, or its device has another address",
                "a firewall drops UDP port 4791 (iWARP: the TCP port), in either direction",
                "another program has UDP port 4791 on the peer's host, such as a kernel's rxe: what comes there is lost",
                "its program neither accepts nor rejects",
            ],
            &[
                "try `nonic ping` between the two addresses, and `nonic doctor` on both hosts",
                "open UDP port 4791 in both directions",
                "look who has the port on the peer's host (`ss -ulpn sport = 4791`)",
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_named_with_what_to_do_about_it() {
        let said = Explanation::of_rejection(8).to_string();
        assert!(
            said.contains("nobody listens there (reason 8)") && said.contains("start the listener"),
            "{said}"
        );
        let said = Explanation::of_rejection(33).to_string();
        assert!(said.contains("flow label") && said.contains("Try:"), "{said}");
    }
}
