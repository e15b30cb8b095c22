//! Programs that know nothing but TCP, over RDMA on loopback, with their bytes compared.
//!
//! That it was RDMA is seen from two sides: the capture holds what was transferred, and the kernel, which remembers
//! the connections of a port for a minute, remembers none.

use crate::support::{Installed, missing, plain, port, succeeded};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command that is carried by RDMA or fails, and writes what it sends and receives to `capture`.
fn carried(installed: &Installed, program: impl AsRef<std::ffi::OsStr>, capture: &str) -> Command {
    let mut command = installed.command(program);
    command.env("NONIC_SOCKETS", "rdma-only");
    command.env("NONIC_PCAP", installed.folder().join(capture));
    command
}

/// Whether a capture holds so many bytes.
fn was_captured(installed: &Installed, capture: &str, bytes: u64) -> bool {
    let file = installed.folder().join(capture);
    std::fs::metadata(file).is_ok_and(|file| file.len() > bytes)
}

/// Whether the kernel knows a TCP socket at this port, were it only to remember it.
fn known_to_tcp(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
        let sockets = std::fs::read_to_string(file).unwrap_or_default();
        sockets.contains(&format!(":{port:04X} "))
    })
}

/// Runs a client, again for as long as there is no listener yet.
fn until_served(client: impl Fn() -> Command) -> Output {
    let started = Instant::now();
    loop {
        let output = client().output().expect("the client starts");
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said);
        let refused = ["refused", "Couldn't connect"]
            .iter()
            .any(|word| said.contains(word));
        // Not all that are refused call that a failure.
        if !refused || started.elapsed() > PATIENCE {
            return output;
        }
    }
}

