//! Draws a plan from a seed: hosts, connections, what their programs do and what goes wrong.

use super::model::{Connection, Host, Phase, Side, Trouble};
use super::pipe::{Pipe, PipeFault, PipeProfile};
use super::program::{Planner, Scale};
use super::{GRACES_NS, Streams};
use crate::program::content::{Arena, Pieces};
use crate::program::model::{Model, Program, Promise, Receive, Srq};
use nonic_core::iwarp::startup::StartupConfig;
use nonic_core::iwarp::{Extensions, IwarpConfig};
use nonic_core::{Arm, CompletionQueue, CqId, KeyTable, Nic, NicConfig, SeededEntropy};
use nonic_netem::Prng;
use nonic_netem::Schedule;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl Streams {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x6977_6172_7000);
        let grace_ns = prng.pick(&GRACES_NS);
        let config = draw_config(grace_ns, &mut prng);
        let host_count = prng.range(2, 3) as usize;
        let hosts = (0..host_count).map(|_| draw_host(config, &mut prng)).collect();
        let mut world = Streams {
            schedule: Schedule::new(),
            prng: prng.fork(),
            config,
            hosts,
            connections: Vec::new(),
            sides: Vec::new(),
            pipes: Vec::new(),
            observers: Vec::new(),
            model: Model::default(),
            by_qpn: BTreeMap::new(),
            buffer: vec![0; Nic::stream_buffer_len()],
            trace: 0,
            steps: 0,
            frames: 0,
            narrating: false,
        };
        if prng.percent(25) {
            for host in 0..host_count {
                world.draw_srq(host, &mut prng);
            }
        }
        let connections = prng.pick(&[1, 1, 1, 2, 2, 3]);
        for number in 0..connections {
            world.draw_connection(number, &mut prng);
        }
        world.draw_shared_receives(&mut prng);
        world.draw_waiting(seed);
        world
    }

    /// What programs ask to be told of. From a generator of its own: what else a seed means does not depend on it.
    fn draw_waiting(&mut self, seed: u64) {
        let mut prng = Prng::new(seed ^ 0x77_6169_7469_6e67);
        for srq in &mut self.model.srqs {
            srq.limit = prng.below(8) as usize;
        }
        for side in &mut self.sides {
            side.arming = [
                prng.pick(&[None, Some(Arm::Next), Some(Arm::Solicited)]),
                prng.pick(&[None, Some(Arm::Next), Some(Arm::Solicited), Some(Arm::Solicited)]),
            ];
        }
    }

    fn draw_srq(&mut self, host: usize, prng: &mut Prng) {
        self.model.arenas.push(Arena::plan(host, prng));
        let depth = prng.range(2, 16) as usize;
        let arena = self.model.arenas.len() - 1;
        self.model.srqs.push(Srq::new(host, arena, depth, 0));
    }

    /// As many receives as all users of a queue may need, each as long as the longest message.
    fn draw_shared_receives(&mut self, prng: &mut Prng) {
        for number in 0..self.model.srqs.len() {
            let (mut count, mut longest) = (0, 0);
            let programs = self.model.programs.iter().enumerate();
            for (user, _) in programs.filter(|(_, program)| program.srq == Some(number)) {
                let ops = self.model.programs[user ^ 1].ops.iter();
                for message in ops.filter(|op| op.kind.is_message()) {
                    count += 1;
                    longest = longest.max(message.length);
                }
            }
            let srq = &mut self.model.srqs[number];
            for _ in 0..count {
                let buffer = self.model.arenas[srq.arena].allocate_pieces(longest, 8, prng);
                srq.receives.push(Receive::new(buffer));
            }
        }
    }

    fn draw_connection(&mut self, number: usize, prng: &mut Prng) {
        let from = prng.index(self.hosts.len());
        let to = match prng.percent(10) {
            true => from,
            false => (from + prng.range(1, self.hosts.len() as u64 - 1) as usize) % self.hosts.len(),
        };
        let profiles = [draw_profile(prng), draw_profile(prng)];
        let tiny = profiles
            .iter()
            .any(|profile| profile.read_max < 16 || profile.write_max < 16 || profile.room < 200);
        let scale = match (tiny, prng.below(4)) {
            (true, _) => Scale {
                longest: 700,
                requests: 8,
            },
            (_, 0) => Scale {
                longest: 40_000,
                requests: 8,
            },
            _ => Scale {
                longest: 5_000,
                requests: 24,
            },
        };
        let mss = prng.pick(&[256, 536, 1448, 1448, 8948, 65_483]);
        for (host, profile) in [from, to].into_iter().zip(profiles) {
            self.draw_side(host, mss, prng);
            self.pipes.push(Pipe::new(profile));
            self.observers.push(None);
        }
        let mut connection = draw_startup(prng);
        let mut counts = [0, 0].map(|_| {
            if prng.percent(15) {
                0
            } else {
                prng.range(1, scale.requests)
            }
        });
        if self.config.first_send_grace.is_none() {
            // Only the initiator may send first.
            counts[0] = counts[0].max(1);
        }
        connection.connect_at_ns = prng.below(30_000);
        let fetches = connection.depths.iter().all(|(ird, ord)| *ird > 0 && *ord > 0);
        self.connections.push(connection);
        for (offset, count) in counts.into_iter().enumerate() {
            Planner::new(self, 2 * number + offset, scale, prng).plan(count, fetches);
        }
        let trouble = self.draw_trouble(number, prng);
        self.connections[number].trouble = trouble;
        if trouble == Trouble::Planned && prng.percent(60) {
            let side = 2 * number + prng.index(2);
            Planner::new(self, side, scale, prng).fail(fetches);
        }
        for side in [2 * number, 2 * number + 1] {
            self.plan_receives(side, trouble == Trouble::Planned, prng);
        }
    }

    fn draw_side(&mut self, host: usize, mss: usize, prng: &mut Prng) {
        self.model.arenas.push(Arena::plan(host, prng));
        let number = self.sides.len() as u32;
        let srq = self.model.srqs.iter().position(|srq| srq.host == host);
        let slow = prng.percent(15);
        let longest_wait_ns = self.config.receive_grace.as_nanos() as u64 * 3 / 4;
        let peer = self.sides.len() ^ 1;
        let arena = self.model.arenas.len() - 1;
        self.model.programs.push(Program {
            srq: srq.filter(|_| prng.percent(50)),
            signal_all: prng.percent(30),
            send_depth: prng.range(1, 24) as u32,
            recv_depth: prng.range(1, 24) as u32,
            pace_ns: prng.pick(&[0, 1_000, 20_000]),
            recv_pace_ns: if slow {
                longest_wait_ns
            } else {
                prng.pick(&[0, 3_000])
            },
            ..Program::new(host, Some(peer), Promise::Written, arena)
        });
        self.sides.push(Side {
            send_cq: Arc::new(CompletionQueue::new(CqId(2 * number), 1 << 12)),
            recv_cq: Arc::new(CompletionQueue::new(CqId(2 * number + 1), 1 << 12)),
            arming: [None; 2],
            gathers: prng.percent(50),
            reads_ahead: prng.percent(10),
            mss,
            phase: Phase::Planned,
            unsent: Vec::new(),
            counted: 0,
            wants_to_send: false,
            broken: false,
            told_end: false,
            finished: false,
            turn_at_ns: None,
            params: None,
            attached_ns: 0,
            startup_written: 0,
            startup_read: 0,
            answered: 0,
            blocked: None,
            established: false,
            ended: None,
            closed: false,
            gone: false,
            leaving: false,
            posts_after_end: 0,
            backoff_ns: [0; 2],
        });
    }

    fn draw_trouble(&mut self, number: usize, prng: &mut Prng) -> Trouble {
        let side = 2 * number + prng.index(2);
        let within = prng.pick(&[80, 600, 3_000, 20_000]);
        let at = prng.below(within);
        match prng.below(100) {
            0..=39 => Trouble::Quiet,
            40..=46 => Trouble::Close {
                side,
                both: prng.percent(50),
            },
            47..=50 => Trouble::Abort { side },
            51..=54 => Trouble::Terminate { side },
            55..=57 => Trouble::Destroy { side },
            58..=64 => {
                self.pipes[side].fault = Some(PipeFault::Cut { at });
                Trouble::Cut {
                    reset: prng.percent(50),
                }
            }
            65..=72 => {
                let bit = prng.below(8) as u8;
                self.pipes[side].fault = Some(PipeFault::Flip { at, bit });
                Trouble::Flip
            }
            73..=75 => Trouble::Kill {
                host: self.model.programs[side].host,
            },
            76..=80 if self.model.programs[side].srq.is_none() => Trouble::Starve {
                side,
                receive: prng.index(8),
                for_ns: prng.below(3 * self.config.receive_grace.as_nanos() as u64),
            },
            81..=85 => {
                let exports = &self.model.programs[side].exports;
                match exports.len() {
                    0 => Trouble::Quiet,
                    count => Trouble::Revoke {
                        export: exports[prng.index(count)],
                    },
                }
            }
            86..=93 => Trouble::Planned,
            94 => Trouble::Refused,
            95 => Trouble::Unanswered,
            96 | 97 => Trouble::Reject,
            98 => Trouble::SlowAccept,
            99 => Trouble::GivesUp,
            _ => Trouble::Quiet,
        }
    }

    fn plan_receives(&mut self, side: usize, fails: bool, prng: &mut Prng) {
        let lengths = self.model.message_lengths(side ^ 1);
        if self.model.programs[side].srq.is_some() {
            return;
        }
        let arena = self.model.programs[side].arena;
        // Of connections that are to fail somehow, half do so by a receive that is too short.
        let short_at = (fails && prng.percent(50) && !lengths.is_empty()).then(|| prng.index(lengths.len()));
        let spare = prng.below(3) as usize;
        for (index, length) in lengths.iter().copied().chain(vec![64; spare]).enumerate() {
            let short = short_at == Some(index) && length > 0;
            let room = match short {
                true => prng.below(u64::from(length)) as u32,
                false => length + prng.below(2) as u32 * prng.below(40) as u32,
            };
            let buffer = self.model.arenas[arena].allocate_pieces(room, 8, prng);
            self.model.programs[side].receives.push(Receive {
                short,
                ..Receive::new(buffer)
            });
        }
    }
}

