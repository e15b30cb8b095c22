//! `docs/performance.md`: what a run found, between two marks. What people wrote around them stays.

use super::curves::Plot;
use super::machine::Machine;
use crate::dist;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::Path;

const PAGE: &str = "performance.md";
const BEGIN: &str =
    "<!-- what `cargo xtask bench --report` found; it writes everything down to the end mark -->";
const END: &str = "<!-- end of what was found -->";

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
        let path = docs.join(PAGE);
        let ours = dist::workspace().join("docs").join(PAGE);
        let written = std::fs::read_to_string(&path).or_else(|_| std::fs::read_to_string(&ours));
        let written = written.with_context(|| format!("cannot read {}", ours.display()))?;
        std::fs::write(&path, replace(&written, &self.markdown())?)
            .with_context(|| format!("cannot write {}", path.display()))
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

/// The page with what stands between the marks replaced.
fn replace(written: &str, found: &str) -> Result<String> {
    replace_between(written, found, BEGIN, END)
}

/// Any page with what stands between its marks replaced.
pub(crate) fn replace_between(written: &str, found: &str, begin: &str, end: &str) -> Result<String> {
    let marks = written.find(begin).zip(written.find(end));
    let (first, last) = marks.context("the page has lost its marks")?;
    ensure!(first < last, "the page has its marks the wrong way round");
    let (before, after) = (&written[..first], &written[last + end.len()..]);
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", found.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_stays() {
        let page = format!("mine\n{BEGIN}\n\none\n\n{END}\nand this\n");
        let replaced = replace(&page, "two\n").expect("it has its marks");
        assert_eq!(replaced, page.replace("one", "two"));
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        assert!(replace("mine", "two").is_err());
        assert!(replace(&format!("{END}{BEGIN}"), "two").is_err());
    }

    #[test]
    fn our_page_has_its_marks() {
        let page = dist::workspace().join("docs").join(PAGE);
        let page = std::fs::read_to_string(page).expect("there is a page");
        assert!(replace(&page, "two").is_ok());
    }
}
