//! Debian's kernel and the modules a guest loads, fetched once and kept in the target folder.
//!
//! Nothing is installed: the package is only downloaded and unpacked. The kernel is kept decompressed, which halves
//! the time a guest takes to boot.

use super::initramfs;
use crate::workspace::target_directory;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a guest must have; what these need is found out.
const MODULES: [&str; 24] = [
    "virtio_pci",
    "virtio_net",
    "virtio_rng",
    "9pnet_virtio",
    "9p",
    // Asked for by name at run time, so no dependency says it.
    "crc32c_generic",
    "crc32_generic",
    "libcrc32c",
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "ib_cm",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "sch_netem",
    "sch_ingress",
    "cls_matchall",
    "act_mirred",
    "ifb",
    "nvme_core",
    "nvme_fabrics",
    "nvme_rdma",
    "ext4",
];

/// Where the list of modules is kept that the cached ones were chosen by.
const WANTED: &str = "wanted";

/// The two files QEMU boots.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    pub(super) initramfs: PathBuf,
}

impl Kernel {
    /// The one fetched before.
    pub(super) fn cached() -> Result<Option<Self>> {
        let folder = folder()?;
        let image = folder.join("vmlinux");
        let modules = folder.join("modules");
        if !image.exists() || !modules.exists() {
            return Ok(None);
        }
        // Fetched by a program that wanted other modules.
        let wanted = std::fs::read_to_string(folder.join(WANTED)).unwrap_or_default();
        if wanted != MODULES.join("\n") {
            return Ok(None);
        }
        // Cheap to make, and made of this program's own files: never stale.
        let initramfs = folder.join("initramfs");
        initramfs::write(&initramfs, &modules).context("cannot make the initramfs")?;
        Ok(Some(Self { image, initramfs }))
    }

    /// Downloads and unpacks it.
    pub(super) fn fetch() -> Result<()> {
        let folder = folder()?;
        let unpacked = folder.join("unpacked");
        std::fs::create_dir_all(&unpacked).with_context(|| format!("cannot make {}", unpacked.display()))?;
        let package = package()?;
        eprintln!("fetching {package}");
        let downloaded = Command::new("apt-get")
            .args(["download", "-qq", &package])
            .current_dir(&folder)
            .stderr(Stdio::null())
            .status()
            .context("cannot start apt-get")?;
        ensure!(downloaded.success(), "apt-get cannot download {package}");
        let archive = only_file(&folder, "deb")?;
        let status = Command::new("dpkg-deb")
            .arg("-x")
            .args([&archive, &unpacked])
            .status()
            .context("cannot start dpkg-deb")?;
        ensure!(status.success(), "cannot unpack {}", archive.display());
        let compressed = only_file(&unpacked.join("boot"), "amd64")?;
        let modules = folder.join("modules");
        if modules.exists() {
            std::fs::remove_dir_all(&modules)?;
        }
        select_modules(&unpacked.join("lib/modules"), &modules)?;
        std::fs::write(folder.join(WANTED), MODULES.join("\n"))?;
        decompress(&compressed, &folder.join("vmlinux"))?;
        std::fs::remove_dir_all(&unpacked)?;
        std::fs::remove_file(&archive)?;
        Ok(())
    }
}

pub(super) fn folder() -> Result<PathBuf> {
    let folder = target_directory()?.join("lab");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// The release and the package's version of the one fetched before, such as `6.1.0-54-amd64` and `6.1.190-1`.
pub(super) fn versions() -> Result<(String, String)> {
    let image = std::fs::read(folder()?.join("vmlinux")).context("the kernel was not fetched")?;
    let label = b"Linux version ";
    let mut found = image
        .windows(label.len())
        .enumerate()
        .filter(|(_, window)| window == label)
        .map(|(start, _)| &image[start + label.len()..image.len().min(start + 300)]);
    found
        .find_map(parse_banner)
        .context("the kernel does not say which it is")
}

/// From a banner like `6.1.0-54-amd64 (…) #1 SMP PREEMPT_DYNAMIC Debian 6.1.190-1 (2026-10-16)`.
fn parse_banner(bytes: &[u8]) -> Option<(String, String)> {
    let line = bytes.split(|byte| matches!(byte, 0 | b'\n')).next()?;
    let line = std::str::from_utf8(line).ok()?;
    let release = line.split(' ').next()?;
    // The compiler and the linker are Debian's, too.
    let version = line.rsplit_once(" Debian ")?.1.split(' ').next()?;
    Some((release.to_owned(), version.to_owned()))
}

/// The newest kernel of this Debian release, by the package that always depends on it.
fn package() -> Result<String> {
    let ask = || -> Result<Option<String>> {
        let answer = Command::new("apt-cache")
            .args(["depends", "linux-image-amd64"])
            .output()
            .context("cannot start apt-cache: the lab's kernel is Debian's")?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let mut lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(lines
            .find(|name| name.starts_with("linux-image-"))
            .map(str::to_owned))
    };
    if let Some(package) = ask()? {
        return Ok(package);
    }
    let refreshed = Command::new("apt-get").args(["update", "-qq"]).status();
    ensure!(
        refreshed.context("cannot start apt-get")?.success(),
        "apt-get update failed"
    );
    ask()?.context("apt knows no linux-image-amd64: the lab's kernel is Debian's")
}

pub(super) fn only_file(folder: &Path, end: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(end) && (end == "deb" || name.starts_with("vmlinuz-"))
        })
        .with_context(|| format!("no {end} file in {}", folder.display()))
}

