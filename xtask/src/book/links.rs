//! Link checking: of the repository's Markdown files, and of the book as it was built.
//!
//! Nothing is fetched: what is on other hosts is not followed.

use super::markdown;
use anyhow::{Context, Result, ensure};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The dead links of the repository's Markdown files, and how many there are in all.
///
/// The book's own pages are among them; those that take their text from `docs/` have it checked there.
pub(super) fn check_repository(root: &Path) -> Result<(usize, Vec<String>)> {
    let mut pages = HashMap::new();
    for file in markdown_files(root)? {
        let path = root.join(&file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let links = markdown::links(&text)
            .into_iter()
            .map(|link| (Some(link.line), link.target))
            .collect();
        let anchors = markdown::anchors(&text);
        pages.insert(PathBuf::from(file), Page { links, anchors });
    }
    Ok(check(root, &pages))
}

/// The dead links of the book, as HTML in this folder, and how many there are in all.
pub(super) fn check_html(root: &Path) -> Result<(usize, Vec<String>)> {
    let mut pages = HashMap::new();
    for path in html_files(root)? {
        let name = path.strip_prefix(root).context("a file below its folder")?;
        // It is shown in place of any page that is missing, so its links are relative to none.
        if name != Path::new("404.html") {
            let html =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            pages.insert(name.to_owned(), Page::from_html(&html));
        }
    }
    Ok(check(root, &pages))
}

/// What of a page matters to links.
struct Page {
    /// Where they stand, if that is known, and where they lead.
    links: Vec<(Option<usize>, String)>,
    anchors: HashSet<String>,
}

impl Page {
    fn from_html(html: &str) -> Self {
        let targets = attributes(html, "href").chain(attributes(html, "src"));
        Page {
            links: targets.map(|target| (None, target)).collect(),
            anchors: attributes(html, "id").collect(),
        }
    }
}

/// The values of an attribute, wherever it is.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let begin = format!(" {name}=\"");
    let places: Vec<usize> = html
        .match_indices(&begin)
        .map(|(at, _)| at + begin.len())
        .collect();
    let values = places.into_iter().filter_map(|at| html[at..].split('"').next());
    values.map(|value| value.replace("&amp;", "&"))
}

/// How many links these pages have, and which are dead. Pages are named relative to `root`.
fn check(root: &Path, pages: &HashMap<PathBuf, Page>) -> (usize, Vec<String>) {
    let (mut count, mut dead) = (0, Vec::new());
    for (name, page) in pages {
        for (line, target) in page.links.iter().filter(|(_, target)| !is_elsewhere(target)) {
            count += 1;
            if let Some(why) = is_dead(root, pages, name, target) {
                let place = line.map(|line| format!(":{line}")).unwrap_or_default();
                dead.push(format!("{}{place}: {target}: {why}", name.display()));
            }
        }
    }
    dead.sort();
    (count, dead)
}

/// Whether a link leads to another host, or is no address of a page at all.
pub(super) fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.starts_with("data:")
}

fn is_dead(root: &Path, pages: &HashMap<PathBuf, Page>, from: &Path, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = match path {
        "" => from.to_owned(),
        path => match resolve(from, path) {
            Some(to) => to,
            None => return Some("it leaves the folder".to_owned()),
        },
    };
    if !root.join(&to).exists() {
        return Some("there is no such file".to_owned());
    }
    // What is behind `#` in a file that is no page, such as a line of a program, is not judged.
    let page = pages.get(&to)?;
    let is_there = anchor.is_empty() || page.anchors.contains(anchor);
    (!is_there).then(|| format!("{} has no such heading", to.display()))
}

/// A path relative to a file, relative to what that file is relative to; nothing if it leads out of that.
pub(super) fn resolve(from: &Path, path: &str) -> Option<PathBuf> {
    let mut to = from.parent()?.to_owned();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => to.pop().then_some(())?,
            Component::Normal(name) => to.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(to)
}

/// The Markdown files of the repository, relative to it.
fn markdown_files(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    ensure!(listed.status.success(), "git does not say which files there are");
    let names = String::from_utf8(listed.stdout).context("names of files")?;
    Ok(names.lines().map(str::to_owned).collect())
}

fn html_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(html_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::temporary::Scratch;

    /// A folder of two pages, of which the first has this link.
    fn dead_links(target: &str) -> Vec<String> {
        let scratch = Scratch::new().expect("a folder");
        let root = scratch.folder();
        std::fs::create_dir(root.join("reference")).expect("a folder in it");
        let first = format!("<h1 id=\"top\">One</h1> <a href=\"{target}\">two</a>");
        std::fs::write(root.join("one.html"), first).expect("a page");
        let second = "<h2 id=\"keys\">Keys</h2> <a href=\"../one.html#top\">one</a>";
        std::fs::write(root.join("reference/two.html"), second).expect("a page");
        check_html(root).expect("pages can be read").1
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        for target in [
            "reference/two.html",
            "reference/two.html#keys",
            "#top",
            "https://example.org/x#y",
        ] {
            assert_eq!(dead_links(target), [""; 0], "{target}");
        }
    }

    #[test]
    fn a_missing_file_a_missing_heading_and_a_way_out_are_told() {
        let expected = [
            ("two.html", "one.html: two.html: there is no such file"),
            (
                "reference/two.html#locks",
                "one.html: reference/two.html#locks: reference/two.html has no such heading",
            ),
            ("#bottom", "one.html: #bottom: one.html has no such heading"),
            ("../one.html", "one.html: ../one.html: it leaves the folder"),
        ];
        for (target, told) in expected {
            assert_eq!(dead_links(target), [told], "{target}");
        }
    }

    #[test]
    fn the_repository_has_no_dead_link() {
        let (count, dead) = check_repository(&crate::dist::workspace()).expect("pages can be read");
        assert!(count > 100, "{count} links");
        assert_eq!(dead, [""; 0]);
    }
}
