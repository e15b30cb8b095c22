//! `NONIC_PCAP` writes what Wireshark reads: every packet of a run, none malformed, every ICRC right.

use crate::support::matrix;
use crate::support::{Place, Server, has_program, missing};
use crate::tshark;
use nonic_wire::pcap::Reader;
use nonic_wire::{ICRC_LEN, icrc};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// RC SEND, WRITE, READ, atomics and their answers, in one packet and in several; UC SEND and WRITE with
/// immediate; UD SEND with immediate.
const EXPECTED_OPCODES: [u8; 25] = [
    0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14,
    0x20, 0x21, 0x23, 0x25, 0x26, 0x27, 0x29, 0x65,
];

#[test]
fn wireshark_reads_every_packet_of_every_operation_over_ipv4() {
    wireshark_reads_everything("127.0.0.1:0");
}

#[test]
fn wireshark_reads_every_packet_of_every_operation_over_ipv6() {
    wireshark_reads_everything("[::1]:0");
}

#[test]
fn the_capture_of_the_readme_shows_no_red_with_the_flag_of_the_readme() {
    if missing((!has_program("tshark", "--version")).then(|| "tshark is not installed".to_owned())) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let capture = directory.path().join("ping.pcapng");
    let place = Place::here().with_environment("NONIC_PCAP", capture.to_string_lossy());
    let pinged = place
        .command(&["ping", "--loopback", "--interval", "1ms"])
        .output();
    assert!(pinged.expect("it runs").status.success());
    let read = |arguments: &[&str]| {
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&capture)
            .args(arguments)
            .output();
        String::from_utf8(output.expect("tshark runs").stdout).expect("tshark prints text")
    };
    let flag = ["--disable-protocol", "rpcordma"];
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(&format!("wireshark {} ping.pcapng", flag.join(" "))));
    assert_eq!(read(&[&flag[..], &["-Y", "_ws.malformed"]].concat()), "");
    // Every entry says which way it went, and where.
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.packet_flags_direction",
        "-e",
        "frame.interface_name",
    ];
    let told = read(&fields);
    assert!(told.lines().count() > 20, "{told}");
    for line in told.lines() {
        let (direction, interface) = line.split_once('\t').unwrap_or_default();
        let is_told = matches!(direction, "1" | "2" | "0x00000001" | "0x00000002");
        assert!(is_told && interface == "roce_lo", "{line}");
    }
}

/// The kernel's segments are not seen by a process: those in the file are made up around the bytes that it took and gave.
#[test]
fn the_streams_of_iwarp_are_captured_as_segments_that_wireshark_puts_together() {
    if missing((!has_program("tshark", "--version")).then(|| "tshark is not installed".to_owned())) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let capture = directory
        .path()
        .join("iwarp.pcapng")
        .to_string_lossy()
        .into_owned();
    let iwarp = Place::here().with_environment("NONIC_WIRE", "iwarp");
    let server = Server::start(&iwarp, "perf", "[::1]:0", &[]);
    let captured = iwarp.with_environment("NONIC_PCAP", capture.as_str());
    let many = [
        "--op",
        "write",
        "--size",
        "300000",
        "--iterations",
        "20",
        "--verify",
    ];
    let ping = vec!["ping", "--loopback", "--count", "2", "--interval", "1ms"];
    let alone = [&["perf", "--loopback"], &many[..]].concat();
    let two = [&["perf", &server.address], &many[..]].concat();
    for arguments in [ping, alone, two] {
        let ran = captured.command(&arguments).output().expect("it runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let read = |more: &[&str]| {
            let mut tshark = Command::new("tshark");
            tshark.args(["-r", &capture, "--disable-protocol", "rpcordma"]);
            tshark.args(["-o", "tcp.check_checksum:TRUE"]).args(more);
            let output = tshark.output().expect("tshark runs");
            String::from_utf8(output.stdout).expect("tshark prints text")
        };
        let bad = "_ws.malformed || tcp.analysis.flags || tcp.checksum.status == \"Bad\"";
        assert_eq!(read(&["-Y", bad]), "", "{arguments:?}");
        let told = read(&["-V", "-Y", "iwarp_rdma"]);
        assert!(
            told.contains("Good CRC32") && !told.contains("Bad CRC"),
            "{arguments:?}"
        );
        let messages = read(&["-Y", "iwarp_rdma"]).lines().count();
        assert!(messages > 20, "{messages} messages of {arguments:?}");
    }
}

fn wireshark_reads_everything(bind: &str) {
    if missing((!has_program("tshark", "--version")).then(|| "tshark is not installed".to_owned())) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let name = directory.path().join("%p.pcapng").to_string_lossy().into_owned();
    let place = Place::here().with_environment("NONIC_PCAP", name);
    let server = Server::start(&place, "perf", bind, &[]);
    matrix::everything(&place, &server);
    let capture = captures_of_clients(directory.path(), server.process.pid());
    let mut opcodes = BTreeSet::new();
    let packets = dissect(&capture, &mut opcodes);
    assert_eq!(check_icrcs(&capture), packets);
    for opcode in EXPECTED_OPCODES {
        assert!(
            opcodes.contains(&opcode),
            "{opcode:#04x} is missing: {opcodes:x?}"
        );
    }
}

/// The captures of all processes that ended, as one: sections of a pcapng file may follow each other. The
/// server still runs, and writes.
fn captures_of_clients(directory: &Path, server: u32) -> PathBuf {
    let mut sections = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(directory).expect("our own directory") {
        let path = entry.expect("our own directory").path();
        if path
            .file_stem()
            .is_some_and(|stem| stem != server.to_string().as_str())
        {
            let section = std::fs::read(&path).expect("our own file");
            assert!(section.len() > 500, "{} is empty", path.display());
            sections.extend(section);
            files += 1;
        }
    }
    assert_eq!(files, 3 + 2 * matrix::COMBINATIONS.len());
    let path = directory.join("all.pcapng");
    std::fs::write(&path, sections).expect("room");
    path
}

/// How many packets the dissector found; none may have made it complain.
fn dissect(path: &Path, opcodes: &mut BTreeSet<u8>) -> usize {
    let packets = tshark::fields(path, &["infiniband.bth.opcode"]);
    for packet in &packets {
        let opcode = tshark::number(&packet[0]).and_then(|opcode| u8::try_from(opcode).ok());
        opcodes.insert(opcode.unwrap_or_else(|| panic!("no InfiniBand packet: {packet:?}")));
    }
    packets.len()
}

/// How many packets there are; the ICRC of each must be that of the headers in the file. The dissector shows
/// the ICRC without checking it, so this is for us to do.
fn check_icrcs(path: &Path) -> usize {
    let classic = path.with_extension("pcap");
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(path)
        .args(["-F", "pcap", "-w"])
        .arg(&classic);
    assert!(tshark.output().expect("tshark runs").status.success());
    let file = std::fs::read(&classic).expect("tshark wrote it");
    let mut packets = 0;
    for frame in Reader::new(&file).expect("a capture") {
        let datagram = frame.expect("whole").datagram().expect("UDP over IP");
        let (packet, icrc) = datagram.payload.split_last_chunk::<ICRC_LEN>().expect("an ICRC");
        let computed = icrc::compute_behind(datagram.headers, packet);
        assert_eq!(computed, Some(*icrc), "{} packet {packets}", path.display());
        packets += 1;
    }
    packets
}
