//! Draws a network from a seed: how many NICs, which links, which faults.

use super::direct_terms::DirectTerms;
use super::lane_terms::LaneTerms;
use crate::fabric::{Batching, FabricConfig};
use crate::link::LinkProfile;
use nonic_core::WindowConfig;
use nonic_netem::Faults;
use nonic_netem::Prng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) stations: usize,
    pub(crate) v6: bool,
    pub(crate) lenient_icrc: bool,
    pub(crate) fabric: FabricConfig,
    pub(crate) window: WindowConfig,
    /// Nothing on the links disturbs packets (a queue may still overflow).
    pub(crate) calm: bool,
    /// Whether programs have long timeouts, so that losses must be found out about without them.
    pub(crate) patient: bool,
    /// How NICs reach each other's memory, if they do.
    pub(crate) direct: Option<DirectTerms>,
    /// The lanes between NICs, if there are any.
    pub(crate) lanes: Option<LaneTerms>,
}

impl Scenario {
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        let stations = match prng.below(100) {
            0..=69 => 2,
            70..=93 => 3,
            _ => prng.range(4, 6) as usize,
        };
        let v6 = prng.percent(30);
        let link = draw_link(prng);
        let faults = draw_faults(prng);
        // With an unknown Identification only sixteen bits guard a packet: not enough for millions of runs
        // with damaged ones.
        let lenient_icrc = faults.corrupt_ppm == 0 && prng.percent(70);
        let batching = match prng.below(10) {
            0..=4 => Batching::Whole,
            5 | 6 => Batching::Split,
            7 | 8 => Batching::Single,
            _ => Batching::Merged,
        };
        let fabric = FabricConfig {
            link,
            faults,
            batching,
            poll_delay_ns: if prng.percent(30) {
                prng.range(200, 20_000)
            } else {
                0
            },
            handle_budget: prng.pick(&[1, 4, 64]),
            ..FabricConfig::default()
        };
        let max = prng.pick(&[4 << 10, 16 << 10, 64 << 10, 512 << 10]);
        let initial = (max >> prng.below(3)).max(1024);
        Scenario {
            stations,
            v6,
            lenient_icrc,
            fabric,
            window: WindowConfig { initial, max },
            calm: faults.is_none(),
            patient: false,
            direct: None,
            lanes: None,
        }
    }

    /// What the network is like, in a sentence.
    pub(crate) fn introduction(&self) -> String {
        let link = &self.fabric.link;
        let faults = &self.fabric.faults;
        let percent = |ppm: u32| f64::from(ppm) / 1e4;
        let mut sentence = format!(
            "{} NICs over IPv{}, links of {:.1} µs",
            self.stations,
            if self.v6 { 6 } else { 4 },
            link.latency_ns as f64 / 1e3
        );
        if link.jitter_ns > 0 {
            sentence += &format!(" and up to {:.1} µs more", link.jitter_ns as f64 / 1e3);
        }
        let troubles = [
            ("lost", faults.loss_ppm),
            ("lost in bursts", faults.burst_begin_ppm),
            ("duplicated", faults.duplicate_ppm),
            ("overtaken", faults.reorder_ppm),
            ("damaged", faults.corrupt_ppm),
        ];
        for (what, ppm) in troubles.into_iter().filter(|(_, ppm)| *ppm > 0) {
            sentence += &format!(", {:.2} % {what}", percent(ppm));
        }
        if self.direct.is_some() {
            sentence += ", memory of peers within reach";
        }
        if self.lanes.is_some() {
            sentence += ", lanes between them";
        }
        sentence
    }

    /// The address of a station.
    pub(crate) fn ip(&self, station: usize) -> IpAddr {
        let number = station as u16 + 1;
        if self.v6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number))
        } else {
            let [high, low] = number.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
        }
    }

    /// The multicast group of a run.
    pub(crate) fn group(&self) -> IpAddr {
        if self.v6 {
            IpAddr::V6(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x4791))
        } else {
            IpAddr::V4(Ipv4Addr::new(239, 47, 0, 91))
        }
    }

    /// The longest a question and its answer may take, if neither is lost.
    pub(crate) fn worst_round_trip_ns(&self) -> u64 {
        let config = &self.fabric;
        2 * (config.link.worst_delay_ns() + config.faults.hold_ns + config.poll_delay_ns)
    }
}

fn draw_link(prng: &mut Prng) -> LinkProfile {
    let latency_ns = match prng.below(4) {
        0 => prng.range(300, 2_000),
        1 | 2 => prng.range(2_000, 20_000),
        _ => prng.range(20_000, 500_000),
    };
    let jitter_ns = if prng.percent(40) {
        prng.below(latency_ns * 2)
    } else {
        0
    };
    LinkProfile {
        latency_ns,
        jitter_ns,
        byte_time_ps: prng.pick(&[0, 80, 80, 320, 800, 8_000]),
        queue_bytes: prng.pick(&[12 << 10, 64 << 10, 256 << 10, 1 << 20, 1 << 20]),
        max_packet: 9_000,
    }
}

fn draw_faults(prng: &mut Prng) -> Faults {
    let mut faults = Faults::default();
    let mut upto = |limit: u64| prng.range(500, limit) as u32;
    let (a, b, c, d) = (upto(20_000), upto(80_000), upto(50_000), upto(50_000));
    match prng.below(100) {
        0..=37 => return faults,
        38..=57 => faults.loss_ppm = a,
        58..=67 => faults.loss_ppm = b,
        68..=70 => faults.loss_ppm = 100_000 + b,
        71..=77 => {
            faults.burst_begin_ppm = a / 4;
            faults.burst_end_ppm = 150_000 + 4 * b;
        }
        78..=83 => faults.duplicate_ppm = 2 * c,
        84..=89 => faults.reorder_ppm = 2 * d,
        _ => {
            faults.loss_ppm = a;
            faults.duplicate_ppm = c;
            faults.reorder_ppm = d;
        }
    }
    if faults.duplicate_ppm > 0 || faults.reorder_ppm > 0 {
        faults.hold_ns = prng.pick(&[2_000, 20_000, 100_000, 1_000_000]);
    }
    if prng.percent(15) {
        faults.corrupt_ppm = c;
    }
    faults
}
