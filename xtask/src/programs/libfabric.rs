//! libfabric: what `fi_info` finds, and `fi_pingpong` with its data verified, over every kind of endpoint the provider has.

use super::case::{Case, Place, Program, Shape};
use crate::tools::case::{Connected, Reached};

const LIBFABRIC: Program = Program {
    name: "libfabric",
    version: "1.17.0",
    packages: &[("/usr/bin/fi_pingpong", "libfabric-bin")],
    wheels: &[],
};

/// What it sends with all its sizes, ten times each, and what with one size that is given.
const ALL_SIZES: u64 = 10 * (64 + 256 + 1024 + 4096 + 65536 + 1_048_576);
/// A datagram has one packet.
const DATAGRAM_SIZES: u64 = 10 * (64 + 256 + 1024 + 4096);

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let everywhere = [Place::OneHost, Place::TwoHosts];
    let mut cases = vec![info()];
    for (options, bytes) in [
        ("-p verbs -e msg", ALL_SIZES),
        ("-p verbs -e dgram", DATAGRAM_SIZES),
        ("-p verbs -e rdm", ALL_SIZES),
        ("-p verbs;ofi_rxm -e rdm", ALL_SIZES),
        ("-p verbs;ofi_rxm -e rdm -m tagged", ALL_SIZES),
        ("-p verbs;ofi_rxd -e rdm", ALL_SIZES),
        ("-p verbs -e msg -S 65536 -I 1000", 1000 * 65536),
        ("-p verbs -e rdm -S 65536 -I 1000", 1000 * 65536),
    ] {
        cases.push(pingpong(options, bytes).core(&everywhere));
    }
    cases
}

fn info() -> Case {
    let line = "fi_info -p verbs";
    Case {
        program: &LIBFABRIC,
        line: line.to_owned(),
        shape: Shape::Alone {
            line: line.to_owned(),
            prints: &["FI_EP_MSG", "FI_EP_DGRAM", "FI_EP_RDM", "verbs;ofi_rxm"],
        },
        places: Place::ALL.to_vec(),
        moved_bytes: 0,
        core: vec![Place::OneHost],
        known_failure: None,
    }
}

/// Both sides find each other by TCP; `-c` verifies.
fn pingpong(options: &str, bytes: u64) -> Case {
    let line = format!("fi_pingpong -c {options}");
    Case {
        program: &LIBFABRIC,
        shape: Shape::Pair(Connected {
            server: format!("{line} {{ipv6}} -B {{port}}"),
            client: format!("{line} {{ipv6}} -P {{port}} {{to}}"),
            reached: Reached::Tcp,
            clients: 1,
            server_ends: true,
            prints: "MB/sec",
            copied_bytes: None,
        }),
        line,
        places: Place::ALL.to_vec(),
        // There and back.
        moved_bytes: 2 * bytes,
        core: Vec::new(),
        known_failure: None,
    }
}
