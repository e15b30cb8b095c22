//! Many threads on one device; see `c/threads.c`.

use crate::support::{HEADER, Library, missing, succeeded};

#[test]
fn many_threads_post_and_poll_at_once_and_nothing_is_lost_or_doubled() {
    if missing(HEADER) {
        return;
    }
    // A soak asks for more: `NONIC_TEST_STRESS_SECONDS=60 cargo test --test threads`.
    let seconds = std::env::var("NONIC_TEST_STRESS_SECONDS").unwrap_or_else(|_| "2".into());
    let library = Library::build();
    let program = library.compile("threads", &["-libverbs"]);
    let output = library.command(program).arg(seconds).output().expect("it starts");
    let printed = succeeded(&output, "the program");
    let messages: u64 = printed
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .expect("it says how many");
    assert!(messages > 0, "nothing arrived");
}
