//! Markdown as far as links need it: where they lead, what may be linked to, and the same text with other targets.
//!
//! It is no parser of Markdown. What it must not do is take code for a link, so code is blanked out first, in blocks and within lines.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A link that leads somewhere, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MarkdownLink {
    pub(super) line: usize,
    pub(super) target: String,
}

/// The links of a page, pictures among them, in their order.
pub(super) fn links(text: &str) -> Vec<MarkdownLink> {
    targets(text)
        .into_iter()
        .map(|range| MarkdownLink {
            line: text[..range.start].matches('\n').count() + 1,
            target: text[range].to_owned(),
        })
        .collect()
}

/// The page with other targets in its links.
pub(super) fn retarget(text: &str, mut target: impl FnMut(&str) -> String) -> String {
    let mut page = String::with_capacity(text.len());
    let mut done = 0;
    for range in targets(text) {
        page.push_str(&text[done..range.start]);
        page.push_str(&target(&text[range.clone()]));
        done = range.end;
    }
    page.push_str(&text[done..]);
    page
}

/// What a link may name behind `#`: the page's headings as GitHub writes them, the second of a name with `-1` behind it.
pub(super) fn anchors(text: &str) -> HashSet<String> {
    let blocks = without_blocks(text);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = blocks.lines().filter_map(|line| {
        let title = line.strip_prefix('#')?.trim_start_matches('#');
        title.strip_prefix(' ')
    });
    headings
        .map(|title| {
            let name = anchor(title);
            let before = seen.entry(name.clone()).or_default();
            *before += 1;
            match *before {
                1 => name,
                number => format!("{name}-{}", number - 1),
            }
        })
        .collect()
}

fn anchor(title: &str) -> String {
    let words = links(title).iter().fold(title.to_owned(), |title, link| {
        title.replace(&format!("]({})", link.target), "")
    });
    words
        .trim()
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// Where the targets of links are in a page: `](target)`, and `[name]: target` at the beginning of a line.
fn targets(text: &str) -> Vec<Range<usize>> {
    let prose = without_code(text);
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let begin = at + 2;
        let rest = &prose[begin..];
        let end = rest.find(|letter: char| letter == ')' || letter.is_whitespace());
        found.extend(
            end.filter(|length| *length > 0)
                .map(|length| begin..begin + length),
        );
    }
    let mut line_begin = 0;
    for line in prose.split_inclusive('\n') {
        if line.starts_with('[') {
            if let Some(at) = line.find("]: ") {
                let begin = line_begin + at + 3;
                found.push(begin..line_begin + line.trim_end().len());
            }
        }
        line_begin += line.len();
    }
    found.sort_by_key(|range| range.start);
    found
}

/// The text with spaces in place of code, byte for byte, so that places in it are places in the text.
fn without_code(text: &str) -> String {
    let mut bytes = without_blocks(text).into_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let ticks = ticks_at(&bytes, at);
        if ticks == 0 {
            at += 1;
            continue;
        }
        let begin = at + ticks;
        match closing(&bytes, begin, ticks) {
            Some(end) => {
                blank(&mut bytes[at..end]);
                at = end;
            }
            None => at = begin,
        }
    }
    String::from_utf8(bytes).expect("whole letters were replaced by spaces")
}

/// The text with spaces in place of blocks of code.
fn without_blocks(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (mut begin, mut is_code) = (0, false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_code || is_fence {
            blank(&mut bytes[begin..begin + line.len()]);
        }
        is_code ^= is_fence;
        begin += line.len();
    }
    String::from_utf8(bytes).expect("whole lines were replaced by spaces")
}

fn ticks_at(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().take_while(|byte| **byte == b'`').count()
}

/// Where code ends that began with so many backquotes: behind as many of them, in the same paragraph.
fn closing(bytes: &[u8], begin: usize, ticks: usize) -> Option<usize> {
    let mut at = begin;
    while at < bytes.len() && !bytes[at..].starts_with(b"\n\n") {
        match ticks_at(bytes, at) {
            0 => at += 1,
            number if number == ticks => return Some(at + number),
            number => at += number,
        }
    }
    None
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# A page: `code`, and [a link](else.md)

See [errors](errors.md#memory), ![a picture](lost.svg \"lost\") and [`Name`].
Not `[this](code.md)`, nor ``[that](`code`.md)``.

```text
[nor](block.md)
# nor this
```

## Again
## Again

[`Name`]: ../src/name.rs
";

    #[test]
    fn links_are_found_and_code_is_not_taken_for_one() {
        let found: Vec<_> = links(PAGE)
            .into_iter()
            .map(|link| (link.line, link.target))
            .collect();
        let expected = [
            (1, "else.md"),
            (3, "errors.md#memory"),
            (3, "lost.svg"),
            (14, "../src/name.rs"),
        ];
        assert_eq!(found, expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn headings_can_be_linked_to() {
        let expected = ["a-page-code-and-a-link", "again", "again-1"];
        assert_eq!(anchors(PAGE), expected.map(str::to_owned).into());
    }

    #[test]
    fn other_targets_change_nothing_else() {
        assert_eq!(retarget(PAGE, str::to_owned), PAGE);
        let elsewhere = retarget(PAGE, |target| format!("x/{target}"));
        assert_eq!(elsewhere.matches("x/").count(), 4);
        assert_eq!(elsewhere.replace("x/", ""), PAGE);
    }
}
