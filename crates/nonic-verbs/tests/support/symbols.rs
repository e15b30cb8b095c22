//! What shared objects export and import, and the lists of what rdma-core's releases do.

use super::outcome::succeeded;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Symbols as `name@VERSION`, whether that is the default version of the name or not.
pub(crate) type Symbols = BTreeSet<String>;

/// What a library exports.
pub(crate) fn exported(library: &Path) -> Symbols {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .expect("nm runs");
    let printed = succeeded(&output, "nm");
    let symbols = printed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|symbol| symbol.replace("@@", "@"));
    symbols.filter(|symbol| !is_node(symbol)).collect()
}

/// The version nodes themselves are listed among the symbols, at themselves.
fn is_node(symbol: &str) -> bool {
    symbol
        .split_once('@')
        .is_none_or(|(name, version)| name == version)
}

/// The lists of one library for every release that is listed, by the release's number: `exported_libibverbs.txt`.
pub(crate) fn listed(list: &str) -> BTreeMap<u32, Symbols> {
    releases()
        .into_iter()
        .map(|(number, folder)| (number, read(&folder.join(list))))
        .collect()
}

/// Every list of what a library of a release imports, by release and the library's name.
pub(crate) fn imported() -> BTreeMap<(u32, String), Symbols> {
    let mut lists = BTreeMap::new();
    for (number, folder) in releases() {
        for entry in std::fs::read_dir(&folder).expect("a folder of lists") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if let Some(library) = name.strip_prefix("imported_") {
                lists.insert((number, library.to_owned()), read(&path));
            }
        }
    }
    lists
}

/// The folders of lists, one to a release, which `cargo xtask symbols` writes.
fn releases() -> Vec<(u32, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nonic-verbs/tests/rdma_core");
    let entries = std::fs::read_dir(&folder).expect("the folder of lists");
    let releases: Vec<(u32, PathBuf)> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| {
            let number = path.file_name()?.to_str()?.parse().ok()?;
            Some((number, path))
        })
        .collect();
    assert!(releases.len() >= 3, "three releases are listed: {releases:?}");
    releases
}

fn read(list: &Path) -> Symbols {
    let text = std::fs::read_to_string(list).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}
