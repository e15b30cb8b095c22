//! Events of an iWARP queue pair for the owner of its stream.

use crate::record::StreamLoss;
use nonic_wire::Qpn;
use nonic_wire::iwarp::TerminateCode;

/// Something that the owner of a stream must do or know. No event comes twice without a reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// There may be something to send: ask [`Nic::poll_stream_transmit`](crate::Nic::poll_stream_transmit) until it has no more, or
    /// [`Nic::has_stream_output`](crate::Nic::has_stream_output) says so. The event does not come again before that.
    Transmit(Qpn),
    /// A receive was posted for a stream that waits for one: call [`Nic::stream_received`](crate::Nic::stream_received), with new
    /// bytes or none, and read on if it says so.
    Receive(Qpn),
    /// Responder: the message that an initiator promised, or any other, has come. The connection is established.
    Established(Qpn),
    /// Everything is sent: end this half of the stream (`shutdown`), and read on. What still comes is to be handed in all the same.
    Finish(Qpn),
    /// Close the stream. The queue pair has nothing to do with it any more.
    Close(Qpn),
    /// The queue pair is no longer connected. Comes once, before [`StreamEvent::Close`].
    Disconnected(Qpn, StreamEnd),
}

impl StreamEvent {
    /// The queue pair it is about.
    pub fn qpn(&self) -> Qpn {
        match *self {
            StreamEvent::Transmit(qpn)
            | StreamEvent::Receive(qpn)
            | StreamEvent::Established(qpn)
            | StreamEvent::Finish(qpn)
            | StreamEvent::Close(qpn)
            | StreamEvent::Disconnected(qpn, _) => qpn,
        }
    }
}

/// Why a stream ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// This side closed it, and the peer did so too or took too long.
    Closed,
    /// The peer closed it.
    PeerClosed,
    /// This side aborted: the program moved the queue pair to the error state, or closed it with requests under way.
    Aborted,
    /// The peer complained.
    PeerTerminated(TerminateCode),
    /// This side complained.
    Terminated(TerminateCode),
    /// The connection broke, or ended in the middle of an FPDU.
    Lost,
    /// The message that the initiator promised did not come.
    NotReady,
}

impl StreamEnd {
    /// How it ended, if no Terminate and no call of this side says why.
    pub(super) fn loss(self) -> Option<StreamLoss> {
        match self {
            StreamEnd::PeerClosed => Some(StreamLoss::PeerClosed),
            StreamEnd::Lost => Some(StreamLoss::Broken),
            StreamEnd::NotReady => Some(StreamLoss::NotReady),
            _ => None,
        }
    }
}

/// Whether a stream is to be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamReading {
    /// Yes.
    Ready,
    /// Not before [`StreamEvent::Receive`]: a message waits for a receive. The queue pair keeps what it was given.
    Blocked,
    /// Yes, until the end, but nothing that comes has a meaning any more.
    Discarding,
    /// There is no stream.
    Closed,
}

/// How a stream came to its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamClosed {
    /// The peer has ended its half, and everything before that was handed in.
    ByPeer,
    /// The connection broke.
    Broken,
}
