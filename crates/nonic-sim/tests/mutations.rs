//! The bugs on purpose keep up with the code: every patch still applies, and `MUTATIONS.md` lists them all. Whether they are found
//! takes longer to say: `cargo xtask mutants`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_patch_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut stale = Vec::new();
    for (name, patch) in patches() {
        let checked = Command::new("git")
            .args(["apply", "--check"])
            .arg(patch)
            .current_dir(&root)
            .output()
            .expect("git starts");
        if !checked.status.success() {
            stale.push(format!("{name}: {}", String::from_utf8_lossy(&checked.stderr)));
        }
    }
    assert!(stale.is_empty(), "no longer apply:\n{}", stale.concat());
}

#[test]
fn every_patch_is_listed() {
    let listed = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("MUTATIONS.md"))
        .expect("the list can be read")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect::<BTreeSet<_>>();
    let existing = patches()
        .into_iter()
        .map(|(name, _)| name)
        .collect::<BTreeSet<_>>();
    assert_eq!(listed, existing);
}

/// Name and path of each.
fn patches() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations");
    let mut found: Vec<_> = fs::read_dir(folder)
        .expect("there are mutations")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "patch"))
        .map(|path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            (stem.expect("plain names").to_owned(), path)
        })
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}
