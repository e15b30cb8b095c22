//! Topics: everything that can be looked up by name, number or printed text. They are completion statuses, asynchronous
//! events, events of the connection manager, reasons for which connections are refused, errnos and what each verb means
//! by them, states of ports and types of devices. `nonic explain` prints them, and explanations fall back on them.
//!
//! General words only: what is known of one failure is in [`Explanation`](crate::Explanation).

mod cm_events;
mod errno_numbers;
mod errnos;
mod events;
mod find;
mod rejections;
mod states;
mod statuses;
pub mod texts;

pub use find::{bare, bare_word, find};

use nonic_core::Status;

/// What a topic is about.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The status of a completion: `ibv_wc_status`.
    Status,
    /// An asynchronous event: `ibv_event_type`.
    Event,
    /// An event of the connection manager: `rdma_cm_event_type`.
    CmEvent,
    /// Why a connection was refused: the reason in a REJ, `rdma_cm_event.status` of `RDMA_CM_EVENT_REJECTED`.
    Rejection,
    /// An errno, or what a verb means by it.
    Errno,
    /// The state of a port: `ibv_port_state`.
    PortState,
    /// What a device is: `ibv_node_type`.
    NodeType,
}

/// A topic.
#[derive(Debug)]
pub struct Topic {
    /// What it is about.
    pub kind: Kind,
    /// Its name in C; for what a verb means by an errno, `verb: errno`.
    pub name: &'static str,
    /// Its number, if it has one.
    pub number: Option<u32>,
    /// What it means: a phrase.
    pub meaning: &'static str,
    /// What may have led to it, the likeliest first: phrases.
    pub causes: &'static [&'static str],
    /// What to try: phrases.
    pub steps: &'static [&'static str],
}

/// The syndromes of NAKs as they stand in an AETH, what each says, and the status that the request ends with.
pub static SYNDROMES: [(u8, &str, &str); 4] = [
    (
        0x60,
        "a packet is missing: everything from there on is sent again, and nothing has failed",
        "IBV_WC_SUCCESS",
    ),
    (
        0x61,
        "the responder found the request malformed or not allowed",
        "IBV_WC_REM_INV_REQ_ERR",
    ),
    (
        0x62,
        "the responder's key does not cover or permit the access",
        "IBV_WC_REM_ACCESS_ERR",
    ),
    (
        0x63,
        "the responder could not carry the request out",
        "IBV_WC_REM_OP_ERR",
    ),
];

/// Every topic, by kind and number.
pub fn all() -> impl Iterator<Item = &'static Topic> {
    statuses::ALL
        .iter()
        .chain(&events::ALL)
        .chain(&cm_events::ALL)
        .chain(&rejections::ALL)
        .chain(errno_numbers::ALL.iter().map(|errno| &errno.topic))
        .chain(&errnos::ALL)
        .chain(&states::PORTS)
        .chain(&states::NODES)
}

/// The topic of a status.
pub fn of_status(status: Status) -> &'static Topic {
    let number = Some(u32::from(status as u8));
    let found = statuses::ALL.iter().find(|topic| topic.number == number);
    found.expect("a test compares the table with the statuses")
}

/// The topic of a REJ's reason, if there is more to say than its name.
pub fn of_rejection(reason: u16) -> Option<&'static Topic> {
    rejections::ALL
        .iter()
        .find(|topic| topic.number == Some(u32::from(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_status_has_a_topic() {
        let statuses = [
            Status::Success,
            Status::LocalLength,
            Status::LocalQpOperation,
            Status::LocalProtection,
            Status::Flushed,
            Status::WindowBind,
            Status::BadResponse,
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::RnrRetryExceeded,
        ];
        for status in statuses {
            assert_eq!(of_status(status).number, Some(status as u32));
        }
    }

    #[test]
    fn names_are_unique_and_everything_that_fails_has_a_next_step() {
        let names: HashSet<_> = all().map(|topic| (topic.kind, topic.name)).collect();
        assert_eq!(names.len(), all().count());
        for topic in all().filter(|topic| topic.number != Some(0)) {
            assert!(!topic.steps.is_empty(), "{} has no next step", topic.name);
            let phrases = topic.causes.iter().chain(topic.steps).chain([&topic.meaning]);
            for phrase in phrases {
                assert!(!phrase.ends_with('.') && !phrase.contains("  "), "{phrase}");
            }
        }
    }

    #[test]
    fn syndromes_are_those_of_the_wire_and_lead_to_a_status() {
        use nonic_wire::{NakCode, Syndrome};
        let codes = [
            NakCode::PsnSequenceError,
            NakCode::InvalidRequest,
            NakCode::RemoteAccessError,
            NakCode::RemoteOperationalError,
        ];
        for ((syndrome, _, status), code) in SYNDROMES.into_iter().zip(codes) {
            assert_eq!(syndrome, Syndrome::nak(code).0);
            assert_eq!(find(status).len(), 1);
        }
    }

    fn names(word: &str) -> Vec<&'static str> {
        find(word).iter().map(|topic| topic.name).collect()
    }

    #[test]
    fn topics_are_found_by_name_by_part_of_it_and_by_number() {
        assert_eq!(names("IBV_WC_REM_ACCESS_ERR"), ["IBV_WC_REM_ACCESS_ERR"]);
        assert_eq!(names("rnr_retry_exc"), ["IBV_WC_RNR_RETRY_EXC_ERR"]);
        assert!(names("12").contains(&"IBV_WC_RETRY_EXC_ERR"));
        assert!(names("ibv_reg_mr").contains(&"ibv_reg_mr: ENOMEM"));
        assert!(names("nothing of that kind").is_empty());
    }

    #[test]
    fn names_are_found_in_any_case_and_without_what_they_begin_with() {
        for topic in all().filter(|topic| topic.kind != Kind::Errno) {
            for word in [topic.name.to_owned(), topic.name.to_lowercase(), bare(topic)] {
                assert!(names(&word).contains(&topic.name), "{word}");
            }
            assert_eq!(names(topic.name), [topic.name]);
        }
        assert_eq!(names("unreachable"), ["RDMA_CM_EVENT_UNREACHABLE"]);
        assert_eq!(names("Rdma_Cm_Event-Rejected"), ["RDMA_CM_EVENT_REJECTED"]);
        assert_eq!(names("cq_err"), ["IBV_EVENT_CQ_ERR"]);
        assert_eq!(names("down"), ["IBV_PORT_DOWN"]);
        assert_eq!(names("0x7"), names("7"));
        assert!(names("7").contains(&"RDMA_CM_EVENT_UNREACHABLE"));
    }

    #[test]
    fn no_number_is_left_out() {
        let numbers = |kind| -> Vec<u32> {
            let of_kind = all().filter(move |topic| topic.kind == kind);
            of_kind.filter_map(|topic| topic.number).collect()
        };
        assert_eq!(numbers(Kind::Status), (0..24).collect::<Vec<_>>());
        assert_eq!(numbers(Kind::Event), (0..20).collect::<Vec<_>>());
        assert_eq!(numbers(Kind::CmEvent), (0..16).collect::<Vec<_>>());
    }
}
