//! The states as tables on paper: `snapshots/iwarp_transitions.txt` lists what a program may ask for, `snapshots/iwarp_streams.txt` what
//! the stream does to a queue pair; what is missing there is refused or does nothing. `UPDATE_SNAPSHOTS=1` rewrites the files.

use crate::iwarp::bench::{End, Setup, solo};
use nonic_core::iwarp::{StreamAction, StreamInput, StreamPhase, stream_step, stream_transition};
use nonic_core::{AttributeMask, Named, QpAttributes, QpState};
use std::fmt::Write;
use std::path::PathBuf;

#[track_caller]
fn compare_with_file(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, actual).expect("the snapshot is written");
    }
    let expected = std::fs::read_to_string(&path).expect("the snapshot is part of the repository");
    assert_eq!(expected, actual, "UPDATE_SNAPSHOTS=1 accepts");
}

fn names(mask: AttributeMask) -> String {
    if mask.is_empty() {
        "-".into()
    } else {
        Named(mask).to_string()
    }
}

#[test]
fn the_table_of_moves_is_as_written_down() {
    let mut table = String::from("from  | to    | required | optional\n");
    for from in QpState::ALL {
        for to in QpState::ALL {
            if let Some(row) = stream_transition(from, to) {
                let (from, to) = (from.to_string(), to.to_string());
                let (required, optional) = (names(row.required), names(row.optional));
                writeln!(table, "{from:5} | {to:5} | {required} | {optional}").expect("writing to a string");
            }
        }
    }
    compare_with_file("iwarp_transitions.txt", &table);
}

#[test]
fn the_table_of_streams_is_as_written_down() {
    let mut table =
        String::from("phase       | shown | input     | next        | action            | ends work\n");
    for phase in StreamPhase::ALL {
        for input in StreamInput::ALL {
            if let Some(step) = stream_step(phase, input) {
                let shown = phase.shown().to_string();
                let (phase, input) = (format!("{phase:?}"), format!("{input:?}"));
                let (next, action) = (format!("{:?}", step.next), format!("{:?}", step.action));
                let ends = if step.ends { "yes" } else { "no" };
                writeln!(
                    table,
                    "{phase:11} | {shown:5} | {input:9} | {next:11} | {action:17} | {ends}"
                )
                .expect("writing to a string");
            }
        }
    }
    compare_with_file("iwarp_streams.txt", &table);
}

#[test]
fn work_ends_once_and_every_wait_for_a_peer_does() {
    for phase in StreamPhase::ALL {
        for input in StreamInput::ALL {
            let Some(step) = stream_step(phase, input) else {
                continue;
            };
            let over = |phase: StreamPhase| matches!(phase.shown(), QpState::Error | QpState::Sqe);
            assert_eq!(step.ends, !over(phase) && over(step.next), "{phase:?} {input:?}");
            let closes = step.action == StreamAction::Close;
            let had_stream = phase != StreamPhase::Idle;
            assert_eq!(
                closes,
                step.next == StreamPhase::Closed && had_stream,
                "{phase:?} {input:?}"
            );
        }
    }
    for phase in [
        StreamPhase::Closing,
        StreamPhase::HalfClosed,
        StreamPhase::Terminating,
        StreamPhase::Answering,
        StreamPhase::Lingering,
    ] {
        let step = stream_step(phase, StreamInput::Expired).expect("it does not wait for ever");
        assert_eq!(step.next, StreamPhase::Closed);
    }
}

#[test]
fn modify_does_what_the_table_says() {
    let reach = |state: QpState| -> Option<End> {
        let mut end = End::new(1, &Setup::default());
        match state {
            QpState::Init => {}
            QpState::Reset | QpState::Rtr | QpState::Error => end.go_to(state),
            QpState::Rts => end = solo(&Setup::default()).0,
            QpState::Sqd | QpState::Sqe => {
                end = solo(&Setup::default()).0;
                end.go_to(state);
            }
        }
        assert_eq!(end.state(), state);
        Some(end)
    };
    for from in QpState::ALL {
        for to in QpState::ALL {
            let Some(mut end) = reach(from) else { continue };
            let set = QpAttributes {
                state: Some(to),
                ..QpAttributes::default()
            };
            let asked = end.nic.modify_qp(end.now, end.qpn, &set);
            assert_eq!(
                asked.is_ok(),
                stream_transition(from, to).is_some(),
                "{from} {to}"
            );
            assert_eq!(end.state(), if asked.is_ok() { to } else { from });
        }
    }
}
