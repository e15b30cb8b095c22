//! The outcome of asking a process: its answer, or why there is none.

use super::record::Record;
use std::io;

/// Why a process did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// It is of another user.
    #[error("process {pid} is of another user; ask as that user")]
    OtherUser {
        /// Its number.
        pid: u32,
    },
    /// It has ended, or closed its last device.
    #[error("process {pid} has ended, or closed its last device")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// It is there and says nothing.
    #[error("process {pid} does not answer; it may be stopped (`kill -CONT {pid}`) or short of processors")]
    Silent {
        /// Its number.
        pid: u32,
    },
    /// It says why not.
    #[error("process {pid} does not say: {reason}")]
    Refused {
        /// Its number.
        pid: u32,
        /// In its words.
        reason: String,
    },
    /// What it says makes no sense.
    #[error("process {pid} answers with something else than records; is its nonic of another version?")]
    Nonsense {
        /// Its number.
        pid: u32,
    },
    /// The operating system refused.
    #[error("cannot ask process {pid}: {error}")]
    Io {
        /// Its number.
        pid: u32,
        /// What it said.
        error: io::Error,
    },
}

impl InspectError {
    /// The process that did not answer.
    pub fn pid(&self) -> u32 {
        match self {
            InspectError::OtherUser { pid }
            | InspectError::Gone { pid }
            | InspectError::Silent { pid }
            | InspectError::Refused { pid, .. }
            | InspectError::Nonsense { pid }
            | InspectError::Io { pid, .. } => *pid,
        }
    }
}

/// What a process answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its number, as this process counts; its own number if it is in a PID namespace that we do not see.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// What tells it from another one with the same number, in another PID namespace.
    pub nonce: u64,
    /// What it said.
    pub records: Vec<Record>,
    /// It said more than there was memory for. A process of another user has a part of what there is for all of them, so one
    /// that is asked alone may say more.
    pub cut: bool,
}
