//! Linux's soft-iWARP driver, siw, for the lab's kernel: built from Debian's source, since Debian builds its kernels without.
//!
//! What it is compiled to do at start-up (checksums, the version of MPA, peer-to-peer mode) becomes parameters of the module, so
//! that one guest shows every variant. Nothing else of it is changed.

use super::{Guest, kernel};
use crate::packages::install;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Constants that become parameters, each with its type.
const PARAMETERS: [(&str, &str); 4] = [
    ("mpa_crc_required", "bool"),
    ("mpa_crc_strict", "bool"),
    ("peer_to_peer", "bool"),
    ("mpa_version", "byte"),
];

/// Where it is within the kernel's source.
const SOURCE: &str = "drivers/infiniband/sw/siw";

/// Loads the module into a guest, unless that was done: Debian's kernels have none.
pub fn load(guest: &mut Guest) -> Result<()> {
    std::fs::copy(module()?, guest.folder().join("siw.ko")).context("siw was not built")?;
    guest.run("[ -e /sys/module/siw ] || busybox insmod /run/lab/siw.ko")?;
    Ok(())
}

/// The module, if it was built before.
fn module() -> Result<PathBuf> {
    Ok(kernel::folder()?.join("siw.ko"))
}

/// Builds the module, unless that was done.
pub fn build() -> Result<()> {
    let module = module()?;
    if module.exists() {
        return Ok(());
    }
    let (release, version) = kernel::versions()?;
    let headers = format!("/usr/src/linux-headers-{release}");
    install(&[
        (
            &format!("{headers}/Makefile"),
            &format!("linux-headers-{release}"),
        ),
        ("/usr/bin/make", "make"),
        ("/usr/bin/gcc", "gcc"),
        ("/usr/bin/strip", "binutils"),
    ])?;
    let folder = kernel::folder()?.join("siw");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fetch_source(&folder, &version)?;
    parametrise(&folder)?;
    eprintln!("building siw for {release}");
    let made = Command::new("make")
        .args(["-s", "-C", &headers])
        .arg(format!("M={}", folder.display()))
        .args(["CONFIG_RDMA_SIW=m", "modules"])
        .stdout(Stdio::null())
        .output()
        .context("cannot start make")?;
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    ensure!(made.status.success(), "cannot build siw: {said}");
    // Nine tenths of it are for debuggers.
    call(
        Command::new("strip")
            .arg("--strip-debug")
            .arg(folder.join("siw.ko")),
    )?;
    std::fs::rename(folder.join("siw.ko"), &module)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Fetches the driver's source into the folder: of the very version of the kernel, or the module would not load.
fn fetch_source(folder: &Path, version: &str) -> Result<()> {
    let series: Vec<&str> = version.split('.').take(2).collect();
    let name = format!("linux-source-{}", series.join("."));
    eprintln!("fetching {name} {version}");
    call(
        Command::new("apt-get")
            .args(["download", "-qq", &format!("{name}={version}")])
            .current_dir(folder),
    )
    .with_context(|| format!("no {name} {version}: if the lab's kernel is old, remove target/lab"))?;
    let package = kernel::only_file(folder, "deb")?;
    let unpacked = folder.join("unpacked");
    call(Command::new("dpkg-deb").arg("-x").args([&package, &unpacked]))?;
    std::fs::remove_file(&package)?;
    call(
        Command::new("tar")
            .arg("-xJf")
            .arg(unpacked.join(format!("usr/src/{name}.tar.xz")))
            .arg("-C")
            .arg(folder)
            .arg("--strip-components=5")
            .arg(format!("{name}/{SOURCE}")),
    )?;
    std::fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// Makes parameters of constants.
fn parametrise(folder: &Path) -> Result<()> {
    for name in ["siw_main.c", "siw.h"] {
        let file = folder.join(name);
        let mut text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for (parameter, kind) in PARAMETERS {
            text = text.replace(&format!("const bool {parameter};"), &format!("bool {parameter};"));
            if name.ends_with(".c") {
                text += &format!("module_param({parameter}, {kind}, 0644);\n");
            }
        }
        std::fs::write(&file, text)?;
    }
    Ok(())
}

fn call(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{name}: {said}");
    Ok(())
}
