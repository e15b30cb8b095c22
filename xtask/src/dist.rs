//! The installation: `bin/nonic` and the libraries programs run on, under `nonic/` in the target folder.
//!
//! It is optimised and stripped; the debug symbols are beside ([`debug_symbols`]). There are the names that a linker and
//! `dlopen` look for (`libibverbs.so`) and pkg-config's files, but no headers: those are rdma-core's (`libibverbs-dev`,
//! `librdmacm-dev`), whose interface this is.

use crate::debug_symbols;
use crate::link::link_with;
use anyhow::{Context, Result, ensure};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Command;
pub(crate) use testbed::workspace::{target_directory, workspace};

/// How to build.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "dist")]
pub(crate) struct Options {
    /// Unoptimised and quickly built, in `nonic-debug/` instead.
    #[arg(long)]
    debug: bool,
}

/// Which installation a chore uses.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "chosen-dist")]
pub(crate) struct Chosen {
    #[command(flatten)]
    build: Options,
    /// Do not build; use this folder, as made by `dist`
    #[arg(long = "dist", value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Chosen {
    /// One that is there.
    pub(crate) fn folder(dist: &Dist) -> Self {
        Self {
            build: Options::default(),
            folder: Some(dist.root.clone()),
        }
    }

    /// Builds it, unless a folder was named.
    pub(crate) fn get(&self) -> Result<Dist> {
        match self.named()? {
            Some(dist) => Ok(dist),
            None => Dist::build(&self.build),
        }
    }

    /// The same where nothing can be built: without a folder's name, the one that was built before.
    pub(crate) fn existing(&self) -> Result<Dist> {
        match self.named()? {
            Some(dist) => Ok(dist),
            None => Dist::built(&self.build),
        }
    }

    /// Whether it is built from the sources as they are.
    pub(crate) fn is_current(&self) -> bool {
        self.folder.is_none()
    }

    fn named(&self) -> Result<Option<Dist>> {
        let root = self.folder.as_ref().map(std::path::absolute).transpose()?;
        Ok(root.map(|root| Dist { root }))
    }
}

/// A folder that can be copied anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dist {
    /// The folder.
    pub(crate) root: PathBuf,
}

impl Dist {
    /// Builds it.
    pub(crate) fn build(options: &Options) -> Result<Self> {
        Self::build_in(root(options)?, options, None)
    }

    /// Builds it in a folder. With a C compiler for the last step, that decides on which C library all of it needs.
    pub(crate) fn build_in(root: PathBuf, options: &Options, compiler: Option<&Path>) -> Result<Self> {
        let profile = if options.debug { "debug" } else { "release" };
        cargo_build(options, compiler)?;

        let (bin, lib) = (root.join("bin"), root.join("lib"));
        // Apart from the others, as rdma-core has it: no program loads it by accident.
        let preloaded = lib.join("rsocket");
        for folder in [&bin, &lib, &preloaded] {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let built = target_directory()?.join(profile);
        let command = bin.join("nonic");
        replace(&built.join("nonic"), &command)?;
        let [verbs, rdmacm] = link_libraries(&built, &lib, compiler)?;
        let rspreload = preloaded.join("librspreload.so");
        replace(&built.join("librspreload.so"), &rspreload)?;
        let files = lib.join("libnonic_files.so");
        replace(&built.join("libnonic_files.so"), &files)?;
        for_builders(&lib)?;
        std::fs::write(lib.join(SUPPRESSIONS), include_str!("../../packaging/nonic.supp"))?;
        // For `nonic doctor`: a library cannot be asked for its version.
        std::fs::write(lib.join("version"), concat!(env!("CARGO_PKG_VERSION"), "\n"))?;
        if !options.debug {
            for file in [&command, &verbs, &rdmacm, &rspreload, &files] {
                debug_symbols::split(file)?;
            }
        }
        Ok(Self { root })
    }

    /// The one built before.
    pub(crate) fn built(options: &Options) -> Result<Self> {
        Ok(Self { root: root(options)? })
    }

    /// The command.
    pub(crate) fn nonic(&self) -> PathBuf {
        self.root.join("bin/nonic")
    }
}

/// What valgrind is told of the libraries; `nonic run` names it to valgrind.
const SUPPRESSIONS: &str = "nonic.supp";

/// What is built: two libraries that are archives and are linked by us, and what rustc links. They are built by one command:
/// cargo unites the features of what it builds at once, so what they share is built once.
const PACKAGES: [&str; 5] = [
    "nonic-verbs",
    "nonic-rdmacm",
    "nonic-cli",
    "nonic-rspreload",
    "nonic-files",
];

/// Builds the packages, and links them with this C compiler if one is given.
fn cargo_build(options: &Options, compiler: Option<&Path>) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("build");
    // It takes minutes the first time: a person who looks on sees how far it is.
    if !std::io::stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    if !options.debug {
        cargo.arg("--release");
    }
    if let Some(compiler) = compiler {
        // As a flag, not as a setting: cargo then knows that what was linked otherwise is another file.
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        cargo.env("RUSTFLAGS", format!("{flags} -C linker={}", compiler.display()));
    }
    let status = cargo
        .current_dir(workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "it does not build");
    Ok(())
}

