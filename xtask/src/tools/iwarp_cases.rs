//! The cases on iWARP: programs that connect by the connection manager, with reliable connections.

use super::case::{Case, Wire};
use super::cm_cases;

/// Sockets over RDMA have a form of their own on this wire.
const HAS_RSOCKETS: bool = true;

/// The tests of qperf: one of each operation.
const QPERF: [&str; 4] = [
    "rc_lat",
    "rc_rdma_read_bw",
    "rc_rdma_write_lat",
    "rc_fetch_add_mr",
];

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let mut cases = cm_cases::rping();
    // A queue pair that the program brings to RTS itself: RNICs let only the connection manager do that.
    cases.retain(|case| !case.options.contains(&"-q"));
    // The others are about what InfiniBand has and TCP has not.
    let plain = |case: &Case| {
        !case
            .options
            .iter()
            .any(|option| ["-m", "-P", "-t"].contains(option))
    };
    cases.extend(
        named(cm_cases::rdma_cm_examples(), "ucmatose")
            .into_iter()
            .filter(plain),
    );
    cases.extend(named(cm_cases::rdma_cm_examples(), "cmtime"));
    cases.extend(named(cm_cases::endpoints(), "rdma_server"));
    if HAS_RSOCKETS {
        for program in ["rstream", "riostream", "rcopy"] {
            let mut some = named(cm_cases::rsockets(), program);
            some.retain(|case| !case.takes_long);
            cases.extend(some);
        }
    }
    // Datagrams are not on this wire.
    cases.extend(
        cm_cases::perftest()
            .into_iter()
            .filter(|case| !case.options.contains(&"UD")),
    );
    let is_wanted = |case: &Case| case.options.iter().any(|option| QPERF.contains(option));
    cases.extend(cm_cases::qperf().into_iter().filter(is_wanted));
    cases.extend(cm_cases::fio());
    for case in &mut cases {
        case.wire = Wire::Iwarp;
    }
    cases
}

fn named(cases: Vec<Case>, program: &str) -> Vec<Case> {
    cases.into_iter().filter(|case| case.program == program).collect()
}
