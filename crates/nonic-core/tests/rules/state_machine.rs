//! The queue pair state machine as a table on paper.
//!
//! `snapshots/qp_transitions.txt` lists every service, state and move with the attributes it needs and may
//! take; a move that is missing there is refused. `UPDATE_SNAPSHOTS=1` rewrites the file.

use crate::support::{Node, Setup};
use nonic_core::{
    AckTimeout, AttributeMask, ModifyError, Named, Path, PathMtu, Psn, QpAttributes, QpState, Qpn, RnrTimer,
    Service, transition,
};
use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;

const SERVICES: [(Service, &str); 4] = [
    (Service::Rc, "RC"),
    (Service::Uc, "UC"),
    (Service::Ud, "UD"),
    (Service::Xrc, "XRC"),
];

#[test]
fn the_table_is_as_written_down() {
    let mut table = String::from("service | from  | to    | required | optional\n");
    for (service, name) in SERVICES {
        for from in QpState::ALL {
            for to in QpState::ALL {
                if let Some(transition) = transition(service, from, to) {
                    let (from, to) = (from.to_string(), to.to_string());
                    let (required, optional) = (names(transition.required), names(transition.optional));
                    writeln!(table, "{name:7} | {from:5} | {to:5} | {required} | {optional}")
                        .expect("writing to a string");
                }
            }
        }
    }
    compare_with_file("qp_transitions.txt", &table);
}

fn names(mask: AttributeMask) -> String {
    if mask.is_empty() {
        "-".into()
    } else {
        Named(mask).to_string()
    }
}

#[track_caller]
fn compare_with_file(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, actual).expect("the snapshot is written");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the snapshot is part of the repository");
    let missing = expected
        .lines()
        .filter(|line| !actual.lines().any(|other| other == *line))
        .map(|line| format!("- {line}"));
    let added = actual
        .lines()
        .filter(|line| !expected.lines().any(|other| other == *line))
        .map(|line| format!("+ {line}"));
    let difference: Vec<String> = missing.chain(added).collect();
    assert!(
        expected == actual,
        "{name} differs (UPDATE_SNAPSHOTS=1 accepts):\n{}",
        difference.join("\n")
    );
}

/// A valid value for every attribute.
fn everything() -> QpAttributes {
    QpAttributes {
        state: None,
        access: Some(nonic_core::Access::empty()),
        pkey_index: Some(0),
        port: Some(1),
        qkey: Some(1),
        path: Some(Path {
            gid_index: 0,
            remote: IpAddr::from([10, 0, 0, 2]),
        }),
        path_mtu: Some(PathMtu::Mtu1024),
        timeout: Some(AckTimeout::INFINITE),
        retry_count: Some(1),
        rnr_retry: Some(1),
        rq_psn: Some(Psn::new(1)),
        max_rd_atomic: Some(1),
        min_rnr_timer: RnrTimer::from_code(1),
        sq_psn: Some(Psn::new(1)),
        max_dest_rd_atomic: Some(1),
        dest_qpn: Some(Qpn::new(1)),
        rate_limit: Some(1),
    }
}

/// Keeps the attributes in `mask`, the state aside.
fn only(mask: AttributeMask) -> QpAttributes {
    let mut set = everything();
    macro_rules! keep {
        ($($field:ident: $bit:ident),* $(,)?) => {
            $( if !mask.contains(AttributeMask::$bit) { set.$field = None; } )*
        };
    }
    keep!(
        access: ACCESS_FLAGS, pkey_index: PKEY_INDEX, port: PORT, qkey: QKEY, path: PATH, path_mtu: PATH_MTU,
        timeout: TIMEOUT, retry_count: RETRY_CNT, rnr_retry: RNR_RETRY, rq_psn: RQ_PSN,
        max_rd_atomic: MAX_RD_ATOMIC, min_rnr_timer: MIN_RNR_TIMER, sq_psn: SQ_PSN,
        max_dest_rd_atomic: MAX_DEST_RD_ATOMIC, dest_qpn: DEST_QPN, rate_limit: RATE_LIMIT,
    );
    set
}

