//! The cases of the connection manager: which programs are run, and how.
//!
//! Each is run on one host and on two, with IPv4 and with IPv6. Read first: [`super::connected`], for the words in
//! braces.

use super::case::{Case, Connected, IN_CYCLES, KnownFailure, Place, Reached, Shape, Wire};

/// Where udaddy listens: it has no option for that.
const UDADDY_PORT: u16 = 7174;

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(rping());
    cases.extend(rdma_cm_examples());
    cases.extend(multicast());
    cases.extend(endpoints());
    cases.extend(rsockets());
    cases.extend(perftest());
    cases.extend(qperf());
    cases.extend(fio());
    cases
}

/// A server and one client that have all but the address in common: `-s` is the address in each of them.
pub(super) fn plain(program: &'static str, options: &'static str, server: &str, client: &str) -> Case {
    let line = |side: &str| format!("{program} {side} {options}");
    Case {
        wire: Wire::Roce,
        shape: Shape::Connected(Connected {
            server: line(server),
            client: line(client),
            reached: Reached::Port,
            clients: 1,
            server_ends: true,
            prints: "",
            copied_bytes: None,
        }),
        program,
        service: "",
        options: options.split_whitespace().collect(),
        limits: Vec::new(),
        takes_long: false,
        known_failure: None,
    }
}

impl Case {
    /// The same, with something about how it is run changed.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Connected)) -> Self {
        if let Shape::Connected(connected) = &mut self.shape {
            change(connected);
        }
        self
    }

    /// Known to fail at these places.
    pub(super) fn except(self, places: &[Place], why: &'static str) -> Self {
        let places = places.to_vec();
        Self {
            known_failure: Some(KnownFailure { places, why }),
            ..self
        }
    }
}

/// rping that verifies what comes back.
pub(super) fn rping_verified(options: &'static str) -> Case {
    plain("rping", options, "-s -a {to} -p {port}", "-c -a {to} -p {port}")
}

/// A program that carries a stream, or datagrams, from one rsocket to another.
pub(super) fn stream(program: &'static str, options: &'static str) -> Case {
    plain(program, options, "-b {to} -p {port}", "-s {to} -p {port}")
}

pub(super) fn rping() -> Vec<Case> {
    let case = |options, server: &str| {
        let server = format!("-s {server} -a {{to}} -p {{port}}");
        plain("rping", options, &server, "-c -a {to} -p {port}")
    };
    // Not at once: its server has one place for the request it is about to serve, and takes the same one twice when a
    // second comes too early.
    let lasting = Case {
        options: vec!["-P,", "50 clients in turn"],
        ..case("-V -C 10 -S 10000", "-P").with(|connected| {
            connected.clients = 50;
            connected.server_ends = false;
        })
    };
    vec![
        // One byte less than rping says it takes.
        case("-v -V -C 1000 -S 65535", ""),
        case("-q -V -C 100", ""),
        lasting,
    ]
}

/// rdma-core's examples of connections and datagrams, and its benchmark of both.
pub(super) fn rdma_cm_examples() -> Vec<Case> {
    let ucmatose = |options| plain("ucmatose", options, "-b {to} -p {port}", "-s {to} -p {port}");
    let udaddy = |options| {
        plain("udaddy", options, "-b {to}", "-s {to}")
            .with(|connected| connected.reached = Reached::Fixed(UDADDY_PORT))
    };
    let cmtime = |options| {
        plain("cmtime", options, "-b {to} -p {port}", "-s {to} -p {port}").with(|connected| {
            connected.server_ends = false;
            connected.prints = "disconnect";
        })
    };
    vec![
        ucmatose(""),
        ucmatose("-c 16"),
        ucmatose("-c 100"),
        ucmatose("-C 100 -S 100000"),
        ucmatose("-m"),
        ucmatose("-P ib"),
        ucmatose("-t 8 -a 18"),
        udaddy(""),
        udaddy("-c 16"),
        udaddy("-C 50 -S 1000"),
        cmtime("-c 1000"),
    ]
}

/// The receiver is the server, the sender the client.
fn multicast() -> Vec<Case> {
    let mckey = |options, to: &str, from: &str| {
        let side = |extra: &str, address: &str| format!("{extra} -m {{group}} -b {address}");
        plain("mckey", options, &side("", to), &side("-s", from))
            .with(|connected| connected.reached = Reached::Group)
    };
    let on_ethernet = Case {
        options: vec!["-b", "an", "address", "of", "Ethernet"],
        ..mckey("", "{ethernet-to}", "{ethernet-from}")
    };
    let send_only = mckey("", "{ethernet-to}", "{ethernet-from}").with(|connected| connected.client += " -o");
    vec![
        mckey("", "{to}", "{from}").except(
            &[Place::OneHostIpv6],
            "Linux has no route for IPv6 multicast on `lo` (`ENETUNREACH`); with any other address of the host it runs",
        ),
        on_ethernet,
        Case {
            options: vec!["-o", "(the sender)"],
            ..send_only
        },
    ]
}

/// The examples of endpoints, whose calls wait.
pub(super) fn endpoints() -> Vec<Case> {
    let extended = |options| {
        plain("rdma_xserver", options, "-p {port}", "")
            .with(|connected| connected.client = format!("rdma_xclient -s {{to}} -p {{port}} {options}"))
            .except(
                &Place::IPV6,
                "it listens on IPv4, and has no option for another address",
            )
    };
    vec![
        plain("rdma_server", "", "-s {to} -p {port}", "")
            .with(|connected| connected.client = "rdma_client -s {to} -p {port}".to_owned()),
        extended("-c r"),
        extended("-c x"),
    ]
}

