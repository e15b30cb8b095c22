//! A chapter as text: which commands it has, and which pictures.

/// What of a chapter can be checked.
#[derive(Debug, Default)]
pub(super) struct Chapter {
    pub(super) examples: Vec<Example>,
    pub(super) pictures: Vec<Picture>,
}

/// A command to be pasted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Example {
    /// Where it stands.
    pub(super) line: usize,
    pub(super) command: String,
    /// What it answers, if it is meant to fail.
    pub(super) refusal: Option<String>,
}

/// A picture, and how it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Picture {
    pub(super) file: String,
    pub(super) command: String,
}

impl Chapter {
    pub(super) fn parse(text: &str) -> Self {
        let mut chapter = Chapter::default();
        let mut fence: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            match (&fence, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => fence = Some(language.trim().to_owned()),
                (Some(_), Some(_)) => fence = None,
                (Some(language), None) if language == "console" => chapter.read_console(index + 1, line),
                (Some(_), None) => {}
                (None, None) => chapter.read_prose(line),
            }
        }
        chapter
    }

    fn read_console(&mut self, line: usize, text: &str) {
        if let Some(command) = text.strip_prefix("$ ") {
            self.examples.push(Example {
                line,
                command: command.to_owned(),
                refusal: None,
            });
        } else if let Some(example) = self.examples.last_mut() {
            // Complaints of the command begin like this, and end it.
            if example.refusal.is_none() && text.starts_with("nonic: ") {
                example.refusal = Some(text.trim_end_matches('…').trim_end().to_owned());
            }
        }
    }

    fn read_prose(&mut self, line: &str) {
        if let Some(comment) = line.trim().strip_prefix("<!-- picture ") {
            if let Some((file, command)) = comment.trim_end_matches("-->").split_once(": ") {
                self.pictures.push(Picture {
                    file: file.to_owned(),
                    command: command.trim().to_owned(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Some words.

<!-- picture lost.svg: nonic sim --draw=lost.svg -->
![a lost packet](pictures/lost.svg)

```console
$ nonic devices
a table
$ nonic ping nowhere
nonic: there is no such host…
```

```rust
let text = \"$ nonic is not run here\";
```
";

    #[test]
    fn commands_and_pictures_are_found() {
        let chapter = Chapter::parse(TEXT);
        let example = |line, command: &str, refusal: Option<&str>| Example {
            line,
            command: command.to_owned(),
            refusal: refusal.map(str::to_owned),
        };
        assert_eq!(
            chapter.examples,
            [
                example(7, "nonic devices", None),
                example(9, "nonic ping nowhere", Some("nonic: there is no such host"))
            ]
        );
        let picture = Picture {
            file: "lost.svg".to_owned(),
            command: "nonic sim --draw=lost.svg".to_owned(),
        };
        assert_eq!(chapter.pictures, [picture]);
    }
}
