//! Finds topics by what a user has: a name, a number, a text that a program printed, or a whole line of its output.

use super::{Kind, Topic, all, texts};
use std::ops::Range;

/// What names in C begin with; they are found without it.
const PREFIXES: [&str; 6] = [
    "ibv_wc_",
    "ibv_event_",
    "rdma_cm_event_",
    "ib_cm_rej_",
    "ibv_port_",
    "ibv_node_",
];

/// Second names of errnos, and what `rdma_event_str` answers to a number that is none.
const SECOND_NAMES: [(&str, &str); 3] = [
    ("ewouldblock", "eagain"),
    ("enotsup", "eopnotsupp"),
    ("unknown_event", "unknown"),
];

/// Those that words name. They may be:
///
/// - a name in C or a text of the C libraries, in any case, with or without what it begins with;
/// - a number, decimal or with `0x`: of a status first, then of all others but states and types; of an errno alone, if negative;
/// - a line that a program printed, with one of these in it, or with `status 12`, `errno 12` and the like;
/// - a part of a name or text.
#[must_use]
pub fn find(words: &str) -> Vec<&'static Topic> {
    let words = words.trim_matches(|letter: char| letter.is_whitespace() || "\"'`.,:;".contains(letter));
    if let Some(number) = number(words) {
        return by_number(number);
    }
    let word = plain(words);
    let word = second_name(&word);
    let is_whole =
        |topic: &&Topic| plain(topic.name) == word || bare(topic) == bare_name(word) || text(topic) == word;
    let whole: Vec<_> = all().filter(is_whole).collect();
    if !whole.is_empty() {
        return with_verbs(whole, |_| true);
    }
    let line = Line::new(words);
    let found = line.topics();
    if !found.is_empty() {
        return found;
    }
    let has_it = |topic: &&Topic| plain(topic.name).contains(word) || text(topic).contains(word);
    match word.is_empty() {
        true => Vec::new(),
        false => all().filter(has_it).collect(),
    }
}

/// The name of a topic in small letters, without what all names of its kind begin with: what a misspelt word is compared with.
#[must_use]
pub fn bare(topic: &Topic) -> String {
    bare_name(&plain(topic.name)).to_owned()
}

/// The same of any words.
#[must_use]
pub fn bare_word(words: &str) -> String {
    bare_name(&plain(words)).to_owned()
}

fn bare_name(name: &str) -> &str {
    let without = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    without.unwrap_or(name)
}

fn second_name(word: &str) -> &str {
    let known = SECOND_NAMES.iter().find(|(second, _)| *second == word);
    known.map_or(word, |(_, first)| first)
}

fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join("_").to_lowercase().replace('-', "_")
}

/// The text of a topic, in the form of names.
fn text(topic: &Topic) -> String {
    texts::of(topic).map_or(String::new(), plain)
}

fn number(word: &str) -> Option<i64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(i64::from),
        None => word.parse().ok(),
    }
}

/// Nobody is told states and types by number alone, so that they would only be in the way.
fn by_number(number: i64) -> Vec<&'static Topic> {
    let has_number = |topic: &Topic| topic.number.map(i64::from) == Some(number.abs());
    let is_told = |topic: &Topic| match number {
        ..0 => topic.kind == Kind::Errno,
        _ => !matches!(topic.kind, Kind::PortState | Kind::NodeType),
    };
    all()
        .filter(|topic| has_number(topic) && is_told(topic))
        .collect()
}

