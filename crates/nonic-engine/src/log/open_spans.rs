//! The spans that are open, for a subscriber that logs each when it ends:
//! `request{op=WRITE bytes=64 outcome=success} took 12.3 µs`.

use super::fields::Fields;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::Metadata;
use tracing::span::{Attributes, Id, Record};

#[derive(Default)]
pub(super) struct OpenSpans {
    /// How many there have been.
    count: AtomicU64,
    open: Mutex<HashMap<u64, OpenSpan>>,
}

struct OpenSpan {
    metadata: &'static Metadata<'static>,
    fields: Fields,
    since: Instant,
    /// It ends with the last.
    handles: usize,
}

impl OpenSpans {
    pub(super) fn open(&self, attributes: &Attributes<'_>) -> Id {
        // From 1 on: a number must not be 0.
        let id = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = OpenSpan {
            metadata: attributes.metadata(),
            fields,
            since: Instant::now(),
            handles: 1,
        };
        self.lock().insert(id, span);
        Id::from_u64(id)
    }

    pub(super) fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some(span) = self.lock().get_mut(&id.into_u64()) {
            values.record(&mut span.fields);
        }
    }

    pub(super) fn keep(&self, id: &Id) {
        if let Some(span) = self.lock().get_mut(&id.into_u64()) {
            span.handles += 1;
        }
    }

    /// A handle is dropped. The line to log, if the span has ended.
    pub(super) fn let_go(&self, id: &Id) -> Option<(&'static Metadata<'static>, String)> {
        let mut open = self.lock();
        let span = open.get_mut(&id.into_u64())?;
        span.handles -= 1;
        if span.handles > 0 {
            return None;
        }
        let OpenSpan {
            metadata,
            fields,
            since,
            ..
        } = open.remove(&id.into_u64())?;
        let story = told(metadata.name(), &fields, since.elapsed());
        Some((metadata, story))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, OpenSpan>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(name: &str, fields: &Fields, time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    format!("{name}{{{}}} took {micros:.1} µs", fields.0)
}
