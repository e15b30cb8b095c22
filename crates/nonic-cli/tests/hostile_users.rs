//! Another user of the same host wants to disturb. Victims are processes of root, the attacker is the user nobody: this
//! program once more, started to run one of [`attacks`]. Each test has network namespaces of its own.
//!
//! Every test was seen to fail with the defence taken out that it is about; which one is said at each.

use crate::support::hosts::{self, new_namespace, veth_pair};
use crate::support::matrix::{bandwidth, number};
use crate::support::{
    Client, DEADLINE, Place, Process, Server, has_program, missing, readable_copy, readable_copy_of, run,
};
use crate::{attacks, passing};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testbed::namespace::Namespace;
use testbed::stopwatch::Stopwatch;

/// Says to this program which attack it is to run, and with which arguments.
const ATTACK: &str = "NONIC_TEST_ATTACK";
const NOBODY: u32 = 65534;
/// How long a transfer goes on before something happens to it, and how long at least after.
const UNDISTURBED: Duration = Duration::from_millis(400);
/// Less than it takes to close what an attacker passes, and more than a busy machine needs for anything else.
const SOON: Duration = Duration::from_secs(30);
/// Clock ticks in a second.
const TICKS: u64 = 100;

#[test]
#[ignore = "a child process of the other tests"]
fn attacker() {
    let Ok(attack) = std::env::var(ATTACK) else {
        return;
    };
    let mut words = attack.split(';').map(str::to_owned);
    let name = words.next().expect("a name");
    let arguments: Vec<String> = words.collect();
    if !passing::run(&name, &arguments) {
        attacks::run(&name, &arguments);
    }
}

/// The user nobody, with an attack under way.
struct Attacker {
    _process: Process,
    stdin: ChildStdin,
    said: Receiver<String>,
    _directory: tempfile::TempDir,
}

impl Attacker {
    /// Starts an attack in a namespace.
    fn start(namespace: &Namespace, attack: &[&str]) -> Self {
        let itself = std::env::current_exe().expect("we run");
        let (directory, program) = readable_copy_of(&itself);
        let place = Place::here()
            .in_namespace(namespace)
            .run_by_nobody(program)
            .with_environment(ATTACK, attack.join(";"));
        let mut command = place.command(&["--exact", "hostile_users::attacker", "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("asked for"));
        let (sender, said) = channel();
        std::thread::spawn(move || {
            // The harness talks as well, and may have begun the line.
            let lines = stdout.lines().map_while(Result::ok);
            let words = lines.filter_map(|line| line.split_once("> ").map(|(_, words)| words.to_owned()));
            words.for_each(|words| drop(sender.send(words)));
        });
        Attacker {
            stdin: child.stdin.take().expect("asked for"),
            _process: Process::from(child),
            said,
            _directory: directory,
        }
    }

    /// The next thing it says.
    fn says(&self) -> String {
        self.said.recv_timeout(DEADLINE).expect("it says something")
    }

    /// What it says to a command.
    fn told(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").expect("it reads");
        self.says()
    }
}

/// Why nothing can be tried, if so.
fn unavailable() -> Option<String> {
    let setpriv = || {
        (!has_program("setpriv", "--version")).then(|| "util-linux (`setpriv`) is not installed".to_owned())
    };
    hosts::unavailable().or_else(setpriv)
}

fn root_in(namespace: &Namespace) -> Place {
    Place::here().in_namespace(namespace)
}

/// A checked transfer of some length.
fn transfer(place: &Place, server: &str, duration: &str) -> Client {
    let arguments = ["perf", server, "--json", "--verify", "--op", "write"];
    let more = ["--duration", duration, "--size", "10001"];
    Client::start(place, &[&arguments[..], &more].concat())
}

/// It must have gone well.
fn went_well(transfer: Client) {
    let found = transfer.json();
    let run = &found["runs"][0];
    assert!(number(run, "messages") > 0, "{run}");
    assert_eq!(run["lost"], 0, "{run}");
    assert_eq!(run["verified"], true, "{run}");
}

/// Ticks of processor time that a process has used.
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.process.pid())).expect("it runs");
    // The name, in parentheses, may contain anything; what follows is numbers.
    let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    fields[11..13]
        .iter()
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum()
}