/// Links the two libraries whose symbols have versions, from what cargo built, with the system's C compiler if no other.
pub(crate) fn link_libraries(built: &Path, lib: &Path, compiler: Option<&Path>) -> Result<[PathBuf; 2]> {
    let compiler = match compiler {
        Some(compiler) => compiler.as_os_str().to_owned(),
        None => std::env::var_os("CC").unwrap_or_else(|| "cc".into()),
    };
    let verbs = lib.join("libibverbs.so.1");
    link_with(
        &compiler,
        &built.join("libnonic_verbs.a"),
        &workspace().join("crates/nonic-verbs/libibverbs.map"),
        "libibverbs.so.1",
        &[],
        &verbs,
    )?;
    let rdmacm = lib.join("librdmacm.so.1");
    link_with(
        &compiler,
        &built.join("libnonic_rdmacm.a"),
        &workspace().join("crates/nonic-rdmacm/librdmacm.map"),
        "librdmacm.so.1",
        &[&verbs],
        &rdmacm,
    )?;
    Ok([verbs, rdmacm])
}

/// Adds what a linker and pkg-config look for. Some programs open libraries by the linker's name, too.
fn for_builders(lib: &Path) -> Result<()> {
    let pkgconfig = lib.join("pkgconfig");
    std::fs::create_dir_all(&pkgconfig).with_context(|| format!("cannot make {}", pkgconfig.display()))?;
    // The versions are those of rdma-core's own files, whose interface the libraries have.
    for (name, version, needs, about) in [
        ("ibverbs", "1.14.44", "", "RDMA with no NIC: verbs"),
        (
            "rdmacm",
            "1.3.44",
            "Requires: libibverbs\n",
            "RDMA with no NIC: connections",
        ),
    ] {
        let link = lib.join(format!("lib{name}.so"));
        if !link.is_symlink() {
            std::os::unix::fs::symlink(format!("lib{name}.so.1"), &link)
                .with_context(|| format!("cannot make {}", link.display()))?;
        }
        let text = format!(
            "libdir=${{pcfiledir}}/..\n\
             Name: lib{name}\n\
             Description: {about}\n\
             Version: {version}\n\
             {needs}\
             Libs: -L${{libdir}} -l{name}\n"
        );
        std::fs::write(pkgconfig.join(format!("lib{name}.pc")), text)?;
    }
    Ok(())
}

/// Builds it and says where it is.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = Dist::build(options)?;
    println!("{}", dist.root.display());
    Ok(())
}

fn root(options: &Options) -> Result<PathBuf> {
    Ok(target_directory()?.join(if options.debug { "nonic-debug" } else { "nonic" }))
}

/// Copies a file in one step: a program that runs cannot be overwritten, but its name can be given away.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let unfinished = to.with_extension("unfinished");
    std::fs::copy(from, &unfinished).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::rename(&unfinished, to).with_context(|| format!("cannot write {}", to.display()))
}
