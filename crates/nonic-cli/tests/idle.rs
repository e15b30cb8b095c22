//! Idle means asleep: an open device with nothing to do takes no processor time, and a message wakes the thread that waits
//! for it and no other.

use crate::support::Server;
use crate::support::hosts::place_of_its_own;
use crate::support::matrix;
use std::fs;
use std::time::Duration;

/// How long nothing happens.
const WATCHED: Duration = Duration::from_secs(10);
/// How long a device remembers connections that ended, and wakes to forget each.
const REMEMBERED: Duration = Duration::from_secs(2);
/// One clock tick (10 ms) may fall to any process by chance.
const MAX_TICKS: u64 = 1;
/// A process that slept ten seconds in a few calls, against one that looks every 100 ms.
const MAX_WAKEUPS: u64 = 5;

#[test]
fn a_process_with_an_idle_device_sleeps() {
    let (_namespace, here) = place_of_its_own();
    let fresh = Server::start(&here, "ping", "127.0.0.1:0", &[]);
    // One that had clients must go back to sleep as well.
    let used = Server::start(&here, "perf", "127.0.0.1:0", &[]);
    for service in ["rc", "uc", "ud"] {
        matrix::ping(&here, &used.address, service);
    }
    matrix::bandwidth(&here, &used.address, "rc", "write", "70000");
    let over_tcp = here.clone().with_environment("NONIC_WIRE", "iwarp");
    let iwarp = Server::start(&over_tcp, "perf", "127.0.0.1:0", &[]);
    matrix::bandwidth(&over_tcp, &iwarp.address, "rc", "write", "70000");
    wait_for_clients_to_leave(used.process.pid());
    wait_for_clients_to_leave(iwarp.process.pid());
    std::thread::sleep(REMEMBERED);

    let servers = [("fresh", &fresh), ("used", &used), ("iWARP", &iwarp)];
    let before = servers.map(|(_, server)| Usage::of(server.process.pid()));
    std::thread::sleep(WATCHED);
    let after = servers.map(|(_, server)| Usage::of(server.process.pid()));
    for ((name, _), (before, after)) in servers.iter().zip(before.iter().zip(&after)) {
        let ticks = after.ticks - before.ticks;
        let wakeups = after.wakeups - before.wakeups;
        println!("{name}: {ticks} ticks and {wakeups} wake-ups in {WATCHED:?}");
        assert!(ticks <= MAX_TICKS, "{name}: {ticks} ticks");
        assert!(wakeups <= MAX_WAKEUPS, "{name}: {wakeups} wake-ups");
    }
}

/// Beside the thread that has the messages another one waits for completions, and was there first: the one that reads what
/// the client has to say.
#[test]
fn a_message_to_a_sleeping_thread_leaves_the_background_thread_asleep() {
    let (_namespace, here) = place_of_its_own();
    let server = Server::start(&here, "perf", "127.0.0.1:0", &[]);
    let before = background_wakeups(server.process.pid());
    let asleep = ["--test", "lat", "--events", "--iterations", "20000"];
    let run = matrix::perf(&here, &server.address, "rc", "send", "64", &asleep);
    let wakeups = background_wakeups(server.process.pid()) - before;
    let messages = matrix::number(&run, "samples");
    println!("{wakeups} wake-ups of the background thread for {messages} messages");
    assert!(messages >= 20_000, "{run}");
    // It looks after its shortest naps, and serves while the program's threads wait for processors. Without a watcher it
    // is woken more than once for each message.
    assert!(wakeups < messages, "{wakeups} wake-ups for {messages} messages");
}

/// How often the device's own threads were woken.
fn background_wakeups(pid: u32) -> u64 {
    let name = |thread: &str| fs::read_to_string(format!("{thread}/comm")).unwrap_or_default();
    let background = threads(pid)
        .into_iter()
        .filter(|thread| name(thread).trim() == "nonic-lo");
    background.map(|thread| voluntary_switches(&thread)).sum()
}

/// What a process has used so far, all threads together.
struct Usage {
    ticks: u64,
    wakeups: u64,
}

impl Usage {
    fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        // The name, in parentheses, may contain anything; what follows is numbers.
        let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields[number - 3].parse::<u64>().expect("a number");
        Usage {
            ticks: field(14) + field(15),
            wakeups: threads(pid).iter().map(|thread| voluntary_switches(thread)).sum(),
        }
    }
}

fn threads(pid: u32) -> Vec<String> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it runs")
        .filter_map(|entry| Some(entry.ok()?.path().to_string_lossy().into_owned()))
        .collect()
}

fn voluntary_switches(thread: &str) -> u64 {
    let status = fs::read_to_string(format!("{thread}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or_default()
}

/// The main thread, the NIC's, the one that answers inspection, and nothing else: no client is being served any more.
fn wait_for_clients_to_leave(pid: u32) {
    let deadline = std::time::Instant::now() + crate::support::DEADLINE;
    while threads(pid).len() > 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "threads: {:?}",
            threads(pid)
        );
        std::thread::yield_now();
    }
}
