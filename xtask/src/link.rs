//! How the static library of `nonic-verbs` becomes `libibverbs.so.1`, and that of `nonic-rdmacm` `librdmacm.so.1`.
//!
//! rustc exports a `cdylib`'s symbols without versions, and programs bind to versions. So the crate is built as an
//! archive, and the system's linker makes the shared object with a version script. The tests of both use
//! this file too.

use std::ffi::OsString;
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// Links `archive` to the shared object `output`, replacing it in one step: programs may be running on the old one.
///
/// `needed` are shared objects it calls.
pub(crate) fn link(
    archive: &Path,
    version_script: &Path,
    soname: &str,
    needed: &[&Path],
    output: &Path,
) -> Result<()> {
    let unfinished = output.with_extension("unfinished");
    let script = option("-Wl,--version-script=", version_script);
    let found = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .arg("-shared")
        .arg("-o")
        .arg(&unfinished)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .args(needed)
        .arg(script)
        .arg(format!("-Wl,-soname,{soname}"))
        // Calls from inside stay inside, whatever else the process has loaded.
        .arg("-Wl,-Bsymbolic")
        .arg("-Wl,--gc-sections")
        .arg("-Wl,-z,defs,-z,relro,-z,now")
        // Its threads run until the process ends; `dlclose` must not take their code away.
        .arg("-Wl,-z,nodelete")
        .args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"])
        .output()?;
    if !found.status.success() {
        let complaint = String::from_utf8_lossy(&found.stderr);
        return Err(Error::other(format!("{soname} does not link: {complaint}")));
    }
    std::fs::rename(unfinished, output)
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}
