//! The files of an installation, under any folder: `bin`, `lib/nonic` and `share`.

use super::{output, succeed};
use crate::debug_symbols;
use crate::dist::{Dist, workspace};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An installation.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
}

/// The shells whose completions are installed, and where each looks.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/nonic"),
    ("zsh", "share/zsh/site-functions/_nonic"),
    ("fish", "share/fish/vendor_completions.d/nonic.fish"),
];

impl Tree {
    /// Copies what was built. Files that are in use are replaced, not overwritten.
    pub(super) fn install(dist: &Dist, root: &Path) -> Result<Self> {
        let tree = Self {
            root: root.to_owned(),
        };
        copy_folder(&dist.root.join("bin"), &root.join("bin"))?;
        copy_folder(&dist.root.join("lib"), &root.join("lib/nonic"))?;
        let nonic = dist.nonic();
        let pages = tree.folder("share/man/man1")?;
        succeed(Command::new(&nonic).args(["man", "--dir"]).arg(&pages))?;
        for (shell, file) in COMPLETIONS {
            let file = root.join(file);
            fs::create_dir_all(file.parent().context("it is in a folder")?)?;
            fs::write(file, output(Command::new(&nonic).args(["completions", shell]))?)?;
        }
        let documents = tree.folder("share/doc/nonic")?;
        for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(workspace().join(name), documents.join(name))
                .with_context(|| format!("cannot copy {name}"))?;
        }
        Ok(tree)
    }

    /// Every executable and shared object.
    pub(super) fn elf_files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        elf_files(&self.root, &mut files)?;
        Ok(files)
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.root.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }
}

/// Copies a folder with its symbolic links.
pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    succeed(
        Command::new("cp")
            .args([
                "--recursive",
                "--no-dereference",
                "--preserve=mode,links",
                "--remove-destination",
            ])
            .arg(from.join("."))
            .arg(to),
    )
}

fn elf_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // Debug symbols have the form of a program without its contents.
        if kind.is_dir() && entry.file_name() != debug_symbols::FOLDER {
            elf_files(&entry.path(), files)?;
        } else if kind.is_file() && fs::read(entry.path())?.starts_with(b"\x7fELF") {
            files.push(entry.path());
        }
    }
    Ok(())
}