fn descriptors(server: &Server) -> usize {
    let directory = format!("/proc/{}/fd", server.process.pid());
    std::fs::read_dir(directory).expect("it runs").count()
}

/// Sockets of a process's namespace in the kernel's table: address and port, user.
fn udp_sockets(server: &Server) -> Vec<(String, u32)> {
    let path = format!("/proc/{}/net/udp", server.process.pid());
    let table = std::fs::read_to_string(path).expect("it runs");
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        Some((fields.get(1)?.to_string(), fields.get(7)?.parse().ok()?))
    };
    table.lines().filter_map(socket).collect()
}

/// Fails without `netdev::is_local` in `routes.rs`: then the client asks the names of the server's blocks where to send
/// to, and sends there.
#[test]
fn whoever_owns_names_of_another_host_is_asked_nothing() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let (left, right) = (root_in(&cable.left), root_in(&cable.right));
    let mut attacker = Attacker::start(&cable.left, &["own every block of an address", "10.77.0.2"]);
    assert_eq!(attacker.says(), "owns 4094");
    let server = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    for (service, op) in [("rc", "write"), ("rc", "send"), ("ud", "send")] {
        bandwidth(&left, &server.address, service, op, "999");
    }
    assert_eq!(attacker.told("count"), "0 lines");
}

/// Fails like the one before: a closed line to the name of a block is taken for the end of its process.
#[test]
fn whoever_gives_up_names_of_another_host_ends_no_connection() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let (left, right) = (root_in(&cable.left), root_in(&cable.right));
    let mut attacker = Attacker::start(&cable.left, &["own every block of an address", "10.77.0.2"]);
    assert_eq!(attacker.says(), "owns 4094");
    let server = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let client = transfer(&left, &server.address, "2s");
    assert_eq!(server.next_event()["event"], "client");
    std::thread::sleep(UNDISTURBED);
    assert_eq!(attacker.told("close"), "0 lines");
    std::thread::sleep(UNDISTURBED);
    assert!(client.process.is_running(), "it was in the middle");
    went_well(client);
}

/// Fails if the sockets at the port allow `SO_REUSEADDR`. The attacker succeeds as soon as no process of the user is
/// left, which shows that the attempts are in earnest.
#[test]
fn nobody_else_joins_a_users_port_while_one_of_its_processes_lives() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let (left, right) = (root_in(&cable.left), root_in(&cable.right));
    let mut living = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let mut attacker = Attacker::start(&cable.right, &["bind the port", "10.77.0.2"]);
    assert_eq!(attacker.says(), "trying");
    for _ in 0..3 {
        // One that ends in good order.
        let mut ending = Server::start(&right, "perf", "10.77.0.2:0", &["--once"]);
        bandwidth(&left, &ending.address, "rc", "write", "999");
        assert!(ending.process.wait(Instant::now() + DEADLINE));
        // The oldest is killed; another one goes on.
        let heir = Server::start(&right, "perf", "10.77.0.2:0", &[]);
        std::mem::replace(&mut living, heir).process.kill();
        bandwidth(&left, &living.address, "rc", "send", "999");
    }
    let count = attacker.told("count");
    let (bound, attempts) = count.split_once(" of ").expect("two numbers");
    assert_eq!(bound, "0", "{count}");
    assert!(attempts.parse::<u64>().expect("a number") > 100, "{count}");

    living.process.kill();
    let deadline = Instant::now() + DEADLINE;
    while attacker.told("count").starts_with("0 of ") {
        assert!(Instant::now() < deadline, "the attack is not in earnest");
    }
}

