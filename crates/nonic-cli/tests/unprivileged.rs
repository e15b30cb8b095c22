//! No root: the same as every user, run as the user nobody.

use crate::support::matrix;
use crate::support::{Place, Server, has_program, is_root, missing, readable_copy};

#[test]
fn an_unprivileged_user_can_do_everything() {
    if missing(unavailable()) {
        return;
    }
    let (_directory, program) = readable_copy();
    let nobody = Place::here().run_by_nobody(program);
    let server = Server::start(&nobody, "perf", "127.0.0.1:0", &[]);
    assert_eq!(user_of(server.process.pid()), Some(65534));
    matrix::everything(&nobody, &server);
}

#[test]
fn processes_of_different_users_share_an_address() {
    if missing(unavailable()) {
        return;
    }
    let (_directory, program) = readable_copy();
    let nobody = Place::here().run_by_nobody(program);
    let server = Server::start(&nobody, "perf", "127.0.0.1:0", &[]);
    for (service, op) in [("rc", "write"), ("rc", "send"), ("ud", "send")] {
        matrix::bandwidth(&Place::here(), &server.address, service, op, "500");
    }
}

/// Only root can become another user. A run as another user already has the other tests.
fn unavailable() -> Option<String> {
    if !is_root() {
        return Some("only root can become the user nobody (the loopback tests run unprivileged)".to_owned());
    }
    (!has_program("setpriv", "--version")).then(|| "util-linux (`setpriv`) is not installed".to_owned())
}

fn user_of(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}
