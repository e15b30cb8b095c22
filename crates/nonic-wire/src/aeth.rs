//! The acknowledge extended transport header and its syndrome: ACK, "receiver not ready", NAK.

/// Acknowledge extended transport header.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed by the responder, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads a header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [syndrome, msn @ ..] = *bytes;
        Self {
            syndrome: Syndrome(syndrome),
            msn: u32::from_be_bytes([0, msn[0], msn[1], msn[2]]),
        }
    }

    /// Writes the header to the first [`Aeth::LEN`] bytes of `out`. The MSN is cut to 24 bits.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let value = u32::from(self.syndrome.0) << 24 | self.msn & 0x00ff_ffff;
        out[..Self::LEN].copy_from_slice(&value.to_be_bytes());
    }
}

/// The syndrome byte of an [`Aeth`]; any byte can be held, [`Syndrome::kind`] says what it means.
///
/// ```
/// use nonic_wire::{AethKind, NakCode, Syndrome};
/// assert_eq!(Syndrome::nak(NakCode::RemoteAccessError), Syndrome(0x62));
/// assert_eq!(Syndrome(0x2c).kind(), AethKind::RnrNak { timer: 12 });
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Syndrome(pub u8);

impl Syndrome {
    /// Credit count of a responder that does not do end-to-end flow control.
    pub const NO_CREDITS: u8 = 31;

    const VALUE_MASK: u8 = 0x1f;
    const RNR_NAK: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// A plain acknowledgement without credit information.
    pub const fn ack() -> Self {
        Self(Self::NO_CREDITS)
    }

    /// "Receiver not ready, try again after the time that `timer` stands for" ([`rnr_delay_ns`]).
    pub const fn rnr(timer: u8) -> Self {
        Self(Self::RNR_NAK | timer & Self::VALUE_MASK)
    }

    /// A negative acknowledgement.
    pub const fn nak(code: NakCode) -> Self {
        Self(Self::NAK | code.value() & Self::VALUE_MASK)
    }

    /// What the byte means.
    pub const fn kind(self) -> AethKind {
        let value = self.0 & Self::VALUE_MASK;
        match self.0 & !Self::VALUE_MASK {
            0 => AethKind::Ack { credits: value },
            Self::RNR_NAK => AethKind::RnrNak { timer: value },
            Self::NAK => AethKind::Nak(NakCode::from_value(value)),
            _ => AethKind::Reserved,
        }
    }
}

/// The meaning of a [`Syndrome`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AethKind {
    /// Received and executed.
    Ack {
        /// Encoded receive credits, [`Syndrome::NO_CREDITS`] for none given.
        credits: u8,
    },
    /// No receive buffer at the moment.
    RnrNak {
        /// Encoded time to wait, see [`rnr_delay_ns`].
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// A value the specification reserves.
    Reserved,
}

/// Why a request was refused.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A packet is missing: send again from the PSN of this answer. The only NAK that is no failure.
    PsnSequenceError,
    /// The request is malformed, out of place or too long.
    InvalidRequest,
    /// The key does not grant this access.
    RemoteAccessError,
    /// The responder failed by itself.
    RemoteOperationalError,
    /// Only in reliable datagram service.
    InvalidRdRequest,
    /// A code that is not assigned, five bits.
    Other(u8),
}

impl NakCode {
    /// Its five bits.
    pub const fn value(self) -> u8 {
        match self {
            NakCode::PsnSequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccessError => 2,
            NakCode::RemoteOperationalError => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Other(value) => value,
        }
    }

    /// What five bits stand for.
    pub const fn from_value(value: u8) -> Self {
        match value {
            0 => NakCode::PsnSequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccessError,
            3 => NakCode::RemoteOperationalError,
            4 => NakCode::InvalidRdRequest,
            other => NakCode::Other(other),
        }
    }
}

/// The waiting time an RNR NAK timer code stands for. Only the low five bits count.
///
/// ```
/// assert_eq!(nonic_wire::rnr_delay_ns(12), 640_000);
/// assert_eq!(nonic_wire::rnr_delay_ns(0), 655_360_000);
/// ```
pub const fn rnr_delay_ns(timer: u8) -> u64 {
    /// In units of 10 µs, by timer code. Code 0 is the longest, not the shortest.
    const UNITS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    UNITS[(timer & 0x1f) as usize] as u64 * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_syndrome_byte_means_one_thing() {
        for byte in 0..=255u8 {
            let rebuilt = match Syndrome(byte).kind() {
                AethKind::Ack { credits } => Some(credits),
                AethKind::RnrNak { timer } => Some(Syndrome::rnr(timer).0),
                AethKind::Nak(code) => Some(Syndrome::nak(code).0),
                AethKind::Reserved => None,
            };
            let reserved = byte & 0x80 != 0 || byte & 0x60 == 0x40;
            assert_eq!(rebuilt, (!reserved).then_some(byte), "{byte:#04x}");
        }
    }

    #[test]
    fn a_plain_ack_gives_no_credits() {
        assert_eq!(
            Syndrome::ack().kind(),
            AethKind::Ack {
                credits: Syndrome::NO_CREDITS
            }
        );
    }
}
