//! The state machine as a picture: the graph in `docs/connections.md` is that of the table. `UPDATE_SNAPSHOTS=1` rewrites
//! it.

use nonic_core::cm::{CmState, Input, cm_transition};
use std::fmt::Write;
use std::path::PathBuf;

/// Where the first arrow comes from.
const BEGINNINGS: [(CmState, &str); 4] = [
    (CmState::ReqSent, "connect"),
    (CmState::ReqReceived, "Req"),
    (CmState::SidrReqSent, "resolve"),
    (CmState::SidrReqReceived, "SidrReq"),
];

/// One arrow for all inputs that lead from one state to another.
fn graph() -> String {
    let mut graph = String::from("\n```mermaid\nstateDiagram-v2\n");
    for (state, why) in BEGINNINGS {
        writeln!(graph, "    [*] --> {state}: {why}").expect("writing to a string");
    }
    let targets = CmState::ALL.into_iter().chain([CmState::Closed]);
    for state in CmState::ALL {
        for next in targets.clone().filter(|next| *next != state) {
            let leads = |input: &Input| cm_transition(state, *input).is_some_and(|row| row.next == next);
            let inputs: Vec<String> = Input::ALL
                .into_iter()
                .filter(leads)
                .map(|input| format!("{input:?}"))
                .collect();
            if inputs.is_empty() {
                continue;
            }
            let next = match next {
                CmState::Closed => String::from("[*]"),
                next => next.to_string(),
            };
            writeln!(graph, "    {state} --> {next}: {}", inputs.join(", ")).expect("writing to a string");
        }
    }
    graph.push_str("```\n\n");
    graph
}

#[test]
fn the_graph_in_the_docs_is_that_of_the_table() {
    const END: &str = "<!-- end of graph -->";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/connections.md");
    let page = std::fs::read_to_string(&path).expect("the page is part of the repository");
    let begin = page.find("<!-- graph:").expect("the page has a place for it");
    let begin = begin + page[begin..].find("-->\n").expect("the comment ends") + 4;
    let end = page.find(END).expect("the place ends");
    let graph = graph();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let page = [&page[..begin], &graph, &page[end..]].concat();
        std::fs::write(&path, page).expect("the page is written");
        return;
    }
    assert_eq!(&page[begin..end], graph, "UPDATE_SNAPSHOTS=1 accepts");
}
