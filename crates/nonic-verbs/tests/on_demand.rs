//! Memory that comes and goes under a registration; see `c/on_demand.c`.

use crate::support::{HEADER, Library, missing, succeeded};

#[test]
fn an_access_to_memory_that_is_not_there_is_an_error_completion() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("on_demand", &["-libverbs"]);
    let output = library.command(program).output().expect("it starts");
    assert_eq!(succeeded(&output, "the program"), "alive\n");
}
