//! What programs posted and what must come of it, whatever carries their requests: one model and one set of checkers for
//! RoCE ([`crate::world`]) and iWARP ([`crate::streams`]).
//!
//! The model knows the bytes of every message and every buffer beforehand, so that the order of events may be anything but
//! their outcome is certain, or one of few. It draws nothing and drives nothing: a world plans the requests, carries them, and
//! hands every completion to the checkers.
//!
//! Read first: `model` and `request` (the data) and `carrier` (what a world adds), then the checkers: `completions`,
//! `arrivals`, `memory`, `atomics`, `events`, `finish`.

pub(crate) mod arrivals;
mod atomics;
pub(crate) mod carrier;
pub(crate) mod completions;
pub(crate) mod content;
pub(crate) mod events;
pub(crate) mod finish;
pub(crate) mod memory;
pub(crate) mod model;
mod plan;
pub(crate) mod post;
pub(crate) mod request;

/// A check's result; the error says what is wrong.
pub(crate) type Check = Result<(), String>;
