//! The cases: which programs are run, and how.

use super::case::{Case, IN_CYCLES, Shape};

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (program, options) in [("ibv_devices", &[][..]), ("ibv_devinfo", &["-v"][..])] {
        cases.push(Case {
            shape: Shape::Alone,
            ..Case::pair(program, options, &[])
        });
    }
    pingpongs(&mut cases);
    for (operation, services) in [
        ("send", &["RC", "UC", "UD", "XRC"][..]),
        ("write", &["RC", "UC", "XRC"][..]),
        ("read", &["RC", "XRC"][..]),
        ("atomic", &["RC", "XRC"][..]),
    ] {
        for service in services {
            bandwidth(&mut cases, operation, service);
            latency(&mut cases, operation, service);
        }
    }
    cases.extend(super::cm_cases::all());
    cases.extend(super::iwarp_cases::all());
    cases
}

/// rdma-core's examples, one per service.
fn pingpongs(cases: &mut Vec<Case>) {
    let usual: &[&[&str]] = &[&[], &["-e"], &["-c"], &["-e", "-c"]];
    let large: &[&[&str]] = &[&["-s", "1000000", "-n", "100"], &["-s", "10000", "-n", "5000"]];
    let more_of_rc: &[&[&str]] = &[&["-N"], &["-o"], &["-O"], &["-o", "-P"], &["-t"], &["-j"]];
    for options in [usual, large, more_of_rc].concat() {
        cases.push(Case::pair("ibv_rc_pingpong", options, &[]));
    }
    for options in [usual, large].concat() {
        cases.push(Case::pair("ibv_uc_pingpong", options, &[]));
    }
    for options in [usual, &[&["-s", "1000", "-n", "5000"][..]]].concat() {
        cases.push(Case::pair("ibv_ud_pingpong", options, &[]));
    }
    let srq: &[&[&str]] = &[&["-o"], &["-q", "64", "-n", "200"]];
    for options in [usual, &[&["-s", "100000", "-n", "50"][..]], srq].concat() {
        cases.push(Case::pair("ibv_srq_pingpong", options, &[]));
    }
    for options in [&[][..], &["-e"], &["-o"], &["-s", "100000", "-n", "500"]] {
        cases.push(Case::pair("ibv_xsrq_pingpong", options, &[]));
    }
}

/// `ib_*_bw` with everything it can be asked.
fn bandwidth(cases: &mut Vec<Case>, operation: &str, service: &'static str) {
    let program = match operation {
        "send" => "ib_send_bw",
        "write" => "ib_write_bw",
        "read" => "ib_read_bw",
        _ => "ib_atomic_bw",
    };
    let mut variants: Vec<&[&str]> = vec![&[], &["-b"], &["-q", "4"], &["-l", "8"]];
    match operation {
        "atomic" => variants.extend([&["-e"][..], &["-A", "CMP_AND_SWAP"]]),
        "read" => variants.extend([&["-e"][..], &["-a"]]),
        // perftest has no events for WRITE.
        "write" => variants.extend([&["-I", "64", "-s", "64"][..], &["-q", "4", "-b"]]),
        _ => variants.extend([&["-e"][..], &["-I", "64", "-s", "64"], &["-q", "4", "-b"]]),
    }
    if matches!(operation, "send" | "write") {
        variants.push(all_sizes(service));
    }
    // XRC always has a shared receive queue; UC has none.
    if operation == "send" && matches!(service, "RC" | "UD") {
        variants.push(&["--use-srq"]);
    }
    // On UD perftest posts one queue pair's worth of receives for all of them, and what finds none is lost.
    if operation == "send" && service == "RC" {
        variants.push(&["--use-srq", "-q", "4"]);
    }
    for options in variants {
        cases.push(Case {
            service,
            ..Case::pair(program, options, limits(service, options))
        });
    }
}

/// All sizes. On UC a message longer than the room for unread data loses packets when the peer is not quick enough. UC
/// does not retransmit them, and perftest waits for ever; so the largest is one that fits.
fn all_sizes(service: &str) -> &'static [&'static str] {
    if service == "UC" {
        &["-s", "16384"]
    } else {
        &["-a"]
    }
}

/// What keeps a run short, and what UC and UD have under way, on four queue pairs at most, below a socket buffer and the MiB of a lane:
/// on a busy machine the peer may not read any of it for a while.
fn limits(service: &str, options: &[&str]) -> &'static [&'static str] {
    match service {
        _ if options.contains(&"-a") => &["-F", "-n", "20"],
        "UC" if options.contains(&"-s") => &["-F", "-n", "56"],
        "UD" => &["-F", "-n", "56"],
        "UC" => &["-F", "-n", "56", "-s", "4096"],
        _ => &["-F", "-n", "320"],
    }
}

/// `ib_*_lat`, likewise.
fn latency(cases: &mut Vec<Case>, operation: &str, service: &'static str) {
    let program = match operation {
        "send" => "ib_send_lat",
        "write" => "ib_write_lat",
        "read" => "ib_read_lat",
        _ => "ib_atomic_lat",
    };
    let mut variants: Vec<&[&str]> = vec![&[]];
    match operation {
        "send" => variants.extend([all_sizes(service), &["-e"], &["-I", "64", "-s", "64"]]),
        "write" => variants.extend([all_sizes(service), &["-I", "64", "-s", "64"]]),
        "read" => variants.extend([&["-a"][..], &["-e"]]),
        _ => variants.extend([&["-e"][..], &["-A", "CMP_AND_SWAP"]]),
    }
    for options in variants {
        let limits = [limits(service, options), &[IN_CYCLES]].concat();
        cases.push(Case {
            service,
            ..Case::pair(program, options, &limits)
        });
    }
}
