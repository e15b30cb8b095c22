//! Fault injection: what drops, duplicates, delays and corrupts packets, of real links (`NONIC_FAULTS`, in `nonic-engine`) and of
//! simulated ones (`nonic-sim`).
//!
//! [`FaultInjector::judge`] says what becomes of one packet; [`FaultInjector::apply`] turns one train into the trains that
//! really reach the link, each with the extra time it takes. Rules decide per packet: what is done how often
//! ([`Faults`]), to which packets ([`Filter`](crate::Filter)). Each rule judges a packet in turn until one disturbs it.
//! The injector counts what it did, so that a checker can tell a failure that was injected from one that was not.
//! Partitions are not here: in the simulator they are the fabric's, because they concern pairs of NICs, not packets.

use crate::{FaultCounts, FaultRule, Faults, Prng, Train};
use nonic_wire::Packet;
use std::net::IpAddr;

/// A piece of a train as it is delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// How much later it comes.
    pub extra_ns: u64,
    /// The packets.
    pub train: Train,
    /// Its payload was changed: it is to be taken although its checksum is wrong.
    pub garbled: bool,
}

/// The decorator.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    rules: Vec<Judge>,
    /// Where rules get their generators from.
    prng: Prng,
    counts: FaultCounts,
}

/// A rule, and how far it has come.
#[derive(Clone, Debug)]
struct Judge {
    rule: FaultRule,
    prng: Prng,
    in_burst: bool,
    /// Packets that it was about, apart from their number.
    matched: u64,
    /// Packets that it disturbed.
    disturbed: u64,
}

/// What becomes of one packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives.
    Pass,
    /// It does not.
    Lose,
    /// It arrives, and a copy arrives later by so much.
    Duplicate {
        /// By so much.
        hold_ns: u64,
    },
    /// It arrives later by so much.
    Reorder {
        /// By so much.
        hold_ns: u64,
    },
    /// It arrives without any delay.
    Early,
    /// It arrives damaged, so that a checksum shows it.
    Corrupt,
    /// It arrives damaged, so that none does.
    Garble,
}

/// What becomes of a packet, the time it takes whatever its fate, and which rule said so.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What becomes of it.
    pub fate: Fate,
    /// How much longer it takes.
    pub delay_ns: u64,
    rule: usize,
}

impl FaultInjector {
    /// An injector with one rule for all packets, that draws from `prng`.
    pub fn new(faults: Faults, prng: Prng) -> Self {
        let rule = FaultRule {
            faults,
            ..FaultRule::default()
        };
        Self::with_rules(&[rule], prng)
    }

    /// An injector with several rules. Each draws numbers of its own, so that what one of them does changes nothing for the others.
    pub fn with_rules(rules: &[FaultRule], mut prng: Prng) -> Self {
        FaultInjector {
            rules: judges(rules, &mut prng),
            prng,
            counts: FaultCounts::default(),
        }
    }

    /// What it did so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// What it did since it began or was asked last.
    pub fn take_counts(&mut self) -> FaultCounts {
        std::mem::take(&mut self.counts)
    }

    /// Has other rules from now on, which draw new numbers.
    pub fn set_rules(&mut self, rules: &[FaultRule]) {
        let mut prng = self.prng.fork();
        self.rules = judges(rules, &mut prng);
    }

