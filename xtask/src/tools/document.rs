//! `docs/programs.md`, which two chores write: each its part, from what its run found.

use crate::dist;
use anyhow::{Context, Result, ensure};

/// Where the second part begins; [`crate::programs`] writes this line first.
pub(crate) const SECOND_PART: &str = "# Programs built upon other libraries";

/// A part of the document.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What `cargo xtask tools` found.
    Tools,
    /// What `cargo xtask programs` found.
    Programs,
}

impl Part {
    /// Writes the part, or compares it with what is written.
    pub(crate) fn document(self, text: &str, write: bool) -> Result<()> {
        let path = dist::workspace().join("docs/programs.md");
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let start = written.find(SECOND_PART).unwrap_or(written.len());
        let (tools, programs) = (written[..start].trim_end(), written[start..].trim_end());
        let ours = if self == Part::Tools { tools } else { programs };
        if !write {
            ensure!(
                ours == text.trim_end(),
                "docs/programs.md is not what was found; see `cargo xtask {} --write`",
                self.chore()
            );
            return Ok(());
        }
        let parts = match self {
            Part::Tools => [text.trim_end(), programs],
            Part::Programs => [tools, text.trim_end()],
        };
        let whole = parts.join("\n\n").trim_end().to_owned() + "\n";
        std::fs::write(&path, whole).with_context(|| format!("cannot write {}", path.display()))
    }

    fn chore(self) -> &'static str {
        match self {
            Part::Tools => "tools",
            Part::Programs => "programs",
        }
    }
}
