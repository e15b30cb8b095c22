//! The names of queue pair attributes.

use bitflags::bitflags;

bitflags! {
    /// Names the attributes that a transition needs, permits or was given. Bit values are those of
    /// `ibv_qp_attr_mask`.
    #[derive(Copy, Clone, PartialEq, Eq, Debug)]
    pub struct AttributeMask: u32 {
        /// The state to move to.
        const STATE = 1;
        /// What peers may do.
        const ACCESS_FLAGS = 1 << 3;
        /// Partition key.
        const PKEY_INDEX = 1 << 4;
        /// Port.
        const PORT = 1 << 5;
        /// Datagram key.
        const QKEY = 1 << 6;
        /// Route.
        const PATH = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// Acknowledgement timeout.
        const TIMEOUT = 1 << 9;
        /// Transport retries.
        const RETRY_CNT = 1 << 10;
        /// Receiver-not-ready retries.
        const RNR_RETRY = 1 << 11;
        /// First expected PSN.
        const RQ_PSN = 1 << 12;
        /// Outstanding READs and atomics as requester.
        const MAX_RD_ATOMIC = 1 << 13;
        /// Receiver-not-ready timer to ask for.
        const MIN_RNR_TIMER = 1 << 15;
        /// First PSN to send.
        const SQ_PSN = 1 << 16;
        /// Outstanding READs and atomics as responder.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// The peer's queue pair.
        const DEST_QPN = 1 << 20;
        /// How fast requests leave, in kilobits per second; 0 is as fast as can be.
        const RATE_LIMIT = 1 << 25;
    }
}
