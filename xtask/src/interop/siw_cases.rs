//! The rows of the matrix with siw: which programs, with which options, over which kind of wire.
//!
//! Everything connects by the connection manager: there is no other way on iWARP.

use super::case::{Case, ERRORS_GROUP, Kind};

/// The errors `stream.py` knows; the first ones are run for every change.
const ERRORS: [&str; 12] = [
    "write-wrong-key",
    "read-wrong-key",
    "send-too-long",
    "peer-killed",
    "write-out-of-bounds",
    "read-out-of-bounds",
    "write-forbidden",
    "read-forbidden",
    "no-receive",
    "late-receive",
    "client-killed",
    "disconnected",
];
const CORE_ERRORS: usize = 4;

/// netem's words.
const FAULTS: [&str; 5] = [
    "loss 1%",
    "loss 5%",
    "delay 10ms",
    "delay 2ms reorder 75%",
    "corrupt 2%",
];

/// Everything, in the order of the table.
pub(super) fn all() -> Vec<Case> {
    let mut cases = connected();
    cases.extend(perftest());
    for verb in ["--verb=write", "--verb=read", "--verb=send"] {
        cases.push(Case::new("fio", Kind::Fio, "fio", &[verb]).only_ipv4());
    }
    cases.push(stream("every byte compared", "transfer"));
    cases.push(stream("every byte compared", "short-transfer").core());
    cases.push(stream("start-up", "private-data").core());
    cases.push(stream("start-up", "reject").core());
    cases.extend(variants());
    for (number, error) in ERRORS.into_iter().enumerate() {
        cases.push(Case {
            core: number < CORE_ERRORS,
            ..stream(ERRORS_GROUP, error)
        });
    }
    // Last: what netem leaves in queues must not be in the way of anything else.
    for fault in FAULTS {
        cases.push(Case {
            core: fault == "loss 1%",
            ..stream("faults", "short-transfer").fault(fault)
        });
        cases.push(program("faults", "rping", &["-V", "-C", "10"]).fault(fault));
    }
    cases
}

fn stream(group: &'static str, mode: &'static str) -> Case {
    Case::new(group, Kind::Stream, "stream.py", &[mode])
}

fn program(group: &'static str, program: &'static str, options: &[&'static str]) -> Case {
    Case::new(group, Kind::Connected, program, options)
}

/// rdma-core's programs.
fn connected() -> Vec<Case> {
    let group = "connected by rdma_cm";
    let mut cases = Vec::new();
    for (name, options, core) in [
        ("rping", &["-V", "-C", "100"][..], true),
        ("rping", &["-V", "-C", "10", "-S", "64000"], false),
        ("ucmatose", &["-C", "10"], true),
        ("ucmatose", &["-c", "8", "-C", "10", "-S", "5000"], false),
        ("rdma_client, rdma_server", &[], true),
    ] {
        cases.push(Case {
            core,
            ..program(group, name, options)
        });
    }
    cases
}

/// `-a` is every size from 2 bytes to 8 MiB. This version of perftest looks IPv4 addresses up, and no others.
fn perftest() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &'static str, extra: &[&'static str], core: bool| {
        let options = [&["-R"][..], extra].concat();
        let case = Case::new("perftest by rdma_cm", Kind::Perftest, name, &options);
        cases.push(Case {
            core,
            ..case.only_ipv4()
        });
    };
    for (bandwidth, latency) in [
        ("ib_write_bw", "ib_write_lat"),
        ("ib_read_bw", "ib_read_lat"),
        ("ib_send_bw", "ib_send_lat"),
    ] {
        add(bandwidth, &[], true);
        add(bandwidth, &["-s", "1"], false);
        add(bandwidth, &["-a"], false);
        add(bandwidth, &["-q", "4"], false);
        add(bandwidth, &["-b"], false);
        add(latency, &[], false);
        add(latency, &["-a"], false);
    }
    cases
}

/// What either side may be asked to do differently. By default nonic asks for checksums and siw does not, which means that
/// there are some.
fn variants() -> Vec<Case> {
    let group = "variants of start-up";
    let mut cases = Vec::new();
    let what = || {
        [
            program(group, "rping", &["-V", "-C", "10"]),
            program(group, "ucmatose", &["-C", "10"]),
            stream(group, "short-transfer"),
        ]
    };
    cases.extend(what().map(|case| case.with_environment("NONIC_IWARP_CRC", "off")));
    for (name, value, usual) in [
        ("mpa_crc_required", "1", "0"),
        ("peer_to_peer", "1", "0"),
        ("mpa_version", "1", "2"),
    ] {
        cases.extend(what().map(|case| case.with_parameter(name, value, usual)));
    }
    let both = |case: Case| {
        let case = case.with_environment("NONIC_IWARP_CRC", "off");
        case.with_parameter("mpa_crc_required", "1", "0")
    };
    cases.push(both(stream(group, "short-transfer")));
    cases
}
