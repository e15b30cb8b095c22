//! The command lines of a cell, and how a server shows that it is ready.
//!
//! Read first: [`words`] (either side's command line), then [`Readiness`].

use super::case::{Case, Family, Kind, Opposite};

/// The group of the multicast rows, by IP version.
const GROUPS: [&str; 2] = ["239.77.0.9", "ff15::77:9"];

/// udaddy has no option for its port.
const UDADDY_PORT: u16 = 7174;

/// Service identifiers of rdma_cm: a port space, then the port.
const TCP_SERVICES: u64 = 0x0106_0000;
const UDP_SERVICES: u64 = 0x0111_0000;

/// What one side calls things.
#[derive(Copy, Clone, Debug)]
pub(super) struct Side<'a> {
    pub(super) device: &'a str,
    pub(super) gid: u32,
    /// Where `peer.py` is.
    pub(super) script: &'a str,
    pub(super) address: &'a str,
}

/// What both sides agree on.
#[derive(Copy, Clone, Debug)]
pub(super) struct Terms<'a> {
    pub(super) port: u16,
    pub(super) mtu: u32,
    pub(super) family: Family,
    /// The server's address on the wire.
    pub(super) server: &'a str,
    /// The server's IPv4 address, over which programs without rdma_cm agree.
    pub(super) server_ipv4: &'a str,
}

/// How a server shows that a client may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It listens on a TCP port.
    Tcp(u16),
    /// It listens on this service of the connection manager, whose port is the second.
    Service(u64, u16),
    /// It prints this.
    Says(&'static str),
}

impl Readiness {
    pub(super) fn of(case: &Case, port: u16, opposite: Opposite) -> Self {
        // Ports of the connection manager are TCP's on this wire.
        if opposite == Opposite::Siw {
            return Self::Tcp(port);
        }
        let service = |space: u64, port: u16| Self::Service(space + u64::from(port), port);
        match (case.kind, case.program) {
            (Kind::Connected, "mckey") => Self::Says("receiving data transfers"),
            (Kind::Connected, "udaddy") => service(UDP_SERVICES, UDADDY_PORT),
            (Kind::Connected, _) => service(TCP_SERVICES, port),
            // Also for datagrams: the sides first agree over a connection.
            (Kind::Perftest, _) if case.by_rdma_cm() => service(TCP_SERVICES, port),
            _ => Self::Tcp(port),
        }
    }
}

