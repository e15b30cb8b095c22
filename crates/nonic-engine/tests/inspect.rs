//! Inspection of a process: which clients are answered, with what, and what a neighbour can do to the server.

use nonic_core::{QpCapacity, QpInit, Service};
use nonic_engine::inspect::{self, InspectError, Process, Request};
use nonic_engine::{Config, Device};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

/// How long an answer may take on a machine that has too much to do.
const PATIENCE: Duration = Duration::from_secs(30);

fn open() -> Device {
    Device::open_with("roce_lo", &Config::default()).expect("loopback")
}

fn own() -> Option<Process> {
    let processes = inspect::processes().expect("everybody may read the table");
    processes
        .into_iter()
        .find(|process| process.pid() == std::process::id())
}

/// A connection to our own socket, past the client.
fn raw() -> UnixStream {
    let table = std::fs::read_to_string("/proc/net/unix").expect("everybody may read it");
    let prefix = format!("nonic/3/inspect/{}/", std::process::id());
    let mut names = table
        .lines()
        .filter_map(|line| line.split_once('@').map(|(_, name)| name));
    let name = names.find(|name| name.starts_with(&prefix)).expect("it answers");
    let address = SocketAddr::from_abstract_name(name.as_bytes()).expect("a short name");
    UnixStream::connect_addr(&address).expect("it listens")
}

fn add_queue_pairs(device: &Device, count: usize) -> Vec<nonic_core::Qpn> {
    let (pd, queue) = (device.alloc_pd(), device.create_cq(64, None));
    let init = QpInit {
        service: Service::Rc,
        pd,
        send_cq: queue.clone(),
        recv_cq: queue,
        srq: None,
        capacity: QpCapacity::default(),
        signal_all: false,
    };
    (0..count)
        .map(|_| device.create_qp(init.clone()).expect("a queue pair"))
        .collect()
}

fn ask(request: Request) -> Vec<inspect::Record> {
    let answer = own().expect("a device is open").ask(request, PATIENCE);
    answer.expect("it answers").records
}

#[test]
fn a_process_is_there_to_be_asked_from_its_first_device_to_its_last() {
    assert_eq!(own(), None);
    let (first, second) = (open(), open());
    let known = own().expect("a device is open");
    drop(first);
    assert_eq!(own(), Some(known.clone()), "the second one is open");
    drop(second);
    assert_eq!(own(), None);
    let refused = known.ask(Request::Process, PATIENCE);
    assert!(matches!(refused, Err(InspectError::Gone { .. })), "{refused:?}");
    let again = open();
    assert_eq!(ask(Request::Process).len(), 1);
    drop(again);
}

#[test]
fn who_does_not_want_to_be_asked_is_not_there() {
    let mut config = Config::default();
    config.inspect = false;
    let _device = Device::open_with("roce_lo", &config).expect("loopback");
    assert_eq!(own(), None);
}

#[test]
fn every_request_begins_with_the_process_and_tells_what_there_is() {
    let device = open();
    let queue_pairs = add_queue_pairs(&device, 100);
    for request in Request::ALL {
        let records = ask(request);
        assert_eq!(records[0].kind(), "process", "{request:?}");
        assert_eq!(records[0].number("pid"), u64::from(std::process::id()));
    }
    let mut told: Vec<u64> = ask(Request::QueuePairs)
        .iter()
        .filter(|record| record.kind() == "qp")
        .map(|record| record.number("qpn"))
        .collect();
    let mut made: Vec<u64> = queue_pairs.iter().map(|qpn| qpn.value().into()).collect();
    told.sort_unstable();
    made.sort_unstable();
    assert_eq!(told, made);
    let devices = ask(Request::Devices);
    let shown = devices.iter().find(|record| record.kind() == "device");
    assert_eq!(shown.expect("it is open").number("queue_pairs"), 100);
    let counters = devices.iter().find(|record| record.kind() == "counters");
    let (nic, _) = device.counters();
    let counters = counters.expect("a device counts");
    for (name, value) in nic.named() {
        assert!(counters.number(name) <= value, "{name}");
        assert!(counters.get(name).is_some(), "{name}");
    }
    assert_eq!(ask(Request::CompletionQueues)[1].number("capacity"), 64);
}

