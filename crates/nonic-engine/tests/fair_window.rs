//! Queue pairs whose peers are gone do not slow down queue pairs to the same address whose peers are there.
//!
//! Rates are by the processor time of the thread that posts, polls and so drives both sides: it goes on while nothing
//! arrives, and other load on the machine does not count. `nonic-core` has the same in virtual time
//! (`tests/rules/fair_shares.rs`).

use crate::side::{Side, at};
use nonic_core::{Access, QpAttributes, QpState, Qpn, SendOp, Status};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

const MEMORY: usize = 1 << 20;
const ROUNDS: usize = 7;
/// Processor time of a round.
const ROUND: Duration = Duration::from_millis(100);
/// Small writes under way at once on each queue pair.
const DEPTH: usize = 8;
/// The number of requests that no peer answers.
const NEVER: u64 = u64::MAX;

fn reset(side: &Side, qpn: Qpn) {
    let set = QpAttributes {
        state: Some(QpState::Reset),
        ..QpAttributes::default()
    };
    side.device.modify_qp(qpn, &set).expect("any state may be left");
}

/// Drives the device, and counts the writes that have ended, all well, by their numbers.
fn poll(side: &Side, ended: &mut [usize]) {
    let take = |completion: nonic_core::Completion| {
        assert_ne!(completion.wr_id, NEVER, "those never end in a round");
        assert_eq!(completion.status, Status::Success);
        ended[completion.wr_id as usize] += 1;
    };
    side.device.poll(&side.cq, 64, take).expect("no overflow");
}

/// Two sides, the connected queue pairs between them, and those whose peers are gone.
struct Bench {
    near: Side,
    far: Side,
    /// Of the memory of the far side.
    rkey: u32,
    living: Vec<Qpn>,
    gone: Vec<(Qpn, Qpn)>,
}

impl Bench {
    fn new(living: usize, gone: usize) -> Bench {
        let side = || Side::from_environment(MEMORY, 4096);
        let (near, far) = (side(), side());
        let rkey = far.register(&far.local, 0..MEMORY, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        let connect = |_| {
            let (here, there) = (near.create_qp(), far.create_qp());
            near.connect_qp(here, &far, there);
            far.connect_qp(there, &near, here);
            here
        };
        let living = (0..living).map(connect).collect();
        // Their peers have numbers of the same process, so their packets take the same way.
        let gone = (0..gone).map(|_| {
            let nobody = far.create_qp();
            far.device.destroy_qp(nobody);
            (near.create_qp(), nobody)
        });
        let gone = gone.collect();
        Bench {
            near,
            far,
            rkey,
            living,
            gone,
        }
    }

    fn write(&self, qpn: Qpn, wr_id: u64, length: u32) {
        let op = SendOp::Write(at(self.rkey, 0));
        self.near.post(qpn, wr_id, op, self.near.sge(0, length));
    }

    /// Small writes that each of the living gets done in a round.
    fn measure(&self) -> Vec<usize> {
        let (near, far) = (&self.near, &self.far);
        let mut posted = vec![0; self.living.len()];
        let mut ended = vec![0; self.living.len()];
        let end = processor_time() + ROUND;
        while processor_time() < end {
            for (number, qpn) in self.living.iter().enumerate() {
                while posted[number] < ended[number] + DEPTH {
                    self.write(*qpn, number as u64, 8);
                    posted[number] += 1;
                }
            }
            for _ in 0..4 {
                poll(far, &mut []);
                poll(near, &mut ended);
            }
        }
        let done = ended.clone();
        let patience = Instant::now() + Duration::from_secs(20);
        while posted != ended {
            poll(far, &mut []);
            poll(near, &mut ended);
            assert!(Instant::now() < patience, "{posted:?} posted, {ended:?} ended");
        }
        done
    }

    /// The same while the others have as much to send as would fill the window alone.
    fn measure_beside_gone(&self) -> Vec<usize> {
        for (qpn, nobody) in &self.gone {
            self.near.connect_qp(*qpn, &self.far, *nobody);
            (0..16).for_each(|_| self.write(*qpn, NEVER, 64 << 10));
        }
        let done = self.measure();
        self.gone.iter().for_each(|(qpn, _)| reset(&self.near, *qpn));
        done
    }

    /// All of the living together, and the one of them that gets least, keep four fifths of their rate. A round is compared with the
    /// one before it: on a shared machine the rate itself changes within a second.
    fn the_living_keep_their_rate(&self) {
        self.measure();
        let (mut together, mut least) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let alone: usize = self.measure().iter().sum();
            let beside = self.measure_beside_gone();
            let fair = alone as f64 / self.living.len() as f64;
            together.push(beside.iter().sum::<usize>() as f64 / alone as f64);
            least.push(*beside.iter().min().expect("some live") as f64 / fair);
        }
        println!("of the rate alone: {together:.2?} together, {least:.2?} for the one that gets least");
        assert!(median(&mut together) >= 0.8, "{together:.2?} of the rate alone");
        assert!(median(&mut least) >= 0.8, "{least:.2?} of the fair rate");
    }
}

fn median(ratios: &mut [f64]) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Of this thread.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

#[test]
fn those_whose_peers_are_gone_do_not_slow_down_the_living() {
    Bench::new(1, 16).the_living_keep_their_rate();
}

#[test]
fn one_whose_peer_is_gone_does_not_slow_down_sixty_three_others() {
    Bench::new(63, 1).the_living_keep_their_rate();
}
