//! The book (`docs/book`): built by mdBook ([`build`]). The links of all Markdown files of the repository are followed ([`links`]); the commands
//! of the book and of the README are run as they stand, and their pictures made anew.
//!
//! Rust programs are not its business: they are doc tests, of the package `nonic-book` and of `nonic`. What a command prints is compared
//! with the text only where it fails on purpose: figures differ from machine to machine. Blocks marked `sh` are not run: they install
//! something, or need another host.

mod build;
mod chapter;
mod links;
mod markdown;
mod server;

use crate::dist::{self, Dist};
use anyhow::{Context, Result, ensure};
use chapter::{Chapter, Example};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use testbed::temporary::Scratch;

/// No command of the book takes longer.
const PATIENCE: &str = "60";

/// What to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Only pages whose file name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Build the book into `target/book/html` and follow its links, and run nothing of it.
    #[arg(long = "build")]
    is_build_only: bool,
    /// Keep the pictures that were made, in `docs/book/src/pictures` and `docs/pictures`.
    #[arg(long = "write")]
    keeps_pictures: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    check_links()?;
    build::build()?;
    match options.is_build_only {
        true => Ok(()),
        false => run_chapters(options),
    }
}

/// Follows the links of all Markdown files, the chapters' among them.
fn check_links() -> Result<()> {
    let (count, dead) = links::check_repository(&dist::workspace())?;
    for link in &dead {
        eprintln!("{link}");
    }
    ensure!(
        dead.is_empty(),
        "{} of {count} links in Markdown files are dead",
        dead.len()
    );
    println!("{count} links in Markdown files lead somewhere");
    Ok(())
}

fn run_chapters(options: &Options) -> Result<()> {
    let dist = options.dist.get()?;
    let docs = &dist::workspace().join("docs");
    let mut failed = Vec::new();
    let book = chapters(&docs.join("book/src"))?.into_iter();
    let pages = book.map(|path| (path, docs.join("book/src/pictures")));
    let readme = (dist::workspace().join("README.md"), docs.join("pictures"));
    for (path, pictures) in pages.chain([readme]) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.contains(&options.only) {
            continue;
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let chapter = Chapter::parse(&text);
        let before = failed.len();
        let keep_in = options.keeps_pictures.then_some(&*pictures);
        failed.extend(run_examples(&chapter, &dist, &name, keep_in)?);
        let (examples, pictures) = (chapter.examples.len(), chapter.pictures.len());
        let fine = examples - (failed.len() - before).min(examples);
        println!("{name}: {fine} of {examples} commands as the text says, {pictures} pictures");
    }
    for failure in &failed {
        eprintln!("{failure}");
    }
    ensure!(
        failed.is_empty(),
        "the pages are wrong in {} places",
        failed.len()
    );
    Ok(())
}

/// The chapters, in their order.
fn chapters(source: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    Ok(paths)
}

/// Runs the commands of a chapter one after the other in a folder of its own; what differed.
fn run_examples(chapter: &Chapter, dist: &Dist, name: &str, keep_in: Option<&Path>) -> Result<Vec<String>> {
    let scratch = Scratch::new()?;
    let folder = scratch.folder();
    let mut failed = Vec::new();
    let mut groups = Vec::new();
    for example in &chapter.examples {
        let (status, printed, group) = run_one(&example.command, folder, dist)?;
        groups.push(group);
        if example.command.ends_with('&') {
            server::wait_until_open(group, dist)?;
        }
        if let Some(why) = differs(example, status, &printed) {
            failed.push(format!(
                "{name}:{}: $ {}\n  {why}; it printed:\n{printed}",
                example.line, example.command
            ));
        }
    }
    for picture in &chapter.pictures {
        let (status, printed, group) = run_one(&picture.command, folder, dist)?;
        groups.push(group);
        let made = folder.join(&picture.file);
        if !status.success() || !made.is_file() {
            failed.push(format!(
                "{name}: {} was not made by `{}`: {printed}",
                picture.file, picture.command
            ));
        } else if let Some(kept) = keep_in {
            std::fs::copy(&made, kept.join(&picture.file))?;
        }
    }
    // What was started in the background and has not ended by itself.
    for group in groups {
        end_group(group);
    }
    Ok(failed)
}

/// Runs a line as a shell does. What it printed goes through a file, so that what it leaves in the background is not waited for.
fn run_one(command: &str, folder: &Path, dist: &Dist) -> Result<(ExitStatus, String, i32)> {
    let output = folder.join(".printed");
    let file = File::create(&output)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let nonic = std::path::absolute(dist.nonic())?;
    let bin = nonic.parent().map(Path::to_path_buf);
    let paths = bin.into_iter().chain(std::env::split_paths(&path));
    // A session of its own: what it leaves behind is known by that, even if a program such as `timeout` makes groups of its own.
    let mut shell = Command::new("setsid");
    shell
        .args(["timeout", PATIENCE, "bash", "-c", command])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths)?)
        // For pictures of captures that are kept.
        .env("REPOSITORY", dist::workspace())
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    let mut child = shell.spawn().context("cannot start bash")?;
    let group = i32::try_from(child.id()).context("a process id")?;
    let status = child.wait()?;
    Ok((status, std::fs::read_to_string(&output)?, group))
}

/// How a command went other than the text says, if it did.
fn differs(example: &Example, status: ExitStatus, printed: &str) -> Option<String> {
    match (&example.refusal, status.success()) {
        (None, true) => None,
        (None, false) => Some(format!("it ended with {status}")),
        (Some(_), true) => Some("the text says that it is refused".to_owned()),
        (Some(refusal), false) => {
            let printed = without_figures(printed);
            let mut pieces = refusal.split('…').map(|piece| without_figures(piece.trim()));
            let said = pieces.all(|piece| printed.contains(&piece));
            (!said).then(|| format!("the text says that it answers “{refusal}”"))
        }
    }
}

/// Ports and times are others each time.
fn without_figures(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

fn end_group(group: i32) {
    // SAFETY: no memory is involved. The group was made by a process of ours; if it is gone, the call says so.
    unsafe { libc::kill(-group, libc::SIGTERM) };
}
