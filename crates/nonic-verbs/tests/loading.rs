//! Ways a program comes to our library without knowing of it.

use crate::support::{HEADER, Library, missing, succeeded};

#[test]
fn a_program_started_with_nothing_but_a_library_path_runs() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("never_heard_of_us", &["-libverbs"]);
    let output = library.command(program).output().expect("it starts");
    assert_eq!(succeeded(&output, "the program"), "arrived\n");
}

#[test]
fn a_preloaded_library_serves_as_well() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("never_heard_of_us", &["-libverbs"]);
    let output = std::process::Command::new(program)
        .env("LD_PRELOAD", library.path())
        .env("NONIC_LOOPBACK", "only")
        .output()
        .expect("it starts");
    assert_eq!(succeeded(&output, "the program"), "arrived\n");
}

#[test]
fn a_program_that_opens_the_library_and_asks_for_versions_runs() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("opened_by_name", &["-ldl"]);
    let output = library.command(program).output().expect("it starts");
    let printed = succeeded(&output, "the program");
    assert!(printed.contains("roce_lo: "), "{printed}");
}
