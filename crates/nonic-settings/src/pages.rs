//! The settings for people to read: a page of documentation, and the end of a command's help.

use crate::{ALL, Form, Setting};
use std::fmt::Write as _;

/// `docs/settings.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         What nonic does is changed by environment variables, for any program that runs on it. A variable that begins\n\
         with `NONIC_` and is not listed here, or has a value that is not, is refused: the device does not open. An empty\n\
         one counts as not set. `on` and `off` may be written 1 and 0.\n\n\
         This page is made from the list in `crates/nonic-settings`; a test fails if it is not.\n\n\
         | variable | values | what it does |\n|---|---|---|\n",
    );
    for setting in ALL {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            setting.name,
            values(setting),
            setting.about
        );
    }
    page
}

/// The end of `nonic --help`.
pub fn help() -> String {
    let mut text = String::from("Environment:\n");
    for setting in ALL {
        let _ = writeln!(text, "  {}={}", setting.name, placeholder(setting));
        // The command that shows it knows how wide the terminal is.
        let _ = writeln!(text, "      {}", setting.about.replace('`', ""));
    }
    text.truncate(text.trim_end().len());
    text
}

fn values(setting: &Setting) -> String {
    match setting.form {
        Form::Choice(words) => {
            let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("{} (the first, if not set)", quoted.join(", "))
        }
        Form::Number(usual, most) => format!("{usual} (if not set) to {most}"),
        Form::File => "a file; `%p` becomes the process id".to_owned(),
        Form::Text(example) => format!("such as `{example}`"),
    }
}

fn placeholder(setting: &Setting) -> String {
    match setting.form {
        Form::Choice(words) => words.join("|"),
        Form::Number(usual, most) => format!("{usual}..{most}"),
        Form::File => "FILE".to_owned(),
        Form::Text(example) => example.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `NONIC_TEST_WRITE` set it writes the page instead.
    #[test]
    fn the_page_is_made_from_the_list() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        if std::env::var_os("NONIC_TEST_WRITE").is_some() {
            std::fs::write(file, page()).expect("written");
        }
        let written = std::fs::read_to_string(file).expect("it is there");
        assert_eq!(written, page(), "NONIC_TEST_WRITE=1 cargo test -p nonic-settings");
    }

    #[test]
    fn help_has_every_setting() {
        let help = help();
        for setting in ALL {
            assert!(help.contains(setting.name));
        }
    }
}
