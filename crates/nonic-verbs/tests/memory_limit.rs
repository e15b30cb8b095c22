//! A program that may have no more memory is refused objects, and lives; see `c/memory_limit.c`.

use crate::support::{HEADER, Library, missing, succeeded};

/// Fails without `nonic_core::room`: the process is ended where the first allocation fails.
#[test]
fn objects_without_memory_are_refused() {
    if missing(HEADER) {
        return;
    }
    let library = Library::build();
    let program = library.compile("memory_limit", &["-libverbs"]);
    // Completion queues ("cq") are not among them yet: what one takes is not all given back at once when it is destroyed.
    for kind in ["mr", "mw", "pd", "srq", "ah", "qp"] {
        let output = library.command(&program).arg(kind).output().expect("it starts");
        let printed = succeeded(&output, kind);
        assert!(printed.ends_with("alive\n"), "{kind}: {printed}");
        println!("{kind}: {printed}");
    }
}
