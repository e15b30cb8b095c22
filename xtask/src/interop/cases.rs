//! The rows of the matrix: which programs, with which options, over which kind of wire.

use super::case::{Case, ERRORS_GROUP, Families, Kind, Opposite};
use super::siw_cases;

/// The errors `peer.py` knows.
const ERRORS: [&str; 13] = [
    "write-wrong-key",
    "read-wrong-key",
    "atomic-wrong-key",
    "write-out-of-bounds",
    "read-out-of-bounds",
    "write-forbidden",
    "read-forbidden",
    "atomic-misaligned",
    "send-too-long",
    "no-receive",
    "late-receive",
    "peer-killed",
    "qp-destroyed",
];

/// netem's words.
const FAULTS: [&str; 5] = [
    "loss 1%",
    "loss 5%",
    "delay 2ms reorder 75%",
    "duplicate 5%",
    "corrupt 2%",
];

/// Everything there is with what is at the other end, in the order of the table.
pub(super) fn with(opposite: Opposite) -> Vec<Case> {
    match opposite {
        Opposite::Rxe => all(),
        Opposite::Siw => siw_cases::all(),
    }
}

fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    examples(&mut cases);
    for (operation, services) in [
        ("send", &["RC", "UC", "UD"][..]),
        ("write", &["RC", "UC"][..]),
        ("read", &["RC"][..]),
        ("atomic", &["RC"][..]),
    ] {
        for service in services {
            perftest(&mut cases, operation, service);
        }
    }
    connected(&mut cases);
    cases.push(Case::new("every byte compared", Kind::Script, "peer.py", &["transfer"]).core());
    for error in ERRORS {
        let case = Case::new(ERRORS_GROUP, Kind::Script, "peer.py", &[error]);
        let core = matches!(error, "write-wrong-key" | "send-too-long" | "no-receive");
        cases.push(Case { core, ..case });
    }
    habits(&mut cases);
    // Last, so that what was counted before them is what an undisturbed wire gives. Not rdma-core's examples: they end
    // with their last message, and if the acknowledgement of it is lost, no process is left to repeat it. rxe then asks
    // for ever.
    for fault in FAULTS {
        let case = Case::new("faults", Kind::Script, "peer.py", &["transfer"]).fault(fault);
        cases.push(Case {
            core: fault == "loss 1%",
            ..case
        });
        let case = Case::new("faults", Kind::Connected, "rping", &["-V", "-C", "10"]);
        cases.push(case.fault(fault));
    }
    cases
}

/// rdma-core's examples; `-c` compares what arrives.
fn examples(cases: &mut Vec<Case>) {
    let group = "rdma-core's examples";
    for (program, variants) in [
        (
            "ibv_rc_pingpong",
            &[&["-c"][..], &["-c", "-e"], &["-c", "-s", "100000"]][..],
        ),
        (
            "ibv_uc_pingpong",
            &[&["-c"][..], &["-c", "-e"], &["-c", "-s", "20000"]],
        ),
        (
            "ibv_ud_pingpong",
            &[&["-c", "-s", "1000"][..], &["-c", "-e", "-s", "1000"]],
        ),
        (
            "ibv_srq_pingpong",
            &[&["-c"][..], &["-c", "-e"], &["-c", "-q", "4"]],
        ),
    ] {
        for (index, options) in variants.iter().enumerate() {
            let case = Case::new(group, Kind::Example, program, options);
            cases.push(Case {
                core: index == 0,
                ..case
            });
        }
    }
}