/// rdma-core's programs on sockets over RDMA.
pub(super) fn rsockets() -> Vec<Case> {
    let mut cases = Vec::new();
    // Its remaining mode, `-T f`, is for plain sockets.
    for options in [
        "-T v -T b -S 10000 -C 100 -I 10",
        "-T v -T a -S 10000 -C 100 -I 10",
        "-T v -T n -S 10000 -C 100 -I 10",
        "-T v -T r -S 10000 -C 100 -I 10",
        "-T v -S 1 -C 100 -I 10",
        "-T v -S 1500 -C 100 -I 10",
        "-T v -S 65536 -C 100 -I 3",
        "-T v -S 6291456 -C 3 -I 3",
    ] {
        cases.push(stream("rstream", options));
    }
    for options in [
        "-T v -T b -S 10000 -C 100 -I 10",
        "-T v -T a -S 10000 -C 100 -I 10",
        "-T v -T n -S 10000 -C 100 -I 10",
        "-T v -S 1000000 -C 10 -I 3",
    ] {
        cases.push(stream("riostream", options));
    }
    // They go on after an error, and end well; but then a line is missing.
    for program in ["rstream", "riostream"] {
        for options in ["-S all -T b", "-S all -T a", "-S all -T n"] {
            let all_sizes = stream(program, options).with(|connected| connected.prints = "1m_bw");
            cases.push(Case {
                takes_long: true,
                ..all_sizes
            });
        }
    }
    let rcopy = plain("rcopy", "", "-p {port}", "").with(|connected| {
        connected.client = "rcopy {source} {to}:{copy} -p {port}".to_owned();
        connected.server_ends = false;
        connected.copied_bytes = Some(1 << 30);
    });
    cases.push(Case {
        options: vec!["1 GiB"],
        ..rcopy.except(&Place::IPV6, "it takes what is behind the first colon for a file")
    });
    // Not its echo mode: whenever an answer takes longer than a millisecond it sends the message again, but what it sends
    // is what it received last; one late answer, and both sides exchange it for ever.
    for options in [
        "-T b -S 1000 -C 500",
        "-T a -S 1000 -C 500",
        "-T n -S 1000 -C 500",
    ] {
        cases.push(stream("udpong", options).with(|connected| {
            connected.reached = Reached::Udp;
            connected.server_ends = false;
        }));
    }
    cases
}

pub(super) fn perftest() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |program: &'static str, options: &'static str| {
        let unit = if program.ends_with("_lat") { IN_CYCLES } else { "" };
        let common = format!("-p {{port}} -F -n 200 {unit}");
        cases.push(
            plain(program, options, &common, &format!("{common} {{to}}")).except(
                &Place::IPV6,
                "this version of perftest looks up hosts as IPv4 only",
            ),
        );
    };
    for program in [
        "ib_send_bw",
        "ib_send_lat",
        "ib_write_bw",
        "ib_write_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_atomic_bw",
        "ib_atomic_lat",
    ] {
        add(program, "-R");
    }
    add("ib_send_lat", "-R -c UD");
    add("ib_write_bw", "-R -q 4");
    cases
}

/// qperf's control connection is TCP; the test's own is made by the connection manager with `-cm1`.
pub(super) fn qperf() -> Vec<Case> {
    let case = |test: &'static str| {
        plain("qperf", test, "", "").with(|connected| {
            connected.server = "qperf -lp {port}".to_owned();
            connected.client = format!("qperf {{to}} -lp {{port}} -cm1 -t 1 {test}");
            connected.reached = Reached::Tcp;
            connected.server_ends = false;
            connected.prints = test;
        })
    };
    let mut cases: Vec<Case> = [
        "rc_lat",
        "rc_bw",
        "rc_rdma_read_bw",
        "rc_rdma_write_lat",
        "rc_fetch_add_mr",
        "ver_rc_compare_swap",
    ]
    .into_iter()
    .map(|test| case(test).except(&Place::IPV6, "its connections are IPv4 only"))
    .collect();
    for test in ["uc_lat", "ud_lat"] {
        let why = "`-cm1` is for its RC tests; the others address by LID, which Ethernet does not have";
        cases.push(case(test).except(&Place::ALL, why));
    }
    for case in &mut cases {
        case.options.insert(0, "-cm1");
    }
    cases
}

/// The engine's server is a job that reads, its client one that writes, whatever the verb.
pub(super) fn fio() -> Vec<Case> {
    let case = |verb: &'static str, server: &str, client: &str| {
        let common = "--ioengine=rdma --port={port} --bs=64k --size=16m --verify_state_save=0";
        let mut case = plain("fio", "", "", "").with(|connected| {
            connected.server = format!("fio --name=server --rw=read {common} {server}");
            connected.client =
                format!("fio --name=client --rw=write {common} {verb} --hostname={{to}} {client}");
            connected.prints = "err= 0";
        });
        case.options = vec!["--ioengine=rdma", verb];
        case.except(&Place::IPV6, "its engine knows IPv4 only")
    };
    vec![
        case("--verb=read", "--iodepth=16", "--iodepth=16"),
        case("--verb=write", "--iodepth=16", "--iodepth=16"),
        // fio forbids retries when a receive is missing, so the server posts all of them before the first SEND.
        case(
            "--verb=send",
            "--iodepth=256 --verify=crc32c",
            "--iodepth=8 --verify=crc32c --do_verify=0",
        ),
    ]
}
