//! A network emulator without I/O: what happens to which packet, and when.
//!
//! The engine disturbs real packets with it (`NONIC_FAULTS`), the simulator those of its fabrics in virtual time, and the
//! test bed (`cargo xtask net`) those between network namespaces. One model serves all three, so what is proved in
//! virtual time is what happens on sockets.
//!
//! - [`FaultInjector`] decides for each packet, by rules: what is done how often ([`Faults`]), to which packets ([`Filter`]).
//! - [`Bottleneck`] is a line with a [`Rate`] and a bounded queue, which marks or drops early ([`Red`], ECN).
//! - [`EmulatedLink`] is one direction of a link: a bottleneck, then an injector.
//! - [`Schedule`] is an event queue, and [`Prng`] the generator of all decisions: the same seed makes the same ones.
//! - [`grammar`] reads all of it from text: `loss=1%,delay=5ms,rate=100mbit`.
//!
//! Nothing here opens a socket, reads a clock or keeps a packet longer than a call: callers say what time it is and hold
//! back what is late. Switches whose ports share memory are the simulator's (`nonic sim --network`).
//!
//! ```
//! use nonic_netem::{EmulatedLink, LinkSettings, PacketInfo};
//!
//! let mut settings = LinkSettings::default();
//! settings.change("delay=5ms,rate=100mbit,loss=50%").unwrap();
//! let mut link = EmulatedLink::new(settings, 7);
//! let arrived = (0..1000).filter(|_| link.accept(0, &PacketInfo::of_length(100))[0].is_some()).count();
//! assert!((400..600).contains(&arrived));
//! ```

#![forbid(unsafe_code)]

mod bottleneck;
mod faults;
mod filter;
pub mod grammar;
mod injector;
mod link;
mod prng;
mod rate;
mod red;
mod schedule;
mod settings;
mod train;

pub use bottleneck::{Bottleneck, BottleneckSettings, Departure, Refusal};
pub use faults::{FaultCounts, FaultRule, Faults};
pub use filter::{Filter, PacketKind, UnknownPacketKind};
pub use injector::{Delivered, Fate, FaultInjector, Verdict};
pub use link::{Arrival, Arrivals, EmulatedLink, LinkCounters, PacketInfo};
pub use prng::{Prng, mix};
pub use rate::Rate;
pub use red::{Beyond, Marking, Red};
pub use schedule::Schedule;
pub use settings::{LINK_PARTS, LinkSettings, SettingsError};
pub use train::Train;
