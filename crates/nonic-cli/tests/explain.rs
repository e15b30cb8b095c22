//! `nonic explain` knows what programs print: every text of the C libraries, every errno that they return, numbers, and whole lines.

use crate::support::{Place, run};
use nonic::explain::topics::{self, Kind, Topic, texts};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What is said, by people's and scripts' output.
fn explained(words: &[&str]) -> (String, Vec<String>) {
    let outcome = run(&Place::here(), &[&["explain"], words].concat());
    assert!(outcome.success, "{words:?}: {}", outcome.stderr);
    let found = run(&Place::here(), &[&["--json", "explain"], words].concat()).json();
    let found = found.as_array().expect("a list").iter();
    let names = found.map(|topic| topic["name"].as_str().expect("a name").to_owned());
    (outcome.stdout, names.collect())
}

#[test]
fn every_text_of_the_c_libraries_is_explained_unquoted() {
    for topic in topics::all() {
        let Some(text) = texts::of(topic) else { continue };
        let words: Vec<&str> = text.split(' ').collect();
        let (told, names) = explained(&words);
        assert!(names.iter().any(|name| name == topic.name), "{text}: {names:?}");
        assert!(told.contains(topic.meaning), "{text}: {told}");
    }
}

#[test]
fn lines_of_programs_are_explained_whole() {
    let pingpong = "Failed status transport retry counter exceeded (12) for wr_id 2";
    let perftest = "Completion with error at client: Failed status 12: wr_id 0 syndrom 0x81";
    for line in [pingpong, perftest] {
        assert_eq!(explained(&[line]).1, ["IBV_WC_RETRY_EXC_ERR"]);
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(explained(&words).1, ["IBV_WC_RETRY_EXC_ERR"]);
    }
    assert_eq!(
        explained(&["RNR", "RETRY", "counter"]).1,
        ["IBV_WC_RNR_RETRY_EXC_ERR"]
    );
}

#[test]
fn a_number_alone_is_told_to_be_ambiguous() {
    let (told, names) = explained(&["12"]);
    assert!(told.starts_with("12 may be any of these"), "{told}");
    for name in ["IBV_WC_RETRY_EXC_ERR", "ENOMEM"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    assert_eq!(explained(&["status", "12"]).1, ["IBV_WC_RETRY_EXC_ERR"]);
    assert_eq!(explained(&["errno", "12"]).1, ["ENOMEM"]);
    assert_eq!(explained(&["-12"]).1, ["ENOMEM"]);
}

/// The judges are the source of the libraries and the C library of this machine.
#[test]
fn every_errno_that_the_libraries_return_is_explained() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let libraries = [
        "nonic-abi",
        "nonic-verbs",
        "nonic-rdmacm",
        "nonic-rspreload",
        "nonic-files",
    ];
    let mut returned = BTreeSet::new();
    for library in libraries {
        collect_errnos(&crates.join(library).join("src"), &mut returned);
    }
    assert!(returned.len() > 20 && returned.contains("EINVAL"), "{returned:?}");
    for name in &returned {
        assert!(!topics::find(name).is_empty(), "{name} is not explained");
    }
    let with_number = |topic: &&Topic| topic.kind == Kind::Errno && topic.number.is_some();
    for topic in topics::all().filter(with_number) {
        let number = i32::try_from(topic.number.expect("filtered")).expect("small");
        let system = std::io::Error::from_raw_os_error(number).to_string();
        let text = texts::of(topic).expect("an errno has a text");
        assert_eq!(system, format!("{text} (os error {number})"), "{}", topic.name);
    }
}

/// The words behind `libc::` that are errnos.
fn collect_errnos(folder: &Path, found: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(folder).expect("the source is there");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    for path in paths {
        if path.is_dir() {
            collect_errnos(&path, found);
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("readable text");
        for rest in source.split("libc::E").skip(1) {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            let is_errno =
                !name.starts_with("POLL") && name.chars().all(|letter| letter.is_ascii_uppercase());
            if is_errno {
                found.insert(format!("E{name}"));
            }
        }
    }
}
