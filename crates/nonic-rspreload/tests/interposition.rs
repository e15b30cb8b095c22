//! The preload library alone: does a program notice it, are its sockets carried, and do they come back to TCP?
//!
//! Behind it is no RDMA but `c/fake_rdmacm.c`, whose rsockets are TCP sockets 10000 ports further up.

use crate::support::{Installed, plain, port, succeeded};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SHIFT: u16 = 10_000;

#[test]
fn a_program_does_not_notice() {
    let installed = Installed::with_fake();
    let program = installed.program("sockets");
    let port = port(0).to_string();
    let run = |mut command: Command, address: &str| {
        let output = command.args([address, &port]).output().expect("it starts");
        succeeded(&output, address)
    };
    let expected = run(plain(&program), "127.0.0.1");
    assert!(expected.lines().count() > 10, "{expected}");
    for address in ["127.0.0.1", "::1"] {
        assert_eq!(run(installed.command(&program), address), expected);
    }
}

/// A server that has said that it listens.
fn serving(mut command: Command, port: u16) -> Child {
    command.args(["serve", "127.0.0.1", &port.to_string()]);
    started(command)
}

/// The same of a command that has its arguments.
fn started(mut command: Command) -> Child {
    let mut server = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = server.stdout.as_mut().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it can be read");
    assert_eq!(line, "listening\n");
    server
}

/// Says something to a server there and compares the answer; the server ends.
fn converse(mut server: Child, port: u16) {
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    client.write_all(b"over there").expect("it takes some bytes");
    client.shutdown(Shutdown::Write).expect("it is connected");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it answers");
    assert_eq!(answer, "over there");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn a_server_is_carried() {
    let installed = Installed::with_fake();
    let program = installed.program("talk");
    let port = port(1);
    let server = serving(installed.command(program), port);
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "it listens for TCP"
    );
    converse(server, port + SHIFT);
}

#[test]
fn sockets_that_the_library_opens_for_itself_are_not_carried() {
    let installed = Installed::with_fake();
    let mut command = installed.command(installed.program("talk"));
    let port = port(7);
    command.args(["serve", "127.0.0.1", &port.to_string(), "library"]);
    converse(started(command), port);
}

#[test]
fn without_a_library_behind_it_nothing_is_carried() {
    let installed = Installed::alone();
    let program = installed.program("talk");
    let port = port(2);
    let behind = installed
        .library()
        .parent()
        .and_then(Path::parent)
        .map(|folder| folder.join("librdmacm.so.1"));
    // Not a library. Without it, one of the system's might be found.
    std::fs::write(behind.expect("it has a folder"), "").expect("a file can be written");
    converse(serving(installed.command(program), port), port);
}

#[test]
fn the_configuration_says_who_is_carried() {
    let installed = Installed::with_fake();
    let program = installed.program("talk");
    let cases = [
        ("# talk to me\nother INET STREAM TCP\n", 0),
        ("talk INET6 * *\n* * DGRAM *\n", 0),
        ("TAL AF_INET SOCK_STREAM *\n", SHIFT),
    ];
    for (which, (text, shift)) in (3..).zip(cases) {
        let port = port(which);
        let mut command = installed.command(&program);
        command.env("NONIC_PRELOAD_CONFIG", rules(&installed, text));
        converse(serving(command, port), port + shift);
    }
}

fn rules(installed: &Installed, text: &str) -> std::path::PathBuf {
    let file = installed.library().with_file_name("preload_config");
    std::fs::write(&file, text).expect("a file can be written");
    file
}

/// Answers one conversation on a plain port, as a server that has never heard of RDMA.
fn echo(listener: &TcpListener) {
    let (mut client, _) = listener.accept().expect("somebody connects");
    let mut bytes = [0; 100];
    let count = client.read(&mut bytes).expect("it says something");
    client.write_all(&bytes[..count]).expect("it listens");
}

fn ask(installed: &Installed, program: &Path, port: u16, how: &str) -> Command {
    let mut command = installed.command(program);
    command.args(["ask", "127.0.0.1", &port.to_string(), how, "anybody?"]);
    command
}

#[test]
fn where_rdma_does_not_reach_tcp_does() {
    let installed = Installed::with_fake();
    let program = installed.program("talk");
    let listener = TcpListener::bind(("127.0.0.1", port(6))).expect("the port is free");
    for how in ["blocking", "patient"] {
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&listener));
            let output = ask(&installed, &program, port(6), how).output();
            assert_eq!(succeeded(&output.expect("it starts"), how), "anybody?\n");
        });
        let mut strict = ask(&installed, &program, port(6), how);
        let output = strict
            .env("NONIC_SOCKETS", "rdma-only")
            .output()
            .expect("it starts");
        assert!(!output.status.success(), "it fell back");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains("Connection refused"), "{complaint}");
    }
}
