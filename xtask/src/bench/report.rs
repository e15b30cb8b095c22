//! `docs/performance.md`: what a run found, between two marks. What people wrote around them stays.

use super::curves::Plot;
use super::machine::Machine;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;
use testbed::page::Part;

/// The part of the page that a run writes.
fn part() -> Part {
    Part::found_by("performance.md", "bench --report")
}

/// A run.
pub(super) struct Report<'a> {
    pub(super) machine: &'a Machine,
    pub(super) tables: String,
    pub(super) plots: &'a [Plot],
    pub(super) guest: Option<String>,
    pub(super) rounds: u32,
    pub(super) curve_rounds: u32,
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
        part().write(docs, &self.markdown())
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "Medians of {} (plots: {}), measured in {:.0} s on this machine:\n\n{}\n",
            rounds(self.rounds),
            rounds(self.curve_rounds),
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

fn rounds(count: u32) -> String {
    match count {
        1 => "one round".to_owned(),
        count => format!("{count} rounds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist;

    #[test]
    fn our_page_has_its_marks() {
        let page = dist::workspace().join("docs").join(part().page);
        let page = std::fs::read_to_string(page).expect("there is a page");
        assert!(part().replaced(&page, "two").is_ok());
    }
}
