//! Every refused call is logged, with the argument at fault and the next step (`NONIC_LOG=warn`).
//!
//! Two halves. The sources are searched for errnos that bypass the one place that logs (`support/refusal_sources.rs`).
//! A C program (`c/refusals.c`) then has each function refuse something, and the log must say what.

use crate::refusal_sources::{self, Permitted};
use crate::support::{HEADER, Library, missing, succeeded};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What need not be told.
const PERMITTED: &[Permitted] = &[
    ("cm.rs", "", "librdmacm.so.1 calls these, and tells"),
    (
        "errors.rs",
        "",
        "the numbers of what the engine and the core refuse, with their reasons; a full queue is told at debug",
    ),
    (
        "extended/calls.rs",
        "return Err(expected(libc::ENOMEM))",
        "a full queue is how programs find out when to poll",
    ),
    (
        "extended/readers.rs",
        "libc::ENOENT",
        "the queue is empty: what polling answers most of the time",
    ),
    (
        "memory/region.rs",
        "Err(libc::ENOMEM | libc::EINVAL | libc::EFAULT)",
        "answers of madvise, which become a refusal here",
    ),
    (
        "memory/region.rs",
        "_ => Err(errno::last())",
        "the same, one function below",
    ),
    (
        "query.rs",
        "expected(libc::ENODATA)",
        "an empty entry of the table, which programs look for in a loop",
    ),
];

/// The same in what both libraries wait with (`nonic-abi/src/cancel`).
const PERMITTED_IN_WAITS: &[Permitted] = &[
    (
        "descriptors.rs",
        "true => Err(expected(libc::EAGAIN))",
        "the program made the descriptor non-blocking",
    ),
    (
        "descriptors.rs",
        "_ => Err(errno::last())",
        "a signal ended the wait",
    ),
    (
        "event_count.rs",
        "_ => match errno::last() {",
        "a signal ended the wait",
    ),
    (
        "event_count.rs",
        "libc::EAGAIN => Ok(())",
        "what was waited for has happened",
    ),
    ("event_count.rs", ".map_err(expected)", "a signal ended the wait"),
    ("mod.rs", "return errno::fail(errno);", "a signal ended the wait"),
];

/// Functions that refuse and that the C program does not call.
const UNPROVOKED: [(&str, &str); 4] = [
    (
        "ibv_get_device_list",
        "only a system without netlink or memory refuses",
    ),
    (
        "ibv_alloc_buf",
        "not in the headers; the same pointers as ibv_alloc_pd",
    ),
    (
        "ibv_export_buf_dmabuf_fd",
        "not in the headers; a unit test of memory/buffer.rs calls it",
    ),
    (
        "ibv_reg_buf_mr",
        "not in the headers; the same pointers as ibv_reg_mr",
    ),
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
fn no_wait_that_may_be_cancelled_refuses_anything_untold() {
    let waits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nonic-abi/src/cancel");
    let complaints = refusal_sources::complaints(&waits, PERMITTED_IN_WAITS);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_function_that_refuses_says_why_and_what_to_do() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("refusals", &["-libverbs"]);
    let mut command = library.command(program);
    let output = command.env("NONIC_LOG", "warn").output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    succeeded(&output, "refusals");
    let mut cases = refusal_sources::cases(&stderr);
    let end = cases.pop().expect("the end");
    assert!(
        end.0 == "end" && end.2.is_empty(),
        "nothing is refused at the end: {end:?}"
    );
    let (again, _, said) = cases.pop().expect("the repeated one");
    assert_eq!(again, "again");
    // Once, and again after each second that it took.
    assert!(
        (1..20).contains(&said.len()),
        "1000 refusals are {} lines",
        said.len()
    );
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

#[test]
fn without_a_log_nothing_is_said() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("refusals", &["-libverbs"]);
    let output = library.command(program).output().expect("it starts");
    succeeded(&output, "refusals");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.lines().all(|line| line.starts_with("case ")), "{stderr}");
}
