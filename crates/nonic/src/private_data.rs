//! Private data: the few bytes that two programs exchange while they connect.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// The few bytes that the peer's program sent with its request, its acceptance or its rejection.
///
/// iWARP delivers them as they were sent. RoCE's messages have a field of fixed size without a length, so zeros follow,
/// and a receiver cannot tell them from zeros that were sent. A program that speaks both, or whose bytes may end with
/// zeros, has two choices:
/// - text, or whatever does not end with zeros, is [`trimmed`](PrivateData::trimmed);
/// - what was made by [`packed`](PrivateData::packed), with its length in front, comes back by [`unpacked`](PrivateData::unpacked).
///
/// It derefs to the bytes as they came.
///
/// ```
/// use nonic::{Device, Listener, PrivateData, Rc, connect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("roce_lo")?;
/// let domain = device.domain();
/// let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// let request = PrivateData::packed(&[7, 0, 0])?;
/// let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), &request)?;
///
/// let incoming = listener.accept()?;
/// assert_eq!(incoming.private_data().unpacked(), Some(&[7, 0, 0][..]));
/// let server = incoming.accept(domain.pair_builder::<Rc>(), b"welcome")?;
/// assert_eq!(connecting.wait()?.private_data().trimmed(), b"welcome");
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PrivateData(Cow<'static, [u8]>);

/// The private data of a peer that sent none. Many connections may have it, so they share it.
static NOTHING: [u8; 256] = [0; 256];

/// More bytes than any message of the connection manager has room for.
///
/// ```
/// use nonic::{PrivateData, PrivateDataTooLong};
///
/// let long: Result<_, PrivateDataTooLong> = PrivateData::packed(&[0; 300]);
/// println!("{}", long.unwrap_err());
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} bytes of private data; a length of one byte counts up to 255")]
pub struct PrivateDataTooLong(usize);

impl PrivateData {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        match NOTHING.get(..bytes.len()) {
            Some(nothing) if nothing == bytes => PrivateData(Cow::Borrowed(nothing)),
            _ => PrivateData(Cow::Owned(bytes)),
        }
    }

    /// Bytes with their length in front, one byte, for a peer that asks for them [`unpacked`](PrivateData::unpacked).
    pub fn packed(bytes: &[u8]) -> Result<Vec<u8>, PrivateDataTooLong> {
        let length = u8::try_from(bytes.len()).map_err(|_| PrivateDataTooLong(bytes.len()))?;
        Ok(std::iter::once(length).chain(bytes.iter().copied()).collect())
    }

    /// What the peer packed; nothing if it did not, as far as that shows: the length is wrong, or something follows.
    pub fn unpacked(&self) -> Option<&[u8]> {
        let (length, rest) = self.0.split_first()?;
        let (bytes, padding) = rest.split_at_checked(usize::from(*length))?;
        padding.iter().all(|byte| *byte == 0).then_some(bytes)
    }

    /// The bytes without zeros at the end.
    pub fn trimmed(&self) -> &[u8] {
        let end = self.0.iter().rposition(|byte| *byte != 0);
        &self.0[..end.map_or(0, |last| last + 1)]
    }
}

impl Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Without the zeros at the end.
impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.trimmed().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back_whatever_it_ends_with() {
        let longest = [1; 255];
        for bytes in [&b""[..], b"\0", b"text", b"zeros\0\0", &longest] {
            let mut sent = PrivateData::packed(bytes).expect("short enough");
            assert_eq!(PrivateData::new(sent.clone()).unpacked(), Some(bytes));
            sent.extend([0; 30]);
            assert_eq!(PrivateData::new(sent).unpacked(), Some(bytes));
        }
        assert_eq!(PrivateData::packed(&[0; 256]), Err(PrivateDataTooLong(256)));
    }

    #[test]
    fn what_was_not_packed_is_not_taken_for_it() {
        for bytes in [&b""[..], b"text", b"\x02", b"\x02a", b"\x01ab"] {
            assert_eq!(PrivateData::new(bytes.to_vec()).unpacked(), None, "{bytes:?}");
        }
    }

    #[test]
    fn text_is_trimmed() {
        for (bytes, text) in [
            (&b"a\0b\0\0"[..], &b"a\0b"[..]),
            (b"ab", b"ab"),
            (b"\0\0", b""),
            (b"", b""),
        ] {
            assert_eq!(PrivateData::new(bytes.to_vec()).trimmed(), text);
        }
    }
}
