//! Everything that can be looked up by name or number: completion statuses, asynchronous events, reasons for which connections are
//! refused, and what the errno of each verb means. `nonic explain` prints it, and explanations fall back on it.
//!
//! General words only: what is known of one failure is in [`Explanation`](crate::Explanation).

mod errnos;
mod events;
mod rejections;
mod statuses;

use crate::verbs::work::Status;

/// What a topic is about.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The status of a completion: `ibv_wc_status`.
    Status,
    /// An asynchronous event: `ibv_event_type`.
    Event,
    /// Why a connection was refused: the reason in a REJ, `rdma_cm_event.status` of `RDMA_CM_EVENT_REJECTED`.
    Rejection,
    /// What a verb answers.
    Errno,
}

/// A topic.
#[derive(Debug)]
pub struct Topic {
    /// What it is about.
    pub kind: Kind,
    /// Its name in C; for the errno of a verb, `verb: errno`.
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
        .chain(&rejections::ALL)
        .chain(&errnos::ALL)
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

/// Those that a word names: a name in C, whole or in part and in any case, or a number (of a status first, then of others).
pub fn find(word: &str) -> Vec<&'static Topic> {
    if let Ok(number) = word.parse() {
        return all().filter(|topic| topic.number == Some(number)).collect();
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    let exact: Vec<_> = all().filter(|topic| plain(topic.name) == word).collect();
    if !exact.is_empty() {
        return exact;
    }
    all().filter(|topic| plain(topic.name).contains(&word)).collect()
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

    #[test]
    fn topics_are_found_by_name_by_part_of_it_and_by_number() {
        let names = |word| find(word).iter().map(|topic| topic.name).collect::<Vec<_>>();
        assert_eq!(names("IBV_WC_REM_ACCESS_ERR"), ["IBV_WC_REM_ACCESS_ERR"]);
        assert_eq!(names("rnr_retry_exc"), ["IBV_WC_RNR_RETRY_EXC_ERR"]);
        assert!(names("12").contains(&"IBV_WC_RETRY_EXC_ERR"));
        assert!(names("ibv_reg_mr").contains(&"ibv_reg_mr: ENOMEM"));
        assert!(names("nothing of that kind").is_empty());
    }
}
