//! Draws a plan from a seed: hosts, faults, and which hosts connect to which with what intentions.

use crate::fabric::{Batching, FabricConfig};
use crate::link::LinkProfile;
use nonic_core::cm::CmConfig;
use nonic_netem::Faults;
use nonic_netem::Prng;
use std::time::Duration;

/// When the network stops misbehaving.
pub(super) const CALM_NS: u64 = 60_000_000;
/// How long the program at the other end may think: longer than a request is waited for at first.
const THINKING_NS: u64 = 4_000_000;

/// For how long the network holds a packet up, at most. What is remembered of a connection, and for how long, rests
/// on packets not being under way for ever.
const HOLD_NS: u64 = 400_000;

pub(super) struct Plan {
    pub(super) hosts: usize,
    pub(super) fabric: FabricConfig,
    pub(super) cm: CmConfig,
    pub(super) backlog: usize,
    pub(super) intentions: Vec<Intention>,
    /// When which host dies and comes back, and whether it counts its queue pairs from the start again.
    pub(super) crashes: Vec<(u64, usize, bool)>,
}

/// One attempt to connect, as its programs would have it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Intention {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) at_ns: u64,
    /// A datagram service is resolved instead.
    pub(super) datagram: bool,
    /// No program listens for this service.
    pub(super) nobody: bool,
    /// What the passive program does with the request, and when.
    pub(super) passive: Reaction,
    pub(super) passive_thinks_ns: u64,
    /// What the active program does with the response, and when.
    pub(super) active: Reaction,
    pub(super) active_thinks_ns: u64,
    /// When the active program loses patience, whatever has become of it.
    pub(super) abandoned_at_ns: Option<u64>,
    /// Which side ends it, and how long after it began.
    pub(super) ended_by: Ending,
    pub(super) lives_ns: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Reaction {
    GoOn,
    Reject,
    Abandon,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    Nobody,
    Active,
    Passive,
    Both,
    /// By giving it up, not by disconnecting.
    ActiveAbandons,
    PassiveAbandons,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Plan {
        let mut prng = Prng::new(seed ^ 0x636f_6e6e_6563_7400);
        let hosts = prng.range(2, 6) as usize;
        let faulty = prng.percent(80);
        let faults = if faulty {
            draw_faults(&mut prng)
        } else {
            Faults::default()
        };
        let count = prng.range(10, 80);
        let intentions = (0..count).map(|_| Intention::draw(&mut prng, hosts)).collect();
        let crashes = if prng.percent(40) {
            (0..prng.range(1, 3))
                .map(|_| (prng.below(CALM_NS), prng.index(hosts), prng.percent(50)))
                .collect()
        } else {
            Vec::new()
        };
        let mut plan = Plan {
            hosts,
            fabric: FabricConfig {
                link: LinkProfile {
                    latency_ns: prng.range(500, 50_000),
                    jitter_ns: prng.below(20_000),
                    ..LinkProfile::default()
                },
                faults,
                batching: prng.pick(&[
                    Batching::Whole,
                    Batching::Split,
                    Batching::Single,
                    Batching::Merged,
                ]),
                poll_delay_ns: prng.below(5_000),
                handle_budget: 64,
                ..FabricConfig::default()
            },
            cm: CmConfig {
                ca_guid: seed,
                response_timeout: 8,
                // Nothing is under way for longer than this: the latency, the jitter and `HOLD_NS`.
                packet_lifetime: 7,
                max_cm_retries: prng.range(2, 15) as u8,
                service_timeout: 12,
                max_timeout: 14,
                timewait_min: Duration::from_millis(2),
                linger: Duration::from_millis(5),
                ..CmConfig::default()
            },
            backlog: prng.pick(&[1, 4, 1000]),
            intentions,
            crashes,
        };
        // Drawn last: the plans of earlier seeds stay what they were, but for this.
        let pauses = prng.pick(&[0, 0, 1, 3]);
        plan.cm.unserved_pause = Duration::from_micros(prng.range(10, 3_000));
        plan.cm.unserved_grace = pauses * plan.cm.unserved_pause;
        plan.cm.early_repeats = prng.pick(&[0, 1, 3]);
        plan.cm.early_pause = Duration::from_micros(prng.range(50, 1_000));
        plan
    }

    /// Whether nothing but the programs decides what becomes of a connection.
    pub(super) fn is_quiet(&self) -> bool {
        self.fabric.faults.is_none() && self.crashes.is_empty() && self.backlog >= self.intentions.len()
    }
}

fn draw_faults(prng: &mut Prng) -> Faults {
    let strength = prng.pick(&[5_000, 50_000, 300_000]);
    let mut rate = |percent| {
        if prng.percent(percent) {
            prng.below(strength) as u32
        } else {
            0
        }
    };
    Faults {
        loss_ppm: rate(80),
        burst_begin_ppm: rate(30) / 10,
        burst_end_ppm: 200_000,
        duplicate_ppm: rate(70),
        reorder_ppm: rate(70),
        hold_ns: HOLD_NS,
        corrupt_ppm: rate(40),
        ..Faults::default()
    }
}

impl Intention {
    fn draw(prng: &mut Prng, hosts: usize) -> Intention {
        let reaction = |prng: &mut Prng| match prng.below(10) {
            0 => Reaction::Reject,
            1 => Reaction::Abandon,
            _ => Reaction::GoOn,
        };
        let thinking = |prng: &mut Prng| match prng.below(3) {
            0 => 0,
            1 => prng.below(100_000),
            _ => prng.below(THINKING_NS),
        };
        let endings = [
            Ending::Nobody,
            Ending::Active,
            Ending::Passive,
            Ending::Both,
            Ending::ActiveAbandons,
            Ending::PassiveAbandons,
        ];
        Intention {
            from: prng.index(hosts),
            to: prng.index(hosts),
            at_ns: prng.below(CALM_NS / 2),
            datagram: prng.percent(15),
            nobody: prng.percent(5),
            passive: reaction(prng),
            passive_thinks_ns: thinking(prng),
            active: reaction(prng),
            active_thinks_ns: thinking(prng),
            abandoned_at_ns: prng.percent(10).then(|| prng.below(THINKING_NS)),
            ended_by: prng.pick(&endings),
            lives_ns: prng.below(10_000_000),
        }
    }
}
