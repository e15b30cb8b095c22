//! Reasons for which connections are refused.

use std::fmt;

/// The reason in a REJ. Values of the wire that have no name are kept.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct RejectReason(pub u16);

macro_rules! reasons {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl RejectReason {
            $(#[doc = concat!(stringify!($value), ": ", $text, ".")]
            pub const $name: RejectReason = RejectReason($value);)*

            /// In words.
            pub fn text(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "for a reason without a name",
                }
            }
        }
    };
}

reasons! {
    NO_QP = 1, "no queue pair is left";
    NO_EEC = 2, "no end-to-end context is left";
    NO_RESOURCES = 3, "no resources are left";
    TIMEOUT = 4, "no answer came in time";
    UNSUPPORTED = 5, "the request is not supported";
    INVALID_COMM_ID = 6, "the connection is not known";
    INVALID_COMM_INSTANCE = 7, "the two identifiers do not belong together";
    INVALID_SERVICE_ID = 8, "nobody listens there";
    INVALID_TRANSPORT_TYPE = 9, "the transport is not offered";
    STALE_CONN = 10, "an older connection is in the way";
    RDC_NOT_EXIST = 11, "the reliable datagram channel does not exist";
    INVALID_GID = 12, "the primary path's address is wrong";
    INVALID_LID = 13, "the primary path's local identifier is wrong";
    INVALID_SL = 14, "the primary path's service level is wrong";
    INVALID_TRAFFIC_CLASS = 15, "the primary path's traffic class is wrong";
    INVALID_HOP_LIMIT = 16, "the primary path's hop limit is wrong";
    INVALID_PACKET_RATE = 17, "the primary path's rate is wrong";
    INVALID_ALTERNATE_GID = 18, "the alternate path's address is wrong";
    INVALID_ALTERNATE_LID = 19, "the alternate path's local identifier is wrong";
    INVALID_ALTERNATE_SL = 20, "the alternate path's service level is wrong";
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21, "the alternate path's traffic class is wrong";
    INVALID_ALTERNATE_HOP_LIMIT = 22, "the alternate path's hop limit is wrong";
    INVALID_ALTERNATE_PACKET_RATE = 23, "the alternate path's rate is wrong";
    PORT_CM_REDIRECT = 24, "another connection manager is responsible";
    PORT_REDIRECT = 25, "another port is to be used";
    INVALID_MTU = 26, "the path MTU is not possible";
    INSUFFICIENT_RESPONDER_RESOURCES = 27, "too few READs and atomics can be answered at a time";
    CONSUMER_DEFINED = 28, "the program refused";
    INVALID_RNR_RETRY = 29, "the RNR retry count is not possible";
    DUPLICATE_COMM_ID = 30, "the identifier is in use";
    INVALID_CLASS_VERSION = 31, "the class version is not known";
    INVALID_FLOW_LABEL = 32, "the primary path's flow label is wrong";
    INVALID_ALTERNATE_FLOW_LABEL = 33, "the alternate path's flow label is wrong";
    VENDOR_OPTION_NOT_SUPPORTED = 35, "a vendor's option is not supported";
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.text())
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
