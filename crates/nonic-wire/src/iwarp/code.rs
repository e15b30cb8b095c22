//! The codes of a Terminate message: the layer that found an error, and which.

use std::fmt;

/// Layer, error type and error code. Any combination that can stand on the wire can be held.
///
/// ```
/// use nonic_wire::iwarp::TerminateCode;
/// assert_eq!(TerminateCode::MPA_CRC.to_string(), "MPA: CRC error (2/0/02)");
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TerminateCode {
    /// The layer, four bits: see [`Layer`].
    pub layer: u8,
    /// The error type within the layer, four bits.
    pub etype: u8,
    /// The error within the type.
    pub code: u8,
}

/// Makes one constant per code, and the table of names.
macro_rules! codes {
    ($($name:ident = $layer:literal / $etype:literal / $code:literal, $text:literal;)*) => {
        impl TerminateCode {
            $(#[doc = concat!("`", stringify!($layer), "/", stringify!($etype), "/", stringify!($code), "`: ", $text, ".")]
            pub const $name: TerminateCode = TerminateCode::new($layer, $etype, $code);)*

            /// Every code that a specification gives a meaning to.
            pub const ALL: &'static [TerminateCode] = &[$(TerminateCode::$name),*];

            /// What the code means, if a specification says so.
            pub const fn text(self) -> Option<&'static str> {
                match (self.layer, self.etype, self.code) {
                    $(($layer, $etype, $code) => Some($text),)*
                    // RFC 5040 leaves the codes of its catastrophic errors to the implementation.
                    (0, 0, _) => Some("local catastrophic error"),
                    _ => None,
                }
            }
        }
    };
}

codes! {
    RDMAP_CATASTROPHIC = 0 / 0 / 0x00, "local catastrophic error";
    RDMAP_INVALID_STAG = 0 / 1 / 0x00, "invalid STag";
    RDMAP_BOUNDS = 0 / 1 / 0x01, "base or bounds violation";
    RDMAP_ACCESS_RIGHTS = 0 / 1 / 0x02, "access rights violation";
    RDMAP_STAG_OF_OTHER_STREAM = 0 / 1 / 0x03, "STag not associated with the stream";
    RDMAP_TO_WRAP = 0 / 1 / 0x04, "tagged offset wrap";
    RDMAP_PROTECTION_CANNOT_INVALIDATE = 0 / 1 / 0x09, "STag cannot be invalidated";
    RDMAP_PROTECTION_UNSPECIFIED = 0 / 1 / 0xff, "unspecified protection error";
    RDMAP_VERSION = 0 / 2 / 0x05, "invalid RDMAP version";
    RDMAP_UNEXPECTED_OPCODE = 0 / 2 / 0x06, "unexpected opcode";
    RDMAP_STREAM_CATASTROPHIC = 0 / 2 / 0x07, "catastrophic error, localised to the stream";
    RDMAP_GLOBAL_CATASTROPHIC = 0 / 2 / 0x08, "catastrophic error, global";
    RDMAP_CANNOT_INVALIDATE = 0 / 2 / 0x09, "STag cannot be invalidated";
    RDMAP_UNSPECIFIED = 0 / 2 / 0xff, "unspecified operation error";
    DDP_CATASTROPHIC = 1 / 0 / 0x00, "local catastrophic error";
    DDP_TAGGED_INVALID_STAG = 1 / 1 / 0x00, "invalid STag";
    DDP_TAGGED_BOUNDS = 1 / 1 / 0x01, "base or bounds violation";
    DDP_TAGGED_STAG_OF_OTHER_STREAM = 1 / 1 / 0x02, "STag not associated with the stream";
    DDP_TAGGED_TO_WRAP = 1 / 1 / 0x03, "tagged offset wrap";
    DDP_TAGGED_VERSION = 1 / 1 / 0x04, "invalid DDP version";
    DDP_UNTAGGED_INVALID_QN = 1 / 2 / 0x01, "invalid queue number";
    DDP_UNTAGGED_NO_BUFFER = 1 / 2 / 0x02, "no buffer for this message sequence number";
    DDP_UNTAGGED_INVALID_MSN = 1 / 2 / 0x03, "message sequence number out of range";
    DDP_UNTAGGED_INVALID_MO = 1 / 2 / 0x04, "invalid message offset";
    DDP_UNTAGGED_TOO_LONG = 1 / 2 / 0x05, "message too long for its buffer";
    DDP_UNTAGGED_VERSION = 1 / 2 / 0x06, "invalid DDP version";
    MPA_CONNECTION_LOST = 2 / 0 / 0x01, "TCP connection closed, terminated or lost";
    MPA_CRC = 2 / 0 / 0x02, "CRC error";
    MPA_MARKER = 2 / 0 / 0x03, "marker and length disagree about the start of an FPDU";
    MPA_BAD_FRAME = 2 / 0 / 0x04, "invalid start-up frame";
    MPA_LOCAL_CATASTROPHIC = 2 / 0 / 0x05, "local catastrophic error";
    MPA_INSUFFICIENT_IRD = 2 / 0 / 0x06, "insufficient IRD resources";
    MPA_NO_MATCHING_RTR = 2 / 0 / 0x07, "no matching RTR option";
}

impl TerminateCode {
    /// The low four bits of `layer` and `etype` count.
    pub const fn new(layer: u8, etype: u8, code: u8) -> Self {
        Self {
            layer: layer & 0x0f,
            etype: etype & 0x0f,
            code,
        }
    }

    /// The layer, if it is one of the three.
    pub const fn layer(self) -> Option<Layer> {
        match self.layer {
            0 => Some(Layer::Rdmap),
            1 => Some(Layer::Ddp),
            2 => Some(Layer::Mpa),
            _ => None,
        }
    }

    /// Whether a specification gives this code a meaning.
    pub const fn is_assigned(self) -> bool {
        self.text().is_some()
    }

    /// Whether the error can only be found while the connection is set up (RFC 6581 §8).
    pub const fn is_only_at_startup(self) -> bool {
        matches!((self.layer, self.etype, self.code), (2, 0, 4..=7))
    }

    /// Whether the DDP header of the offending segment is sent back: not for local errors and those of MPA.
    pub(super) const fn has_ddp_header(self) -> bool {
        matches!((self.layer, self.etype), (0 | 1, 1 | 2))
    }

    /// Whether the header of an offending Read Request is sent back as well.
    pub(super) const fn has_read_request_header(self) -> bool {
        matches!((self.layer, self.etype), (0, 1))
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = match self.layer() {
            Some(Layer::Rdmap) => "RDMAP",
            Some(Layer::Ddp) => "DDP",
            Some(Layer::Mpa) => "MPA",
            None => "unknown layer",
        };
        let text = self.text().unwrap_or("unknown error");
        write!(
            f,
            "{layer}: {text} ({}/{}/{:02x})",
            self.layer, self.etype, self.code
        )
    }
}

/// The layer that found an error.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Layer {
    /// Messages.
    Rdmap,
    /// Placement.
    Ddp,
    /// Framing, or TCP below it.
    Mpa,
}
