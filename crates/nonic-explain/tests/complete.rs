//! Every error of a call has its next step.
//!
//! The core may add errors (`#[non_exhaustive]`), so the compiler asks for an arm for all others. This reads the sources
//! instead, and finds an error that has no arm of its own.

use std::path::Path;

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the variants of an enumeration, formatted as rustfmt does.
fn variants(source: &str, name: &str) -> Vec<String> {
    let begin = format!("pub enum {name} {{");
    let lines = source.lines().skip_while(|line| *line != begin).skip(1);
    let inside = lines.take_while(|line| *line != "}");
    let named = inside.filter_map(|line| line.strip_prefix("    "));
    let capital = |line: &&str| line.starts_with(|letter: char| letter.is_ascii_uppercase());
    let word = |line: &str| line.chars().take_while(char::is_ascii_alphanumeric).collect();
    named.filter(capital).map(word).collect()
}

#[test]
fn every_error_of_a_call_is_explained_by_an_arm_of_its_own() {
    let explained = source("nonic-explain/src/explanation/calls.rs");
    for (path, name, known) in [
        ("nonic-core/src/queue_pair/post.rs", "PostError", "SendQueueFull"),
        ("nonic-core/src/nic/config.rs", "CreateError", "NoQpn"),
    ] {
        let variants = variants(&source(path), name);
        assert!(variants.iter().any(|variant| variant == known), "{variants:?}");
        for variant in variants {
            let arm = format!("{name}::{variant}");
            let is_arm = |rest: &str| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric());
            let found = explained.split(&arm).skip(1).any(is_arm);
            assert!(found, "{arm} has no next step");
        }
    }
}
