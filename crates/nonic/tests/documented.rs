//! Every public type of the crates that Rust programs use shows in its documentation how it is used, by an example that runs.
//!
//! What is looked at is the source as rustfmt leaves it: a public type begins at the first column, and an empty line is before its
//! documentation. Types that are public by a path of re-exports only are found where they are defined.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates, and the folders of theirs that are for others than their users.
const CRATES: [(&str, &[&str]); 3] = [
    ("nonic", &[]),
    // The machine without I/O, for the simulator: docs/messages.md shows how it is used.
    ("nonic-message", &["protocol"]),
    ("nonic-stream", &[]),
];

/// Types that programs do not name.
const UNNAMED: [&str; 2] = [
    // What `Buffers::into_iter` answers.
    "IntoIter", // What `background::sleep_until` answers, for our own crates.
    "Sleep",
];

fn sources(folder: &Path, not: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            if !not.iter().any(|name| path.ends_with(name)) {
                sources(&path, not, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The name of the public type that a line begins to define.
fn public_type(line: &str) -> Option<&str> {
    let rest = ["struct ", "enum ", "union ", "trait ", "type "]
        .iter()
        .find_map(|kind| line.strip_prefix("pub ")?.strip_prefix(kind))?;
    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next()
}

/// Whether the documentation has an example that is at least compiled.
fn has_example(documentation: &[&str]) -> bool {
    let fences = documentation
        .iter()
        .filter_map(|line| line.strip_prefix("/// ```"));
    // Every other one closes a block.
    let mut blocks = fences.step_by(2);
    blocks.any(|language| !["text", "ignore", "console", "c"].contains(&language))
}

/// The public types of a file that have no example.
fn without_example(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = public_type(line) else { continue };
        let begin = lines[..index].iter().rposition(|line| line.is_empty());
        if !has_example(&lines[begin.map_or(0, |empty| empty + 1)..index]) && !UNNAMED.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[test]
fn every_public_type_has_an_example() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates");
    let mut missing = Vec::new();
    let mut seen = 0;
    for (name, not) in CRATES {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), not, &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("text");
            seen += text.lines().filter_map(public_type).count();
            let found = without_example(&text).into_iter();
            missing.extend(found.map(|name| format!("{name} ({})", file.display())));
        }
    }
    assert!(
        seen > 80,
        "only {seen} types found: the sources look different now"
    );
    assert!(
        missing.is_empty(),
        "write an example into the documentation of each of:\n{}",
        missing.join("\n")
    );
}

#[test]
fn a_type_without_an_example_is_found() {
    let text = "\
use a::B;

/// Has one.
///
/// ```
/// let a = 1;
/// ```
#[derive(Debug)]
pub struct With(u8);

/// Has none.
#[derive(
    Debug,
)]
pub enum Without<T> {}

/// Has a picture.
///
/// ```text
/// +---+
/// ```
pub trait Drawn: Send {}

/// Not for others.
pub(crate) struct Inner;
";
    assert_eq!(without_example(text), ["Without", "Drawn"]);
}