/// A server that is told to end when it is no longer needed, if it runs then.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Server(command.spawn().expect("the server starts"))
    }

    /// Waits until it has ended by itself, in good order.
    fn ended(mut self) {
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let status = self.0.wait().expect("the server ends");
        assert!(status.success(), "{status}: {said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        // `timeout` passes it on.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_does_not_notice() {
    let installed = Installed::with_nonic();
    let program = installed.program("sockets");
    let port = port(10);
    let run = |mut command: Command, address: &str| {
        let output = command.args([address, &port.to_string()]).output();
        succeeded(&output.expect("it starts"), address)
    };
    for (address, capture) in [("127.0.0.1", "4"), ("::1", "6")] {
        assert_eq!(run(carried(&installed, &program, capture), address), NAMES);
        // One of the checks alone moves so much.
        assert!(was_captured(&installed, capture, 8 << 20), "it was not RDMA");
    }
    assert!(!known_to_tcp(port));
    assert_eq!(run(plain(&program), "127.0.0.1"), NAMES);
    assert!(known_to_tcp(port), "the kernel would not remember anyway");
}

/// What `c/sockets.c` says when all is as expected.
const NAMES: &str = "\
a_socket_is_one
nobody_waits_who_does_not_want_to
nobody_listens
half_a_connection_is_closed
copies_are_the_same_socket
waits_know_all_kinds
closing_does_not_lose_what_was_sent
pieces_and_messages
a_file_is_sent
patience_has_an_end
a_reader_who_left_is_noticed
children_do_not_close_it
epoll_watches
who_waits_learns_of_what_is_added
";

#[test]
fn a_program_may_leave_without_closing() {
    let installed = Installed::with_nonic();
    let program = installed.program("talk");
    let port = port(11).to_string();
    let mut server = carried(&installed, &program, "server");
    server.args(["serve", "127.0.0.1", &port]);
    let server = Server::start(server);
    let client = until_served(|| {
        let mut client = carried(&installed, &program, "client");
        client.args(["ask", "127.0.0.1", &port, "patient", "anybody?"]);
        client
    });
    assert_eq!(succeeded(&client, "the client"), "anybody?\n");
    server.ended();
}

#[test]
fn a_program_may_close_what_it_did_not_open() {
    let installed = Installed::with_nonic();
    let program = installed.program("closing");
    let mut command = carried(&installed, &program, "capture");
    let output = command.args(["127.0.0.1", &port(9).to_string()]).output();
    let said = succeeded(&output.expect("it starts"), "the program");
    assert_eq!(said, "close\nclose_range\nclosefrom\ndup2\na new connection\n");
    assert!(was_captured(&installed, "capture", 6 << 20), "it was not RDMA");
}

#[test]
fn iperf3_measures_rdma() {
    const IPERF: &str = "/usr/bin/iperf3";
    if missing(IPERF) {
        return;
    }
    let installed = Installed::with_nonic();
    // To the server, back from it, and on two connections.
    for (which, mode) in (12..).zip([&["-4"][..], &["-R"], &["-P", "2"]]) {
        let port = port(which);
        let number = port.to_string();
        let mut server = carried(&installed, IPERF, "server");
        server.args(["-s", "-1", "-p", &number]);
        let server = Server::start(server);
        let client = until_served(|| {
            let mut client = carried(&installed, IPERF, "client");
            client
                .args(["-c", "127.0.0.1", "-p", &number, "-n", "20M", "-J"])
                .args(mode);
            client
        });
        let report = succeeded(&client, "the client");
        let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
        let bytes = |sum: &str| report["end"][sum]["bytes"].as_u64().expect("a number");
        // The receiver stops when the sender says that it is done, though a last piece may still be under way.
        assert!(bytes("sum_sent") >= 20 << 20, "{report}");
        assert!(bytes("sum_received") >= 19 << 20, "{report}");
        server.ended();
        assert!(was_captured(&installed, "client", 20 << 20), "it was not RDMA");
        assert!(!known_to_tcp(port));
    }
}

/// A file of some size for a server to serve, and its bytes.
fn page(installed: &Installed) -> Vec<u8> {
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(installed.folder().join("page"), &bytes).expect("a file can be written");
    bytes
}

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn a_web_server_serves_its_clients() {
    const CURL: &str = "/usr/bin/curl";
    if missing(PYTHON) || missing(CURL) {
        return;
    }
    let installed = Installed::with_nonic();
    let page = page(&installed);
    let port = port(15);
    let address = format!("http://127.0.0.1:{port}/page");
    let mut server = carried(&installed, PYTHON, "server");
    server
        .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()])
        .current_dir(installed.folder());
    let _server = Server::start(server);

    let curl = until_served(|| {
        let mut curl = carried(&installed, CURL, "curl");
        curl.args(["-sS", "--noproxy", "*", &address]);
        curl
    });
    succeeded(&curl, "curl");
    assert!(curl.stdout == page, "other bytes");
    assert!(
        was_captured(&installed, "curl", page.len() as u64),
        "it was not RDMA"
    );

    let fetch = "import sys, urllib.request as r\n\
                 o = r.build_opener(r.ProxyHandler({}))\n\
                 sys.stdout.buffer.write(o.open(sys.argv[1], timeout=20).read())";
    let mut python = carried(&installed, PYTHON, "python");
    let python = python.args(["-c", fetch, &address]).output().expect("it starts");
    succeeded(&python, "urllib");
    assert!(python.stdout == page, "other bytes");
    assert!(!known_to_tcp(port));
    assert!(
        !plain(CURL)
            .args(["-sS", "--noproxy", "*", &address])
            .output()
            .expect("it starts")
            .status
            .success()
    );
}

#[test]
fn an_event_loop_runs_on_epoll() {
    if missing(PYTHON) {
        return;
    }
    let installed = Installed::with_nonic();
    let port = port(16);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/echo.py");
    let mut command = carried(&installed, PYTHON, "echo");
    let output = command
        .arg(script)
        .arg(port.to_string())
        .output()
        .expect("it starts");
    assert_eq!(succeeded(&output, "echo.py"), "20 clients, 2000000 bytes back\n");
    assert!(was_captured(&installed, "echo", 4_000_000), "it was not RDMA");
    assert!(!known_to_tcp(port));
}
