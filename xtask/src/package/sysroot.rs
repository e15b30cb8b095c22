//! The C library of old, to link with: what runs there runs on every newer system, but not the other way round.
//!
//! A program that is linked here binds to the versions of the C library's symbols that are here. So the last step, and only
//! that, sees another C library: its symbols and versions without its code, and the few objects that go into every program.
//! Zig makes these from the tables it carries, for any version; compiler and linker remain those of the system, and so what
//! is optimised how does not change.

use super::{output, succeed};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc to run on: Debian 10's and RHEL 8's.
pub(super) const GLIBC: &str = "2.28";

/// The same as numbers.
pub(super) const GLIBC_VERSION: (u32, u32) = (2, 28);

/// From PyPI, where it is `ziglang`. Another version may arrange its cache differently.
const ZIG: &str = "0.13.0";

/// Its shared objects, and the names by which the linker asks for them.
const SHARED: [(&str, &str); 6] = [
    ("libdl.so.2", "libdl.so"),
    ("libm.so.6", "libm.so"),
    ("libpthread.so.0", "libpthread.so"),
    ("libresolv.so.2", "libresolv.so"),
    ("librt.so.1", "librt.so"),
    ("libutil.so.1", "libutil.so"),
];

/// What `libc.so`, a text, puts together; and what starts a program.
const PARTS: [&str; 4] = ["libc.so.6", "libc_nonshared.a", "libld.so.2", "Scrt1.o"];

/// A folder to link in.
#[derive(Debug)]
pub(super) struct Sysroot {
    /// A C compiler that links with it.
    pub(super) compiler: PathBuf,
}

impl Sysroot {
    /// Makes it, or finds the one made before.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let sysroot = Self {
            compiler: folder.join("cc"),
        };
        if sysroot.compiler.exists() {
            return Ok(sysroot);
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let cache = folder.join("cache");
        let program = folder.join("empty.c");
        fs::write(&program, "int main(void) { return 0; }\n")?;
        succeed(
            Command::new(zig(folder)?)
                .args([
                    "-m",
                    "ziglang",
                    "cc",
                    "-target",
                    &format!("x86_64-linux-gnu.{GLIBC}"),
                ])
                .arg(&program)
                .arg("-o")
                .arg(folder.join("empty"))
                .args(["-lpthread", "-ldl", "-lm", "-lrt", "-lutil", "-lresolv"])
                .env("ZIG_GLOBAL_CACHE_DIR", &cache)
                .env("ZIG_LOCAL_CACHE_DIR", &cache),
        )?;
        for name in SHARED.iter().map(|(name, _)| name).chain(&PARTS) {
            let made = find(&cache, name)?.with_context(|| format!("Zig {ZIG} made no {name}"))?;
            fs::copy(made, folder.join(name))?;
        }
        for (name, asked) in SHARED {
            fs::copy(folder.join(name), folder.join(asked))?;
        }
        let at = folder.display();
        fs::write(
            folder.join("libc.so"),
            format!("GROUP ( {at}/libc.so.6 {at}/libc_nonshared.a AS_NEEDED ( {at}/libld.so.2 ) )\n"),
        )?;
        // What the system's libgcc_s needs of its own C library is found where the program runs, not here.
        let options = "-Wl,--allow-shlib-undefined";
        // Last, because it says that all is there.
        let script = folder.join("cc.unfinished");
        fs::write(
            &script,
            format!("#!/bin/sh\nexec cc -B{at}/ -L{at} {options} \"$@\"\n"),
        )?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        fs::rename(script, &sysroot.compiler)?;
        fs::remove_dir_all(cache)?;
        Ok(sysroot)
    }
}

/// A Python that has Zig.
fn zig(folder: &Path) -> Result<PathBuf> {
    let environment = folder.join("venv");
    let python = environment.join("bin/python");
    let has = |python: &Path| {
        let mut command = Command::new(python);
        output(command.args(["-m", "ziglang", "version"])).is_ok_and(|version| version.trim() == ZIG)
    };
    if has(&python) {
        return Ok(python);
    }
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    succeed(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .arg(format!("ziglang=={ZIG}")),
    )?;
    if !has(&python) {
        bail!(
            "ziglang {ZIG} was installed in {} but does not run",
            environment.display()
        );
    }
    Ok(python)
}

/// The file of that name in a folder or below.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if let Some(found) = find(&entry.path(), name)? {
                return Ok(Some(found));
            }
        } else if entry.file_name() == name {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}
