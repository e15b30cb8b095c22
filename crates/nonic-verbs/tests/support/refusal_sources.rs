//! Reads the sources of a C library of nonic and finds errnos that reach a program without a line in the log.
//!
//! An `Errno` inside a library carries its reason and is turned into an answer in one place (`nonic_abi::errno::Answers`). What can go
//! another way is a bare number, or an `Errno` that says nothing: each such place is in a list of the test, with the reason for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A place that may go another way: the file, the line as it stands there, and why.
pub(crate) type Permitted = (&'static str, &'static str, &'static str);

/// What leads past the one place.
const BYPASSES: [&str; 7] = [
    "expected(libc::",
    ".map_err(expected)",
    "errno::set(",
    "errno::fail(",
    "_for_library(",
    "errno.number()",
    "errno::last()",
];

/// What a number may be given to: it says why.
const TELLING: [&str; 4] = [
    "refused(libc::E",
    "explained(libc::E",
    "not_connected(libc::E",
    ".is(libc::E",
];

/// The lines that bypass the one place and are not permitted, and permitted ones that are not there any more.
pub(crate) fn complaints(sources: &Path, permitted: &[Permitted]) -> Vec<String> {
    let mut unused: BTreeSet<(&str, &str)> = permitted.iter().map(|(file, line, _)| (*file, *line)).collect();
    let mut complaints = Vec::new();
    for path in rust_files(sources) {
        let name = path
            .strip_prefix(sources)
            .expect("it is below")
            .display()
            .to_string();
        for line in statements(&fs::read_to_string(&path).expect("it can be read")) {
            if !is_suspect(&line) {
                continue;
            }
            match permitted
                .iter()
                .find(|(file, text, _)| *file == name && line.contains(text))
            {
                Some((file, text, _)) => drop(unused.remove(&(*file, *text))),
                None => complaints.push(format!("{name}: {line}")),
            }
        }
    }
    complaints.extend(
        unused
            .iter()
            .map(|(file, line)| format!("permitted and not there: {file}: {line}")),
    );
    complaints
}

/// The names of functions that are handed to the one place.
pub(crate) fn refusing_functions(sources: &Path) -> BTreeSet<String> {
    const METHODS: [&str; 6] = [
        ".code(",
        ".pointer(",
        ".minus_one(",
        ".or_minus_one(",
        ".negative(",
        ".tell(",
    ];
    const HELPERS: [&str; 3] = ["number(", "report(", "Step::of(&ANSWER, "];
    let mut found = BTreeSet::new();
    for path in rust_files(sources) {
        let text = fs::read_to_string(&path).expect("it can be read");
        for line in statements(&text) {
            let methods = METHODS.iter().map(|method| format!("ANSWER{method}\""));
            for call in methods.chain(HELPERS.iter().map(|helper| format!("{helper}\""))) {
                let names = line.split(&call).skip(1);
                let names = names.filter_map(|rest| rest.split('"').next());
                // Settings have helpers of the same names.
                let is_function =
                    |name: &&str| ["ibv_", "_ibv_", "r"].iter().any(|begin| name.starts_with(begin));
                found.extend(names.filter(is_function).map(str::to_owned));
            }
        }
    }
    found
}

fn is_suspect(line: &str) -> bool {
    let bare = TELLING
        .iter()
        .fold(line.to_owned(), |line, telling| line.replace(telling, ""));
    let has_number = bare.match_indices("libc::E").any(|(at, _)| {
        let name: String = bare[at + "libc::".len()..]
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
            .collect();
        !name.contains('_')
            && name
                .chars()
                .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit())
    });
    has_number || BYPASSES.iter().any(|bypass| line.contains(bypass))
}

/// The lines of a file, with those that a call is spread over put together; without comments and tests.
fn statements(text: &str) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    for line in text
        .lines()
        .map(str::trim)
        .take_while(|line| *line != "#[cfg(test)]")
    {
        if line.starts_with("//") || line.is_empty() || line.starts_with("use ") {
            continue;
        }
        match statements.last_mut().filter(|last| last.ends_with('(')) {
            Some(last) => last.push_str(line),
            None => statements.push(line.to_owned()),
        }
    }
    statements
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
    {
        match entry.is_dir() {
            true => files.extend(rust_files(&entry)),
            false if entry.extension().is_some_and(|extension| extension == "rs") => files.push(entry),
            false => {}
        }
    }
    files.sort();
    files
}

/// What a program that is refused on purpose announced and what the log said after each.
pub(crate) fn cases(stderr: &str) -> Vec<(String, String, Vec<String>)> {
    let mut cases: Vec<(String, String, Vec<String>)> = Vec::new();
    for line in stderr.lines() {
        match line.strip_prefix("case ").and_then(|case| case.split_once('|')) {
            Some((function, words)) => cases.push((function.to_owned(), words.to_owned(), Vec::new())),
            None => {
                if let Some((_, _, said)) = cases.last_mut() {
                    said.push(line.to_owned());
                }
            }
        }
    }
    cases
}

/// What is wrong with what the log said of a case: it must name the function, the errno, what is at fault and a next step.
pub(crate) fn complaint((function, words, said): &(String, String, Vec<String>)) -> Option<String> {
    let begin = format!("warn verbs: {function} was refused with E");
    let is_told = |line: &String| line.contains(&begin) && line.contains(&**words) && line.contains(" Try: ");
    (!said.iter().any(is_told)).then(|| format!("{function}, {words}: {said:?}"))
}
