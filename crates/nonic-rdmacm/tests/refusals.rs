//! Every refused call is logged, with the argument at fault and the next step (`NONIC_LOG=warn`).
//!
//! As in `nonic-verbs`: the sources are searched for errnos that bypass the one place that logs, and a C program
//! (`c/refusals.c`) has each function refuse something.

use crate::refusal_sources::{self, Permitted};
use crate::support::{Libraries, missing, succeeded};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What need not be told.
const PERMITTED: &[Permitted] = &[
    (
        "channel.rs",
        "true => Err(expected(libc::EAGAIN))",
        "the program made the descriptor non-blocking",
    ),
    ("device.rs", "errno.number()", "becomes the number of a refusal"),
    (
        "event.rs",
        "-libc::ECONNREFUSED",
        "the status of an event, which the log tells as a rejection",
    ),
    (
        "multicast.rs",
        "-errno.number()",
        "the status of an event; ibv_attach_mcast has told why",
    ),
    (
        "port.rs",
        "errno::last() == libc::EADDRINUSE",
        "becomes a refusal in the same line",
    ),
    (
        "refusal.rs",
        "libc::",
        "the numbers of the connection manager, with what is told of each",
    ),
    (
        "rsocket/completions.rs",
        "None => libc::EOPNOTSUPP",
        "becomes whether the queue is armed",
    ),
    (
        "rsocket/connecting.rs",
        "libc::ECONNREFUSED",
        "kept until a call asks, which then tells",
    ),
    (
        "rsocket/connecting.rs",
        "libc::EPROTO",
        "kept until a call asks, which then tells",
    ),
    (
        "rsocket/connecting.rs",
        "libc::ECONNRESET",
        "kept until a call asks, which then tells",
    ),
    (
        "rsocket/datagram/port.rs",
        "expected(libc::EAGAIN)",
        "all buffers are on their way",
    ),
    (
        "rsocket/service.rs",
        "errno: libc::ECONNREFUSED",
        "kept until a call asks, which then tells",
    ),
    (
        "rsocket/stream.rs",
        "expected(libc::EAGAIN)",
        "the connection is being made, and the socket does not block",
    ),
    ("rsocket/stream.rs", "expected(libc::EALREADY)", "the same"),
    ("rsocket/stream.rs", "expected(libc::EINPROGRESS)", "the same"),
    (
        "rsocket/wait.rs",
        "expected(libc::EAGAIN)",
        "the socket does not block, or its timeout is over",
    ),
    (
        "rsocket/waker.rs",
        "let failure = errno::last();",
        "becomes a refusal below",
    ),
];

/// Functions that refuse and that the C program does not call.
const UNPROVOKED: [(&str, &str); 3] = [
    (
        "rdma_create_event_channel",
        "only a process without descriptors is refused",
    ),
    (
        "rdma_get_devices",
        "only a system without netlink or memory refuses",
    ),
    ("rpoll", "as poll: only the kernel refuses"),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn no_errno_goes_past_the_place_that_tells() {
    let complaints = refusal_sources::complaints(&sources(), PERMITTED);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_function_that_refuses_says_why_and_what_to_do() {
    if missing("/usr/include/rdma/rdma_cma.h") || missing("/usr/include/rdma/rsocket.h") {
        return;
    }
    let libraries = Libraries::build();
    let program = libraries.compile("refusals", &["-lrdmacm", "-libverbs"]);
    let mut command = libraries.command(program.to_str().expect("a name"));
    let output = command.env("NONIC_LOG", "warn").output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    succeeded(&output, "refusals");
    let mut cases = refusal_sources::cases(&stderr);
    assert_eq!(cases.pop().expect("the end").0, "end");
    let complaints: Vec<String> = cases.iter().filter_map(refusal_sources::complaint).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));

    let provoked: BTreeSet<String> = cases.into_iter().map(|(function, ..)| function).collect();
    let mut missing = refusal_sources::refusing_functions(&sources());
    missing.retain(|function| !provoked.contains(function));
    for (function, _) in UNPROVOKED {
        assert!(
            missing.remove(function),
            "{function} is called after all, or does not refuse"
        );
    }
    assert!(missing.is_empty(), "c/refusals.c has no refusal of {missing:?}");
}
