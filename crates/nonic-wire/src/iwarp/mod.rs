//! Formats of iWARP: RDMA over TCP, in three layers of specification.
//!
//! From the stream of bytes upwards: [`mpa`] is the exchange that opens a connection; [`fpdu`] cuts the stream
//! into frames with a length, padding and a CRC, through [`markers`] if the receiver asked for them; [`ddp`]
//! says where the bytes of a frame belong; [`rdmap`] says what they are: a WRITE, a READ request, an atomic.
//! [`terminate`] is the message that ends a connection and names the reason.
//!
//! Nothing here opens a socket or knows a queue pair: `nonic-core` judges sequence numbers, keys and bounds. Parsers
//! accept any bytes and never panic. Errors that the specifications have a code for say which one, so that the caller
//! only has to send it: see [`TerminateCode`].
//!
//! Read first: [`Segment`] (one message or a part of it, with its payload), [`Deframer`] (bytes in, frames
//! out), [`MpaFrame`].
//!
//! ```
//! use nonic_wire::iwarp::{Deframer, Framing, Header, Segment, Tagged, fpdu};
//!
//! let framing = Framing { crc: true, markers: false };
//! let header = Header::Write(Tagged { last: true, stag: 0xabcd, to: 0x1000 });
//! let mut stream = Vec::new();
//! fpdu::Framer::new(framing).frame(&Segment { header, payload: b"hello" }, &mut stream);
//!
//! // The network cuts the stream wherever it likes.
//! let mut deframer = Deframer::new(framing);
//! let (mut first, mut rest) = stream.split_at(7);
//! assert_eq!(deframer.next(&mut first), Ok(None));
//! let ulpdu = deframer.next(&mut rest).unwrap().unwrap();
//! assert_eq!(Segment::parse(ulpdu), Ok(Segment { header, payload: b"hello" }));
//! ```

mod bytes;
mod code;
pub mod crc;
pub mod ddp;
mod deframer;
pub mod fpdu;
pub mod markers;
pub mod mpa;
pub mod rdmap;
pub mod terminate;

pub use code::Layer;
pub use crc::Crc32c;
pub use ddp::DdpHeader;
pub use deframer::{Deframer, FramingError};
pub use fpdu::{Framer, Framing};
pub use mpa::{Enhanced, FrameKind, MpaError, MpaFrame, ParsedMpa, Revision, Rtr};
pub use rdmap::{
    AtomicOperation, AtomicRequest, Header, Opcode, ReadRequest, Segment, SegmentError, SendKind, Tagged,
};
pub use terminate::{Terminate, TerminateCode, TerminateForm};
