//! Wireshark's dissector as a judge of captures. Used by the tests of several crates.

use std::path::Path;
use std::process::Command;

/// Dissectors that guess at payloads from their first bytes. Ours are random, so they guess wrong at times.
const GUESSERS: [&str; 10] = [
    "smc",
    "smb_direct",
    "rpcordma",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband.eoib",
    "infiniband_sdp",
    "fcoib",
    "ethertype",
];

/// What it says of ports between 33434 and 33534.
const TRACEROUTE: &str = "Possible traceroute";

/// A column of these fields for each packet. No packet may have made the dissector complain.
pub(crate) fn fields(path: &Path, wanted: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
        "-r",
    ]);
    tshark
        .arg(path)
        .args(GUESSERS.iter().flat_map(|name| ["--disable-protocol", *name]));
    tshark.args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"]);
    let complaints = ["_ws.malformed", "_ws.expert.message"];
    let all = complaints.iter().chain(wanted);
    tshark.args(all.flat_map(|field| ["-e", *field]));
    let output = tshark.output().expect("tshark runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", path.display());
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    let packet = |line: &str| {
        let columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        // It guesses from the port that the kernel chose for a socket of ours, and does not complain.
        let is_fine = columns[1].is_empty() || columns[1].starts_with(TRACEROUTE);
        assert!(columns[0].is_empty() && is_fine, "{}: {line}", path.display());
        columns[2..].to_vec()
    };
    text.lines().map(packet).collect()
}

/// A number as the dissector prints it.
pub(crate) fn number(text: &str) -> Option<u16> {
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |digits| u16::from_str_radix(digits, 16).ok(),
    )
}
