//! Identifiers, ports, events and endpoints, as a C program sees them.

use crate::support::pair::port;
use crate::support::{Libraries, missing, succeeded};

/// In a network namespace of its own: the program counts its descriptors, and the processes of other tests would have
/// lines to it that come and go.
const ALONE: [&str; 5] = ["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];

/// The same with an interface beside loopback, that could reach other hosts.
const WITH_ETHERNET: [&str; 5] = [
    "--net",
    "sh",
    "-c",
    "ip link set lo up && ip link add eth type veth peer name peer && ip link set peer up \
     && ip addr add 192.0.2.1/24 dev eth && ip link set eth up && exec \"$@\"",
    "sh",
];

#[test]
fn identifiers_do_as_the_manual_says() {
    if missing("/usr/include/rdma/rdma_verbs.h") {
        return;
    }
    let libraries = Libraries::build();
    let program = libraries.compile("identifiers", &["-lrdmacm", "-libverbs"]);
    let program = program.to_str().expect("a name");
    for (network, which) in [(ALONE, 0), (WITH_ETHERNET, 40)] {
        for (which, address) in [(which, "127.0.0.1"), (which + 20, "::1")] {
            let mut command = libraries.command("unshare");
            command.args(network).args([program, address, &port(which)]);
            let output = command.output();
            succeeded(&output.expect("the program runs"), "expectations");
        }
    }
}
