//! rsockets: rdma-core's programs, unchanged, between two processes on loopback, and what they do not try.

use crate::support::pair::{Running, pair, port, until_served};
use crate::support::{Libraries, missing, succeeded};

/// Runs `rstream` at both ends with the same options.
fn rstream(libraries: &Libraries, which: u32, address: &str, options: &[&str]) {
    let port = port(which);
    let common = [&["-p", &port], options].concat();
    let server = [&["-b", address], &common[..]].concat();
    let client = [&["-s", address], &common[..]].concat();
    pair(libraries, ["rstream", "rstream"], &server, &client);
}

#[test]
fn rstream_in_all_its_modes() {
    if missing("/usr/bin/rstream") {
        return;
    }
    let libraries = Libraries::build();
    // Non-blocking, blocking, by poll, with addresses of rdma_getaddrinfo; with verified data.
    for (which, address) in [(10, "127.0.0.1"), (11, "::1")] {
        for mode in ["n", "b", "a", "r"] {
            let options = ["-T", mode, "-T", "v", "-S", "5000", "-C", "50", "-I", "5"];
            rstream(&libraries, which, address, &options);
        }
    }
}

#[test]
fn rstream_with_any_size() {
    if missing("/usr/bin/rstream") {
        return;
    }
    let libraries = Libraries::build();
    for size in ["1", "64", "4097", "65536", "1000000"] {
        let options = ["-T", "v", "-T", "b", "-S", size, "-C", "10", "-I", "3"];
        rstream(&libraries, 12, "127.0.0.1", &options);
    }
    // Small buffers, nothing inline, and peers that are asked whether they live.
    let options = [
        "-T", "v", "-B", "3000", "-i", "0", "-k", "1", "-S", "20000", "-C", "10", "-I", "3",
    ];
    rstream(&libraries, 12, "127.0.0.1", &options);
}

#[test]
fn riostream_writes_into_mapped_memory() {
    if missing("/usr/bin/riostream") {
        return;
    }
    let libraries = Libraries::build();
    for mode in ["n", "b", "a"] {
        let port = port(13);
        let common = ["-p", &port, "-T", mode, "-S", "30000", "-C", "10", "-I", "5"];
        let server = [&["-b", "127.0.0.1"], &common[..]].concat();
        let client = [&["-s", "127.0.0.1"], &common[..]].concat();
        pair(&libraries, ["riostream", "riostream"], &server, &client);
    }
}

#[test]
fn rcopy_copies_a_file() {
    if missing("/usr/bin/rcopy") {
        return;
    }
    let libraries = Libraries::build();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    let bytes: Vec<u8> = (0..20_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&source, &bytes).expect("a file");
    let port = port(14);
    let _server = Running::start(&libraries, "rcopy", &["-p", &port]);
    let target = format!("127.0.0.1:{}", copy.display());
    let source = source.display().to_string();
    let output = until_served(&libraries, "rcopy", &[&source, &target, "-p", &port]);
    succeeded(&output, "rcopy");
    assert!(
        std::fs::read(&copy).expect("a copy") == bytes,
        "the copy is the same"
    );
}

/// Not its echo mode: there it sends again after a millisecond, and again for every answer that comes late, so that on
/// a busy machine it drowns in its own messages.
#[test]
fn udpong_sends_datagrams() {
    if missing("/usr/bin/udpong") {
        return;
    }
    let libraries = Libraries::build();
    for (which, address) in [(15, "127.0.0.1"), (16, "::1")] {
        let port = port(which);
        let _server = Running::start(&libraries, "udpong", &["-b", address, "-p", &port, "-T", "b"]);
        for size in ["16", "1000", "1500"] {
            let client = ["-s", address, "-p", &port, "-S", size, "-C", "200"];
            succeeded(&until_served(&libraries, "udpong", &client), "udpong");
        }
    }
}

#[test]
fn programs_may_expect_sockets() {
    if missing("/usr/include/rdma/rsocket.h") {
        return;
    }
    let libraries = Libraries::build();
    let program = libraries.compile("rsockets", &["-lrdmacm"]);
    let program = program.to_str().expect("a name");
    for (which, address) in [(20, "127.0.0.1"), (40, "::1")] {
        let output = libraries.command(program).args([address, &port(which)]).output();
        succeeded(&output.expect("the program runs"), "expectations");
    }
}

#[test]
fn processes_may_fork_and_be_killed() {
    if missing("/usr/include/rdma/rsocket.h") {
        return;
    }
    let libraries = Libraries::build();
    let program = libraries.compile("rsockets_processes", &["-lrdmacm"]);
    let program = program.to_str().expect("a name");
    let output = libraries.command(program).arg(port(60)).output();
    succeeded(&output.expect("the program runs"), "expectations");
}
