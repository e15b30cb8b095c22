//! Memory that is taken away under a registration; see `c/vanishing.c`.

use crate::support::{HEADER, Library, missing, succeeded};

/// Runs each case twice: served by the background thread, and by the program's own.
fn lives(cases: &[&str]) {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("vanishing", &["-libverbs"]);
    let mut failed = Vec::new();
    for case in cases {
        for who in ["background", "program"] {
            let output = library
                .command(&program)
                .args([case, who])
                .output()
                .expect("it starts");
            if !output.status.success() {
                failed.push(format!(
                    "{case} {who}: {} {}",
                    output.status,
                    String::from_utf8_lossy(&output.stderr)
                ));
                continue;
            }
            let printed = succeeded(&output, case);
            assert!(printed.ends_with("alive\n"), "{case} {who}: {printed}");
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_request_for_memory_that_is_gone_is_an_error_completion() {
    lives(&[
        "munmap_write",
        "munmap_read",
        "munmap_local",
        "munmap_atomic",
        "munmap_part",
        "mprotect_ro",
        "mprotect_none",
        "free_recv",
        "small_write",
        "trunc_file",
    ]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn faults_of_the_program_go_where_they_would_go_without_us() {
    lives(&["handler_before", "handler_after", "no_handler", "ignored"]);
}