    /// Changes what its first rule does from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        if let Some(judge) = self.rules.first_mut() {
            judge.rule.faults = faults;
            judge.in_burst = false;
        }
    }

    /// Passes `train` on to `deliver` in one or more pieces, each with an extra delay in nanoseconds.
    pub fn apply(&mut self, train: Train, mut deliver: impl FnMut(u64, Train)) {
        let peer = train.src.ip();
        self.apply_at(0, peer, train, |piece| deliver(piece.extra_ns, piece.train));
    }

    /// The same at a time, counted from the beginning, for packets from or to a peer.
    pub fn apply_at(&mut self, now_ns: u64, peer: IpAddr, train: Train, mut deliver: impl FnMut(Delivered)) {
        let mut deliver = |extra_ns, train, garbled| {
            deliver(Delivered {
                extra_ns,
                train,
                garbled,
            });
        };
        if self.rules.iter().all(|judge| judge.rule.faults.is_none()) {
            return deliver(0, train, false);
        }
        let packets = train.len();
        // Packets that pass and take the same time stay together: `start` is the first one not yet passed on.
        let (mut start, mut time_ns) = (0, 0);
        for (index, packet) in train.packets().enumerate() {
            let Verdict { fate, delay_ns, rule } = self.judge(now_ns, peer, packet);
            if delay_ns != time_ns {
                if start < index {
                    deliver(time_ns, train.slice(start, index - start), false);
                }
                (start, time_ns) = (index, delay_ns);
            }
            if matches!(fate, Fate::Pass | Fate::Early) {
                continue;
            }
            let kept = match fate {
                Fate::Duplicate { .. } => index + 1,
                _ => index,
            };
            if start < kept {
                deliver(time_ns, train.slice(start, kept - start), false);
            }
            start = index + 1;
            let judge = &mut self.rules[rule];
            match fate {
                Fate::Duplicate { hold_ns } | Fate::Reorder { hold_ns } => {
                    deliver(time_ns.saturating_add(hold_ns), train.slice(index, 1), false);
                }
                Fate::Corrupt => {
                    let mut damaged = train.slice(index, 1);
                    judge.damage(&mut damaged.bytes);
                    deliver(time_ns, damaged, false);
                }
                Fate::Garble => {
                    let mut damaged = train.slice(index, 1);
                    let garbled = judge.garble(&mut damaged.bytes);
                    deliver(time_ns, damaged, garbled);
                }
                Fate::Pass | Fate::Early | Fate::Lose => {}
            }
        }
        if start == 0 {
            deliver(time_ns, train, false);
        } else if start < packets {
            deliver(time_ns, train.slice(start, packets - start), false);
        }
    }

    /// Decides what becomes of a packet from or to a peer. `packet` is empty if it is not RoCE.
    pub fn judge(&mut self, now_ns: u64, peer: IpAddr, packet: &[u8]) -> Verdict {
        let mut verdict = Verdict {
            fate: Fate::Pass,
            delay_ns: 0,
            rule: 0,
        };
        for (index, judge) in self.rules.iter_mut().enumerate() {
            if !judge.is_about(now_ns, peer, packet) {
                continue;
            }
            verdict.delay_ns = verdict.delay_ns.saturating_add(judge.delay_ns());
            (verdict.fate, verdict.rule) = (judge.fate(&mut self.counts), index);
            if verdict.fate == Fate::Early {
                verdict.delay_ns = 0;
            }
            if verdict.fate != Fate::Pass {
                break;
            }
        }
        verdict
    }

    /// A number of the rule that decided, for a caller that damages the packet itself.
    pub fn draw(&mut self, verdict: &Verdict) -> u64 {
        match self.rules.get_mut(verdict.rule) {
            Some(judge) => judge.prng.next_u64(),
            None => 0,
        }
    }
}

/// Rules, each with a generator of its own.
fn judges(rules: &[FaultRule], prng: &mut Prng) -> Vec<Judge> {
    let own = |(index, rule): (usize, &FaultRule)| {
        let own = if index == 0 { prng.clone() } else { prng.fork() };
        Judge::new(*rule, own)
    };
    rules.iter().enumerate().map(own).collect()
}

impl Judge {
    fn new(rule: FaultRule, prng: Prng) -> Self {
        Judge {
            rule,
            prng,
            in_burst: false,
            matched: 0,
            disturbed: 0,
        }
    }

    fn is_about(&mut self, now_ns: u64, peer: IpAddr, packet: &[u8]) -> bool {
        let FaultRule { filter, limit, .. } = &self.rule;
        if limit.is_some_and(|limit| self.disturbed >= limit) || !filter.matches(now_ns, peer, packet) {
            return false;
        }
        let number = self.matched;
        self.matched += 1;
        filter.counts(number)
    }

