//! What a program gets for its mistakes; see `c/misuse.c`.

use crate::support::{HEADER, Library, missing, succeeded};

#[test]
fn every_mistake_is_answered_as_documented() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("misuse", &["-libverbs"]);
    let output = library.command(program).output().expect("it starts");
    let printed = succeeded(&output, "the program");
    assert!(printed.starts_with("0 of "), "{printed}");
}
