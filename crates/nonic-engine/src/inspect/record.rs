//! The lines in which a process tells what is in it: a kind, then names with values.
//!
//! ```text
//! qp device="roce_lo" qpn=4242 state="RTS" recovering=no
//! ```
//!
//! A number is digits, a yes or no the word, and a text stands in quotes, with `%` and two digits for whatever would end it, the line
//! or the field. So a reader knows what a value is without knowing the name, and a script can cut lines at blanks. One place
//! writes and reads them: [`Line`] and [`Record::parse`], which takes any bytes and makes sense of them or says no.

use std::fmt::{self, Write as _};

/// A line that was read is no longer than this.
pub(super) const MAX_LINE: usize = 64 << 10;
/// Fields of a line that was read, at most.
const MAX_FIELDS: usize = 1024;

/// What a field says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A count, a size, a time in nanoseconds, an identifier.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// A word, an address, a name.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Flag(true) => f.write_str("yes"),
            Value::Flag(false) => f.write_str("no"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// A line that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    kind: String,
    fields: Vec<(String, Value)>,
}

impl Record {
    /// Reads a line, without its end. `None` if it is not one of ours.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if line.len() > MAX_LINE {
            return None;
        }
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split(' ');
        let kind = words.next().filter(|kind| is_name(kind))?.to_owned();
        let mut fields = Vec::new();
        for word in words {
            let (name, value) = word.split_once('=')?;
            if !is_name(name) || fields.len() == MAX_FIELDS {
                return None;
            }
            fields.push((name.to_owned(), parse_value(value)?));
        }
        Some(Record { kind, fields })
    }

    /// What it is about.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// All fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.fields.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value)
    }

    /// The number of this name, zero if there is none.
    pub fn number(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    /// The text of this name, empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// Whether the flag of this name says yes.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Flag(true))
    }

    /// Takes a field out.
    pub fn remove(&mut self, name: &str) {
        self.fields.retain(|(other, _)| other != name);
    }
}

/// A line that is being written to the end of a string.
#[derive(Debug)]
pub(super) struct Line<'a>(&'a mut String);

impl<'a> Line<'a> {
    /// Begins a line. Kinds and names are words of lower-case letters, digits and underscores.
    pub(super) fn new(out: &'a mut String, kind: &str) -> Self {
        debug_assert!(is_name(kind), "{kind} cannot be read");
        out.push_str(kind);
        Line(out)
    }

    /// Adds a number.
    pub(super) fn number(self, name: &str, number: u64) -> Self {
        self.field(name, format_args!("{number}"))
    }

    /// Adds a number, if there is one.
    pub(super) fn number_if(self, name: &str, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(name, number),
            None => self,
        }
    }

    /// Adds a yes or no.
    pub(super) fn flag(self, name: &str, flag: bool) -> Self {
        self.field(name, if flag { "yes" } else { "no" })
    }

    /// Adds a text.
    pub(super) fn text(self, name: &str, text: impl fmt::Display) -> Self {
        let line = self.field(name, '"');
        // Writing to a string does not fail.
        let _ = write!(Escape(line.0), "{text}");
        line.0.push('"');
        line
    }

    /// Ends it.
    pub(super) fn end(self) {
        self.0.push('\n');
    }

    fn field(self, name: &str, value: impl fmt::Display) -> Self {
        debug_assert!(is_name(name), "{name} cannot be read");
        let _ = write!(self.0, " {name}={value}");
        self
    }
}

/// Writes what would end a text, a field or a line as `%` and two digits.
struct Escape<'a>(&'a mut String);

impl fmt::Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '%' | '"' | ' ' | '\0'..='\x1f' | '\x7f' => write!(self.0, "%{:02x}", letter as u32)?,
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let letter = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_';
    !name.is_empty() && name.bytes().all(letter)
}

fn parse_value(value: &str) -> Option<Value> {
    match value {
        "yes" => return Some(Value::Flag(true)),
        "no" => return Some(Value::Flag(false)),
        _ => {}
    }
    if let Some(quoted) = value.strip_prefix('"') {
        return unescape(quoted.strip_suffix('"')?).map(Value::Text);
    }
    // The standard library would take a sign as well.
    let digits = value.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| value.parse().ok().map(Value::Number)).flatten()
}

fn unescape(text: &str) -> Option<String> {
    if text.contains('"') {
        return None;
    }
    let mut parts = text.split('%');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        if !code.is_ascii() {
            return None;
        }
        out.push(char::from(code));
        out.push_str(part.get(2..)?);
    }
    Some(out)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(write: impl FnOnce(Line<'_>) -> Line<'_>) -> String {
        let mut out = String::new();
        write(Line::new(&mut out, "qp")).end();
        out
    }

    #[test]
    fn a_line_is_what_the_documentation_says() {
        let line = line(|line| {
            line.text("device", "roce_lo")
                .number("qpn", 4242)
                .number_if("srq", None)
                .flag("recovering", false)
        });
        assert_eq!(line, "qp device=\"roce_lo\" qpn=4242 recovering=no\n");
        let record = Record::parse(line.trim_end().as_bytes()).expect("our own");
        assert_eq!((record.kind(), record.text("device")), ("qp", "roce_lo"));
        assert_eq!((record.number("qpn"), record.flag("recovering")), (4242, false));
        assert_eq!(record.get("srq"), None);
    }

    #[test]
    fn what_is_none_of_ours_is_refused() {
        let refused: [&[u8]; 14] = [
            b"",
            b" ",
            b"qp ",
            b"QP",
            b"qp qpn",
            b"qp qpn=",
            b"qp qpn=+1",
            b"qp qpn=-1",
            b"qp qpn=18446744073709551616",
            b"qp =1",
            b"qp a=\"",
            b"qp a=\"%zz\"",
            b"qp a=\"%ff\"",
            b"qp a=\"x\"y\"",
        ];
        for line in refused {
            assert_eq!(Record::parse(line), None, "{}", line.escape_ascii());
        }
        assert!(Record::parse(b"qp").is_some());
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in ".*", number: u64, flag: bool) {
            let line = line(|line| line.text("a", &text).number("b", number).flag("c", flag));
            prop_assert_eq!(line.matches('\n').count(), 1);
            let record = Record::parse(line.trim_end_matches('\n').as_bytes()).expect("our own");
            prop_assert_eq!(record.text("a"), text);
            prop_assert_eq!((record.number("b"), record.flag("c")), (number, flag));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Record::parse(&bytes);
        }

        /// Most bytes are no line at all; these are almost one.
        #[test]
        fn lines_of_almost_our_own_are_read_or_refused(line in "qp( [a-z]{0,3}=?[\"0-9a-f%]{0,9}){0,4}") {
            let _ = Record::parse(line.as_bytes());
        }
    }
}
