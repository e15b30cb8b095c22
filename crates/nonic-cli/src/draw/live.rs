//! Follows a capture that is being written, and draws what is added to it.
//!
//! The file is polled a few times a second: the process that writes it need not know that it is read. A program that is
//! run gets a capture of its own (`NONIC_PCAP`), which is removed with the end of the program.

use super::{CHUNK, View};
use crate::output;
use anyhow::{Context, Result, bail};
use nonic_ladder::{CaptureDrawer, Selection, terminal};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// How long nothing is looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// Draws a growing capture, or a program's, until that ends.
pub(super) fn follow(capture: Option<&Path>, command: &[OsString], view: &View) -> Result<()> {
    match (capture, command) {
        (Some(path), []) => {
            if view.svg.is_some() {
                bail!(
                    "a capture that grows has no end to draw up to; leave out --live, or give the program to run"
                );
            }
            let mut follower = Follower::new(path, view);
            loop {
                follower.draw_news()?;
                std::thread::sleep(PAUSE);
            }
        }
        (None, [program, arguments @ ..]) => follow_program(program, arguments, view),
        _ => bail!("say which capture to follow, or which program to run: nonic draw --live -- COMMAND"),
    }
}

fn follow_program(program: &OsString, arguments: &[OsString], view: &View) -> Result<()> {
    let capture = TemporaryCapture::create()?;
    let child = Command::new(program)
        .args(arguments)
        .env(nonic_settings::PCAP.name, &capture.path)
        .spawn()
        .with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
    let mut child = Running(child);
    let mut follower = Follower::new(&capture.path, view);
    let status = loop {
        let ended = child
            .0
            .try_wait()
            .context("cannot tell whether the program runs")?;
        follower.draw_news()?;
        if let Some(status) = ended {
            break status;
        }
        std::thread::sleep(PAUSE);
    };
    let shown = follower.shown;
    if view.svg.is_some() && shown > 0 {
        let mut ladder = view.selection().apply(follower.drawer.finish());
        ladder.title = program.to_string_lossy().into_owned();
        super::show(&ladder, view, false)?;
    }
    if !status.success() {
        bail!("{} ended with {status}", program.to_string_lossy());
    }
    if shown == 0 {
        bail!("{} sent nothing that could be drawn", program.to_string_lossy());
    }
    Ok(())
}

/// A capture and what was drawn of it.
struct Follower<'a> {
    path: &'a Path,
    file: Option<File>,
    drawer: CaptureDrawer,
    /// Events that were drawn or not wanted.
    shown: usize,
    /// Ends that the last heading names.
    named: usize,
    view: &'a View,
    selection: Selection,
}

impl<'a> Follower<'a> {
    fn new(path: &'a Path, view: &'a View) -> Self {
        Follower {
            path,
            file: None,
            drawer: super::drawer(),
            shown: 0,
            named: 0,
            view,
            selection: view.selection(),
        }
    }

    /// Reads and draws what was added.
    fn draw_news(&mut self) -> Result<()> {
        let what = || format!("cannot follow {}", self.path.display());
        if self.file.is_none() {
            self.file = match File::open(self.path) {
                Ok(file) => Some(file),
                // The process that writes it has not begun.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error).with_context(what),
            };
        }
        if let Some(file) = &mut self.file {
            let mut chunk = vec![0; CHUNK];
            loop {
                let length = file.read(&mut chunk).with_context(what)?;
                if length == 0 {
                    break;
                }
                self.drawer.handle(&chunk[..length]).with_context(what)?;
            }
        }
        self.draw()
    }

    fn draw(&mut self) -> Result<()> {
        let ladder = self.drawer.so_far();
        if ladder.events.len() == self.shown || self.view.svg.is_some() {
            self.shown = ladder.events.len();
            return Ok(());
        }
        let screen = self.view.window.screen();
        if ladder.ends.len() > self.named {
            self.named = ladder.ends.len();
            terminal::head(ladder, screen).iter().try_for_each(output::line)?;
        }
        let start_ns = ladder.start_ns();
        let rows = terminal::rows(ladder, self.shown, screen);
        for (event, row) in ladder.events[self.shown..].iter().zip(rows) {
            if self.selection.wants(event, start_ns) {
                output::line(row)?;
            }
        }
        self.shown = ladder.events.len();
        Ok(())
    }
}

/// A capture that is removed when it is no longer needed.
struct TemporaryCapture {
    path: PathBuf,
}

impl TemporaryCapture {
    /// The file must be new, made by no other process: what is written there is for us alone.
    fn create() -> Result<Self> {
        let name = format!("nonic-draw-{}.pcapng", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        made.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(TemporaryCapture { path })
    }
}

impl Drop for TemporaryCapture {
    fn drop(&mut self) {
        // It is in a folder for temporary files anyway.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A program that does not outlive us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
