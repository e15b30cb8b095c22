//! Exit codes that say more than failure: 127 and 126 of `nonic run`, 130 after Ctrl-C.

use std::fmt;

/// Ends the process with a code of its own.
#[derive(Debug)]
pub(crate) struct ExitWith {
    pub(crate) code: u8,
    /// What is still to be said on standard error.
    pub(crate) message: Option<String>,
}

impl ExitWith {
    /// After Ctrl-C, when everything has been said.
    pub(crate) fn interrupted() -> Self {
        ExitWith {
            code: crate::interrupt::EXIT_CODE,
            message: None,
        }
    }
}

impl fmt::Display for ExitWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or("interrupted"))
    }
}

impl std::error::Error for ExitWith {}
