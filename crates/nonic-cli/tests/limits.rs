//! What a process may have is little: everything works that does not need more, and nothing ends the process.

use crate::support::{Place, is_root, missing};
use std::process::{Command, Stdio};

/// Runs a transfer on one host behind a line of shell.
fn transfer_after(shell: &str) -> std::process::Output {
    let nonic = Place::here().command(&[
        "perf",
        "--loopback",
        "--verify",
        "--op",
        "write",
        "--size",
        "10001",
        "--duration",
        "100ms",
    ]);
    let words = std::iter::once(nonic.get_program()).chain(nonic.get_args());
    Command::new("sh")
        .args(["-c", &format!("{shell} && exec \"$@\""), "sh"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("a shell")
}

/// Fails if the length of shared memory is set without a look at the limit: the kernel takes it for a file, and ends the process
/// (SIGXFSZ).
#[test]
fn a_limit_on_the_length_of_files_leaves_packets() {
    let outcome = transfer_after("ulimit -f 8");
    let complaint = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{} {complaint}", outcome.status);
}

/// Shared memory is no file of `/dev/shm`, whatever that is called.
#[test]
fn a_full_dev_shm_is_nothing_to_us() {
    if missing((!is_root()).then(|| "only root can mount".to_owned())) {
        return;
    }
    let fill = "unshare --mount sh -c 'mount -t tmpfs -o size=4k none /dev/shm && head -c 8192 /dev/zero > /dev/shm/full; exec \"$@\"' sh";
    let outcome = transfer_after(&format!("true && set -- {fill} \"$@\""));
    let complaint = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{} {complaint}", outcome.status);
}
