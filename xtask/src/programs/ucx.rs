//! UCX: what `ucx_info` finds, every test of `ucx_perftest` over both transports of verbs, and `io_demo`, which connects by
//! the connection manager and verifies what it reads and writes.

use super::case::{Case, Place, Program, Shape};
use crate::tools::case::{Connected, Reached};

const UCX: Program = Program {
    name: "UCX",
    version: "1.13.1",
    packages: &[("/usr/bin/ucx_perftest", "ucx-utils")],
    wheels: &[],
};

/// UCP's tests, with how many bytes a turn moves.
const UCP_TESTS: [(&str, u64); 15] = [
    ("tag_lat", 8),
    ("tag_bw", 65536),
    ("tag_sync_lat", 8),
    ("tag_sync_bw", 65536),
    ("ucp_put_lat", 8),
    ("ucp_put_bw", 65536),
    ("ucp_get", 4096),
    ("ucp_add", 8),
    ("ucp_fadd", 8),
    ("ucp_swap", 8),
    ("ucp_cswap", 8),
    ("stream_lat", 8),
    ("stream_bw", 65536),
    ("ucp_am_lat", 8),
    ("ucp_am_bw", 65536),
];

/// UCT's tests over RC: the test, the layouts it is run with, and how many bytes a turn moves.
const RC_TESTS: [(&str, &[&str], u64); 10] = [
    ("am_lat", &["short", "bcopy", "zcopy"], 64),
    ("am_bw", &["short", "shortiov"], 64),
    ("am_bw", &["bcopy", "zcopy"], 4096),
    ("put_lat", &["short", "bcopy", "zcopy"], 64),
    ("put_bw", &["bcopy", "zcopy"], 4096),
    ("get", &["bcopy", "zcopy"], 4096),
    ("fadd", &["short"], 8),
    ("swap", &["short"], 8),
    ("cswap", &["short"], 8),
    ("add_mr", &["short"], 8),
];

/// Over UD, whose messages are a packet: room for UCX's own header is needed, too.
const UD_TESTS: [(&str, &[&str], u64); 3] = [
    ("am_lat", &["short", "bcopy", "zcopy"], 64),
    ("am_bw", &["short"], 64),
    ("am_bw", &["bcopy", "zcopy"], 4000),
];

/// How often a test does what it does.
const TURNS: u64 = 1000;

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let mut cases = vec![info()];
    for (test, bytes) in UCP_TESTS {
        // With no choice given it takes shared memory within a host, as with hardware.
        let default = ucp("", test, bytes).at(&[Place::TwoHosts, Place::TwoHostsIpv6]);
        cases.push(default.core(&[Place::TwoHosts]));
    }
    for transport in ["rc", "ud"] {
        for (test, bytes) in UCP_TESTS {
            cases.push(ucp(transport, test, bytes).at(&Place::IPV4));
        }
    }
    for (transport, tests) in [("rc_verbs", &RC_TESTS[..]), ("ud_verbs", &UD_TESTS[..])] {
        for (test, layouts, bytes) in tests {
            for layout in *layouts {
                let case = uct(transport, test, layout, *bytes);
                cases.push(match *test {
                    "swap" => case.except(
                        &Place::IPV4,
                        "verbs have fetch-and-add and compare-and-swap, and `rc_verbs` offers no more (`rc_verbs_iface.c`)",
                    ),
                    _ => case,
                });
            }
        }
    }
    for interface in ["", " -A"] {
        cases.push(io_demo(interface).core(&[Place::TwoHosts]));
    }
    cases
}

fn info() -> Case {
    Case {
        program: &UCX,
        line: "ucx_info -d".to_owned(),
        shape: Shape::Alone {
            line: "ucx_info -d".to_owned(),
            prints: &["Transport: rc_verbs", "Transport: ud_verbs"],
        },
        places: Place::ALL.to_vec(),
        moved_bytes: 0,
        core: vec![Place::OneHost],
        known_failure: None,
    }
}

/// A test of the upper layer; which transports it may choose from is told by a variable.
fn ucp(transports: &str, test: &str, bytes: u64) -> Case {
    let variable = match transports {
        "" => String::new(),
        transports => format!("UCX_TLS={transports} "),
    };
    perftest(&variable, &format!("-t {test} -s {bytes}"), bytes)
}

/// A test of the lower layer, which has one transport of one device.
fn uct(transport: &str, test: &str, layout: &str, bytes: u64) -> Case {
    let options = format!("-d {{device}}:1 -x {transport} -t {test} -D {layout} -s {bytes}");
    perftest("", &options, bytes).at(&Place::IPV4)
}

/// A test whose processes find each other by TCP.
fn perftest(variables: &str, options: &str, bytes: u64) -> Case {
    let pair = Connected {
        server: format!("{variables}ucx_perftest {{ipv6}} -p {{port}}"),
        client: format!("{variables}ucx_perftest {{to}} {{ipv6}} -p {{port}} {options} -n {TURNS}"),
        reached: Reached::Tcp,
        clients: 1,
        server_ends: true,
        prints: "Final:",
        copied_bytes: None,
    };
    let line = format!("{variables}ucx_perftest {options} -n {TURNS}");
    Case::new(&UCX, line, Shape::Pair(pair), TURNS * bytes)
}

/// Its server is there for the next client.
fn io_demo(interface: &str) -> Case {
    let options = format!("-q{interface} -o read,write -d 4096:65536");
    let pair = Connected {
        server: format!("io_demo -p {{port}} {options}"),
        client: format!("io_demo {options} -i {TURNS} {{to}}:{{port}}"),
        reached: Reached::Port,
        clients: 1,
        server_ends: false,
        prints: "",
        copied_bytes: None,
    };
    let line = format!("io_demo {options} -i {TURNS}");
    // A quarter at least is written by the client, whose counters these are: the server is ended before it tells its own.
    Case::new(&UCX, line, Shape::Pair(pair), TURNS * 4096 / 4).at(&[Place::TwoHosts])
}
