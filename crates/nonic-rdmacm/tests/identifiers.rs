//! Identifiers, ports, events and endpoints, as a C program sees them.

mod support;

use support::pair::port;
use support::{Libraries, missing, succeeded};

#[test]
fn identifiers_do_as_the_manual_says() {
    if missing("/usr/include/rdma/rdma_verbs.h") {
        return;
    }
    let libraries = Libraries::build();
    let program = libraries.compile("identifiers", &["-lrdmacm", "-libverbs"]);
    let program = program.to_str().expect("a name");
    for (which, address) in [(0, "127.0.0.1"), (20, "::1")] {
        let output = libraries.command(program).args([address, &port(which)]).output();
        succeeded(&output.expect("the program runs"), "expectations");
    }
}
