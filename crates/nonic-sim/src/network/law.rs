//! Congestion laws, which govern how fast a flow may send: nonic's own window law, as it is in the core, and those it
//! is compared with.

use super::dcqcn::Dcqcn;
use super::timely::{SEGMENT, Timely};
use nonic_core::{Congestion, Time, WindowConfig};

/// What a flow is governed by.
#[derive(Debug)]
pub(super) enum Law {
    Nonic(Congestion),
    Dcqcn {
        law: Dcqcn,
        window: u64,
    },
    Timely {
        law: Timely,
        window: u64,
    },
    /// Linux's rxe: so many packets, whatever the path says.
    Rxe,
}

/// rxe has at most so many packets under way (RXE_MAX_UNACKED_PSNS), and asks for an answer every so many.
const RXE_PACKETS: u64 = 128;
const RXE_ASKS: u64 = 64;

/// nonic asks at the latest every so many packets, as its requester does.
const NONIC_ASKS: u64 = 16;

impl Law {
    pub(super) fn nonic() -> Law {
        let config = WindowConfig::default();
        Law::Nonic(Congestion::new(config.initial, config.max))
    }

    /// Bytes that may be under way.
    pub(super) fn window(&self, mtu: u32) -> u64 {
        match self {
            Law::Nonic(law) => law.window(),
            Law::Dcqcn { window, .. } | Law::Timely { window, .. } => *window,
            Law::Rxe => RXE_PACKETS * u64::from(mtu),
        }
    }

    /// From one packet that asks for an answer to the next, at most.
    pub(super) fn asks_every(&self, mtu: u32) -> u64 {
        match self {
            Law::Nonic(law) => (law.window() / u64::from(mtu) / 4).clamp(1, NONIC_ASKS),
            Law::Dcqcn { .. } => NONIC_ASKS,
            Law::Timely { .. } => u64::from((SEGMENT / mtu).max(1)),
            Law::Rxe => RXE_ASKS,
        }
    }

    /// A packet was sent; when the next may be, if that is a matter of time.
    pub(super) fn on_sent(&mut self, now_ns: u64, bytes: u32) -> Option<u64> {
        let rate = match self {
            Law::Nonic(_) | Law::Rxe => return None,
            Law::Dcqcn { law, .. } => {
                law.on_sent(now_ns, bytes);
                law.rate(now_ns)
            }
            Law::Timely { law, .. } => law.rate(),
        };
        Some(now_ns + (f64::from(bytes) * 8e9 / rate) as u64)
    }

    /// There was no room for a packet.
    pub(super) fn on_full(&mut self) {
        if let Law::Nonic(law) = self {
            law.on_full();
        }
    }

    pub(super) fn on_delivered(&mut self, now_ns: u64, bytes: u64, mtu: u32) {
        if let Law::Nonic(law) = self {
            law.on_delivered(Time::from_ns(now_ns), bytes, mtu);
        }
    }

    pub(super) fn on_round_trip(&mut self, now_ns: u64, ns: u64) {
        match self {
            Law::Nonic(law) => law.on_round_trip(Time::from_ns(now_ns), ns),
            Law::Timely { law, .. } => law.on_round_trip(now_ns, ns),
            _ => {}
        }
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        if let Law::Nonic(law) = self {
            law.on_lost(bytes);
        }
    }

    pub(super) fn on_gone_back(&mut self, under_way: u64, mtu: u32) {
        if let Law::Nonic(law) = self {
            law.on_gone_back(under_way, mtu);
        }
    }

    pub(super) fn on_timeout(&mut self, mtu: u32) {
        if let Law::Nonic(law) = self {
            law.on_timeout(mtu);
        }
    }

    pub(super) fn on_notified(&mut self, now_ns: u64, mtu: u32) {
        match self {
            Law::Nonic(law) => law.on_notified(Time::from_ns(now_ns), mtu),
            Law::Dcqcn { law, .. } => law.on_notified(now_ns),
            _ => {}
        }
    }
}
