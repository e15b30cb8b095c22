//! Formats and checksums of RoCEv2 (InfiniBand transport packets in UDP datagrams) and of iWARP (RDMA over TCP).
//!
//! This crate turns bytes into values and values into bytes. It opens no socket, reads no clock and keeps no state
//! between packets, nor between frames of a stream except where the next one begins. What a packet *means* is decided
//! in `nonic-core`. Parsing accepts any bytes and never panics.
//!
//! Read first:
//! - [`Packet`] and [`Headers`]: one datagram, as a value;
//! - [`Opcode`]: the byte that decides which headers a packet has;
//! - [`cm`]: the messages of the connection manager, which travel as [`mad`]s;
//! - [`iwarp`]: the other wire, with its own start-up frames, framing and messages;
//! - [`icrc`]: the invariant checksum, and how a receiver that cannot see the IP header still checks it;
//! - [`pcap`] and [`pcapng`]: captures, in and out, for tests and tools;
//! - [`check`]: what holds for any bytes, ready for a fuzzer.
//!
//! ```
//! use nonic_wire::{Bth, Flow, Headers, Opcode, Packet, Psn, Qpn, Reth, icrc};
//!
//! let mut headers = Headers::new(Bth::new(Opcode::RC_RDMA_WRITE_ONLY, Qpn::new(0x11), Psn::new(7)));
//! headers.reth = Reth { va: 0x1000, rkey: 0xabcd, dma_len: 5 };
//!
//! let mut datagram = Vec::new();
//! Packet { headers, payload: b"hello", icrc: [0; 4] }.emit_into(&mut datagram);
//! let flow = Flow {
//!     src: "10.0.0.1".parse().unwrap(),
//!     dst: "10.0.0.2".parse().unwrap(),
//!     src_port: 50_000,
//!     dst_port: nonic_wire::ROCE_PORT,
//! };
//! icrc::seal(&flow, 0, &mut datagram);
//!
//! assert_eq!(icrc::verify(&flow, 0, false, &datagram), icrc::Verdict::Verified);
//! let packet = Packet::parse(&datagram).unwrap();
//! assert_eq!(packet.headers.reth.rkey, 0xabcd);
//! assert_eq!(packet.payload, b"hello");
//! ```
#![forbid(unsafe_code)]

mod aeth;
mod bth;
pub mod check;
pub mod cm;
mod extension;
mod header_set;
pub mod icrc;
mod ids;
pub mod iwarp;
pub mod mad;
mod opcode;
mod operation;
mod packet;
mod parse_error;
pub mod pcap;
pub mod pcapng;
mod selective;

pub use aeth::{Aeth, AethKind, NakCode, Syndrome, rnr_delay_ns};
pub use bth::Bth;
pub use extension::{AtomicEth, Deth, Feth, Reth};
pub use header_set::HeaderSet;
pub use icrc::{Flow, Verdict, compute, verify};
pub use ids::{Psn, Qpn};
pub use opcode::Opcode;
pub use operation::{Operation, Service};
pub use packet::{Headers, Packet, pad_len};
pub use parse_error::ParseError;
pub use selective::{HeldRange, SelectiveAck};

/// Length of the invariant CRC that ends every packet, in bytes.
pub const ICRC_LEN: usize = 4;

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
