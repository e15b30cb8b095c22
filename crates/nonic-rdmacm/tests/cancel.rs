//! Threads that are cancelled inside the library; see `c/cancel.c`.

use crate::support::pair::port;
use crate::support::{Libraries, cancellation, link, missing, succeeded};

#[test]
fn a_thread_that_waits_can_be_cancelled_and_nothing_is_lost() {
    if missing("/usr/include/rdma/rdma_verbs.h") {
        return;
    }
    // By hand: `NONIC_TEST_CANCELS=10000 cargo nextest run -p nonic-rdmacm cancel::`.
    let count = std::env::var("NONIC_TEST_CANCELS").unwrap_or_else(|_| "1000".into());
    let libraries = Libraries::build();
    let program = libraries.compile("cancel", &["-lrdmacm", "-libverbs"]);
    let program = program.to_str().expect("a name");
    let output = libraries
        .command(program)
        .args(["127.0.0.1", &port(0), &count])
        .output();
    succeeded(&output.expect("the program runs"), "cancelled threads");
}

#[test]
fn nothing_the_library_calls_ends_a_thread_but_where_it_waits() {
    let libraries = Libraries::build();
    let found = cancellation::unguarded(&libraries.rdmacm(), &link::CANCELLATION_POINTS);
    // `nonic_abi::cancel` waits there.
    assert_eq!(found, ["__poll"]);
}
