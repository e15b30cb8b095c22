//! A subscriber of `tracing` that writes a line to standard error for each event, and for each span when it ends.
//!
//! It is small on purpose, since it is part of the C libraries: no nesting of spans, no colours, no formats to choose from.
//! A program that wants more has a subscriber of its own.

use super::fields::Fields;
use super::filter::Filter;
use super::open_spans::OpenSpans;
use std::io::Write as _;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes what the filter lets through.
pub(super) struct StandardError {
    filter: Filter,
    spans: OpenSpans,
}

impl StandardError {
    pub(super) fn new(filter: Filter) -> Self {
        StandardError {
            filter,
            spans: OpenSpans::default(),
        }
    }
}

impl Subscriber for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.passes(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        tell(event.metadata(), &fields.0);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.spans.open(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.spans.record(span, values);
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.spans.keep(span);
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let ended = self.spans.let_go(&span);
        if let Some((metadata, story)) = &ended {
            tell(metadata, story);
        }
        ended.is_some()
    }

    // The nesting of spans is not logged.

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Writes `nonic[4711] warn qp: …`, and a newline.
fn tell(metadata: &Metadata<'_>, what: &str) {
    let part = metadata.target().rsplit("::").next().unwrap_or_default();
    let level = metadata.level().as_str().to_lowercase();
    let line = format!("nonic[{}] {level} {part}: {what}\n", std::process::id());
    // In one piece, so that lines of several processes are not mixed. Whether standard error is read is not our business.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
