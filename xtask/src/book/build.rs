//! The book as HTML, by mdBook.
//!
//! mdBook does not see `docs/book/src` itself but a copy, in which the pages of the reference have the text that they take from the
//! repository's `docs/`. The links of such a text are relative to where it was: those to other pages of the book lead there, pictures come
//! along, and what is not in the book is linked to in the repository on the web. A warning of mdBook's is a failure.

use super::links::{self, is_elsewhere, resolve};
use super::markdown;
use crate::dist;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where files are that are not in the book.
const REPOSITORY: &str = "https://github.com/nonic-rdma/nonic/blob/main";

/// Where the book's sources are in the repository.
const SOURCE: &str = "docs/book/src";

/// Builds the book into `book/html` in the target folder and follows the links of what came out.
pub(super) fn build() -> Result<()> {
    let folder = dist::target_directory()?.join("book");
    let (copy, html) = (folder.join("source"), folder.join("html"));
    for old in [&copy, &html] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    let workspace = dist::workspace();
    Copy::new(&workspace)?.write(&copy.join("src"))?;
    fs::copy(workspace.join("docs/book/book.toml"), copy.join("book.toml"))
        .context("cannot copy book.toml")?;
    run_mdbook(&copy, &html)?;
    let (count, dead) = links::check_html(&html)?;
    for link in &dead {
        eprintln!("{link}");
    }
    ensure!(
        dead.is_empty(),
        "{} of the book's {count} links are dead",
        dead.len()
    );
    println!(
        "the book is in {}; its {count} links lead somewhere",
        html.display()
    );
    Ok(())
}

fn run_mdbook(source: &Path, html: &Path) -> Result<()> {
    let ran = Command::new("mdbook")
        .arg("build")
        .arg(source)
        .arg("--dest-dir")
        .arg(html)
        .output()
        .context("cannot start mdbook: `cargo install --locked mdbook --no-default-features` installs it")?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if !ran.status.success() || complains(&said) {
        bail!("mdBook complains:\n{said}");
    }
    Ok(())
}

/// Whether mdBook said more than what it is about to do.
fn complains(said: &str) -> bool {
    said.lines()
        .any(|line| line.contains("WARN") || line.contains("ERROR"))
}

/// What mdBook is given.
struct Copy<'a> {
    workspace: &'a Path,
    /// The files of the book, relative to its sources.
    files: Vec<PathBuf>,
    /// The pages that have their text from elsewhere: from which file of the repository.
    included: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> Copy<'a> {
    fn new(workspace: &'a Path) -> Result<Self> {
        let source = workspace.join(SOURCE);
        let mut files = Vec::new();
        list(&source, Path::new(""), &mut files)?;
        let mut included = BTreeMap::new();
        for file in files.iter().filter(|file| is_markdown(file)) {
            let text = read(&source.join(file))?;
            if let Some(path) = included_file(&text) {
                let from = resolve(&Path::new(SOURCE).join(file), path).with_context(|| {
                    format!("{} includes a file that is not of the repository", file.display())
                })?;
                included.insert(file.clone(), from);
            }
        }
        Ok(Copy {
            workspace,
            files,
            included,
        })
    }

    fn write(&self, to: &Path) -> Result<()> {
        for file in &self.files {
            let path = to.join(file);
            make_folder_of(&path)?;
            match self.included.get(file) {
                None => copy(&self.workspace.join(SOURCE).join(file), &path)?,
                Some(from) => {
                    let (text, pictures) = self.page(file, from)?;
                    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                    for (from, picture) in pictures {
                        let picture = to.join(picture);
                        make_folder_of(&picture)?;
                        copy(&self.workspace.join(from), &picture)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The text of a page that is a file of the repository, and the pictures that it needs: from where in the repository, to where in
    /// the book.
    fn page(&self, page: &Path, from: &Path) -> Result<(String, Vec<(PathBuf, PathBuf)>)> {
        let text = read(&self.workspace.join(from))?;
        let mut pictures = Vec::new();
        let text = markdown::retarget(&text, |target| {
            let (path, anchor) = match target.find('#') {
                Some(at) => target.split_at(at),
                None => (target, ""),
            };
            let to = match resolve(from, path) {
                Some(to) if !path.is_empty() && !is_elsewhere(target) => to,
                _ => return target.to_owned(),
            };
            if let Some((other, _)) = self.included.iter().find(|(_, file)| **file == to) {
                return format!("{}{anchor}", relative(page, other));
            }
            if to.extension().is_some_and(|extension| extension == "svg") {
                let beside = page.with_file_name(path);
                pictures.push((to, beside));
                return target.to_owned();
            }
            format!("{REPOSITORY}/{}{anchor}", to.display())
        });
        Ok((text, pictures))
    }
}

/// The file that a page consists of, if it does. A line before it is for readers of the page as a file, and not in the book.
fn included_file(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.next_back()?;
    let included = last.strip_prefix("{{#include ")?.strip_suffix("}}")?;
    (lines.count() <= 1).then_some(included)
}

/// How one page of the book names another.
fn relative(from: &Path, to: &Path) -> String {
    let depth = from.components().count() - 1;
    match (from.parent(), to.parent()) {
        (Some(here), Some(there)) if here == there => to
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        _ => format!("{}{}", "../".repeat(depth), to.display()),
    }
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The files of a folder and of the folders in it, relative to the first.
fn list(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(folder);
    let entries = fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(root, &name, files)?;
        } else {
            files.push(name);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::temporary::Scratch;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            make_folder_of(&path).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }

    #[test]
    fn a_page_from_the_repository_has_links_that_work_in_the_book() {
        let scratch = Scratch::new().expect("a folder");
        let root = scratch.folder();
        write(
            root,
            &[
                (
                    "docs/keys.md",
                    "[e](errors.md#e) ![p](plots/p.svg) [c](../src/c.rs#L1) [s](../SECURITY.md) [h](#h)",
                ),
                ("docs/plots/p.svg", "<svg/>"),
                (
                    "docs/book/src/reference/keys.md",
                    "{{#include ../../../keys.md}}\n",
                ),
                (
                    "docs/book/src/reference/errors.md",
                    "{{#include ../../../errors.md}}\n",
                ),
                ("docs/book/src/security.md", "{{#include ../../../SECURITY.md}}\n"),
                ("docs/book/src/00.md", "A chapter.\n"),
                ("docs/errors.md", "# E\n"),
                ("SECURITY.md", "# S\n"),
            ],
        );
        let to = scratch.path("copy");
        Copy::new(root).expect("a book").write(&to).expect("a copy");
        assert_eq!(
            read(&to.join("reference/keys.md")).expect("a page"),
            format!(
                "[e](errors.md#e) ![p](plots/p.svg) [c]({REPOSITORY}/src/c.rs#L1) [s](../security.md) [h](#h)"
            )
        );
        assert!(to.join("reference/plots/p.svg").is_file());
        assert_eq!(read(&to.join("security.md")).expect("a page"), "# S\n");
        assert_eq!(read(&to.join("00.md")).expect("a chapter"), "A chapter.\n");
    }

    #[test]
    fn a_warning_of_mdbook_is_a_complaint() {
        assert!(!complains(
            " INFO Book building has started\n INFO HTML book written to `x`\n"
        ));
        assert!(complains(
            " INFO Book building has started\n WARN unclosed HTML tag `<a>` found\n"
        ));
    }
}
