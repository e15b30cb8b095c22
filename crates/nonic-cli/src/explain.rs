//! `nonic explain`: what a status, an event, a reason or an errno means, what leads to it and what to try.
//!
//! [`topics::find`] takes what the user asks with: a name, a number, a text as programs print it, or a whole line of
//! their output.

use crate::output;
use anyhow::{Result, bail};
use nonic::explain::topics::{self, Kind, Topic};
use serde_json::{Value, json};

/// Say what a completion status, an event, a rejection or an errno means
///
/// Takes names, numbers, and what programs print, quoted or not, also a whole line of it: `nonic explain transport retry counter exceeded`,
/// `nonic explain Failed status 12: wr_id 0`, `nonic explain ENOMEM`. A number alone is explained as all that it may be; say which it is with
/// `status 12` or `errno 12`. Without a word, lists all there is to explain. Of a failure of your own program, NONIC_LOG=warn says more: which
/// key, which range, which side.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A name, whole or in part and in any case (`IBV_WC_REM_ACCESS_ERR`, `unreachable`, `ibv_post_send`), a number, or what a program printed
    #[arg(allow_negative_numbers = true)]
    words: Vec<String>,
    /// The syndrome of a NAK, as a capture shows it (the AETH's, 0x60 to 0x7f)
    #[arg(long, value_parser = number)]
    syndrome: Option<u8>,
}

fn number(text: &str) -> Result<u8, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Result<()> {
    if let Some(syndrome) = arguments.syndrome {
        let known = topics::SYNDROMES.iter().find(|(code, ..)| *code == syndrome);
        let Some((_, meaning, status)) = known else {
            bail!(
                "0x{syndrome:02x} is no syndrome of a NAK; those are 0x60 (packet missing) to 0x63 (remote operational error)"
            );
        };
        if !json {
            output::line(format_args!("syndrome 0x{syndrome:02x}: {meaning}\n"))?;
        }
        return print(&topics::find(status), json);
    }
    let words = arguments.words.join(" ");
    if words.is_empty() {
        return list(json);
    }
    let found = topics::find(&words);
    if found.is_empty() {
        bail!(
            "nothing is called {words}; {}`nonic explain` lists everything that can be explained",
            suggestion(&words)
        );
    }
    let is_number = words.starts_with("0x") || words.parse::<u32>().is_ok();
    if !json && found.len() > 1 && is_number {
        output::line(format_args!(
            "{words} may be any of these; `nonic explain status {words}` and `nonic explain errno {words}` are only one of them\n"
        ))?;
    }
    print(&found, json)
}

/// The names that a misspelt word, or a text that was typed off, may have meant: those that the fewest letters make of it, if they are few.
fn suggestion(word: &str) -> String {
    let word = topics::bare_word(word);
    let distance = |topic: &'static Topic| {
        let name = nonic_settings::distance(&word, &topics::bare(topic));
        let text = topics::texts::of(topic).map(topics::bare_word);
        let text = text.map(|text| nonic_settings::distance(&word, &text));
        (text.map_or(name, |text| text.min(name)), topic.name)
    };
    let mut near: Vec<_> = topics::all().map(distance).collect();
    near.sort_unstable();
    let few = 1 + word.chars().count() / 4;
    let nearest = near.first().map_or(0, |(distance, _)| *distance);
    let names: Vec<&str> = near
        .iter()
        .take_while(|(distance, _)| *distance == nearest && nearest <= few)
        .map(|(_, name)| *name)
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("did you mean {}? ", names.join(" or ")),
    }
}

fn list(json: bool) -> Result<()> {
    if json {
        return output::json(&topics::all().map(as_json).collect::<Vec<_>>());
    }
    let mut table = output::table(["KIND", "NUMBER", "NAME", "MEANING"]);
    for topic in topics::all() {
        let number = topic.number.map_or(String::new(), |number| number.to_string());
        table.add_row([kind(topic.kind), &number, topic.name, topic.meaning]);
    }
    output::print_table(&table)
}

fn print(found: &[&Topic], json: bool) -> Result<()> {
    if json {
        return output::json(&found.iter().map(|topic| as_json(topic)).collect::<Vec<_>>());
    }
    for (index, topic) in found.iter().enumerate() {
        if index > 0 {
            output::line("")?;
        }
        let number = topic.number.map_or(String::new(), |number| {
            format!(" ({} {number})", kind(topic.kind))
        });
        output::line(format_args!("{}{number}: {}", topic.name, topic.meaning))?;
        for (title, phrases) in [("likely", topic.causes), ("try", topic.steps)] {
            if !phrases.is_empty() {
                output::line(format_args!("{title}:"))?;
            }
            phrases
                .iter()
                .try_for_each(|phrase| output::line(format_args!("  - {phrase}")))?;
        }
    }
    Ok(())
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Status => "status",
        Kind::Event => "event",
        Kind::CmEvent => "cm event",
        Kind::Rejection => "reject",
        Kind::Errno => "errno",
        Kind::PortState => "port state",
        Kind::NodeType => "node type",
    }
}

fn as_json(topic: &Topic) -> Value {
    json!({
        "kind": kind(topic.kind),
        "name": topic.name,
        "number": topic.number,
        "text": topics::texts::of(topic),
        "meaning": topic.meaning,
        "causes": topic.causes,
        "steps": topic.steps,
    })
}
