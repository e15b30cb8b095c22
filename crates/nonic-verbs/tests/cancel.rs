//! Threads that are cancelled inside verbs; see `c/cancel.c`.

use crate::support::{HEADER, Library, cancellation, link, missing, succeeded};

#[test]
fn a_thread_can_be_cancelled_in_any_verb_and_nothing_is_lost() {
    if missing(HEADER) {
        return;
    }
    // By hand: `NONIC_TEST_CANCELS=10000 cargo nextest run -p nonic-verbs cancel::`.
    let count = std::env::var("NONIC_TEST_CANCELS").unwrap_or_else(|_| "1000".into());
    let library = Library::build();
    let program = library.compile("cancel", &["-libverbs"]);
    let output = library.command(program).arg(&count).output().expect("it starts");
    let printed = succeeded(&output, "the program");
    assert!(printed.starts_with(&format!("{count} cancelled")), "{printed}");
}

#[test]
fn nothing_the_library_calls_ends_a_thread_but_where_it_waits() {
    let library = Library::build();
    let found = cancellation::unguarded(&library.path(), &link::CANCELLATION_POINTS);
    // `nonic_abi::cancel` waits there.
    assert_eq!(found, ["__poll"]);
}
