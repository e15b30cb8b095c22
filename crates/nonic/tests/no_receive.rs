//! A message that the peer has no receive for waits for ever by default. The log says why.

use crate::bench::Ends;
use std::process::Command;
use std::time::Duration;

/// Several times the interval after which the log says so.
const LONG: Duration = Duration::from_secs(5);

#[test]
#[ignore = "a child process of the other test"]
fn sends_to_somebody_without_a_receive() {
    let Ends {
        client,
        server: _server,
        ..
    } = Ends::new("roce_lo");
    let sent = client.send_bytes(b"hello").wait_within(LONG);
    drop(sent.expect_err("it is under way still"));
}

#[test]
fn one_that_waits_for_ever_for_a_receive_is_told_of() {
    let mut child = Command::new(std::env::current_exe().expect("this program has a name"));
    child.args([
        "--ignored",
        "--exact",
        "no_receive::sends_to_somebody_without_a_receive",
        "--nocapture",
    ]);
    let output = child.env("NONIC_LOG", "warn").output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("warn qp: queue pair 0x"), "{told}");
    assert!(told.contains("the peer has had no receive 64 times"), "{told}");
    assert!(told.contains("post a receive for each message"), "{told}");
    // Not with every attempt.
    assert!(told.lines().count() < 10, "{told}");
}