fn draw_config(grace_ns: u64, prng: &mut Prng) -> IwarpConfig {
    IwarpConfig {
        receive_grace: Duration::from_nanos(grace_ns),
        first_send_grace: prng
            .pick(&[None, Some(100), Some(5_000), Some(50_000)])
            .map(Duration::from_micros),
        rtr_timeout: Duration::from_secs(10),
        ready_again: Duration::from_micros(prng.pick(&[50, 20_000])),
        terminate_linger: Duration::from_millis(prng.pick(&[20, 2_000])),
        close_linger: Duration::from_millis(prng.pick(&[500, 5_000])),
        extensions: Extensions::All,
    }
}

fn draw_host(config: IwarpConfig, prng: &mut Prng) -> Host {
    let config = NicConfig {
        iwarp: config,
        ..NicConfig::default()
    };
    let nic = Nic::new(
        config,
        Arc::new(KeyTable::new()),
        Box::new(SeededEntropy::new(prng.next_u64())),
    );
    Host {
        pd: nic.keys().alloc_pd(),
        nic,
        pool_key: 0,
        up: true,
        wake_at_ns: None,
        notified: BTreeMap::new(),
    }
}

fn draw_profile(prng: &mut Prng) -> PipeProfile {
    let latency_ns = prng.pick(&[500, 5_000, 50_000, 1_000_000]);
    PipeProfile {
        latency_ns,
        jitter_ns: prng.pick(&[0, latency_ns / 2, 3 * latency_ns]),
        room: prng.pick(&[60, 1_000, 30_000, 1 << 18, 1 << 20]),
        write_max: prng.pick(&[7, 500, 4_000, usize::MAX, usize::MAX]),
        read_max: prng.pick(&[1, 7, 100, 1_448, 1 << 16, 1 << 18]),
    }
}

