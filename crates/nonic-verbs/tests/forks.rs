//! Programs that fork; see `c/forks.c`.

mod support;

use support::{HEADER, Library, missing, succeeded};

#[test]
fn a_child_lets_go_of_what_it_inherited_and_opens_its_own() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("forks", &["-libverbs"]);
    let output = library.command(program).output().expect("it starts");
    assert_eq!(succeeded(&output, "the program"), "both live\n");
}
