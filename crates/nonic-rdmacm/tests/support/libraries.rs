//! `libibverbs.so.1` and `librdmacm.so.1` as they are installed, for the tests of whatever is built on both.

use super::{build, link};
use std::path::Path;

/// Builds and links both.
pub(crate) fn link_into(folder: &Path) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder of crates");
    let archives = build::archives(&["nonic-verbs", "nonic-rdmacm"]);
    let (verbs, rdmacm) = (folder.join("libibverbs.so.1"), folder.join("librdmacm.so.1"));
    let script = crates.join("nonic-verbs/libibverbs.map");
    link::link(&archives[0], &script, "libibverbs.so.1", &[], &verbs).expect("libibverbs.so.1 links");
    let script = crates.join("nonic-rdmacm/librdmacm.map");
    link::link(&archives[1], &script, "librdmacm.so.1", &[&verbs], &rdmacm).expect("librdmacm.so.1 links");
}
