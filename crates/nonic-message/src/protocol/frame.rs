//! Frames: what travels in SENDs. Parsing is total; whatever can be built can be emitted and parsed again.

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// Bytes of every frame's header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a frame that offers memory: the header, and where the memory is.
pub const OFFER_BYTES: usize = 32;

/// What a frame is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The first frame of the side that connected: now the other side may send.
    Hello = 0,
    /// A message, which follows the header.
    Message = 1,
    /// A message that the receiver is to READ.
    Offer = 2,
    /// The offered message was read: its memory belongs to the sender again.
    Finish = 3,
    /// Nothing but returned credits.
    Credit = 4,
    /// No message follows.
    End = 5,
    /// A trial: carried as a message would be, and dropped.
    Trial = 6,
    /// A trial: read as an offered message would be, and dropped.
    TrialOffer = 7,
    /// The trial was received or read.
    TrialDone = 8,
    /// Messages up to this length should be sent in frames, as the other side has measured.
    Cutoff = 9,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        const ALL: [Kind; 10] = [
            Kind::Hello,
            Kind::Message,
            Kind::Offer,
            Kind::Finish,
            Kind::Credit,
            Kind::End,
            Kind::Trial,
            Kind::TrialOffer,
            Kind::TrialDone,
            Kind::Cutoff,
        ];
        ALL.get(usize::from(byte)).copied()
    }

    /// Whether its payload follows the header.
    fn has_payload(self) -> bool {
        matches!(self, Kind::Message | Kind::Trial)
    }

    fn has_remote(self) -> bool {
        matches!(self, Kind::Offer | Kind::TrialOffer)
    }

    /// Whether it costs a credit. Of all others there are never more under way than the receiver keeps room for.
    pub fn costs_credit(self) -> bool {
        self.has_payload() || self.has_remote()
    }
}

/// Where offered memory is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// The address of its first byte.
    pub va: u64,
    /// The key to it.
    pub rkey: u32,
}

/// A frame, without the payload of a [`Kind::Message`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Messages that the sender of this frame has room for again.
    pub credits: u16,
    /// Of a message or offer: its number, counted from 0 in each direction. Of a finish: the number of the offer.
    pub sequence: u32,
    /// Of a message, offer or trial: its length. Of a cut-off: that.
    pub length: u64,
    /// Of an offer: where it is.
    pub remote: Option<Remote>,
}

/// Why bytes are not a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There are fewer bytes than its kind has.
    #[error("a frame is cut short")]
    Short,
    /// It is of another version.
    #[error("a frame is of version {0}")]
    Version(u8),
    /// Its kind is unknown.
    #[error("a frame is of the unknown kind {0}")]
    Kind(u8),
    /// Its length is not that of what follows.
    #[error("a frame's length is not that of what was received")]
    Length,
}

impl Frame {
    /// A frame with nothing but a kind and a number.
    pub(crate) fn control(kind: Kind, sequence: u32) -> Self {
        Frame {
            kind,
            credits: 0,
            sequence,
            length: 0,
            remote: None,
        }
    }

    /// Reads a frame and checks it against the bytes received, the payload included.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(FrameError::Short)?;
        let [version, kind, c0, c1, s0, s1, s2, s3, length @ ..] = *header;
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let kind = Kind::parse(kind).ok_or(FrameError::Kind(kind))?;
        let length = u64::from_be_bytes(length);
        let rest = &bytes[HEADER_BYTES..];
        let remote = if kind.has_remote() {
            let [va @ .., r0, r1, r2, r3, _, _, _, _]: [u8; 16] =
                *rest.first_chunk().ok_or(FrameError::Short)?;
            Some(Remote {
                va: u64::from_be_bytes(va),
                rkey: u32::from_be_bytes([r0, r1, r2, r3]),
            })
        } else {
            None
        };
        let expected = match kind {
            kind if kind.has_payload() => length,
            kind if kind.has_remote() => (OFFER_BYTES - HEADER_BYTES) as u64,
            _ => 0,
        };
        if rest.len() as u64 != expected {
            return Err(FrameError::Length);
        }
        Ok(Frame {
            kind,
            credits: u16::from_be_bytes([c0, c1]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            length,
            remote,
        })
    }

    /// How many bytes [`Frame::emit`] writes.
    pub fn bytes(&self) -> usize {
        match self.remote {
            Some(_) => OFFER_BYTES,
            None => HEADER_BYTES,
        }
    }

    /// Writes it to the first [`Frame::bytes`] bytes of `out`.
    ///
    /// # Panics
    ///
    /// If `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = VERSION;
        out[1] = self.kind as u8;
        out[2..4].copy_from_slice(&self.credits.to_be_bytes());
        out[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..16].copy_from_slice(&self.length.to_be_bytes());
        if let Some(remote) = self.remote {
            out[16..24].copy_from_slice(&remote.va.to_be_bytes());
            out[24..28].copy_from_slice(&remote.rkey.to_be_bytes());
            out[28..32].fill(0);
        }
    }
}
