//! Endpoints: what a peer must know to reach a queue pair. Programs exchange them out of band, as text or however they like.

use nonic_core::{PathMtu, Psn, Qpn};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The address of a queue pair.
///
/// Its text form, for a command line or a socket, is `ip,qpn,psn,mtu,qkey`:
///
/// ```
/// let text = "127.0.0.1,0x1a2b3c,0x00beef,4096,0x0";
/// let endpoint: nonic::Endpoint = text.parse().unwrap();
/// assert_eq!(endpoint.to_string(), text);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The host's address.
    pub ip: IpAddr,
    /// The queue pair's number.
    pub qpn: Qpn,
    /// The first PSN it will send.
    pub psn: Psn,
    /// The largest packet its interface carries.
    pub mtu: PathMtu,
    /// The key datagrams to it must carry; meaningless for connected services.
    pub qkey: u32,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint {
            ip,
            qpn,
            psn,
            mtu,
            qkey,
        } = self;
        write!(
            f,
            "{ip},{:#08x},{:#08x},{},{qkey:#x}",
            qpn.value(),
            psn.value(),
            mtu.bytes()
        )
    }
}

/// The text is not an endpoint.
///
/// ```
/// use nonic::{Endpoint, ParseEndpointError};
///
/// let wrong: Result<Endpoint, ParseEndpointError> = "127.0.0.1,7".parse();
/// println!("{}", wrong.unwrap_err()); // not an endpoint (`ip,qpn,psn,mtu,qkey`): 127.0.0.1,7
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an endpoint (`ip,qpn,psn,mtu,qkey`): {0}")]
pub struct ParseEndpointError(String);

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseEndpointError(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<Endpoint> {
    let mut fields = text.trim().split(',');
    let ip = fields.next()?.parse().ok()?;
    let qpn = Qpn::new(number(fields.next()?, 0xff_ffff)?);
    let psn = Psn::new(number(fields.next()?, 0xff_ffff)?);
    let mtu = PathMtu::from_bytes(number(fields.next()?, 4096)?)?;
    let qkey = number(fields.next()?, u32::MAX)?;
    fields.next().is_none().then_some(Endpoint {
        ip,
        qpn,
        psn,
        mtu,
        qkey,
    })
}

/// A decimal or `0x` hexadecimal number up to `max`.
pub(crate) fn number(text: &str, max: u32) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (value <= max).then_some(value)
}
