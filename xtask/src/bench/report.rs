//! `docs/performance.md`: what a run found, between two marks. What people wrote around them stays.

use super::curves::Plot;
use super::machine::Machine;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str =
    "<!-- what `cargo xtask bench --report` found; it writes everything down to the end mark -->";
const END: &str = "<!-- end of what was found -->";

/// What people see first, if nobody has written anything yet.
const INTRODUCTION: &str = include_str!("introduction.md");

/// A run.
pub(super) struct Report<'a> {
    pub(super) machine: &'a Machine,
    pub(super) tables: String,
    pub(super) plots: &'a [Plot],
    pub(super) guest: Option<String>,
    pub(super) rounds: usize,
    pub(super) curve_rounds: usize,
    pub(super) seconds: f64,
}

impl Report<'_> {
    /// Writes the page and its plots.
    pub(super) fn write(&self, docs: &Path) -> Result<()> {
        let folder = docs.join("plots");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for plot in self.plots {
            let path = folder.join(format!("{}.svg", plot.file));
            std::fs::write(&path, plot.chart().svg())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let path = docs.join("performance.md");
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(&path, replace(&written, &self.markdown()))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "Medians of {} rounds (plots: {}), measured in {:.0} s on this machine:\n\n{}\n",
            self.rounds,
            self.curve_rounds,
            self.seconds,
            self.machine.markdown()
        );
        let _ = writeln!(text, "{}\n", self.tables.trim());
        if let Some(guest) = &self.guest {
            let _ = writeln!(text, "{}\n", guest.trim());
        }
        text.push_str("## Against size\n\n");
        for plot in self.plots {
            let _ = writeln!(text, "![{}](plots/{}.svg)\n", plot.title(), plot.file);
        }
        text
    }
}

/// The page with what stands between the marks replaced.
fn replace(written: &str, found: &str) -> String {
    let (before, after) = match (written.find(BEGIN), written.find(END)) {
        (Some(begin), Some(end)) if begin < end => (&written[..begin], &written[end + END.len()..]),
        _ => (INTRODUCTION, "\n"),
    };
    format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", found.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_stays() {
        let first = replace("", "one");
        assert!(first.starts_with(INTRODUCTION) && first.contains("\none\n"));
        let edited = first.replace(INTRODUCTION, "mine\n") + "and this\n";
        let second = replace(&edited, "two");
        assert!(second.starts_with("mine\n") && second.ends_with("and this\n"));
        assert!(second.contains("\ntwo\n") && !second.contains("\none\n"));
        assert_eq!(replace(&second, "two"), second);
    }
}
