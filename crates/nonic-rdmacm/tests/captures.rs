//! `NONIC_PCAP` shows connections as Wireshark knows them: every message of the connection manager, and no complaint.

use crate::support::pair::{Running, pair, port, until_served};
use crate::support::{Libraries, missing, succeeded};
use crate::tshark;
use std::collections::BTreeMap;
use std::path::Path;

/// What the messages are, by the number of their attribute.
const REQUEST: u16 = 0x10;
const REPLY: u16 = 0x13;
const READY_TO_USE: u16 = 0x14;
const DISCONNECT_REQUEST: u16 = 0x15;
const DISCONNECT_REPLY: u16 = 0x16;
const SERVICE_REQUEST: u16 = 0x17;
const SERVICE_REPLY: u16 = 0x18;

/// How many messages of each kind the captures of a folder show.
fn messages(folder: &Path) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("our own folder") {
        let path = entry.expect("our own folder").path();
        for packet in tshark::fields(&path, &["infiniband.bth.opcode", "infiniband.mad.attributeid"]) {
            let opcode = tshark::number(&packet[0]);
            assert!(opcode.is_some(), "no InfiniBand packet: {packet:?}");
            if let Some(message) = tshark::number(&packet[1]) {
                *counts.entry(message).or_default() += 1;
            }
        }
    }
    counts
}

/// All of these are there, at least so often.
fn expect(folder: &Path, wanted: &[u16], least: usize) {
    let counts = messages(folder);
    for message in wanted {
        let count = counts.get(message).copied().unwrap_or_default();
        assert!(count >= least, "{message:#x}: {count} of {least} in {counts:x?}");
    }
}

/// The libraries, and a folder for captures; `None` without programs to make or read them.
fn set_up(program: &str) -> Option<(Libraries, tempfile::TempDir)> {
    if missing(&format!("/usr/bin/{program}")) || missing("/usr/bin/tshark") {
        return None;
    }
    Some((
        Libraries::build(),
        tempfile::tempdir().expect("a temporary folder"),
    ))
}

const CONNECTION: [u16; 5] = [REQUEST, REPLY, READY_TO_USE, DISCONNECT_REQUEST, DISCONNECT_REPLY];

#[test]
fn wireshark_sees_rping_connect() {
    let Some((mut libraries, folder)) = set_up("rping") else {
        return;
    };
    libraries.capture_into(folder.path());
    for (which, address) in [(0, "127.0.0.1"), (1, "::1")] {
        let port = port(which);
        let common = ["-a", address, "-p", &port, "-C", "10", "-V"];
        let side = |flag| [&[flag], &common[..]].concat();
        pair(&libraries, ["rping", "rping"], &side("-s"), &side("-c"));
    }
    // Two connections, each written by both processes.
    expect(folder.path(), &CONNECTION[..3], 4);
    // Only one of them hangs up before the other has ended.
    expect(folder.path(), &CONNECTION[3..], 2);
}

#[test]
fn wireshark_sees_udaddy_resolve_services() {
    let Some((mut libraries, folder)) = set_up("udaddy") else {
        return;
    };
    libraries.capture_into(folder.path());
    let server = ["-c", "4", "-C", "5"];
    let client = [&server[..], &["-s", "127.0.0.1"]].concat();
    pair(&libraries, ["udaddy", "udaddy"], &server, &client);
    expect(folder.path(), &[SERVICE_REQUEST, SERVICE_REPLY], 8);
}

#[test]
fn wireshark_sees_cmtime_make_and_end_connections() {
    let Some((mut libraries, folder)) = set_up("cmtime") else {
        return;
    };
    let port = port(2);
    // The server is killed in the end, maybe while it writes; so it writes nothing.
    let _server = Running::start(&libraries, "cmtime", &["-b", "127.0.0.1", "-p", &port]);
    libraries.capture_into(folder.path());
    let client = ["-s", "127.0.0.1", "-p", &port, "-c", "20"];
    succeeded(&until_served(&libraries, "cmtime", &client), "cmtime");
    expect(folder.path(), &CONNECTION, 20);
}
