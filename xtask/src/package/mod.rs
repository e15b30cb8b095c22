//! The release packages, and how they are tried: a tarball, a Debian package and a Python wheel, all of the same files.
//!
//! What is installed is a [`Tree`]: `bin/nonic`, `lib/nonic/` with the libraries, `share/` with manual pages, completions
//! and licences. It runs from wherever it lies, since the command looks for its libraries beside itself; and because
//! they have a folder of their own, it can be unpacked over `/usr/local` without touching the system's libraries.
//!
//! Everything is linked with the C library of old ([`Sysroot`]) and refused if it needs a newer one ([`symbols`]).
//! Nothing is signed and nothing is uploaded here.

mod check;
mod deb;
mod symbols;
mod sysroot;
mod tree;
mod wheel;

use crate::dist::{self, Dist, target_directory};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use sysroot::Sysroot;
use testbed::command::output;
use tree::Tree;

/// The version of the workspace, as in its manifest.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Install each in an empty Debian 12, and use it there without privileges. Needs root and, the first time, network.
    #[arg(long)]
    check: bool,
    /// Check what was made before.
    #[arg(long, requires = "check")]
    no_build: bool,
}

/// Where to install.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallOptions {
    /// The folder that gets `bin/nonic` and `lib/nonic/`: `/usr/local`, for example [default: ~/.local].
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

/// The files that were made.
#[derive(Debug)]
struct Made {
    tarball: PathBuf,
    symbols: PathBuf,
    deb: PathBuf,
    wheel: PathBuf,
}

impl Made {
    fn in_folder(folder: &Path) -> Self {
        let named = |name: String| folder.join(name);
        Self {
            tarball: named(format!("nonic-{VERSION}-x86_64-linux.tar.gz")),
            symbols: named(format!("nonic-{VERSION}-x86_64-linux-debug.tar.gz")),
            deb: named(format!("nonic_{VERSION}_amd64.deb")),
            wheel: named(format!("nonic-{VERSION}-py3-none-manylinux_2_28_x86_64.whl")),
        }
    }

    fn all(&self) -> [&Path; 4] {
        [&self.tarball, &self.symbols, &self.deb, &self.wheel]
    }
}

/// `cargo xtask package`.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_env = "gnu")),
        "packages are made for x86_64 and glibc only"
    );
    let folder = target_directory()?.join("package");
    let made = Made::in_folder(&folder);
    if !options.no_build {
        make(&folder, &made)?;
    }
    for file in made.all() {
        let bytes = std::fs::metadata(file)
            .with_context(|| format!("there is no {}", file.display()))?
            .len();
        println!("{:>7.1} KiB  {}", bytes as f64 / 1024.0, file.display());
    }
    if options.check {
        check::run(&folder, &made)?;
    }
    Ok(())
}

fn make(folder: &Path, made: &Made) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let started = Instant::now();
    let sysroot = Sysroot::make(&folder.join("sysroot"))?;
    println!("sysroot of glibc {}: {:.0?}", sysroot::GLIBC, started.elapsed());

    let started = Instant::now();
    let dist = Dist::build_in(
        folder.join("dist"),
        &dist::Options::default(),
        Some(&sysroot.compiler),
    )?;
    println!("build: {:.0?}", started.elapsed());

    // Made anew: a file that is no longer made must not be packed.
    let name = format!("nonic-{VERSION}-x86_64-linux");
    let trees = folder.join("trees");
    let _ = std::fs::remove_dir_all(&trees);
    let tree = Tree::install(&dist, &trees.join(&name))?;
    let newest = symbols::newest_glibc(&tree.elf_files()?)?;
    ensure!(
        newest <= sysroot::GLIBC_VERSION,
        "the libraries or the command need glibc {}.{}",
        newest.0,
        newest.1
    );
    println!("needs glibc {}.{} or newer", newest.0, newest.1);
    same_interface(&tree, &trees.join("linked-here"))?;

    let started = Instant::now();
    tar(&trees, &["--exclude=.debug", &name], &made.tarball)?;
    let symbols = ["bin", "lib/nonic", "lib/nonic/rsocket"].map(|folder| format!("{name}/{folder}/.debug"));
    tar(&trees, &symbols.each_ref().map(String::as_str), &made.symbols)?;
    deb::make(&tree, &trees.join("deb"), &made.deb)?;
    wheel::make(&tree, &sysroot, &trees.join("wheel"), &made.wheel)?;
    println!("packing: {:.0?}", started.elapsed());
    Ok(())
}

/// Another C library must not change what programs bind to: the same symbols and versions as when linked as always.
fn same_interface(tree: &Tree, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let here = dist::link_libraries(&target_directory()?.join("release"), folder, None)?;
    for library in here {
        let name = library.file_name().context("a library has a name")?;
        let (packed, usual) = (
            symbols::exported(&tree.root.join("lib/nonic").join(name))?,
            symbols::exported(&library)?,
        );
        ensure!(!usual.is_empty(), "{} exports nothing", library.display());
        let differ: Vec<&String> = packed.symmetric_difference(&usual).collect();
        ensure!(
            differ.is_empty(),
            "{}: the packed library differs in {differ:?}",
            name.to_string_lossy()
        );
        println!(
            "{}: {} exported symbols, as linked here",
            name.to_string_lossy(),
            packed.len()
        );
    }
    Ok(())
}

/// `cargo xtask install`: for this machine, so with its own C library.
pub(crate) fn install(options: &InstallOptions) -> Result<()> {
    let prefix = match &options.prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => {
            Path::new(&std::env::var_os("HOME").context("HOME is not set: say --prefix DIR")?).join(".local")
        }
    };
    let dist = Dist::build(&dist::Options::default())?;
    Tree::install(&dist, &prefix)?;
    let command = prefix.join("bin/nonic");
    println!("{}", command.display());
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| Some(folder.as_path()) == command.parent()) {
        println!("add it to your PATH: export PATH={}/bin:$PATH", prefix.display());
    }
    Ok(())
}

/// Packs folders so that the same files make the same bytes on every machine and for every user. `--exclude=` may come
/// before the names.
fn tar(parent: &Path, names: &[&str], to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--use-compress-program=gzip -9n",
        "--format=gnu",
        "--sort=name",
    ])
    .args(["--owner=0", "--group=0", "--numeric-owner"])
    .arg(format!("--mtime=@{}", source_date()))
    .arg("--file")
    .arg(to)
    .arg("--directory")
    .arg(parent)
    .args(names);
    succeed(&mut tar)
}

/// Every file's date, in seconds since 1970: that of the last commit, so that the same source makes the same packages.
fn source_date() -> u64 {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"])
        .current_dir(dist::workspace());
    let date = output(&mut git).ok().and_then(|date| date.trim().parse().ok());
    // A copy of the source without its history has no such date; this one is as good as any.
    date.unwrap_or(1_700_000_000)
}

/// Runs a command that must succeed, and shows what it said if it did not.
fn succeed(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}
