//! The C programs of `examples/c`, compiled as their first lines say and run between two processes.

use crate::support::{Libraries, missing, succeeded};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Compiles an example into the folder of the libraries.
fn compile(libraries: &Libraries, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/c")
        .join(name)
        .with_extension("c");
    let program = libraries.rdmacm().with_file_name(name);
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .args(["-lrdmacm", "-libverbs"])
        .output()
        .expect("cc runs");
    succeeded(&output, name);
    program
}

/// A server that listens, and its port.
fn serving(libraries: &Libraries, program: &Path, address: &str) -> (Child, String) {
    let mut server = libraries
        .command(&program.to_string_lossy())
        .args([address, "0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    let output = server.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it can be read");
    let port = line
        .trim()
        .strip_prefix("listening on port ")
        .expect("it says where");
    (server, port.to_owned())
}

fn ask(libraries: &Libraries, program: &Path, arguments: &[&str]) -> Output {
    let mut command = libraries.command(&program.to_string_lossy());
    command.args(arguments).output().expect("the client starts")
}

#[test]
fn server_and_client_step_by_step() {
    if missing("/usr/include/rdma/rdma_cma.h") {
        return;
    }
    let libraries = Libraries::build();
    let (server, client) = (compile(&libraries, "server"), compile(&libraries, "client"));
    for address in ["127.0.0.1", "::1"] {
        let (mut running, port) = serving(&libraries, &server, address);
        let rude = ask(&libraries, &client, &[address, &port, "hello", "hey"]);
        assert_eq!(rude.status.code(), Some(2), "{rude:?}");
        let said = String::from_utf8_lossy(&rude.stderr);
        assert_eq!(said, "rejected, reason 28: greet properly\n");

        let polite = ask(&libraries, &client, &[address, &port, "hello"]);
        let heard = succeeded(&polite, "the client");
        assert_eq!(heard, "connected: at your service\nhello\n");
        assert!(running.wait().expect("the server ends").success());

        let late = ask(&libraries, &client, &[address, &port, "hello"]);
        assert_eq!(late.status.code(), Some(2), "{late:?}");
        let said = String::from_utf8_lossy(&late.stderr);
        assert_eq!(said, "rejected, reason 8: nobody listens\n");
    }
}
