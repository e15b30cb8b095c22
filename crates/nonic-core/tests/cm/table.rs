//! The state machine as a table on paper: `snapshots/cm_transitions.txt` lists every state and input with what is sent,
//! reported and entered; what is missing there is ignored or refused. `UPDATE_SNAPSHOTS=1` rewrites the file.

use nonic_core::cm::{CmState, Input, cm_transition};
use std::fmt::Write;
use std::path::PathBuf;

#[test]
fn the_table_is_as_written_down() {
    let mut table = String::from("state           | input      | next            | send        | tell\n");
    for state in CmState::ALL {
        for input in Input::ALL {
            if let Some(row) = cm_transition(state, input) {
                let (state, next) = (state.to_string(), row.next.to_string());
                let (input, send) = (format!("{input:?}"), format!("{:?}", row.send));
                writeln!(
                    table,
                    "{state:15} | {input:10} | {next:15} | {send:11} | {:?}",
                    row.tell
                )
                .expect("writing to a string");
            }
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/cm_transitions.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &table).expect("the snapshot is written");
    }
    let expected = std::fs::read_to_string(&path).expect("the snapshot is part of the repository");
    assert_eq!(expected, table, "UPDATE_SNAPSHOTS=1 accepts");
}

#[test]
fn every_state_can_be_abandoned() {
    for state in CmState::ALL {
        assert!(cm_transition(state, Input::Abandon).is_some(), "{state}");
    }
}

#[test]
fn every_wait_for_a_peer_ends() {
    for state in CmState::ALL {
        let waits = cm_transition(state, Input::Timeout).is_some();
        assert_eq!(cm_transition(state, Input::Exhausted).is_some(), waits, "{state}");
        if let Some(row) = cm_transition(state, Input::Exhausted) {
            assert!(matches!(
                row.next,
                CmState::Closed | CmState::TimeWait | CmState::Answered
            ));
        }
    }
}

#[test]
fn what_only_waits_for_time_waits_for_nothing_else() {
    for state in [CmState::TimeWait, CmState::Answered] {
        let row = cm_transition(state, Input::Expired).expect("it ends");
        assert_eq!(row.next, CmState::Closed);
        for input in Input::ALL.into_iter().filter(|input| *input != Input::Expired) {
            let next = cm_transition(state, input).map_or(state, |row| row.next);
            assert_eq!(next, state, "{input:?} leads back to life");
        }
    }
}
