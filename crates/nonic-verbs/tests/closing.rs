//! Programs that close descriptors they did not open; see `c/closing.c`.

use crate::support::{HEADER, Library, missing, succeeded};

/// Runs the program in a folder of its own.
fn run(how: &str) {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("closing", &["-libverbs"]);
    let mut command = library.command(program);
    let output = command.arg(how).current_dir(library.folder()).output();
    succeeded(&output.expect("it starts"), how);
}

#[test]
fn a_daemon_that_closes_what_there_might_be_keeps_its_nic() {
    run("high");
}

#[test]
fn where_no_number_is_high_enough_the_loss_is_reported_and_the_programs_files_are_left_alone() {
    run("low");
}

#[test]
fn closing_everything_is_reported() {
    run("range");
}

#[test]
fn a_program_that_only_polls_is_told_too() {
    run("idle");
}

#[test]
fn putting_something_else_in_their_place_is_reported() {
    run("replaced");
}

#[test]
fn too_few_descriptors_are_called_that() {
    run("few");
}
