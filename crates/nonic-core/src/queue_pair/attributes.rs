//! Queue pair attributes: the values that `modify` sets.

use super::mask::AttributeMask;
use super::state::QpState;
use crate::verbs::memory::Access;
use nonic_wire::{Psn, Qpn};
use std::net::IpAddr;
use std::time::Duration;

/// The path MTU: how many payload bytes a packet carries at most.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes: what fits an Ethernet of 1500.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes: the most there is.
    Mtu4096 = 5,
}

impl PathMtu {
    /// In bytes.
    pub const fn bytes(self) -> u32 {
        128 << (self as u32)
    }

    /// The one of `bytes` bytes.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        Some(match bytes {
            256 => PathMtu::Mtu256,
            512 => PathMtu::Mtu512,
            1024 => PathMtu::Mtu1024,
            2048 => PathMtu::Mtu2048,
            4096 => PathMtu::Mtu4096,
            _ => return None,
        })
    }
}

/// How long to wait for an acknowledgement: 4.096 µs × 2^exponent; exponent 0 waits for ever.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Waits for ever.
    pub const INFINITE: AckTimeout = AckTimeout(0);

    /// From the 5-bit exponent.
    pub const fn from_exponent(exponent: u8) -> Option<Self> {
        if exponent < 32 {
            Some(AckTimeout(exponent))
        } else {
            None
        }
    }

    /// The shortest that is at least `duration`.
    pub fn at_least(duration: Duration) -> Self {
        let exponent = (1..31).find(|e| AckTimeout(*e).duration().is_some_and(|d| d >= duration));
        AckTimeout(exponent.unwrap_or(31))
    }

    /// The 5-bit exponent.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// As a duration; `None` is for ever.
    pub const fn duration(self) -> Option<Duration> {
        if self.0 == 0 {
            None
        } else {
            Some(Duration::from_nanos(4096 << self.0))
        }
    }

    /// How long to wait for an answer after so many timeouts in a row: twice as long each time, up to four times, which is as
    /// much as the standard allows, but not beyond [`AckTimeout::LONGEST_STRETCHED`].
    ///
    /// The peer may be a process that gets no processor for half a second. With the short timeouts that programs set
    /// for hardware, it would be given up by then. A program that sets a long timeout means it.
    pub fn after_timeouts(self, timeouts: u8) -> Option<Duration> {
        let usual = self.duration()?;
        let stretched = usual * (1 << timeouts.min(2));
        Some(stretched.min(Self::LONGEST_STRETCHED).max(usual))
    }

    /// Timeouts as long as this, or longer, are not stretched.
    pub const LONGEST_STRETCHED: Duration = Duration::from_millis(300);
}

/// How long a peer without a receive asks to be left alone: a 5-bit code on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// In units of 10 µs, by code.
    const TENS_OF_US: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// From the 5-bit code.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(RnrTimer(code)) } else { None }
    }

    /// The shortest that is at least `duration`.
    pub fn at_least(duration: Duration) -> Self {
        let code = (1..32).find(|code| RnrTimer(*code).duration() >= duration);
        RnrTimer(code.unwrap_or(0))
    }

    /// About four times as long for each of `times`, up to 41 ms; one that is longer stays as it is.
    #[must_use]
    pub const fn lengthened(self, times: u8) -> Self {
        const FORTY_ONE_MS: u8 = 24;
        if self.0 == 0 || self.0 > FORTY_ONE_MS {
            return self;
        }
        // Two steps of the code double the time.
        let code = self.0.saturating_add(times.saturating_mul(4));
        RnrTimer(if code < FORTY_ONE_MS { code } else { FORTY_ONE_MS })
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_micros(u64::from(Self::TENS_OF_US[usize::from(self.0)]) * 10)
    }
}

/// The route to a connected peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Which of the NIC's own addresses to use: an index in its GID table.
    pub gid_index: u8,
    /// The peer's address.
    pub remote: IpAddr,
}

/// Attributes to set. `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is explained at the bit of the same name in AttributeMask"
)]
pub struct QpAttributes {
    pub state: Option<QpState>,
    pub access: Option<Access>,
    pub pkey_index: Option<u16>,
    pub port: Option<u8>,
    pub qkey: Option<u32>,
    pub path: Option<Path>,
    pub path_mtu: Option<PathMtu>,
    pub timeout: Option<AckTimeout>,
    pub retry_count: Option<u8>,
    pub rnr_retry: Option<u8>,
    pub rq_psn: Option<Psn>,
    pub max_rd_atomic: Option<u8>,
    pub min_rnr_timer: Option<RnrTimer>,
    pub sq_psn: Option<Psn>,
    pub max_dest_rd_atomic: Option<u8>,
    pub dest_qpn: Option<Qpn>,
    pub rate_limit: Option<u32>,
}

impl QpAttributes {
    /// Which attributes are set.
    pub fn mask(&self) -> AttributeMask {
        let given = [
            (self.state.is_some(), AttributeMask::STATE),
            (self.access.is_some(), AttributeMask::ACCESS_FLAGS),
            (self.pkey_index.is_some(), AttributeMask::PKEY_INDEX),
            (self.port.is_some(), AttributeMask::PORT),
            (self.qkey.is_some(), AttributeMask::QKEY),
            (self.path.is_some(), AttributeMask::PATH),
            (self.path_mtu.is_some(), AttributeMask::PATH_MTU),
            (self.timeout.is_some(), AttributeMask::TIMEOUT),
            (self.retry_count.is_some(), AttributeMask::RETRY_CNT),
            (self.rnr_retry.is_some(), AttributeMask::RNR_RETRY),
            (self.rq_psn.is_some(), AttributeMask::RQ_PSN),
            (self.max_rd_atomic.is_some(), AttributeMask::MAX_RD_ATOMIC),
            (self.min_rnr_timer.is_some(), AttributeMask::MIN_RNR_TIMER),
            (self.sq_psn.is_some(), AttributeMask::SQ_PSN),
            (
                self.max_dest_rd_atomic.is_some(),
                AttributeMask::MAX_DEST_RD_ATOMIC,
            ),
            (self.dest_qpn.is_some(), AttributeMask::DEST_QPN),
            (self.rate_limit.is_some(), AttributeMask::RATE_LIMIT),
        ];
        given
            .into_iter()
            .filter(|(set, _)| *set)
            .fold(AttributeMask::empty(), |mask, (_, bit)| mask | bit)
    }
}
