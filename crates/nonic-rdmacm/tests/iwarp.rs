//! The same programs over iWARP: connections, and rsockets in the form they have there.

use crate::support::pair::{Running, pair, port, until_served};
use crate::support::{Libraries, missing, succeeded};

/// Runs a program of streams at both ends with the same options.
fn stream(libraries: &Libraries, program: &str, which: u32, address: &str, options: &[&str]) {
    let port = port(which);
    let common = [&["-p", &port], options].concat();
    let server = [&["-b", address], &common[..]].concat();
    let client = [&["-s", address], &common[..]].concat();
    pair(libraries, [program, program], &server, &client);
}

#[test]
fn rstream_in_all_its_modes_and_with_any_size() {
    if missing("/usr/bin/rstream") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    for (which, address) in [(0, "127.0.0.1"), (1, "::1")] {
        for mode in ["n", "b", "a", "r"] {
            let options = ["-T", mode, "-T", "v", "-S", "5000", "-C", "50", "-I", "5"];
            stream(&libraries, "rstream", which, address, &options);
        }
    }
    for size in ["1", "64", "4097", "65536", "1000000"] {
        let options = ["-T", "v", "-T", "b", "-S", size, "-C", "10", "-I", "3"];
        stream(&libraries, "rstream", 2, "127.0.0.1", &options);
    }
    // Small buffers, and inline no more than the words.
    let options = [
        "-T", "v", "-B", "3000", "-i", "0", "-k", "1", "-S", "20000", "-C", "10", "-I", "3",
    ];
    stream(&libraries, "rstream", 3, "127.0.0.1", &options);
}

#[test]
fn riostream_writes_into_mapped_memory() {
    if missing("/usr/bin/riostream") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    for mode in ["n", "b", "a"] {
        let options = ["-T", mode, "-T", "v", "-S", "30000", "-C", "10", "-I", "5"];
        stream(&libraries, "riostream", 4, "127.0.0.1", &options);
    }
}

#[test]
fn there_are_no_datagrams() {
    if missing("/usr/bin/udpong") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    let port = port(5);
    let client = ["-s", "127.0.0.1", "-p", &port];
    let output = libraries.command("udpong").args(client).output();
    let said = String::from_utf8_lossy(&output.expect("it starts").stderr).into_owned();
    assert!(said.contains("Operation not supported"), "{said}");
}

#[test]
fn programs_may_expect_sockets() {
    if missing("/usr/include/rdma/rsocket.h") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    let program = libraries.compile("rsockets", &["-lrdmacm"]);
    let program = program.to_str().expect("a name");
    for (which, address) in [(8, "127.0.0.1"), (28, "::1")] {
        let output = libraries.command(program).args([address, &port(which)]).output();
        succeeded(&output.expect("the program runs"), "expectations");
    }
    let program = libraries.compile("rsockets_processes", &["-lrdmacm"]);
    let program = program.to_str().expect("a name");
    let output = libraries.command(program).arg(port(48)).output();
    succeeded(&output.expect("the program runs"), "expectations");
}

#[test]
fn identifiers_do_as_the_manual_says() {
    if missing("/usr/include/rdma/rdma_verbs.h") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    let program = libraries.compile("identifiers", &["-lrdmacm", "-libverbs"]);
    let program = program.to_str().expect("a name");
    for (which, address) in [(0, "127.0.0.1"), (20, "::1")] {
        let alone = ["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
        let mut command = libraries.command("unshare");
        command.args(alone).args([program, address, &port(which)]);
        succeeded(&command.output().expect("the program runs"), "expectations");
    }
}

#[test]
fn connections_are_made_and_timed() {
    if missing("/usr/bin/cmtime") {
        return;
    }
    let libraries = Libraries::for_wire("iwarp");
    let port = port(50);
    let server = ["-c", "20", "-C", "20", "-p", &port];
    let client = [&server[..], &["-s", "127.0.0.1"]].concat();
    pair(&libraries, ["ucmatose", "ucmatose"], &server, &client);
    let server = ["-b", "127.0.0.1", "-c", "50", "-p", &port];
    let client = [&server[..], &["-s", "127.0.0.1"]].concat();
    let _server = Running::start(&libraries, "cmtime", &server);
    succeeded(&until_served(&libraries, "cmtime", &client), "cmtime");
}