fn draw_startup(prng: &mut Prng) -> Connection {
    let (crc, both_crc) = (prng.percent(60), prng.percent(70));
    let enhanced = prng.percent(75);
    let mut configs = [crc, crc && both_crc].map(|crc| StartupConfig {
        crc,
        enhanced,
        peer_to_peer: true,
        max_ird: prng.pick(&[1, 2, 4, 16]),
        max_ord: 16,
        ..StartupConfig::default()
    });
    configs[0].peer_to_peer = prng.percent(60);
    let mut depth = || prng.pick(&[0, 1, 1, 2, 3, 4, 8, 16]);
    let mut depths = [(depth(), depth()), (depth(), depth())];
    if prng.percent(70) {
        depths = depths.map(|(ird, ord)| (ird.max(1), ord.max(1)));
    }
    for (depth, config) in depths.iter_mut().zip(&configs) {
        depth.0 = depth.0.min(config.max_ird);
    }
    if !enhanced {
        // Nothing is said about them: the programs must know.
        depths[0].1 = depths[0].1.min(depths[1].0);
        depths[1].1 = depths[1].1.min(depths[0].0);
    }
    let most = nonic_core::iwarp::startup::Startup::max_private_data(enhanced) as u64;
    let private_data = [0, 1].map(|_| {
        let length = prng.pick(&[0, 0, 1, 56, most]) as u32;
        Pieces::one(prng.index(1 << 16), length).bytes()
    });
    let strikes_within_ns = prng.pick(&[20_000, 200_000, 3_000_000]);
    Connection {
        configs,
        depths,
        private_data,
        trouble: Trouble::Quiet,
        connect_at_ns: 0,
        strike_after_ns: prng.below(strikes_within_ns),
        decide_after_ns: prng.pick(&[0, 2_000, 1_000_000]),
        closers: prng.pick(&[[true, false], [false, true], [true, true]]),
        causes: Vec::new(),
        closing: false,
        given_up: false,
        done: false,
        looked: 0,
    }
}