/// The command line of the server, or of the client.
pub(super) fn words(case: &Case, side: &Side<'_>, terms: &Terms<'_>, client: bool) -> Vec<String> {
    let (gid, port) = (side.gid.to_string(), terms.port.to_string());
    let server = if client { Some(terms.server_ipv4) } else { None };
    let mut words: Vec<&str> = Vec::new();
    match case.kind {
        Kind::Script => {
            // Not just any Python: Debian's, which has pyverbs.
            words.extend(["/usr/bin/python3", side.script]);
            words.extend(&case.options);
            words.extend([side.device, &gid, &port]);
            words.extend(server);
        }
        Kind::Stream => {
            words.extend(["/usr/bin/python3", side.script]);
            words.extend(&case.options);
            words.extend([
                port.as_str(),
                terms.server,
                if client { "client" } else { "server" },
            ]);
        }
        Kind::Fio => return fio(case, terms, client),
        Kind::Example => {
            words.extend([case.program, "-d", side.device, "-g", &gid, "-p", &port]);
            // A datagram is one packet, so there is nothing to choose.
            if case.program != "ibv_ud_pingpong" {
                words.extend(["-m", if terms.mtu > 4096 { "4096" } else { "1024" }]);
            }
            words.extend(&case.options);
            words.extend(&case.limits);
            words.extend(server);
        }
        Kind::Perftest if case.by_rdma_cm() => {
            words.extend([case.program, "-p", &port]);
            words.extend(&case.options);
            words.extend(&case.limits);
            words.extend(client.then_some(terms.server));
        }
        Kind::Perftest => {
            words.extend([case.program, "-d", side.device, "-x", &gid, "-p", &port]);
            words.extend(&case.options);
            words.extend(&case.limits);
            words.extend(server);
        }
        Kind::Connected => connected(&mut words, case, side, terms, &port, client),
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The verb is the client's to say.
fn fio(case: &Case, terms: &Terms<'_>, client: bool) -> Vec<String> {
    let port = format!("--port={}", terms.port);
    let mut words = vec![
        "fio",
        "--ioengine=rdma",
        "--bs=64k",
        "--size=2m",
        "--verify_state_save=0",
        &port,
    ];
    let host = format!("--hostname={}", terms.server);
    if client {
        words.extend(["--name=client", "--rw=write", "--iodepth=8", &host]);
        words.extend(&case.options);
        words.extend(
            ["--verify=crc32c", "--do_verify=0"]
                .iter()
                .filter(|_| case.options.contains(&"--verb=send")),
        );
    } else {
        words.extend(["--name=server", "--rw=read", "--iodepth=32"]);
        words.extend(case.options.contains(&"--verb=send").then_some("--verify=crc32c"));
    }
    words.into_iter().map(str::to_owned).collect()
}

/// rdma-core's programs that connect by address and port.
fn connected<'a>(
    words: &mut Vec<&'a str>,
    case: &Case,
    side: &Side<'a>,
    terms: &Terms<'a>,
    port: &'a str,
    client: bool,
) {
    let server = terms.server;
    match (case.program, client) {
        ("rping", _) => words.extend([
            "rping",
            if client { "-c" } else { "-s" },
            "-a",
            server,
            "-p",
            port,
        ]),
        ("ucmatose", true) => words.extend(["ucmatose", "-s", server, "-p", port]),
        ("ucmatose", false) => words.extend(["ucmatose", "-b", server, "-p", port]),
        ("udaddy", true) => words.extend(["udaddy", "-s", server]),
        ("udaddy", false) => words.extend(["udaddy", "-b", server]),
        ("mckey", _) => {
            // What it says must be seen at once.
            let group = GROUPS[terms.family as usize];
            words.extend(["stdbuf", "-oL", "mckey", "-m", group, "-b", side.address]);
            words.extend(client.then_some("-s"));
        }
        ("rdma_client, rdma_server", _) => {
            let program = if client { "rdma_client" } else { "rdma_server" };
            words.extend([program, "-s", server, "-p", port]);
        }
        ("rstream" | "riostream", _) => {
            words.extend([case.program, "-p", port]);
            words.extend(if client { ["-s", server] } else { ["-b", server] });
        }
        (program, _) => unreachable!("no command line is known for {program}"),
    }
    words.extend(&case.options);
    words.extend(&case.limits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::cases;

    #[test]
    fn every_row_has_two_command_lines() {
        let side = Side {
            device: "dev",
            gid: 3,
            script: "peer.py",
            address: "10.0.0.1",
        };
        let terms = Terms {
            port: 4711,
            mtu: 1500,
            family: Family::Ipv4,
            server: "10.0.0.2",
            server_ipv4: "10.0.0.2",
        };
        let both = [Opposite::Rxe, Opposite::Siw];
        for case in both.into_iter().flat_map(cases::with) {
            let lines = [false, true].map(|client| words(&case, &side, &terms, client).join(" "));
            assert_ne!(lines[0], lines[1], "{}", case.name());
            assert!(
                lines[1].contains("10.0.0.2") || case.program == "mckey",
                "{}",
                lines[1]
            );
        }
    }

    #[test]
    fn a_service_is_its_port_space_and_port() {
        let rping = cases::with(Opposite::Rxe)
            .into_iter()
            .find(|case| case.program == "rping");
        let readiness = rping.map(|case| Readiness::of(&case, 20001, Opposite::Rxe));
        assert_eq!(readiness, Some(Readiness::Service(0x0106_4e21, 20001)));
    }
}