fn perftest(cases: &mut Vec<Case>, operation: &str, service: &'static str) {
    let (bandwidth, latency) = match operation {
        "send" => ("ib_send_bw", "ib_send_lat"),
        "write" => ("ib_write_bw", "ib_write_lat"),
        "read" => ("ib_read_bw", "ib_read_lat"),
        _ => ("ib_atomic_bw", "ib_atomic_lat"),
    };
    // Unreliable messages that overrun a queue are lost, and perftest then waits for ever.
    let small = match service {
        "UC" => &["-s", "4096"][..],
        "UD" => &["-s", "1024"][..],
        _ => &[],
    };
    let mut add = |program: &'static str, extra: &[&'static str], core: bool| {
        let options = [&["-c", service][..], extra, small].concat();
        let case = Case::new("perftest", Kind::Perftest, program, &options);
        cases.push(Case { core, ..case });
    };
    add(bandwidth, &[], service == "RC");
    if operation != "write" {
        add(bandwidth, &["-e"], false);
    }
    add(bandwidth, &["-q", "4"], false);
    add(bandwidth, &["-b"], false);
    if service == "RC" && operation != "atomic" {
        add(bandwidth, &["-a"], false);
    }
    add(latency, &[], service != "RC");
    if service == "RC" && operation != "atomic" {
        add(latency, &["-a"], false);
    }
}

/// What nonic may be asked to do differently. With the strict checksum it takes from rxe what has no Identification to
/// solve for: IPv6.
fn habits(cases: &mut Vec<Case>) {
    let group = "nonic's habits";
    let bandwidth = |program, options: &[&'static str]| Case::new(group, Kind::Perftest, program, options);
    for program in ["ib_write_bw", "ib_send_bw", "ib_read_bw"] {
        let case = bandwidth(program, &[]).with_environment("NONIC_GSO", "off");
        cases.push(Case {
            core: program == "ib_write_bw",
            ..case
        });
    }
    cases.push(Case::new(group, Kind::Script, "peer.py", &["transfer"]).with_environment("NONIC_GSO", "off"));
    for case in [
        bandwidth("ib_write_bw", &[]),
        bandwidth("ib_read_bw", &[]),
        Case::new(group, Kind::Script, "peer.py", &["transfer"]),
    ] {
        cases.push(Case {
            families: Families::OnlyIpv6,
            ..case.with_environment("NONIC_ICRC", "strict")
        });
    }
    cases.push(bandwidth("ib_write_bw", &[]).with_environment("NONIC_ICRC", "lenient"));
}

/// What connects by address and port: nonic's connection manager against the kernel's.
fn connected(cases: &mut Vec<Case>) {
    let group = "connected by rdma_cm";
    for (program, options, core) in [
        ("rping", &["-V", "-C", "10"][..], true),
        ("rping", &["-V", "-C", "3", "-S", "65000"], false),
        ("ucmatose", &["-C", "10"], true),
        ("ucmatose", &["-c", "8", "-C", "10", "-S", "5000"], false),
        ("udaddy", &["-C", "10"], true),
        ("udaddy", &["-c", "4", "-C", "10"], false),
        ("mckey", &["-C", "10"], false),
        ("rdma_client, rdma_server", &[], false),
        (
            "rstream",
            &["-T", "v", "-S", "10000", "-C", "20", "-I", "5"],
            true,
        ),
        (
            "rstream",
            &["-T", "v", "-T", "n", "-S", "1000000", "-C", "3", "-I", "2"],
            false,
        ),
        (
            "riostream",
            &["-T", "v", "-S", "10000", "-C", "20", "-I", "5"],
            false,
        ),
    ] {
        let families = match program {
            // The kernel refuses to join IPv6 groups for RoCE (ENOTSUPP).
            "mckey" => Families::OnlyIpv4,
            _ => Families::Both,
        };
        let case = Case::new(group, Kind::Connected, program, options);
        cases.push(Case {
            core,
            families,
            ..case
        });
    }
    for (program, options) in [
        ("ib_send_bw", &["-R"][..]),
        ("ib_write_bw", &["-R"]),
        ("ib_read_bw", &["-R"]),
        ("ib_atomic_bw", &["-R"]),
        ("ib_send_lat", &["-R"]),
        ("ib_send_lat", &["-R", "-c", "UD"]),
        ("ib_write_bw", &["-R", "-q", "4"]),
    ] {
        // perftest looks IPv4 addresses up, and no others.
        cases.push(Case {
            families: Families::OnlyIpv4,
            ..Case::new("perftest by rdma_cm", Kind::Perftest, program, options)
        });
    }
}
