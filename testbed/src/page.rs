//! Pages of the documentation of which a chore writes a part. What people wrote around that part stays.

use crate::workspace::workspace;
use anyhow::{Context, Result};
use std::path::Path;

/// A part of a page, between two lines that people do not touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The page's name, below `docs`.
    pub page: &'static str,
    /// The line before the part.
    pub begin: String,
    /// The line after it.
    pub end: String,
}

impl Part {
    /// What `cargo xtask CHORE` found.
    pub fn found_by(page: &'static str, chore: &str) -> Self {
        Self {
            page,
            begin: format!(
                "<!-- what `cargo xtask {chore}` found; it writes everything down to the end mark -->"
            ),
            end: "<!-- end of what was found -->".to_owned(),
        }
    }

    /// Replaces the part in the page in the folder `docs`; where that has none yet, in a copy of the workspace's page.
    pub fn write(&self, docs: &Path, found: &str) -> Result<()> {
        let path = docs.join(self.page);
        let ours = workspace().join("docs").join(self.page);
        let written = std::fs::read_to_string(&path).or_else(|_| std::fs::read_to_string(&ours));
        let written = written.with_context(|| format!("cannot read {}", ours.display()))?;
        std::fs::write(&path, self.replaced(&written, found)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// What the page has there now.
    pub fn read<'a>(&self, page: &'a str) -> Result<&'a str> {
        self.split(page).map(|[_, part, _]| part)
    }

    /// The page with the part replaced.
    pub fn replaced(&self, page: &str, found: &str) -> Result<String> {
        let [before, _, after] = self.split(page)?;
        Ok(format!("{before}\n\n{}\n\n{after}", found.trim()))
    }

    /// What is before the part, with the line that begins it; the part; and the rest.
    fn split<'a>(&self, page: &'a str) -> Result<[&'a str; 3]> {
        let lost = || format!("docs/{} has lost its marks: {}", self.page, self.begin);
        let begin = page.find(&self.begin).with_context(lost)? + self.begin.len();
        // A page may have several parts, each with its own end.
        let end = begin + page[begin..].find(&self.end).with_context(lost)?;
        Ok([&page[..begin], &page[begin..end], &page[end..]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Part {
        Part::found_by("performance.md", "bench --report")
    }

    #[test]
    fn what_people_wrote_stays() {
        let Part { begin, end, .. } = part();
        let page = format!("mine\n{begin}\n\none\n\n{end}\nand this\n");
        let replaced = part().replaced(&page, "two\n").expect("it has its marks");
        assert_eq!(replaced, page.replace("one", "two"));
        assert_eq!(part().read(&replaced).expect("it has its marks").trim(), "two");
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        let Part { begin, end, .. } = part();
        assert!(part().replaced("mine", "two").is_err());
        assert!(part().replaced(&format!("{end}{begin}"), "two").is_err());
    }
}
