//! Attacks on processes that read what others write to a Unix socket: descriptors that take long to close, and
//! processes that are not what they say. Run as those of [`super::attacks`], which has what both use.

use super::attacks::{
    LONGEST, WHERE_ARE_YOU, commands, inboxes, listen, new_line, raise_limit, say, unix_name, until_told,
};
use super::lingering::{LINGER, Lingering};
use rustix::net::{SendFlags, SocketType};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Messages in front of one with a descriptor: while they are read, we close our own.
const FILLERS: usize = 100;
/// Lines to each inbox: more than one user may keep.
const LINES: usize = 8;

/// Runs the attack of this name, if it is one of these.
pub(crate) fn run(attack: &str, arguments: &[String]) -> bool {
    match attack {
        "pass descriptors" => pass_descriptors(arguments[0].parse().expect("an address"), &commands()),
        "pass to inspection" => pass_to_inspection(&arguments[0], &commands()),
        "fake processes" => {
            fake_processes(
                &arguments[0],
                arguments[1].parse().expect("a number"),
                &commands(),
            );
        }
        _ => return false,
    }
    true
}

/// Sends descriptors that take long to close to every inbox of an address.
fn pass_descriptors(address: IpAddr, commands: &Receiver<String>) {
    let mut lingering = Lingering::new();
    let names = inboxes(address);
    let mut lines = Vec::new();
    let mut passed = 0;
    for name in names.iter().cycle().take(LINES * names.len()) {
        let line = new_line();
        if rustix::net::connect(&line, &unix_name(name)).is_ok() {
            for _ in 0..FILLERS {
                let _ = rustix::net::send(&line, &WHERE_ARE_YOU, SendFlags::NOSIGNAL);
            }
            passed += usize::from(lingering.attach(&line, &WHERE_ARE_YOU).is_ok());
        }
        lines.push(line);
    }
    say(&format!("passed {passed} to {}", names.len()));
    let _ = commands.recv_timeout(LONGEST);
}

/// The same to the thread that answers inspection.
fn pass_to_inspection(pid: &str, commands: &Receiver<String>) {
    let table = std::fs::read_to_string("/proc/net/unix").expect("everybody may read it");
    let prefix = format!("nonic/3/inspect/{pid}/");
    let mut names = table
        .lines()
        .filter_map(|line| line.split_once('@').map(|(_, name)| name));
    let name = names.find(|name| name.starts_with(&prefix)).expect("it answers");
    let mut lingering = Lingering::new();
    let mut passed = 0;
    for _ in 0..LINES {
        let line = UnixStream::from(
            rustix::net::socket(rustix::net::AddressFamily::UNIX, SocketType::STREAM, None)
                .expect("a socket"),
        );
        if rustix::net::connect(&line, &unix_name(name)).is_ok() {
            passed += usize::from(lingering.attach(&line.into(), b"x").is_ok());
        }
    }
    say(&format!("passed {passed}"));
    let _ = commands.recv_timeout(LONGEST);
}

/// Something that a terminal would obey, as it stands in a record.
const OBEYED: &str = "%1b]0;owned%07%1b[31mred%0anonic_evil%201%0a%0d\u{9b}31m";
/// Bytes that one fake process says.
const MUCH: usize = 63 << 20;

/// So many names of processes that can be looked into, and what is behind each of them. Says how many were asked.
fn fake_processes(kind: &str, count: usize, commands: &Receiver<String>) {
    raise_limit();
    let mut listeners = Vec::new();
    for number in 1..=count {
        let name = format!("nonic/3/inspect/{}/{number:016x}", 1_000_000 + number);
        listeners.push(listen(&name, SocketType::STREAM).expect("it is free"));
    }
    say(&format!("fakes {}", listeners.len()));
    let mut asked: Vec<UnixStream> = Vec::new();
    let kind = kind.to_owned();
    let step = |asked: &mut Vec<UnixStream>| {
        for listener in &listeners {
            let Ok(line) = rustix::net::accept(listener) else {
                continue;
            };
            let line = UnixStream::from(line);
            asked.push(line.try_clone().expect("a descriptor"));
            let kind = kind.clone();
            std::thread::spawn(move || drop(answer(line, &kind)));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    until_told(&mut asked, commands, step, |asked, _| {
        say(&format!("{} asked", asked.len()));
    });
}

fn answer(mut line: UnixStream, kind: &str) -> std::io::Result<()> {
    let mut request = [0; 128];
    let length = line.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    match kind {
        "inject" => {
            let text = injection(request.trim_end());
            line.write_all(text.as_bytes())
        }
        "talk" => {
            line.write_all(b"nonic-inspect/1\nprocess pid=1 command=\"x\"\n")?;
            let wide = format!("qp device=\"{}\" qpn=1\n", "x".repeat(60_000));
            line.write_all(wide.as_bytes())?;
            let lines = "qp device=\"x\" qpn=1 a=2\n".repeat(4000);
            let mut written = 0;
            while written < MUCH {
                line.write_all(lines.as_bytes())?;
                written += lines.len();
            }
            line.write_all(b"end\n")
        }
        "pass" => {
            let mut lingering = Lingering::new();
            lingering.attach(&line.into(), b"nonic-inspect/1\n")?;
            std::thread::sleep(LINGER);
            Ok(())
        }
        // Silent.
        _ => {
            let began = Instant::now();
            while began.elapsed() < LONGEST && line.read(&mut [0; 128])? > 0 {}
            Ok(())
        }
    }
}

/// An answer in which every text is meant for a terminal.
fn injection(request: &str) -> String {
    let records = match request.rsplit(' ').next() {
        Some("device") => format!(
            "device device=\"{OBEYED}\" netdev=\"{OBEYED}\" wire=\"{OBEYED}\" addresses=\"{OBEYED}\" queue_pairs=1\n\
             counters device=\"{OBEYED}\" timeouts=5\n"
        ),
        Some("qp") => {
            format!("qp device=\"{OBEYED}\" qpn=1 state=\"{OBEYED}\" road=\"{OBEYED}\" peer=\"{OBEYED}\"\n")
        }
        _ => format!("refused reason=\"{OBEYED}\"\n"),
    };
    format!("nonic-inspect/1\nprocess pid=1 command=\"{OBEYED}\"\n{records}end\n")
}