#[test]
fn ten_thousand_queue_pairs_are_told_of_in_a_moment() {
    let device = open();
    add_queue_pairs(&device, 10_000);
    let began = Instant::now();
    let records = ask(Request::QueuePairs);
    let took = began.elapsed();
    let spent = processor_time("nonic-inspect");
    println!("10,000 queue pairs told of in {took:?}, {spent:?} of a processor");
    assert_eq!(records.len(), 1 + 10_000);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(spent < Duration::from_secs(1), "{spent:?}");
}

/// The processor time that the threads of this name have had so far, however busy the machine is.
fn processor_time(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let spent = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let spent = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let ns = spent.split_whitespace().next()?.parse().ok()?;
        (comm.trim_end() == name).then_some(Duration::from_nanos(ns))
    });
    spent.sum()
}

#[test]
fn devices_close_at_once_while_somebody_looks_at_them() {
    let mut device = open();
    add_queue_pairs(&device, 1000);
    let process = own().expect("a device is open");
    let asking = std::thread::spawn(move || {
        let mut answers = 0;
        while process.ask(Request::QueuePairs, PATIENCE).is_ok() {
            answers += 1;
        }
        answers
    });
    for _ in 0..20 {
        let next = open();
        let began = Instant::now();
        drop(std::mem::replace(&mut device, next));
        assert!(began.elapsed() < Duration::from_secs(5));
        add_queue_pairs(&device, 100);
    }
    drop(device);
    assert!(asking.join().expect("no panic") > 0);
    assert_eq!(own(), None);
}

#[test]
fn who_says_nothing_or_nonsense_or_does_not_read_keeps_nobody_waiting_for_long() {
    let device = open();
    add_queue_pairs(&device, 5000);
    // One says nothing, one leaves, one talks without end, one asks and does not read.
    let _silent = raw();
    drop(raw());
    let mut talker = raw();
    let _ = talker.write_all(&[b'x'; 4096]);
    let mut deaf = raw();
    deaf.write_all(b"nonic-inspect/1 qp\n").expect("a line");
    let began = Instant::now();
    assert_eq!(ask(Request::QueuePairs).len(), 1 + 5000);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_request_of_another_version_is_told_so() {
    let _device = open();
    for request in ["nonic-inspect/2 qp\n", "hello\n", "nonic-inspect/1 everything\n"] {
        let mut line = raw();
        line.write_all(request.as_bytes()).expect("a line");
        let mut said = String::new();
        line.read_to_string(&mut said).expect("text");
        assert!(said.starts_with("refused reason=\""), "{request}: {said}");
    }
}

/// A thread of root's that is another user for the kernel, and so for the process it connects to.
#[test]
fn another_user_is_hung_up_on() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        assert!(std::env::var_os("CI").is_none(), "CI cannot run this test");
        eprintln!("NOT TESTED: only root can become somebody else");
        return;
    }
    let _device = open();
    let said = std::thread::spawn(|| {
        // SAFETY: the system call itself, unlike the C library's function, changes this thread alone, which ends below.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(changed, 0, "root can");
        let mut line = raw();
        // It may have hung up already.
        let _ = line.write_all(b"nonic-inspect/1 qp\n");
        let mut said = Vec::new();
        let _ = line.read_to_end(&mut said);
        // And we do not believe what it says.
        let asked = own().expect("the name is there").ask(Request::Process, PATIENCE);
        (said, matches!(asked, Err(InspectError::OtherUser { .. })))
    });
    let (said, refused) = said.join().expect("no panic");
    assert!(said.is_empty(), "{}", said.escape_ascii());
    assert!(refused);
    assert_eq!(
        ask(Request::Process).len(),
        1,
        "its own user is answered as before"
    );
}
