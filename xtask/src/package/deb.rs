//! The Debian package: the tree under `/usr`, made with `dpkg-deb` and nothing else of Debian's.

use super::tree::{Tree, copy_folder};
use super::{VERSION, output, source_date, succeed, sysroot};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The package's maintainer.
const MAINTAINER: &str = "The nonic developers <nonic@users.noreply.github.com>";

/// Makes it, by way of a folder of its own.
pub(super) fn make(tree: &Tree, folder: &Path, to: &Path) -> Result<()> {
    let usr = folder.join("usr");
    copy_folder(&tree.root, &usr)?;
    for symbols in ["bin/.debug", "lib/nonic/.debug", "lib/nonic/rsocket/.debug"] {
        fs::remove_dir_all(usr.join(symbols))?;
    }
    as_debian_has_it(&usr)?;
    // A shared object is not executable, and a folder is not writable for a group, whatever the builder's umask.
    succeed(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(folder))?;
    for file in tree.elf_files()? {
        let inside = usr.join(file.strip_prefix(&tree.root)?);
        let mode = if inside.parent() == Some(&usr.join("bin")) {
            0o755
        } else {
            0o644
        };
        fs::set_permissions(&inside, fs::Permissions::from_mode(mode))?;
    }

    let sums = output(
        Command::new("sh")
            .args([
                "-c",
                "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum",
            ])
            .current_dir(folder),
    )?;
    let kilobytes = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(&usr))?;
    let kilobytes = kilobytes
        .split_whitespace()
        .next()
        .context("du prints a number")?;
    let debian = folder.join("DEBIAN");
    fs::create_dir_all(&debian)?;
    fs::write(debian.join("md5sums"), sums)?;
    fs::write(debian.join("control"), control(kilobytes))?;
    succeed(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([folder, to])
            .env("SOURCE_DATE_EPOCH", source_date().to_string()),
    )
}

/// Debian has completions for zsh, licences and the changelog elsewhere, and compresses manual pages.
fn as_debian_has_it(usr: &Path) -> Result<()> {
    fs::rename(
        usr.join("share/zsh/site-functions"),
        usr.join("share/zsh/vendor-completions"),
    )?;
    let documents = usr.join("share/doc/nonic");
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(documents.join(licence))?;
    }
    fs::write(documents.join("copyright"), copyright()?)?;
    // Debian's own kind of changelog, which points to ours.
    let date = output(
        Command::new("date")
            .args(["-R", "-u", "-d", &format!("@{}", source_date())])
            .env("LC_ALL", "C"),
    )?;
    fs::write(
        documents.join("changelog"),
        format!(
            "nonic ({VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {}\n",
            date.trim()
        ),
    )?;
    let mut gzip = Command::new("gzip");
    gzip.args(["-9n"]).arg(documents.join("changelog"));
    for page in fs::read_dir(usr.join("share/man/man1"))? {
        gzip.arg(page?.path());
    }
    succeed(&mut gzip)
}

/// It neither replaces nor conflicts with rdma-core's packages: programs choose by `nonic run`.
fn control(kilobytes: &str) -> String {
    let glibc = sysroot::GLIBC;
    format!(
        "Package: nonic\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kilobytes}\n\
         Depends: libc6 (>= {glibc}), libgcc-s1 (>= 4.2)\n\
         Suggests: ibverbs-utils, perftest, rdmacm-utils\n\
         Section: net\n\
         Priority: optional\n\
         Homepage: https://github.com/nonic-rdma/nonic\n\
         Description: RDMA with no NIC: a software RNIC in an ordinary process\n \
         Programs written for RDMA hardware run unchanged, without hardware, kernel\n \
         module, root or daemon: 'nonic run -- PROGRAM'. On the wire it is RoCEv2.\n \
         .\n \
         This package has the command and its own libibverbs and librdmacm, in a\n \
         folder of their own; those of the system stay as they are.\n"
    )
}

fn copyright() -> Result<String> {
    let workspace = crate::dist::workspace();
    let mit = fs::read_to_string(workspace.join("LICENSE-MIT")).context("there is no LICENSE-MIT")?;
    // The short licence in full, indented as the format wants it; the long one is on every Debian system.
    let mit: String = mit
        .lines()
        .map(|line| {
            if line.is_empty() {
                " .\n".to_owned()
            } else {
                format!(" {line}\n")
            }
        })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: nonic\n\
         Source: https://github.com/nonic-rdma/nonic\n\n\
         Files: *\n\
         Copyright: 2026 the nonic contributors\n\
         License: Expat or Apache-2.0\n\n\
         License: Expat\n{mit}\n\
         License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}
