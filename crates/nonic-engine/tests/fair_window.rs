//! Queue pairs whose peers are gone do not slow down one to the same address whose peer is there.

use nonic_core::{
    Access, AckTimeout, CompletionQueue, Data, KeySpec, Path, PathMtu, PdId, Psn, QpAttributes, QpCapacity,
    QpInit, QpState, Qpn, RemoteAddress, RnrTimer, SendFlags, SendOp, SendRequest, Service, Sge, Status,
};
use nonic_engine::Device;
use nonic_engine::memory::Pages;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMORY: u64 = 1 << 20;
const GONE: usize = 16;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(150);
/// Small writes under way at once.
const DEPTH: usize = 8;

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

    fn write(&self, qpn: Qpn, peer: &Side, length: u32) {
        let remote = RemoteAddress {
            va: 0,
            rkey: peer.key,
        };
        let request = SendRequest {
            wr_id: u64::from(qpn.value()),
            op: SendOp::Write(remote),
            data: Data::Sges(&[Sge {
                addr: 0,
                length,
                lkey: self.key,
            }]),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(qpn, &request).expect("posted");
    }

    /// Drives the device; how many writes of `qpn` have ended, all well.
    fn poll(&self, qpn: Qpn) -> usize {
        let mut ended = 0;
        let take = |completion: nonic_core::Completion| {
            assert_eq!(
                completion.wr_id,
                u64::from(qpn.value()),
                "the others never end in a round"
            );
            assert_eq!(completion.status, Status::Success);
            ended += 1;
        };
        self.device.poll(&self.cq, 64, take).expect("no overflow");
        ended
    }
}

/// Small writes in a round.
fn measure(near: &Side, far: &Side, living: Qpn) -> usize {
    let end = Instant::now() + ROUND;
    let (mut under_way, mut done) = (0, 0);
    while Instant::now() < end {
        while under_way < DEPTH {
            near.write(living, far, 8);
            under_way += 1;
        }
        far.poll(living);
        let ended = near.poll(living);
        under_way -= ended;
        done += ended;
    }
    let patience = Instant::now() + Duration::from_secs(10);
    while under_way > 0 {
        far.poll(living);
        under_way -= near.poll(living);
        assert!(Instant::now() < patience, "{under_way} writes never end");
    }
    done
}

fn median(mut counts: [usize; ROUNDS]) -> usize {
    counts.sort_unstable();
    counts[ROUNDS / 2]
}

#[test]
fn those_whose_peers_are_gone_do_not_slow_down_the_living() {
    let (near, far) = (Side::new(), Side::new());
    let (living, there) = (near.create_qp(), far.create_qp());
    near.connect(living, &far, there);
    far.connect(there, &near, living);
    // Their peers have numbers of the same process, so their packets take the same way.
    let gone: [(Qpn, Qpn); GONE] = std::array::from_fn(|_| {
        let nobody = far.create_qp();
        far.device.destroy_qp(nobody);
        (near.create_qp(), nobody)
    });
    measure(&near, &far, living);
    let (mut alone, mut beside) = ([0; ROUNDS], [0; ROUNDS]);
    for round in 0..ROUNDS {
        alone[round] = measure(&near, &far, living);
        for (qpn, nobody) in gone {
            near.connect(qpn, &far, nobody);
            // Each could fill the window alone.
            (0..16).for_each(|_| near.write(qpn, &far, 64 << 10));
        }
        beside[round] = measure(&near, &far, living);
        gone.iter().for_each(|(qpn, _)| near.reset(*qpn));
    }
    // In the simulator, without noise, they keep four fifths.
    let (alone, beside) = (median(alone), median(beside));
    assert!(2 * beside >= alone, "{beside} writes in a round, {alone} alone");
}
