//! Records: the lines in which a process tells what is in it, each a kind, then names with values.
//!
//! ```text
//! qp device="roce_lo" qpn=4242 state="RTS" recovering=no
//! ```
//!
//! A number is digits, a yes or no the word, and a text stands in quotes, with `%` and two digits for whatever would end
//! it, the line or the field. So a reader knows what a value is without knowing the name, and a script can cut lines at
//! blanks. One place writes and reads them: [`Line`] and [`Record::parse`], which takes any bytes and makes sense of them
//! or says no.
//!
//! A record may come from any process, and is shown on terminals. So no text of a record has a character that a terminal
//! obeys instead of showing it ([`printable`]), and names that come again take no memory again ([`Names`]).

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// A line that was read is no longer than this.
pub(super) const MAX_LINE: usize = 64 << 10;
/// Fields of a line that was read, at most.
const MAX_FIELDS: usize = 1024;
/// Names of fields and kinds that one process may use.
const MAX_NAMES: usize = 4096;
/// What a record takes that is a row of a table.
const ROW: usize = 4096;
/// What an allocation takes beside its bytes, at most.
const ALLOCATION: usize = 32;

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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    kind: Arc<str>,
    fields: Vec<(Arc<str>, Value)>,
}

/// The names in the records of one process: each is in memory once.
#[derive(Default, Debug)]
pub(super) struct Names(HashSet<Arc<str>>);

impl Names {
    /// Reads a line, without its end. `None` if it is not one of ours.
    pub(super) fn parse(&mut self, line: &[u8]) -> Option<Record> {
        if line.len() > MAX_LINE {
            return None;
        }
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split(' ');
        let kind = self.name(words.next()?)?;
        let count = words.clone().count();
        if count > MAX_FIELDS {
            return None;
        }
        let mut fields = Vec::with_capacity(count);
        for word in words {
            let (name, value) = word.split_once('=')?;
            fields.push((self.name(name)?, parse_value(value)?));
        }
        Some(Record { kind, fields })
    }

    fn name(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.0.get(name) {
            return Some(Arc::clone(known));
        }
        if !is_name(name) || self.0.len() == MAX_NAMES {
            return None;
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        Some(name)
    }
}

impl Record {
    /// Reads a line, without its end. `None` if it is not one of ours.
    pub fn parse(line: &[u8]) -> Option<Self> {
        Names::default().parse(line)
    }

    /// About how much memory it takes, where it is shown as well.
    pub(super) fn memory(&self) -> usize {
        let texts = self.fields.iter().map(|(_, value)| match value {
            Value::Text(text) => ALLOCATION + text.capacity(),
            Value::Number(_) | Value::Flag(_) => 0,
        });
        size_of::<Record>() + ALLOCATION + ROW + size_of_val(self.fields.as_slice()) + texts.sum::<usize>()
    }

    /// What it is about.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// All fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(name, value)| (&**name, value))
    }

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.fields.iter().find(|(other, _)| **other == *name);
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
        self.fields.retain(|(other, _)| **other != *name);
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
        let text = unescape(quoted.strip_suffix('"')?)?;
        return Some(Value::Text(printable(text)));
    }
    // The standard library would take a sign as well.
    let digits = value.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| value.parse().ok().map(Value::Number)).flatten()
}

/// A text without characters that a terminal obeys instead of showing them: those for control, and those that change the
/// direction of writing. They become what a programmer writes for them, as `\u{1b}`.
pub fn printable(text: String) -> String {
    let obeyed = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !text.contains(obeyed) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match obeyed(letter) {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
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
    fn nothing_in_a_text_is_obeyed_by_a_terminal() {
        let line = "qp a=\"%1b]0;x%07%0a%0d%7f\u{9b}31m\u{202e}é\"";
        let record = Record::parse(line.as_bytes()).expect("a record");
        let shown = "\\u{1b}]0;x\\u{7}\\n\\r\\u{7f}\\u{9b}31m\\u{202e}é";
        assert_eq!(record.text("a"), shown);
    }

    #[test]
    fn names_take_memory_once_and_are_bounded() {
        let mut names = Names::default();
        let records: Vec<Record> = (0..100).filter_map(|_| names.parse(b"qp a=1 b=2")).collect();
        assert_eq!((records.len(), names.0.len()), (100, 3));
        let many = (0..MAX_NAMES).map_while(|name| names.parse(format!("n{name}").as_bytes()));
        assert_eq!(many.count(), MAX_NAMES - 3);
        assert!(names.parse(b"qp a=1").is_some(), "those that are known go on");
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
            prop_assert_eq!(record.text("a"), printable(text));
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
