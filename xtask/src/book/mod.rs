//! The book (`docs/book`) and the README: their commands are run as they stand, their pictures made anew, their links followed. Of the
//! other pages of the repository only the links are.
//!
//! Rust programs are not its business: they are doc tests, of the package `nonic-book` and of `nonic`. What a command prints is compared
//! with the text only where it fails on purpose: figures differ from machine to machine. Blocks marked `sh` are not run: they install
//! something, or need another host.

mod chapter;
mod server;

use crate::dist::{self, Dist};
use crate::programs::scratch::Scratch;
use anyhow::{Context, Result, ensure};
use chapter::{Chapter, Example};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// No command of the book takes longer.
const PATIENCE: &str = "60";

/// What to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    build: dist::Options,
    /// Only chapters whose file name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Do not build; use this folder, as made by `dist`.
    #[arg(long = "dist", value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = match &options.folder {
        Some(root) => Dist { root: root.clone() },
        None => Dist::build(&options.build)?,
    };
    let root = dist::workspace();
    let mut failed = Vec::new();
    let with_commands = pages(&root.join("docs/book/src"))?
        .into_iter()
        .chain([root.join("README.md")]);
    for path in with_commands.filter(|path| name(path).contains(&options.only)) {
        let (name, chapter) = (name(&path), read(&path)?);
        failed.extend(broken_links(&chapter, &path));
        let before = failed.len();
        failed.extend(run_examples(&chapter, &dist, &name)?);
        let (examples, pictures) = (chapter.examples.len(), chapter.pictures.len());
        let fine = examples - (failed.len() - before).min(examples);
        println!("{name}: {fine} of {examples} commands as the text says, {pictures} pictures");
    }
    let others = pages(&root)?.into_iter().chain(pages(&root.join("docs"))?);
    for path in others.filter(|path| name(path).contains(&options.only)) {
        failed.extend(broken_links(&read(&path)?, &path));
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

/// The pages of a folder, in their order.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Chapter> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Chapter::parse(&text))
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn broken_links(chapter: &Chapter, path: &Path) -> Vec<String> {
    let folder = path.parent().unwrap_or(path);
    let broken = chapter.links.iter().filter(|link| !folder.join(link).exists());
    broken
        .map(|link| format!("{}: nothing is at {link}", path.display()))
        .collect()
}

/// Runs the commands of a chapter one after the other in a folder of its own; what differed.
fn run_examples(chapter: &Chapter, dist: &Dist, name: &str) -> Result<Vec<String>> {
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
    let mut shell = Command::new("timeout");
    shell
        .args([PATIENCE, "bash", "-c", command])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths)?)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0);
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
