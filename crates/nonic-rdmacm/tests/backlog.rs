//! A backlog limits requests that wait for the program, and nothing else; see `c/backlog.c`.

use crate::support::pair::{Running, port, until_served};
use crate::support::{Libraries, missing, succeeded};

/// A service with this backlog, and so many clients at once beside so many silent peers, three times.
fn all_are_served(libraries: &Libraries, which: u32, backlog: &str, silent: &str, clients: &str) {
    if missing("/usr/include/rdma/rdma_cma.h") {
        return;
    }
    let program = libraries.compile("backlog", &["-lrdmacm", "-libverbs"]);
    let program = program.to_str().expect("a name");
    let port = port(which);
    let output = libraries
        .command(program)
        .args(["127.0.0.1", &port, backlog, silent, clients, "3"])
        .output();
    succeeded(&output.expect("the program runs"), "a short backlog");
}

#[test]
fn sixteen_clients_at_once_are_served_with_a_backlog_of_three() {
    for (which, wire) in [(0, "iwarp"), (1, "roce")] {
        all_are_served(&Libraries::for_wire(wire), which, "3", "0", "16");
    }
}

#[test]
fn silent_peers_are_in_nobodys_way() {
    let libraries = Libraries::for_wire("iwarp");
    all_are_served(&libraries, 2, "3", "3", "4");
    all_are_served(&libraries, 3, "128", "500", "4");
}

#[test]
fn rping_serves_beside_silent_peers() {
    if missing("/usr/bin/rping") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    let port = port(4);
    let common = ["-a", "127.0.0.1", "-p", &port];
    // It listens with a backlog of 3.
    let _server = Running::start(&libraries, "rping", &[&["-s", "-P"], &common[..]].concat());
    let client = [&["-c", "-C", "2"], &common[..]].concat();
    succeeded(&until_served(&libraries, "rping", &client), "rping");
    let address = format!("127.0.0.1:{port}");
    let silent = || std::net::TcpStream::connect(&address).expect("it listens");
    let _silent: Vec<_> = (0..3).map(|_| silent()).collect();
    for _ in 0..3 {
        let output = libraries.command("rping").args(&client).output();
        succeeded(&output.expect("the client starts"), "rping beside silent peers");
    }
}