    /// How much longer a packet takes.
    fn delay_ns(&mut self) -> u64 {
        let Faults {
            delay_ns, jitter_ns, ..
        } = self.rule.faults;
        if jitter_ns == 0 {
            return delay_ns;
        }
        let shift_ns = self.prng.range(0, 2 * jitter_ns);
        (delay_ns + shift_ns).saturating_sub(jitter_ns)
    }

    /// The order of the draws must not change: a seed would name other runs of the simulator.
    fn fate(&mut self, counts: &mut FaultCounts) -> Fate {
        let faults = self.rule.faults;
        if self.in_burst {
            self.in_burst = !self.prng.ppm(faults.burst_end_ppm);
        } else {
            self.in_burst = self.prng.ppm(faults.burst_begin_ppm);
        }
        let (fate, count): (fn(u64) -> Fate, _) = if self.in_burst || self.prng.ppm(faults.loss_ppm) {
            (|_| Fate::Lose, &mut counts.lost)
        } else if self.prng.ppm(faults.duplicate_ppm) {
            (|hold_ns| Fate::Duplicate { hold_ns }, &mut counts.duplicated)
        } else if self.prng.ppm(faults.reorder_ppm) {
            (|hold_ns| Fate::Reorder { hold_ns }, &mut counts.reordered)
        } else if self.prng.ppm(faults.corrupt_ppm) {
            (|_| Fate::Corrupt, &mut counts.corrupted)
        } else if self.prng.ppm(faults.garble_ppm) {
            (|_| Fate::Garble, &mut counts.garbled)
        } else if self.prng.ppm(faults.early_ppm) {
            (|_| Fate::Early, &mut counts.reordered)
        } else {
            return Fate::Pass;
        };
        *count += 1;
        self.disturbed += 1;
        fate(self.prng.below(faults.hold_ns.saturating_add(1)))
    }