/// Fails without the limits in `host/lines.rs` of the engine: the server has thousands of descriptors.
#[test]
fn lines_without_end_cost_neither_descriptors_nor_time() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let place = root_in(&namespace);
    let server = Server::start(&place, "perf", "127.0.0.1:0", &[]);
    bandwidth(&place, &server.address, "rc", "write", "999");
    let before = (descriptors(&server), ticks(&server));

    let attacker = Attacker::start(&namespace, &["open lines", "127.0.0.1"]);
    assert_eq!(attacker.says(), "2 inboxes");
    // Meanwhile, another client is served.
    bandwidth(&place, &server.address, "rc", "write", "999");
    let mut most = descriptors(&server);
    let opened = loop {
        most = most.max(descriptors(&server));
        match attacker.said.recv_timeout(Duration::from_millis(10)) {
            Ok(words) => break words,
            Err(_) => continue,
        }
    };
    assert!(opened.starts_with("opened 4"), "{opened}");
    bandwidth(&place, &server.address, "rc", "write", "999");
    most = most.max(descriptors(&server));
    let attacked = ticks(&server);
    println!("descriptors {} → {most}, {} ticks", before.0, attacked - before.1);
    assert!(most <= before.0 + 40, "{} → {most} descriptors", before.0);
    // Many times what it takes to let in four thousand and to serve two transfers.
    assert!(attacked - before.1 < TICKS, "{} ticks", attacked - before.1);

    // The lines stay; the server sleeps.
    std::thread::sleep(Duration::from_secs(2));
    let idle = ticks(&server) - attacked;
    assert!(idle <= TICKS / 10, "{idle} ticks in two seconds of nothing");
}

/// There are no names but those of blocks and services. This fails for a design that gives a name a meaning for all, as
/// an earlier one did to `holder`: then a process comes to the squatter, or none follows when the first process is
/// killed.
#[test]
fn names_that_look_important_may_be_squatted() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let (left, right) = (root_in(&cable.left), root_in(&cable.right));
    let mut attacker = Attacker::start(&cable.right, &["squat", "10.77.0.2"]);
    assert_eq!(attacker.says(), format!("squats {}", 4094 + 2 * 10));
    let first = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let second = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    assert!(first.joined && second.joined);
    for place in [&left, &right] {
        bandwidth(place, &first.address, "rc", "write", "999");
        bandwidth(place, &second.address, "rc", "write", "999");
    }
    first.process.kill();
    for place in [&left, &right] {
        bandwidth(place, &second.address, "rc", "write", "999");
    }
    assert_eq!(attacker.told("count"), "0 came");
}

/// Fails (the time) if an outbox goes on reading from a peer that says more than it was asked.
#[test]
fn a_lying_owner_of_a_block_harms_nobody_else() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let place = root_in(&namespace);
    let other = Server::start(&place, "perf", "127.0.0.1:0", &[]);
    let sockets = udp_sockets(&other);
    let private = |(name, _): &(String, u32)| u16::from_str_radix(name.strip_prefix("0100007F:")?, 16).ok();
    let port = sockets.iter().filter_map(private).find(|port| *port != 4791);
    let port = port.expect("every process has one of its own").to_string();
    let asked = Server::start(&place, "perf", "127.0.0.1:0", &[]);

    let mut attacker = Attacker::start(&namespace, &["lie", &asked.address, &port]);
    assert_eq!(attacker.says(), "lies");
    while attacker.told("count").starts_with("0 ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    for server in [&other, &asked] {
        bandwidth(&place, &server.address, "rc", "write", "999");
        bandwidth(&place, &server.address, "ud", "send", "999");
    }
    let before = [&other, &asked].map(ticks);
    std::thread::sleep(Duration::from_secs(2));
    for (server, before) in [&other, &asked].into_iter().zip(before) {
        let used = ticks(server) - before;
        println!("{used} ticks");
        assert!(used <= TICKS / 5, "{used} ticks in two seconds of lies");
    }
}

/// Fails if an inbox reads what another user attached descriptors to, or closes a line that holds some (`os/peer_socket.rs` of the
/// engine): the thread that does it waits for a minute, and with it all connections of the process.
#[test]
fn descriptors_that_take_long_to_close_stop_nobody() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let place = root_in(&namespace);
    let server = Server::start(&place, "perf", "127.0.0.1:0", &[]);
    let client = transfer(&place, &server.address, "3s");
    assert_eq!(server.next_event()["event"], "client");
    std::thread::sleep(UNDISTURBED);
    let attacker = Attacker::start(&namespace, &["pass descriptors", "127.0.0.1"]);
    let passed = attacker.says();
    assert!(
        passed.starts_with("passed ") && !passed.starts_with("passed 0"),
        "{passed}"
    );
    assert!(client.process.is_running(), "it was in the middle");
    went_well(client);
    bandwidth(&place, &server.address, "rc", "write", "999");
    bandwidth(&place, &server.address, "ud", "send", "999");
}