/// The topics, and behind each errno what it means of the verbs that are of interest.
fn with_verbs(topics: Vec<&'static Topic>, is_wanted: impl Fn(&str) -> bool) -> Vec<&'static Topic> {
    let mut found = Vec::new();
    for topic in topics {
        found.push(topic);
        if topic.kind == Kind::Errno {
            let of_verb = |other: &&Topic| {
                let named = other.name.split_once(": ");
                named.is_some_and(|(verb, errno)| errno == topic.name && is_wanted(verb))
            };
            found.extend(all().filter(of_verb));
        }
    }
    found
}

/// Words of a line, in small letters.
struct Line {
    words: Vec<String>,
}

impl Line {
    fn new(text: &str) -> Self {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
        let mut words = Vec::new();
        for piece in text.split(|letter| !is_part(letter)) {
            // A minus belongs to a number and parts words, as in `wc->status`.
            match piece.parse::<i64>() {
                Ok(_) => words.push(piece.to_owned()),
                Err(_) => {
                    let parts = piece.split('-').filter(|part| !part.is_empty());
                    words.extend(parts.map(str::to_lowercase));
                }
            }
        }
        Line { words }
    }

    fn topics(&self) -> Vec<&'static Topic> {
        let mut found = self.named();
        // An event of the connection manager comes with a status, which says more.
        if found.is_empty() || found.iter().any(|topic| topic.kind == Kind::CmEvent) {
            let numbered = self.numbered(&found);
            found.extend(numbered);
        }
        if found.is_empty() {
            let is_of_verb = |topic: &&Topic| {
                let verb = topic.name.split_once(": ").map(|(verb, _)| verb);
                verb.is_some_and(|verb| self.has(verb))
            };
            return all().filter(is_of_verb).collect();
        }
        with_verbs(found, |verb| self.has(verb))
    }

    fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    /// Those whose name or text is in the line, from left to right. Of two texts of which one holds the other it is the longer.
    fn named(&self) -> Vec<&'static Topic> {
        let mut places: Vec<(Range<usize>, &'static Topic)> = Vec::new();
        for topic in all() {
            let name = vec![topic.name.to_lowercase()];
            // A text of one word, such as `down`, is a word of other sentences, too.
            let text = texts::of(topic).map(|text| Line::new(text).words);
            let text = text.filter(|words| words.len() > 1);
            for wanted in [Some(name), text].into_iter().flatten() {
                let windows = self.words.windows(wanted.len()).enumerate();
                let found = windows.filter(|(_, window)| {
                    window
                        .iter()
                        .zip(&wanted)
                        .all(|(word, wanted)| second_name(word) == wanted)
                });
                places.extend(found.map(|(at, window)| (at..at + window.len(), topic)));
            }
        }
        let is_inside = |inner: &Range<usize>, outer: &Range<usize>| {
            inner.len() < outer.len() && outer.start <= inner.start && inner.end <= outer.end
        };
        let all_places: Vec<Range<usize>> = places.iter().map(|(place, _)| place.clone()).collect();
        places.retain(|(place, _)| !all_places.iter().any(|other| is_inside(place, other)));
        places.sort_by_key(|(place, _)| place.start);
        let mut topics: Vec<&'static Topic> = Vec::new();
        for (_, topic) in places {
            if !topics.iter().any(|known| std::ptr::eq(*known, topic)) {
                topics.push(topic);
            }
        }
        topics
    }

    /// Those of numbers behind a word that says what they count: `status 12`, `errno=12`, `error -110`.
    fn numbered(&self, named: &[&'static Topic]) -> Vec<&'static Topic> {
        let is_rejected = named.iter().any(|topic| topic.name == "RDMA_CM_EVENT_REJECTED");
        let mut found = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let behind = self.words[at + 1..]
                .iter()
                .find(|word| *word != "code" && *word != "is");
            let Some(number) = behind.and_then(|word| number(word)) else {
                continue;
            };
            // What the vendor of a device numbers is of that device.
            if at > 0 && self.words[at - 1] == "vendor" {
                continue;
            }
            let kinds: &[Kind] = match word.as_str() {
                "status" | "error" | "err" if is_rejected && number > 0 => &[Kind::Rejection],
                "status" if number >= 0 => &[Kind::Status],
                "status" | "errno" | "error" | "err" | "ret" | "rc" | "returned" => &[Kind::Errno],
                "event" => &[Kind::Event, Kind::CmEvent],
                "reason" => &[Kind::Rejection],
                _ => continue,
            };
            let of_kind = |topic: &&Topic| {
                kinds.contains(&topic.kind) && topic.number.map(i64::from) == Some(number.abs())
            };
            found.extend(all().filter(of_kind));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &str) -> Vec<&'static str> {
        find(words).iter().map(|topic| topic.name).collect()
    }

    #[test]
    fn every_text_of_the_c_functions_leads_to_its_number() {
        let tables: [(Kind, &[&std::ffi::CStr]); 4] = [
            (Kind::Status, &texts::STATUSES),
            (Kind::Event, &texts::EVENTS),
            (Kind::PortState, &texts::PORT_STATES),
            (Kind::NodeType, &texts::NODE_TYPES),
        ];
        for (kind, table) in tables {
            for (number, text) in table.iter().enumerate() {
                let text = text.to_str().expect("ASCII");
                for words in [
                    text.to_owned(),
                    text.to_uppercase(),
                    format!("\"{text}\""),
                    format!(" {text}.\n"),
                ] {
                    let found = find(&words);
                    let is_it = |topic: &&Topic| topic.kind == kind && topic.number == Some(number as u32);
                    assert_eq!(found.iter().filter(|topic| is_it(topic)).count(), 1, "{words}");
                    assert_eq!(found.len(), 1, "{words}: {:?}", names(&words));
                }
            }
            let topics = all().filter(|topic| topic.kind == kind);
            assert_eq!(topics.count(), table.len(), "{kind:?}");
        }
    }

    #[test]
    fn lines_that_programs_print_are_understood() {
        let expected: [(&str, &[&str]); 16] = [
            (
                "Failed status transport retry counter exceeded (12) for wr_id 2",
                &["IBV_WC_RETRY_EXC_ERR"],
            ),
            (
                " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81",
                &["IBV_WC_RETRY_EXC_ERR"],
            ),
            (
                "Got completion from peer 10.0.0.1 with status=12 opcode=0 len=0 vendor err 129 (Recv)",
                &["IBV_WC_RETRY_EXC_ERR"],
            ),
            (
                "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)",
                &["IBV_WC_RETRY_EXC_ERR"],
            ),
            ("cq completion failed status 5", &["IBV_WC_WR_FLUSH_ERR"]),
            ("wc->status: 13", &["IBV_WC_RNR_RETRY_EXC_ERR"]),
            ("wc status 4", &["IBV_WC_LOC_PROT_ERR"]),
            (
                "ibv_reg_mr: Cannot allocate memory",
                &["ENOMEM", "ibv_reg_mr: ENOMEM"],
            ),
            ("Couldn't bind: Address already in use", &["EADDRINUSE"]),
            (
                "ibv_modify_qp failed with errno=22",
                &["EINVAL", "ibv_modify_qp: EINVAL"],
            ),
            ("rdma_create_qp returned -1 (ENOTSUP)", &["EOPNOTSUPP"]),
            (
                "cma event RDMA_CM_EVENT_REJECTED, error 8",
                &["RDMA_CM_EVENT_REJECTED", "IB_CM_REJ_INVALID_SERVICE_ID"],
            ),
            (
                "cma event RDMA_CM_EVENT_UNREACHABLE, error -110",
                &["RDMA_CM_EVENT_UNREACHABLE", "ETIMEDOUT"],
            ),
            (
                "async event: last WQE reached on QP 0x11",
                &["IBV_EVENT_QP_LAST_WQE_REACHED"],
            ),
            ("errno code 12", &["ENOMEM"]),
            ("vendor err 12", &[]),
        ];
        for (line, topics) in expected {
            assert_eq!(names(line), topics, "{line}");
        }
    }

    #[test]
    fn a_number_alone_is_all_that_it_may_be() {
        assert_eq!(
            names("12"),
            [
                "IBV_WC_RETRY_EXC_ERR",
                "IBV_EVENT_PKEY_CHANGE",
                "RDMA_CM_EVENT_MULTICAST_JOIN",
                "IB_CM_REJ_INVALID_GID",
                "ENOMEM",
            ]
        );
        assert_eq!(names("-12"), ["ENOMEM"]);
        assert_eq!(names("22"), ["IBV_WC_TM_ERR", "EINVAL"]);
        assert!(names("4000").is_empty());
    }

    #[test]
    fn errnos_are_found_by_name_text_and_number() {
        for topic in all().filter(|topic| topic.kind == Kind::Errno && topic.number.is_some()) {
            let number = topic.number.unwrap_or_default().to_string();
            let text = texts::of(topic).expect("an errno has a text");
            for words in [
                topic.name,
                &topic.name.to_lowercase(),
                text,
                &number,
                &format!("errno {number}"),
            ] {
                assert!(names(words).contains(&topic.name), "{words}");
            }
        }
        assert_eq!(names("ENOTSUP"), names("EOPNOTSUPP"));
        assert!(names("ENOMEM").contains(&"ibv_post_send: ENOMEM"));
    }
}