    /// Flips one to three different bits: few enough for the ICRC to notice without fail, at any length a
    /// packet can have.
    fn damage(&mut self, packet: &mut [u8]) {
        let bits = packet.len() as u64 * 8;
        let first = self.prng.below(bits);
        for distinct in 0..self.prng.range(1, 3) {
            let bit = ((first + distinct * (bits / 3)) % bits) as usize;
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Flips a bit of the payload. Whether there is any.
    fn garble(&mut self, bytes: &mut [u8]) -> bool {
        let Ok(packet) = Packet::parse(bytes) else {
            return false;
        };
        let len = packet.payload.len();
        if len == 0 {
            return false;
        }
        let start = packet.headers.bth.opcode.header_len();
        let bit = self.prng.below(len as u64 * 8) as usize;
        bytes[start + bit / 8] ^= 1 << (bit % 8);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, PacketKind};
    use nonic_wire::{Bth, Headers, Opcode, Psn, Qpn, Syndrome};

    /// A train whose packets are 8 bytes of their own number.
    fn train(packets: u8) -> Train {
        Train {
            src: "10.0.0.1:4791".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            stride: 8,
            first_id: 0,
            bytes: (0..packets).flat_map(|number| [number; 8]).collect(),
        }
    }

    /// What comes out: (delay, first Identification, numbers of the packets).
    fn through(faults: Faults, seed: u64, packets: u8) -> (Vec<(u64, u16, Vec<u8>)>, FaultCounts) {
        let mut injector = FaultInjector::new(faults, Prng::new(seed));
        let mut out = Vec::new();
        injector.apply(train(packets), |delay, piece| {
            let numbers = piece.packets().map(|packet| packet[0]).collect();
            out.push((delay, piece.first_id, numbers));
        });
        (out, injector.counts())
    }

    fn numbers(out: &[(u64, u16, Vec<u8>)]) -> Vec<u8> {
        out.iter().flat_map(|(_, _, numbers)| numbers.clone()).collect()
    }

    #[test]
    fn without_faults_a_train_passes_whole() {
        let (out, counts) = through(Faults::default(), 1, 5);
        assert_eq!(out, [(0, 0, vec![0, 1, 2, 3, 4])]);
        assert_eq!(counts, FaultCounts::default());
    }

    #[test]
    fn lost_packets_leave_pieces_that_keep_their_identification() {
        let lossy = Faults {
            loss_ppm: 300_000,
            ..Faults::default()
        };
        let (out, counts) = through(lossy, 7, 40);
        assert_eq!(numbers(&out).len() as u64 + counts.lost, 40);
        assert!(counts.lost > 3 && out.len() > 1);
        for (_, first_id, numbers) in &out {
            assert_eq!(u16::from(numbers[0]), *first_id);
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
    }

    #[test]
    fn a_burst_loses_neighbours() {
        let bursty = Faults {
            burst_begin_ppm: 50_000,
            burst_end_ppm: 200_000,
            ..Faults::default()
        };
        let (out, counts) = through(bursty, 3, 200);
        let survivors = numbers(&out);
        assert_eq!(survivors.len() as u64 + counts.lost, 200);
        let gaps = survivors.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as u64;
        assert!(
            gaps > 0 && counts.lost > 2 * gaps,
            "{} lost in {gaps} gaps",
            counts.lost
        );
    }

    #[test]
    fn duplicates_come_twice_and_reordered_packets_late() {
        let twice = Faults {
            duplicate_ppm: 1_000_000,
            hold_ns: 100,
            ..Faults::default()
        };
        let (out, counts) = through(twice, 1, 3);
        assert_eq!(numbers(&out), [0, 0, 1, 1, 2, 2]);
        assert_eq!(counts.duplicated, 3);
        let late = Faults {
            reorder_ppm: 1_000_000,
            hold_ns: 1000,
            ..Faults::default()
        };
        let (out, counts) = through(late, 1, 3);
        assert_eq!(counts.reordered, 3);
        assert!(out.iter().any(|(delay, _, _)| *delay > 0));
    }

    #[test]
    fn everything_is_delayed_alike() {
        let late = Faults {
            delay_ns: 500,
            ..Faults::default()
        };
        let (out, counts) = through(late, 1, 3);
        assert_eq!(out, [(500, 0, vec![0, 1, 2])]);
        assert_eq!(counts, FaultCounts::default());
    }

    #[test]
    fn jitter_is_as_much_longer_as_shorter() {
        let unsteady = Faults {
            delay_ns: 500,
            jitter_ns: 500,
            ..Faults::default()
        };
        let mut injector = FaultInjector::new(unsteady, Prng::new(1));
        let peer = "10.0.0.1".parse().unwrap();
        let delays: Vec<u64> = (0..10_000)
            .map(|_| injector.judge(0, peer, &[]).delay_ns)
            .collect();
        assert!(delays.iter().all(|delay| *delay <= 1000));
        let mean = delays.iter().sum::<u64>() / 10_000;
        assert!((490..510).contains(&mean), "{mean}");
        assert_eq!(injector.counts(), FaultCounts::default());
    }

    #[test]
    fn a_packet_that_is_early_is_not_delayed() {
        let early = Faults {
            delay_ns: 500,
            early_ppm: 300_000,
            ..Faults::default()
        };
        let (mut out, counts) = through(early, 1, 40);
        let hurried: u64 = (out.iter().filter(|(delay, _, _)| *delay == 0))
            .map(|(_, _, numbers)| numbers.len() as u64)
            .sum();
        assert!(counts.reordered > 5 && hurried == counts.reordered);
        assert!(out.iter().all(|(delay, _, _)| [0, 500].contains(delay)));
        out.sort_by_key(|(_, first_id, _)| *first_id);
        assert!(numbers(&out).into_iter().eq(0..40), "all arrive, and once");
    }

    /// Of a hundred thousand packets, each kind of fault strikes the share that was asked for, and the same ones for a seed.
    #[test]
    fn each_kind_happens_as_often_as_asked() {
        type Rate = fn(&mut Faults) -> &mut u32;
        type Count = fn(&FaultCounts) -> u64;
        let kinds: [(Rate, Count); 6] = [
            (|faults| &mut faults.loss_ppm, |counts| counts.lost),
            (|faults| &mut faults.duplicate_ppm, |counts| counts.duplicated),
            (|faults| &mut faults.reorder_ppm, |counts| counts.reordered),
            (|faults| &mut faults.early_ppm, |counts| counts.reordered),
            (|faults| &mut faults.corrupt_ppm, |counts| counts.corrupted),
            (|faults| &mut faults.garble_ppm, |counts| counts.garbled),
        ];
        for (rate, count) in kinds {
            let mut faults = Faults::default();
            *rate(&mut faults) = 50_000;
            let run = |seed| {
                let mut injector = FaultInjector::new(faults, Prng::new(seed));
                for _ in 0..1000 {
                    injector.apply(train(100), |_, _| {});
                }
                count(&injector.counts())
            };
            assert!((4_700..5_300).contains(&run(1)), "{faults:?}: {}", run(1));
            assert_eq!(run(2), run(2));
            assert_ne!(run(1), run(3), "{faults:?}: seeds differ");
        }
    }

    fn with_rule(rule: FaultRule) -> FaultInjector {
        FaultInjector::with_rules(&[rule], Prng::new(1))
    }

    /// Which of the packets that come one by one, a millisecond apart, are lost.
    fn lost(injector: &mut FaultInjector, packets: &[Vec<u8>]) -> Vec<usize> {
        let mut lost = Vec::new();
        for (index, packet) in packets.iter().enumerate() {
            let train = Train {
                bytes: packet.clone(),
                stride: packet.len(),
                ..train(1)
            };
            let mut arrived = false;
            let peer = train.src.ip();
            injector.apply_at(index as u64 * 1_000_000, peer, train, |_| arrived = true);
            if !arrived {
                lost.push(index);
            }
        }
        lost
    }

    fn losing(filter: Filter) -> FaultRule {
        FaultRule {
            filter,
            faults: Faults {
                loss_ppm: 1_000_000,
                ..Faults::default()
            },
            limit: None,
        }
    }

    /// A packet with nothing in it.
    fn packet(opcode: Opcode, qpn: u32, syndrome: Syndrome) -> Vec<u8> {
        let mut headers = Headers::new(Bth::new(opcode, Qpn::new(qpn), Psn::new(0)));
        headers.aeth.syndrome = syndrome;
        let mut bytes = vec![0; opcode.header_len() + 8 + 4];
        headers.emit(&mut bytes);
        bytes
    }

    #[test]
    fn packets_are_chosen_by_their_number() {
        let packets = vec![vec![0; 8]; 12];
        let chosen = |filter| lost(&mut with_rule(losing(filter)), &packets);
        let every = Filter {
            every: 4,
            ..Filter::default()
        };
        assert_eq!(chosen(every), [3, 7, 11]);
        assert_eq!(chosen(Filter { skip: 3, ..every }), [6, 10]);
        let few = FaultRule {
            limit: Some(2),
            ..losing(Filter::default())
        };
        assert_eq!(lost(&mut with_rule(few), &packets), [0, 1]);
    }

    #[test]
    fn packets_are_chosen_by_when_they_come() {
        let packets = vec![vec![0; 8]; 12];
        let chosen = |filter| lost(&mut with_rule(losing(filter)), &packets);
        let once = Filter {
            from_ns: 2_000_000,
            until_ns: Some(4_000_000),
            ..Filter::default()
        };
        assert_eq!(chosen(once), [2, 3]);
        let again = Filter {
            period_ns: Some(5_000_000),
            ..once
        };
        assert_eq!(chosen(again), [2, 3, 7, 8]);
    }

    #[test]
    fn packets_are_chosen_by_what_they_are_and_whom_they_are_for() {
        let packets = [
            packet(Opcode::RC_SEND_ONLY, 7, Syndrome::ack()),
            packet(Opcode::RC_RDMA_WRITE_ONLY, 7, Syndrome::ack()),
            packet(Opcode::RC_ACKNOWLEDGE, 8, Syndrome::ack()),
            packet(Opcode::RC_ACKNOWLEDGE, 8, Syndrome::rnr(1)),
            packet(Opcode::UD_SEND_ONLY, 1, Syndrome::ack()),
            vec![0xff; 8],
        ];
        let chosen = |filter| lost(&mut with_rule(losing(filter)), &packets);
        let kind = |kind| Filter {
            kind: Some(kind),
            ..Filter::default()
        };
        assert_eq!(chosen(kind(PacketKind::Send)), [0]);
        assert_eq!(chosen(kind(PacketKind::Write)), [1]);
        assert_eq!(chosen(kind(PacketKind::Ack)), [2]);
        assert_eq!(chosen(kind(PacketKind::Nak)), [3]);
        assert_eq!(chosen(kind(PacketKind::Management)), [4]);
        let to = |qpn| Filter {
            qpn: Some(Qpn::new(qpn)),
            ..Filter::default()
        };
        assert_eq!(chosen(to(8)), [2, 3]);
        let peer = |ip: &str| Filter {
            peer: Some(ip.parse().unwrap()),
            ..Filter::default()
        };
        assert_eq!(chosen(peer("10.0.0.1")).len(), packets.len());
        assert!(chosen(peer("10.0.0.9")).is_empty());
        for (name, kind) in PacketKind::NAMES {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
    }

    #[test]
    fn a_packet_that_one_rule_lets_pass_is_for_the_next() {
        let odd = losing(Filter {
            every: 2,
            ..Filter::default()
        });
        let late = FaultRule {
            faults: Faults {
                delay_ns: 5,
                ..Faults::default()
            },
            ..FaultRule::default()
        };
        let mut injector = FaultInjector::with_rules(&[odd, late], Prng::new(1));
        let mut out = Vec::new();
        injector.apply_at(0, "10.0.0.1".parse().unwrap(), train(4), |piece| {
            let numbers: Vec<u8> = piece.train.packets().map(|packet| packet[0]).collect();
            out.push((piece.extra_ns, numbers));
        });
        assert_eq!(out, [(5, vec![0]), (5, vec![2])]);
        assert_eq!(injector.counts().lost, 2);
    }

    #[test]
    fn what_is_garbled_differs_in_its_payload_alone() {
        let garbling = FaultRule {
            faults: Faults {
                garble_ppm: 1_000_000,
                ..Faults::default()
            },
            ..FaultRule::default()
        };
        let sent = packet(Opcode::RC_SEND_ONLY, 7, Syndrome::ack());
        let mut injector = with_rule(garbling);
        for _ in 0..100 {
            let train = Train {
                bytes: sent.clone(),
                stride: sent.len(),
                ..train(1)
            };
            injector.apply_at(0, "10.0.0.1".parse().unwrap(), train, |piece| {
                assert!(piece.garbled);
                let differ = |at: &usize| piece.train.bytes[*at] != sent[*at];
                let changed: Vec<usize> = (0..sent.len()).filter(differ).collect();
                assert_eq!(changed.len(), 1);
                assert!((12..20).contains(&changed[0]), "{changed:?}");
            });
        }
        assert_eq!(injector.counts().garbled, 100);
    }

    #[test]
    fn corruption_flips_one_to_three_bits() {
        let damaging = Faults {
            corrupt_ppm: 1_000_000,
            ..Faults::default()
        };
        let mut injector = FaultInjector::new(damaging, Prng::new(5));
        for _ in 0..100 {
            injector.apply(train(1), |_, piece| {
                let flipped: u32 = piece.bytes.iter().map(|byte| byte.count_ones()).sum();
                assert!((1..=3).contains(&flipped));
            });
        }
        assert_eq!(injector.counts().corrupted, 100);
    }
}
