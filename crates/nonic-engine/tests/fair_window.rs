//! Queue pairs whose peers are gone do not slow down queue pairs to the same address whose peers are there.
//!
//! Rates are by the processor time of the thread that posts, polls and so drives both sides: it goes on while nothing
//! arrives, and other load on the machine does not count. `nonic-core` has the same in virtual time
//! (`tests/rules/fair_shares.rs`).

use nonic_core::{
    Access, AckTimeout, CompletionQueue, Data, KeySpec, Path, PathMtu, PdId, Psn, QpAttributes, QpCapacity,
    QpInit, QpState, Qpn, RemoteAddress, RnrTimer, SendFlags, SendOp, SendRequest, Service, Sge, Status,
};
use nonic_engine::Device;
use nonic_engine::memory::Pages;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMORY: u64 = 1 << 20;
const ROUNDS: usize = 7;
/// Processor time of a round.
const ROUND: Duration = Duration::from_millis(100);
/// Small writes under way at once on each queue pair.
const DEPTH: usize = 8;
/// The number of requests that no peer answers.
const NEVER: u64 = u64::MAX;

struct Side {
    device: Device,
    pd: PdId,
    cq: Arc<CompletionQueue>,
    key: u32,
}

impl Side {
    fn new() -> Side {
        let device = Device::open("roce_lo").expect("loopback is there");
        let pd = device.alloc_pd();
        let cq = device.create_cq(4096, None);
        let spec = KeySpec {
            pd,
            region: Arc::new(Pages::new(MEMORY as usize).expect("memory")),
            offset: 0,
            length: MEMORY,
            iova: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            bound_qp: None,
            invalidatable: false,
        };
        let key = device.register(spec).expect("registered").value();
        Side { device, pd, cq, key }
    }

    fn create_qp(&self) -> Qpn {
        let init = QpInit {
            service: Service::Rc,
            pd: self.pd,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            srq: None,
            capacity: QpCapacity::default(),
            signal_all: true,
        };
        self.device.create_qp(init).expect("a queue pair")
    }

    fn connect(&self, qpn: Qpn, peer: &Side, dest_qpn: Qpn) {
        let steps = [
            QpAttributes {
                state: Some(QpState::Init),
                access: Some(Access::REMOTE_WRITE),
                pkey_index: Some(0),
                port: Some(1),
                ..QpAttributes::default()
            },
            QpAttributes {
                state: Some(QpState::Rtr),
                path: Some(Path {
                    gid_index: 0,
                    remote: peer.device.gids()[0].address.ip,
                }),
                path_mtu: Some(PathMtu::Mtu4096),
                dest_qpn: Some(dest_qpn),
                rq_psn: Some(Psn::new(7)),
                max_dest_rd_atomic: Some(16),
                min_rnr_timer: RnrTimer::from_code(12),
                ..QpAttributes::default()
            },
            QpAttributes {
                state: Some(QpState::Rts),
                sq_psn: Some(Psn::new(7)),
                timeout: AckTimeout::from_exponent(14),
                retry_count: Some(7),
                rnr_retry: Some(7),
                max_rd_atomic: Some(16),
                ..QpAttributes::default()
            },
        ];
        for step in steps {
            self.device.modify_qp(qpn, &step).expect("a legal transition");
        }
    }

    fn reset(&self, qpn: Qpn) {
        let set = QpAttributes {
            state: Some(QpState::Reset),
            ..QpAttributes::default()
        };
        self.device.modify_qp(qpn, &set).expect("any state may be left");
    }

    fn write(&self, qpn: Qpn, peer: &Side, wr_id: u64, length: u32) {
        let remote = RemoteAddress {
            va: 0,
            rkey: peer.key,
        };
        let sges = [Sge {
            addr: 0,
            length,
            lkey: self.key,
        }];
        let request = SendRequest {
            wr_id,
            op: SendOp::Write(remote),
            data: Data::Sges(&sges),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(qpn, &request).expect("posted");
    }

    /// Drives the device, and counts the writes that have ended, all well, by their numbers.
    fn poll(&self, ended: &mut [usize]) {
        let take = |completion: nonic_core::Completion| {
            assert_ne!(completion.wr_id, NEVER, "those never end in a round");
            assert_eq!(completion.status, Status::Success);
            ended[completion.wr_id as usize] += 1;
        };
        self.device.poll(&self.cq, 64, take).expect("no overflow");
    }
}

/// Two sides, the connected queue pairs between them, and those whose peers are gone.
struct Bench {
    near: Side,
    far: Side,
    living: Vec<Qpn>,
    gone: Vec<(Qpn, Qpn)>,
}

impl Bench {
    fn new(living: usize, gone: usize) -> Bench {
        let (near, far) = (Side::new(), Side::new());
        let connect = |_| {
            let (here, there) = (near.create_qp(), far.create_qp());
            near.connect(here, &far, there);
            far.connect(there, &near, here);
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
            living,
            gone,
        }
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
                    near.write(*qpn, far, number as u64, 8);
                    posted[number] += 1;
                }
            }
            for _ in 0..4 {
                far.poll(&mut []);
                near.poll(&mut ended);
            }
        }
        let done = ended.clone();
        let patience = Instant::now() + Duration::from_secs(20);
        while posted != ended {
            far.poll(&mut []);
            near.poll(&mut ended);
            assert!(Instant::now() < patience, "{posted:?} posted, {ended:?} ended");
        }
        done
    }

    /// The same while the others have as much to send as would fill the window alone.
    fn measure_beside_gone(&self) -> Vec<usize> {
        for (qpn, nobody) in &self.gone {
            self.near.connect(*qpn, &self.far, *nobody);
            (0..16).for_each(|_| self.near.write(*qpn, &self.far, NEVER, 64 << 10));
        }
        let done = self.measure();
        self.gone.iter().for_each(|(qpn, _)| self.near.reset(*qpn));
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
