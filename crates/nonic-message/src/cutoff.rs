//! From which length on a message is read by its receiver instead of sent in a frame, and how that is known.

use std::fmt;

/// What is used until something is measured.
const USUAL: u64 = 4096;

/// Up to which length messages go in frames, and how that is known.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// println!("messages up to {} go in frames", client.cutoff()); // … 2048 bytes (measured) …
/// # drop(server);
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cutoff {
    /// Messages of this length and shorter ones go in frames.
    pub bytes: u64,
    /// How that is known.
    pub source: CutoffSource,
}

/// How a cut-off is known.
///
/// ```
/// use nonic_message::{CutoffSource, Node, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = nonic::Device::open("roce_lo")?;
/// let mut options = Options::default();
/// options.cutoff = Some(1024);
/// let node = Node::new(&device, options);
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let address = listener.local_addr();
/// # let accepting = std::thread::spawn(move || listener.accept().wait());
/// let channel = node.connect(address).wait()?;
/// assert_eq!(channel.cutoff().source, CutoffSource::Fixed);
/// # accepting.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CutoffSource {
    /// It was measured to this peer, by this side or the other one.
    Measured,
    /// The program said so.
    Fixed,
    /// The usual one: nothing was measured yet, or the peer was too slow to answer.
    Usual,
}

impl Default for Cutoff {
    fn default() -> Self {
        Cutoff {
            bytes: USUAL,
            source: CutoffSource::Usual,
        }
    }
}

impl Cutoff {
    pub(crate) fn fixed(bytes: u64) -> Self {
        let source = CutoffSource::Fixed;
        Cutoff { bytes, source }
    }

    pub(crate) fn measured(bytes: u64) -> Self {
        let source = CutoffSource::Measured;
        Cutoff { bytes, source }
    }
}

impl fmt::Display for Cutoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            CutoffSource::Measured => "measured",
            CutoffSource::Fixed => "fixed",
            CutoffSource::Usual => "not measured",
        };
        write!(f, "{} bytes ({source})", self.bytes)
    }
}
