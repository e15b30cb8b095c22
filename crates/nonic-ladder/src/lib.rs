//! Ladder diagrams: what several ends did and sent each other, from the top down in time.
//!
//! A [`Ladder`] is the value: ends, and [`Event`]s in the order of time. Two renderers show it, [`terminal`] and
//! [`svg`]; [`Selection`] chooses what of it is shown. [`CaptureDrawer`] makes one of a capture: RoCEv2 packets with
//! their retransmissions, gaps and NAKs, and iWARP's messages on their TCP connections. A program that knows more than
//! a capture does, as the simulator does, makes one itself, with the words of [`describe`] and the judgement of
//! [`Sequences`].
//!
//! ```
//! use nonic_ladder::{CaptureDrawer, svg, terminal};
//!
//! # let capture = nonic_wire::pcapng::PcapngWriter::new(Vec::new()).unwrap().into_inner();
//! let mut drawer = CaptureDrawer::new();
//! drawer.handle(&capture)?; // pcap or pcapng, in pieces of any size
//! let ladder = drawer.finish();
//! for line in terminal::render(&ladder, terminal::Screen { width: 80, colour: false }) {
//!     println!("{line}");
//! }
//! assert!(svg::render(&ladder).starts_with("<svg"));
//! # Ok::<(), nonic_wire::pcap::PcapError>(())
//! ```
//!
//! This crate opens no file and reads no clock. Nothing panics on what a capture holds.

#![forbid(unsafe_code)]

mod capture;
mod control;
mod ends;
mod iwarp;
mod model;
mod packet;
mod selection;
mod sequence;
pub mod svg;
pub mod terminal;

pub use capture::CaptureDrawer;
pub use model::{Arrival, Event, EventKind, Ladder, Tone};
pub use packet::{Description, describe};
pub use selection::{Keep, Selection};
pub use sequence::{Sequences, Verdict};