/// Fails like the one before, where answers are read.
#[test]
fn descriptors_in_the_answers_of_a_liar_stop_nobody() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let place = root_in(&namespace);
    let asked = Server::start(&place, "perf", "127.0.0.1:0", &[]);
    let mut attacker = Attacker::start(&namespace, &["lie", &asked.address, "9", "attach"]);
    assert_eq!(attacker.says(), "lies");
    let deadline = Instant::now() + DEADLINE;
    // More than one, for the attacker may be slower than the process that asks.
    while !matches!(attacker.told("count").split_once(' '), Some((count, _)) if count.parse::<u32>().unwrap_or(0) > 4)
    {
        assert!(Instant::now() < deadline, "it is not asked");
        std::thread::sleep(Duration::from_millis(5));
    }
    bandwidth(&place, &asked.address, "rc", "write", "999");
    bandwidth(&place, &asked.address, "ud", "send", "999");
}

/// Fails if the thread that answers closes what another user wrote: no process is answered for a minute, and the thread
/// that closes the last device waits for it.
#[test]
fn descriptors_sent_to_who_tells_what_is_in_a_process_keep_nobody_waiting() {
    if missing(unavailable()) {
        return;
    }
    let namespace = new_namespace();
    let place = root_in(&namespace);
    let mut server = Server::start(&place, "perf", "127.0.0.1:0", &["--once"]);
    let pid = server.process.pid();
    let attacker = Attacker::start(&namespace, &["pass to inspection", &pid.to_string()]);
    let passed = attacker.says();
    assert_ne!(passed, "passed 0");
    let listed = run(&place, &["ps", "--json"]).json();
    assert_eq!(listed["devices"][0]["pid"], pid, "{listed}");
    bandwidth(&place, &server.address, "rc", "write", "999");
    assert!(server.process.wait(Instant::now() + SOON), "it ends");
}

/// Names of processes that are none: what root sees when it looks at the processes of all users.
struct Fakes {
    namespace: Namespace,
    attacker: Attacker,
}

impl Fakes {
    fn start(kind: &str, count: usize) -> Self {
        let namespace = new_namespace();
        let attacker = Attacker::start(&namespace, &["fake processes", kind, &count.to_string()]);
        assert_eq!(attacker.says(), format!("fakes {count}"));
        Fakes { namespace, attacker }
    }

    fn place(&self) -> Place {
        root_in(&self.namespace)
    }

    /// Whether they were in earnest.
    fn were_asked(&mut self) {
        assert!(
            !self.attacker.told("count").starts_with("0 "),
            "nobody asked them"
        );
    }
}

/// Fails without `printable` where records are read.
#[test]
fn what_other_users_say_is_shown_and_not_obeyed() {
    if missing(unavailable()) {
        return;
    }
    let mut fakes = Fakes::start("inject", 1);
    for arguments in [
        &["ps"][..],
        &["ps", "--json"],
        &["show", "qp"],
        &["show", "qp", "--json"],
        &["show", "device"],
        &["show", "cq"],
        &["metrics"],
    ] {
        let outcome = run(&fakes.place(), arguments);
        for text in [&outcome.stdout, &outcome.stderr] {
            let obeyed = text.chars().find(|letter| letter.is_control() && *letter != '\n');
            assert_eq!(obeyed, None, "{arguments:?}: {text:?}");
            let begins_a_line = text.lines().any(|line| line.starts_with("nonic_evil"));
            assert!(!begins_a_line, "{arguments:?}: {text:?}");
        }
        assert!(
            format!("{}{}", outcome.stdout, outcome.stderr).contains("owned"),
            "{arguments:?}"
        );
    }
    fakes.were_asked();
}

/// Fails if what is read is bounded in bytes and not in memory: it takes fifty times as much, and rows as wide as the widest.
#[test]
fn what_other_users_say_without_end_takes_little_memory() {
    if missing(unavailable()) {
        return;
    }
    let mut fakes = Fakes::start("talk", 4);
    let place = fakes.place();
    let nonic = place.command(&["show", "qp"]);
    let words = std::iter::once(nonic.get_program()).chain(nonic.get_args());
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -v 1000000 && exec \"$@\"", "sh"])
        .args(words)
        .stdin(Stdio::null());
    let outcome = limited.output().expect("a shell");
    let complaints = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{} {complaints}", outcome.status);
    assert_eq!(
        complaints.matches("says more than is read").count(),
        4,
        "{complaints}"
    );
    fakes.were_asked();
}

