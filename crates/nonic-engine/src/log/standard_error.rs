//! A subscriber of `tracing` that writes a line for each event to standard error.
//!
//! It is small on purpose, since it is part of the C libraries: no spans, no colours, no formats to choose from. A program that wants more has a
//! subscriber of its own.

use super::filter::Filter;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes what the filter lets through.
pub(super) struct StandardError {
    filter: Filter,
}

impl StandardError {
    pub(super) fn new(filter: Filter) -> Self {
        StandardError { filter }
    }
}

impl Subscriber for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.filter.passes(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn event(&self, event: &Event<'_>) {
        let line = line(event);
        // In one piece, so that lines of several processes are not mixed. Whether anybody reads it is not our business.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        // None is enabled; and a number must not be 0.
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// `nonic[4711] warn qp: …`, and a newline.
fn line(event: &Event<'_>) -> String {
    let metadata = event.metadata();
    let part = metadata.target().rsplit("::").next().unwrap_or_default();
    let level = metadata.level().as_str().to_lowercase();
    let mut line = Line(format!("nonic[{}] {level} {part}:", std::process::id()));
    event.record(&mut line);
    line.0.push('\n');
    line.0
}

/// A line that fields are added to.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A string can always be written to.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
