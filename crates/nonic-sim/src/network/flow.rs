//! A flow: a sender, a receiver, and the path between them.

use super::dcqcn::Dcqcn;
use super::law::Law;
use super::packet::HEADERS;
use super::receiver::{Receiver, Receiving};
use super::sender::Sender;
use super::timely::Timely;

/// The implementations at both ends of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    /// nonic and nonic.
    Nonic,
    /// nonic sends to a peer that goes back.
    NonicToRxe,
    /// rxe on both ends.
    Rxe,
    /// DCQCN at both ends. It begins at the first rate and never sends faster than the second, in bits per second; it has at most
    /// so many bytes under way, which is how it does without a lossless network (IRN).
    Dcqcn { begins: u64, line: u64, window: u64 },
    /// TIMELY, with the same.
    Timely {
        begins: u64,
        line: u64,
        window: u64,
        patched: bool,
    },
}

/// What a flow is to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct FlowSpec {
    pub(super) from: usize,
    pub(super) to: usize,
    /// How many packets of `mtu` bytes.
    pub(super) packets: u32,
    pub(super) mtu: u32,
    pub(super) start_ns: u64,
    pub(super) ends: Ends,
}

/// A flow in progress.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) entropy: u32,
    pub(super) markable: bool,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) start_ns: u64,
    pub(super) done_ns: Option<u64>,
    /// Packets that had arrived when counting began.
    pub(super) counted_from: u64,
    /// Whether it waits for its host's socket.
    pub(super) is_waiting: bool,
    /// The earliest timer scheduled.
    pub(super) timer_ns: Option<u64>,
}

impl Flow {
    pub(super) fn new(spec: &FlowSpec) -> Flow {
        let law = match spec.ends {
            Ends::Nonic | Ends::NonicToRxe => Law::nonic(),
            Ends::Rxe => Law::Rxe,
            Ends::Dcqcn { begins, line, window } => Law::Dcqcn {
                law: Dcqcn::new(line).starting_at(begins),
                window,
            },
            Ends::Timely {
                begins,
                line,
                window,
                patched,
            } => {
                let law = Timely::new(line, begins);
                let law = if patched { law.patched() } else { law };
                Law::Timely { law, window }
            }
        };
        let receiving = match spec.ends {
            Ends::NonicToRxe | Ends::Rxe => Receiving::GoesBack,
            _ => Receiving::Keeps,
        };
        Flow {
            from: spec.from,
            to: spec.to,
            entropy: (spec.from as u32) << 16 ^ spec.to as u32,
            markable: spec.ends != Ends::Rxe,
            sender: Sender::new(law, spec.mtu, spec.packets),
            receiver: Receiver::new(receiving),
            start_ns: spec.start_ns,
            done_ns: None,
            counted_from: 0,
            is_waiting: false,
            timer_ns: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.done_ns.is_some()
    }

    /// Notes when everything was acknowledged; whether that is now.
    pub(super) fn note_done(&mut self, now_ns: u64) -> bool {
        let done = self.done_ns.is_none() && self.sender.is_done();
        if done {
            self.done_ns = Some(now_ns);
        }
        done
    }

    /// Useful bytes that arrived since counting began, headers included.
    pub(super) fn counted_bytes(&self) -> u64 {
        let packets = self.receiver.first_copies - self.counted_from;
        packets * u64::from(self.sender.mtu + HEADERS)
    }
}
