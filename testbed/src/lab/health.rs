//! The health of a guest: its emulator runs, its kernel does not complain about itself, and it answers.
//!
//! Read first: [`Breakdown`] (why it is not), then [`Health`].

use super::console::Complaint;
use crate::logged::{LoggedProcess, POLL_INTERVAL};
use crate::process::last_lines;
use std::fmt;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a guest is asked whether it is there.
const INTERVAL: Duration = Duration::from_secs(1);

/// A guest that has not answered for so long will not; an emulated one on a busy machine may well be silent for seconds.
const SILENCE: Duration = Duration::from_secs(20);

/// When nothing came from the console for so long, the kernel has said all of it.
const QUIET: Duration = Duration::from_millis(500);

/// The kernel is not listened to any longer than that.
const LONGEST_TRACE: Duration = Duration::from_secs(10);

/// Why a guest is of no use any more.
#[derive(Clone, Debug)]
pub enum Breakdown {
    /// Its kernel complains about itself.
    Complaint(Complaint),
    /// The emulator ended; these were its last words.
    Ended(String),
    /// It does not answer.
    Silent,
    /// A process that was killed does not end.
    Unkillable,
}

impl Breakdown {
    /// All that the kernel said of it.
    pub fn lines(&self) -> &[String] {
        match self {
            Self::Complaint(complaint) => complaint.lines(),
            Self::Ended(_) | Self::Silent | Self::Unkillable => &[],
        }
    }
}

impl fmt::Display for Breakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complaint(complaint) => write!(f, "the guest's kernel broke down: {}", complaint.summary()),
            Self::Ended(words) => write!(f, "the guest died: {words}"),
            Self::Silent => write!(f, "the guest has not answered for {SILENCE:?}"),
            Self::Unkillable => write!(f, "the guest's kernel cannot end a process"),
        }
    }
}

impl std::error::Error for Breakdown {}

/// What is known of a guest.
pub(super) struct Health {
    folder: PathBuf,
    /// How much of the console was read.
    read: u64,
    /// The last question, when it was asked, and whether it was answered.
    question: u32,
    asked: Instant,
    answered: bool,
    broken: Option<Breakdown>,
}

impl Health {
    /// Of a guest that has just booted; what it said until now does not matter.
    pub(super) fn new(folder: &Path) -> Self {
        let mut health = Self {
            folder: folder.to_owned(),
            read: 0,
            question: 0,
            asked: Instant::now(),
            answered: true,
            broken: None,
        };
        health.read = health.console_length();
        health
    }

    /// Asks the guest from time to time. Answers what is wrong, once and for all.
    pub(super) fn check(
        &mut self,
        emulator: &mut LoggedProcess,
        control: &mut UnixStream,
    ) -> Result<(), Breakdown> {
        if self.broken.is_none() {
            self.broken = self.examine(emulator, control);
        }
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn examine(&mut self, emulator: &mut LoggedProcess, control: &mut UnixStream) -> Option<Breakdown> {
        // In this order: a kernel that panics has said why when its emulator ends.
        let runs = emulator.runs();
        if let Some(complaint) = self.complaint(emulator) {
            return Some(Breakdown::Complaint(complaint));
        }
        if !runs {
            let status = emulator.finished().ok().flatten().map_or(-1, |end| end.status);
            let words = last_lines(&emulator.output());
            return Some(Breakdown::Ended(format!(
                "its emulator's exit status is {status} {words}"
            )));
        }
        if !self.answered {
            self.answered = self.last_answer() == Some(self.question);
        }
        let since = self.asked.elapsed();
        if !self.answered {
            return (since > SILENCE).then_some(Breakdown::Silent);
        }
        if since > INTERVAL {
            self.question += 1;
            self.asked = Instant::now();
            // A guest that cannot be asked will not answer either.
            self.answered = false;
            let _ = writeln!(control, "ask {}", self.question);
        }
        None
    }

    fn last_answer(&self) -> Option<u32> {
        std::fs::read_to_string(self.folder.join("answer"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    fn console_length(&self) -> u64 {
        std::fs::metadata(self.console()).map_or(0, |metadata| metadata.len())
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    /// Looks at what came from the console since it was last looked at. If that is a complaint, waits for the rest of it.
    fn complaint(&mut self, emulator: &mut LoggedProcess) -> Option<Complaint> {
        if self.console_length() == self.read {
            return None;
        }
        let (text, whole_lines) = self.unread();
        if Complaint::find(&text).is_none() {
            // A line that is not complete yet is read again.
            self.read += whole_lines;
            return None;
        }
        let began = Instant::now();
        let (mut length, mut grown) = (self.console_length(), began);
        while grown.elapsed() < QUIET && began.elapsed() < LONGEST_TRACE && emulator.runs() {
            std::thread::sleep(POLL_INTERVAL);
            if self.console_length() != length {
                (length, grown) = (self.console_length(), Instant::now());
            }
        }
        Complaint::find(&self.unread().0)
    }

    /// What was not read yet, and how much of it is whole lines.
    fn unread(&self) -> (String, u64) {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(self.console()) {
            // What cannot be read is not there.
            let _ = file
                .seek(SeekFrom::Start(self.read))
                .and_then(|_| file.read_to_end(&mut bytes));
        }
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        (String::from_utf8_lossy(&bytes).into_owned(), whole as u64)
    }
}