/// Copies the wanted modules and what they need, numbered in the order in which they must be loaded.
fn select_modules(from: &Path, to: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    let mut builtin = HashSet::new();
    walk(from, &mut files, &mut builtin)?;
    let mut order = Vec::new();
    for name in MODULES {
        require(name, &files, &builtin, &mut order)?;
    }
    let unfinished = to.with_extension("unfinished");
    std::fs::create_dir_all(&unfinished)?;
    for (number, name) in order.iter().enumerate() {
        std::fs::copy(&files[name], unfinished.join(format!("{number:03}-{name}.ko")))?;
    }
    std::fs::rename(&unfinished, to)?;
    Ok(())
}

/// Finds modules, and the list of those that are part of the kernel.
fn walk(folder: &Path, files: &mut BTreeMap<String, PathBuf>, builtin: &mut HashSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            walk(&path, files, builtin)?;
        } else if path.extension().is_some_and(|end| end == "ko") {
            files.insert(module_name(&path), path);
        } else if path.file_name().is_some_and(|name| name == "modules.builtin") {
            let list = std::fs::read_to_string(&path)?;
            builtin.extend(list.lines().map(|line| module_name(Path::new(line))));
        }
    }
    Ok(())
}

/// Files may be named with either sign, the kernel uses one.
fn module_name(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .replace('-', "_")
}

/// Appends a module behind those it needs.
fn require(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    builtin: &HashSet<String>,
    order: &mut Vec<String>,
) -> Result<()> {
    if builtin.contains(name) || order.iter().any(|found| found == name) {
        return Ok(());
    }
    let Some(path) = files.get(name) else {
        bail!("this kernel has no module {name} (as an uncompressed .ko file)");
    };
    for needed in dependencies(&std::fs::read(path)?) {
        require(&needed.replace('-', "_"), files, builtin, order)?;
    }
    order.push(name.to_owned());
    Ok(())
}

/// A module says `depends=a,b` in its information section.
fn dependencies(module: &[u8]) -> Vec<String> {
    let label = b"\0depends=";
    let Some(start) = module.windows(label.len()).position(|window| window == label) else {
        return Vec::new();
    };
    let list = module[start + label.len()..].split(|byte| *byte == 0).next();
    let list = String::from_utf8_lossy(list.unwrap_or_default()).into_owned();
    list.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Takes the ELF image out of a bzImage (Documentation/x86/boot.rst: setup_sects, payload_offset, payload_length).
fn decompress(from: &Path, to: &Path) -> Result<()> {
    let file = std::fs::read(from)?;
    let number = |at: usize| -> Result<usize> {
        let bytes = file.get(at..at + 4).context("not a kernel")?;
        Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    let setup_sectors = usize::from(*file.get(0x1f1).context("not a kernel")?);
    let start = (setup_sectors + 1) * 512 + number(0x248)?;
    let payload = file.get(start..start + number(0x24c)?).context("not a kernel")?;
    ensure!(
        payload.starts_with(b"\xfd7zXZ\0"),
        "this kernel is not compressed with xz"
    );
    let unfinished = to.with_extension("unfinished");
    let mut xz = Command::new("xz")
        .args(["-dc", "--single-stream"])
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&unfinished)?)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start xz")?;
    let mut input = xz.stdin.take().context("xz was given an input")?;
    // The payload ends with its unpacked size, which is not xz's and which it may refuse to read.
    let _ = input.write_all(payload);
    drop(input);
    xz.wait()?;
    let head = std::fs::read(&unfinished)?;
    ensure!(
        head.starts_with(b"\x7fELF"),
        "xz did not make a kernel of {}",
        from.display()
    );
    std::fs::rename(&unfinished, to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_says_which_it_is() {
        let banner = b"6.1.0-54-amd64 (x@y) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP Debian 6.1.190-1 (2026-10-16)\n\0";
        let versions = ("6.1.0-54-amd64".to_owned(), "6.1.190-1".to_owned());
        assert_eq!(parse_banner(banner), Some(versions));
        assert_eq!(parse_banner(b"%s"), None);
    }

    #[test]
    fn a_module_says_what_it_needs() {
        let found = dependencies(b"\x7fELF\0license=GPL\0depends=ib_core,udp-tunnel\0name=x\0");
        assert_eq!(found, ["ib_core", "udp-tunnel"]);
        assert!(dependencies(b"\0depends=\0name=x\0").is_empty());
        assert!(dependencies(b"").is_empty());
    }
}
