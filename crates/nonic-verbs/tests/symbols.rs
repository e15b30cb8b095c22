//! Every symbol of the system's library is in ours, at the same version.

use crate::support::{Library, missing, succeeded, system_library};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Symbols of the system's library that ours does not have, each with the reason.
const ABSENT: [(&str, &str); 0] = [];

#[test]
fn every_symbol_of_rdma_core_is_exported_at_its_version() {
    let Some(system) = system_library("libibverbs.so.1") else {
        assert!(missing("/usr/lib/libibverbs.so.1"));
        return;
    };
    let library = Library::build();
    let (ours, theirs) = (symbols(&library.path()), symbols(&system));
    assert!(theirs.len() > 150, "the system's library has symbols: {theirs:?}");
    let lost: Vec<&String> = theirs
        .difference(&ours)
        .filter(|symbol| !ABSENT.iter().any(|(absent, _)| absent == symbol))
        .collect();
    assert!(lost.is_empty(), "not exported: {lost:#?}");
}

#[test]
fn nothing_else_is_exported() {
    let library = Library::build();
    for symbol in symbols(&library.path()) {
        if symbol.ends_with("@NONIC_PRIVATE_4") {
            // What librdmacm.so.1 is built on.
            assert!(symbol.starts_with("nonic_"), "{symbol} is not a name of ours");
            continue;
        }
        assert!(symbol.contains("@IBVERBS_"), "{symbol} has no version");
        let name = symbol.split('@').next().unwrap_or_default();
        let prefixes = [
            "ibv_",
            "_ibv_",
            "verbs_",
            "_verbs_",
            "__verbs_",
            "__ioctl_",
            "execute_ioctl",
        ];
        let known = prefixes.iter().any(|prefix| name.starts_with(prefix)) || name.ends_with("_ibv_rate");
        assert!(known, "{symbol} is not a name of libibverbs");
    }
}

#[test]
fn libraries_of_providers_find_all_their_symbols() {
    let library = Library::build();
    let mut tested = 0;
    for name in ["libmlx5.so.1", "libefa.so.1", "libmlx4.so.1", "librdmacm.so.1"] {
        let Some(provider) = system_library(name) else {
            continue;
        };
        let output = library
            .command("ldd")
            .arg("-r")
            .arg(&provider)
            .output()
            .expect("ldd runs");
        let found = succeeded(&output, name) + &String::from_utf8_lossy(&output.stderr);
        assert!(
            found.contains(&library.path().display().to_string()),
            "{name}: {found}"
        );
        assert!(
            !found.contains("undefined symbol") && !found.contains("not found"),
            "{name}: {found}"
        );
        tested += 1;
    }
    assert!(tested > 0 || missing("/usr/lib/libmlx5.so.1"));
}

/// The defined dynamic symbols, `name@VERSION`, whether default or not.
fn symbols(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .expect("nm runs");
    succeeded(&output, "nm")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        // The nodes themselves are listed too.
        .filter(|symbol| !symbol.starts_with("IBVERBS_") && !symbol.starts_with("NONIC_"))
        .map(|symbol| symbol.replace("@@", "@"))
        .collect()
}