/// Fails if they are asked some at a time, each for a second.
#[test]
fn hundreds_of_silent_names_keep_nobody_waiting() {
    if missing(unavailable()) {
        return;
    }
    let mut fakes = Fakes::start("silent", 300);
    let place = fakes.place();
    let server = Server::start(&place, "ping", "127.0.0.1:0", &[]);
    let began = Stopwatch::new();
    let listed = run(&place, &["ps", "--json"]).json();
    let took = began.elapsed();
    assert_eq!(listed["devices"][0]["pid"], server.process.pid(), "{listed}");
    assert_eq!(
        listed["silent"].as_array().map(Vec::len),
        Some(1),
        "one process: {listed}"
    );
    assert!(took < Duration::from_secs(8), "{took:?}");
    fakes.were_asked();
}

/// Fails if root's `nonic ps` reads what descriptors are attached to.
#[test]
fn descriptors_in_what_other_users_say_keep_nobody_waiting() {
    if missing(unavailable()) {
        return;
    }
    let mut fakes = Fakes::start("pass", 4);
    let began = Stopwatch::new();
    assert!(run(&fakes.place(), &["ps"]).success);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    fakes.were_asked();
}

/// Fails if a request in the name of a connected queue pair ends its connection (nonic-core, `cm/stale.rs`).
#[test]
fn forged_requests_of_a_clients_host_do_not_end_its_connection() {
    if missing(unavailable()) {
        return;
    }
    let cable = veth_pair(1500);
    let (left, right) = (root_in(&cable.left), root_in(&cable.right));
    let server = Server::start(&right, "perf", "10.77.0.2:0", &[]);
    let client = transfer(&left, &server.address, "4s");
    assert_eq!(server.next_event()["event"], "client");
    let attacker = Attacker::start(&cable.left, &["forge requests", "10.77.0.1", &server.address]);
    assert_eq!(attacker.says(), "1 blocks");
    assert_eq!(attacker.says(), "forged");
    assert!(client.process.is_running(), "it was in the middle");
    went_well(client);
}

/// Fails without `UdpLink::pass_on`; and the transfer does not survive without `UdpLink::try_port_again`, or if that tries
/// only once.
#[test]
fn processes_of_two_users_serve_other_hosts_whoever_came_first() {
    if missing(unavailable()) {
        return;
    }
    let (_directory, program) = readable_copy();
    for root_is_first in [true, false] {
        two_users(&program, root_is_first);
    }
}

/// The process of the user who has the port hands over to the other's. When it is killed, the other has the port.
fn two_users(program: &Path, root_is_first: bool) {
    let cable = veth_pair(1500);
    let left = root_in(&cable.left);
    let root = root_in(&cable.right);
    let nobody = root_in(&cable.right).run_by_nobody(program.to_owned());
    let (places, uid) = match root_is_first {
        true => ([&root, &nobody], NOBODY),
        false => ([&nobody, &root], 0),
    };
    let [first, second] = places.map(|place| Server::start(place, "perf", "10.77.0.2:0", &[]));
    assert!(first.joined && !second.joined);
    for server in [&first, &second] {
        bandwidth(&left, &server.address, "rc", "write", "999");
        bandwidth(&left, &server.address, "ud", "send", "999");
    }
    let client = transfer(&left, &second.address, "3s");
    while second.next_event()["event"] != "client" {}
    std::thread::sleep(UNDISTURBED);
    first.process.kill();
    let killed = Instant::now();
    let port = ("02004D0A:12B7".to_owned(), uid);
    while !udp_sockets(&second).contains(&port) {
        assert!(killed.elapsed() < DEADLINE, "nobody took the port");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("the port was taken over after {:?}", killed.elapsed());
    std::thread::sleep(UNDISTURBED);
    assert!(client.process.is_running(), "it was in the middle");
    went_well(client);
    bandwidth(&left, &second.address, "rc", "send", "999");
}
