//! Every symbol of rdma-core's library is in ours, at the same version: of the installed one, and of every release that
//! `tests/rdma_core` lists. `cargo xtask symbols` makes these lists from Debian's packages.

use crate::support::symbols::{Symbols, exported, imported, listed};
use crate::support::{Library, missing, succeeded, system_library};
use std::collections::BTreeMap;

/// Symbols of rdma-core's libraries that ours does not have, each with the reason.
const ABSENT: [(&str, &str); 0] = [];

const EXPORTED: &str = "exported_libibverbs.txt";

#[test]
fn every_symbol_of_rdma_cores_releases_is_exported_at_its_version() {
    let ours = exported(&Library::build().path());
    for (release, theirs) in listed(EXPORTED) {
        assert!(theirs.len() > 150, "{release} has symbols: {theirs:?}");
        let lost = without_absent(theirs.difference(&ours));
        assert!(lost.is_empty(), "of {release}, not exported: {lost:#?}");
    }
}

/// What libmlx5 and its like bind to when a program is started that is linked with them.
#[test]
fn libraries_of_providers_of_every_release_find_all_their_symbols() {
    let ours = exported(&Library::build().path());
    let lists = imported();
    assert!(
        lists.keys().filter(|(_, library)| library == "libmlx5").count() >= 3,
        "libmlx5 of three releases is listed: {:?}",
        lists.keys()
    );
    for ((release, library), needed) in lists {
        assert!(!needed.is_empty(), "{library} of {release} needs nothing");
        let lost = without_absent(needed.difference(&ours));
        assert!(lost.is_empty(), "{library} of {release} does not find {lost:#?}");
    }
}

/// Releases of rdma-core add names to a private node without giving it a new number, and not every release is listed.
#[test]
fn every_private_node_has_every_private_name() {
    let mut nodes: BTreeMap<String, Symbols> = BTreeMap::new();
    for symbol in exported(&Library::build().path()) {
        let (name, node) = symbol.split_once('@').expect("symbols have versions");
        // The name by which a driver registers has its node's number.
        if node.starts_with("IBVERBS_PRIVATE_") && !name.starts_with("verbs_register_driver_") {
            nodes.entry(node.to_owned()).or_default().insert(name.to_owned());
        }
    }
    assert!(nodes.len() >= 7, "there are seven nodes: {:?}", nodes.keys());
    let newest: Symbols = listed(EXPORTED)
        .into_values()
        .flatten()
        .filter_map(|symbol| {
            let (name, node) = symbol.split_once('@')?;
            let private = node.starts_with("IBVERBS_PRIVATE_") && !name.starts_with("verbs_register_driver_");
            private.then(|| name.to_owned())
        })
        .collect();
    for (node, names) in nodes {
        let lost: Vec<&String> = newest.difference(&names).collect();
        assert!(lost.is_empty(), "not at {node}: {lost:#?}");
    }
}

/// The system's library may be of a release that is not listed.
#[test]
fn every_symbol_of_the_installed_library_is_exported_at_its_version() {
    let Some(system) = system_library("libibverbs.so.1") else {
        assert!(missing("/usr/lib/libibverbs.so.1"));
        return;
    };
    let (ours, theirs) = (exported(&Library::build().path()), exported(&system));
    assert!(theirs.len() > 150, "the system's library has symbols: {theirs:?}");
    let lost = without_absent(theirs.difference(&ours));
    assert!(lost.is_empty(), "not exported: {lost:#?}");
}

#[test]
fn nothing_else_is_exported() {
    let listed = listed(EXPORTED);
    for symbol in exported(&Library::build().path()) {
        if symbol.ends_with("@NONIC_PRIVATE_4") {
            // What librdmacm.so.1 is built on.
            assert!(symbol.starts_with("nonic_"), "{symbol} is not a name of ours");
            continue;
        }
        let (name, node) = symbol.split_once('@').expect("symbols have versions");
        assert!(
            node.starts_with("IBVERBS_"),
            "{symbol} is not at a node of rdma-core"
        );
        // Not every release is listed, and private names are at more nodes than any has.
        let known = match node.starts_with("IBVERBS_PRIVATE_") {
            true => PRIVATE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)),
            false => listed.values().any(|theirs| theirs.contains(&symbol)),
        };
        assert!(known, "{symbol} is not a name of libibverbs");
    }
}

const PRIVATE_PREFIXES: [&str; 6] = [
    "ibv_",
    "verbs_",
    "_verbs_",
    "__verbs_",
    "__ioctl_",
    "execute_ioctl",
];

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

fn without_absent<'a>(symbols: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let absent = |symbol: &String| ABSENT.iter().any(|(absent, _)| absent == symbol);
    symbols.filter(|symbol| !absent(symbol)).collect()
}
