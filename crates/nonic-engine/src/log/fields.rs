//! The fields of an event or a span, as text.

use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};

/// The message of an event and the fields that come with it, or those of a span.
#[derive(Default)]
pub(super) struct Fields(pub(super) String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        // A string can always be written to.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, "{name}={value:?}"),
        };
    }
}