/// A node whose queue pair is in `state`, reached by the table's own rows. SQE only failure leads to.
fn node_in(service: Service, state: QpState) -> Option<Node> {
    use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let way: &[QpState] = match state {
        Reset => &[Reset],
        Init => &[],
        Rtr => &[Rtr],
        Rts => &[Rtr, Rts],
        Sqd => &[Rtr, Rts, Sqd],
        Error => &[Error],
        Sqe => return None,
    };
    let mut node = Node::new(
        1,
        &Setup {
            service,
            ..Setup::rc()
        },
    );
    for to in way {
        let from = node.state();
        let row = transition(service, from, *to).expect("the way is in the table");
        let set = QpAttributes {
            state: Some(*to),
            ..only(row.required)
        };
        let qpn = node.qpn;
        node.modify(qpn, &set)
            .expect("the required attributes are enough");
    }
    Some(node)
}

/// Every state that can be reached, and every state one may ask for.
fn moves() -> impl Iterator<Item = (Service, QpState, QpState)> {
    SERVICES.into_iter().flat_map(|(service, _)| {
        QpState::ALL
            .into_iter()
            .flat_map(move |from| QpState::ALL.into_iter().map(move |to| (service, from, to)))
    })
}

#[test]
fn modify_does_what_the_table_says() {
    for (service, from, to) in moves() {
        let Some(mut node) = node_in(service, from) else {
            continue;
        };
        let qpn = node.qpn;
        let ask = |node: &mut Node, mask| {
            let set = QpAttributes {
                state: Some(to),
                ..only(mask)
            };
            node.modify(qpn, &set)
        };
        let Some(row) = transition(service, from, to) else {
            let refused = ask(&mut node, AttributeMask::empty());
            assert_eq!(refused, Err(ModifyError::NoTransition { service, from, to }));
            assert_eq!(node.state(), from);
            continue;
        };
        for missing in row.required.iter().filter(|bit| *bit != AttributeMask::STATE) {
            let refused = ask(&mut node, row.required - missing);
            let missing = Named(missing);
            assert_eq!(refused, Err(ModifyError::Missing { from, to, missing }));
            assert_eq!(node.state(), from, "a refusal changes nothing");
        }
        for forbidden in (!(row.required | row.optional)).iter() {
            if forbidden == AttributeMask::STATE {
                continue;
            }
            let refused = ask(&mut node, row.required | forbidden);
            let forbidden = Named(forbidden);
            assert_eq!(refused, Err(ModifyError::Forbidden { from, to, forbidden }));
            assert_eq!(node.state(), from, "a refusal changes nothing");
        }
        let granted = ask(&mut node, row.required | row.optional);
        assert_eq!(granted, Ok(()), "{service:?} {from} {to}");
        assert_eq!(node.state(), to);
    }
}

#[test]
fn refusals_name_the_attributes() {
    let mut node = Node::new(1, &Setup::rc());
    let qpn = node.qpn;
    let rtr = QpAttributes {
        state: Some(QpState::Rtr),
        path_mtu: Some(PathMtu::Mtu1024),
        ..QpAttributes::default()
    };
    let missing = node.modify(qpn, &rtr).expect_err("incomplete").to_string();
    assert_eq!(
        missing,
        "INIT to RTR also needs PATH, RQ_PSN, MIN_RNR_TIMER, MAX_DEST_RD_ATOMIC, DEST_QPN"
    );
    let too_much = QpAttributes {
        state: Some(QpState::Error),
        qkey: Some(1),
        ..QpAttributes::default()
    };
    let forbidden = node.modify(qpn, &too_much).expect_err("too much").to_string();
    assert_eq!(forbidden, "INIT to ERR does not take QKEY");
    let jump = QpAttributes {
        state: Some(QpState::Rts),
        ..QpAttributes::default()
    };
    let impossible = node.modify(qpn, &jump).expect_err("no such move").to_string();
    assert_eq!(impossible, "a Rc queue pair cannot go from INIT to RTS");
    let unknown = node.modify(Qpn::new(3), &jump).expect_err("no such queue pair");
    assert_eq!(unknown, ModifyError::NoSuchQp);
}
