//! Looking into running processes: `nonic ps`, `nonic show`, `nonic metrics`, and what `nonic top` shows live.
//!
//! A process answers with a list of records ([`nonic::inspect`]); here they are asked for ([`gather`]) and written as
//! tables, JSON or metrics. A process that is stopped, or of another user, does not delay the answers of the others.

pub(crate) mod metrics;
pub(crate) mod ps;
pub(crate) mod show;

use anyhow::{Context, Result, bail};
use nonic::inspect::{Answer, InspectError, Record, Request, Value};
use serde_json::{Map, Value as Json};
use std::time::Duration;

/// What processes answered.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) answers: Vec<Answer>,
    /// Processes that are there and did not answer.
    pub(crate) silent: Vec<InspectError>,
    /// How many are of other users.
    pub(crate) others: usize,
}

/// Asks the processes of this user, for root those of all users, or one of them, and waits for all together no longer than
/// `patience`.
pub(crate) fn gather(request: Request, pid: Option<u32>, patience: Duration) -> Result<Gathered> {
    let mut processes = nonic::inspect::processes().context("cannot read /proc/net/unix")?;
    if let Some(pid) = pid {
        processes.retain(|process| process.pid() == pid);
        if processes.is_empty() {
            bail!(
                "no process {pid} has a device open that can be looked into; `nonic ps` lists those that have, and \
                 NONIC_INSPECT=off hides one"
            );
        }
    }
    let mut gathered = Gathered::default();
    for outcome in nonic::inspect::ask_all(&processes, request, patience) {
        gathered.add(outcome);
    }
    gathered.answers.sort_by_key(|answer| answer.pid);
    // A process has one name. One that has many is listed once.
    gathered.silent.sort_by_key(InspectError::pid);
    gathered.silent.dedup_by_key(|error| error.pid());
    match pid {
        Some(pid) if gathered.answers.is_empty() => Err(gathered.why_not(pid)),
        _ => Ok(gathered),
    }
}

impl Gathered {
    fn add(&mut self, outcome: Result<Answer, InspectError>) {
        match outcome {
            Ok(answer) => self.answers.push(answer),
            // It ended while the others were asked.
            Err(InspectError::Gone { .. }) => {}
            Err(InspectError::OtherUser { .. }) => self.others += 1,
            Err(error) => self.silent.push(error),
        }
    }

    /// Why the only process that was asked did not answer.
    fn why_not(mut self, pid: u32) -> anyhow::Error {
        match self.silent.pop() {
            Some(error) => error.into(),
            None if self.others > 0 => InspectError::OtherUser { pid }.into(),
            None => InspectError::Gone { pid }.into(),
        }
    }

    /// The records of a kind, each with the process it is of.
    pub(crate) fn records<'a>(
        &'a self,
        kind: &'a str,
    ) -> impl Iterator<Item = (&'a Answer, &'a str, &'a Record)> {
        self.answers.iter().flat_map(move |answer| {
            let command = command_of(answer);
            let records = answer.records.iter().filter(move |record| record.kind() == kind);
            records.map(move |record| (answer, command, record))
        })
    }

    /// Says on standard error which processes did not answer, or not completely.
    pub(crate) fn complain(&self) {
        use std::io::Write;
        let mut stderr = std::io::stderr().lock();
        for error in &self.silent {
            // Standard error may have no reader.
            let _ = writeln!(stderr, "nonic: {error}");
        }
        for Answer { pid, uid, .. } in self.answers.iter().filter(|answer| answer.cut) {
            let _ = writeln!(
                stderr,
                "nonic: process {pid} of user {uid} says more than is read when all are asked; ask it alone (`--pid {pid}`)"
            );
        }
    }
}

/// The name of the program that answered.
pub(crate) fn command_of(answer: &Answer) -> &str {
    let process = answer.records.iter().find(|record| record.kind() == "process");
    process.map_or("", |process| short(process.text("command")))
}

/// The beginning of a name that stands with every record or number. The kernel's names of programs and interfaces are shorter; a
/// process may say what it likes.
fn short(name: &str) -> &str {
    const LONGEST: usize = 64;
    name.char_indices()
        .nth(LONGEST)
        .map_or(name, |(end, _)| &name[..end])
}

/// A record as JSON, with the process it is of.
fn as_json(of: &Answer, command: &str, record: &Record) -> Json {
    let mut object = Map::new();
    object.insert("pid".to_owned(), of.pid.into());
    object.insert("uid".to_owned(), of.uid.into());
    object.insert("command".to_owned(), command.into());
    object.extend(fields_as_json(record));
    Json::Object(object)
}

/// The fields of a record as JSON.
pub(crate) fn fields_as_json(record: &Record) -> Map<String, Json> {
    let fields = record.fields().map(|(name, value)| {
        let value = match value {
            Value::Number(number) => Json::from(*number),
            Value::Flag(flag) => Json::from(*flag),
            Value::Text(text) => Json::from(text.as_str()),
        };
        (name.to_owned(), value)
    });
    fields.collect()
}
