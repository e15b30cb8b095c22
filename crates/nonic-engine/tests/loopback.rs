//! Two devices in one process talk over loopback sockets.

use nonic_core::{
    Access, AckTimeout, Completion, CompletionQueue, Data, KeySpec, Path, PathMtu, Psn, QpAttributes,
    QpCapacity, QpInit, QpState, Qpn, RecvRequest, Region, RnrTimer, SendFlags, SendOp, SendRequest, Service,
    Sge, Status,
};
use nonic_engine::Device;
use nonic_engine::memory::Pages;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Side {
    device: Device,
    cq: Arc<CompletionQueue>,
    qpn: Qpn,
    pages: Arc<Pages>,
    key: u32,
}

impl Side {
    fn new() -> Side {
        let device = Device::open("roce_lo").expect("loopback is there");
        let pd = device.alloc_pd();
        let cq = device.create_cq(64, None);
        let pages = Arc::new(Pages::new(1 << 20).expect("memory"));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let spec = KeySpec {
            pd,
            region: pages.clone(),
            offset: 0,
            length: 1 << 20,
            iova: 0,
            access,
            bound_qp: None,
            invalidatable: false,
        };
        let key = device.register(spec).expect("registered").value();
        let init = QpInit {
            service: Service::Rc,
            pd,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            capacity: QpCapacity::default(),
            signal_all: true,
        };
        let qpn = device.create_qp(init).expect("a queue pair");
        Side {
            device,
            cq,
            qpn,
            pages,
            key,
        }
    }

    fn connect(&self, peer: &Side) {
        let gid_index = 0;
        let remote = peer.device.gids()[0].address.ip;
        let set = |attributes| {
            self.device
                .modify_qp(self.qpn, &attributes)
                .expect("a legal transition")
        };
        set(QpAttributes {
            state: Some(QpState::Init),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        });
        set(QpAttributes {
            state: Some(QpState::Rtr),
            path: Some(Path { gid_index, remote }),
            path_mtu: Some(PathMtu::Mtu4096),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(Psn::new(7)),
            max_dest_rd_atomic: Some(16),
            min_rnr_timer: RnrTimer::from_code(12),
            ..QpAttributes::default()
        });
        set(QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(7)),
            timeout: AckTimeout::from_exponent(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(16),
            ..QpAttributes::default()
        });
    }

    fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: self.key,
        }
    }

    fn wait(&self) -> Completion {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut found = None;
        while found.is_none() {
            self.device
                .poll(&self.cq, 1, |completion| found = Some(completion))
                .expect("no overflow");
            assert!(Instant::now() < deadline, "no completion in time");
        }
        found.expect("just found")
    }

    fn post(&self, op: SendOp, sges: &[Sge]) {
        let request = SendRequest {
            wr_id: 1,
            op,
            data: Data::Sges(sges),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(self.qpn, &request).expect("posted");
    }
}

#[test]
fn send_write_and_read_between_two_devices() {
    let (a, b) = (Side::new(), Side::new());
    a.connect(&b);
    b.connect(&a);
    let data: Vec<u8> = (0..300_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    a.pages.write(0, &data).expect("in bounds");

    b.device
        .post_recv(
            b.qpn,
            &RecvRequest {
                wr_id: 9,
                sges: &[b.sge(500_000, 400_000)],
            },
        )
        .expect("posted");
    a.post(SendOp::Send, &[a.sge(0, 300_000)]);
    assert_eq!(a.wait().status, Status::Success);
    let received = b.wait();
    assert_eq!((received.status, received.byte_len), (Status::Success, 300_000));
    let mut back = vec![0; data.len()];
    b.pages.read(500_000, &mut back).expect("in bounds");
    assert_eq!(back, data);

    let remote = nonic_core::RemoteAddress {
        va: 1000,
        rkey: b.key,
    };
    a.post(SendOp::Write(remote), &[a.sge(0, 200_000)]);
    assert_eq!(a.wait().status, Status::Success);
    // The target's code does nothing here: its background thread answers.
    a.post(SendOp::Read(remote), &[a.sge(600_000, 200_000)]);
    assert_eq!(a.wait().status, Status::Success);
    let mut back = vec![0; 200_000];
    a.pages.read(600_000, &mut back).expect("in bounds");
    assert_eq!(back, data[..200_000]);
}

/// Polls until `count` requests have completed, which also teaches the background thread to keep away.
fn complete(side: &Side, count: usize) {
    for _ in 0..count {
        assert_eq!(side.wait().status, Status::Success);
    }
}

#[test]
fn short_requests_posted_in_a_row_travel_together() {
    const POSTS: usize = 32;
    let (a, b) = (Side::new(), Side::new());
    a.connect(&b);
    b.connect(&a);
    let remote = nonic_core::RemoteAddress { va: 0, rkey: b.key };
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let before = a.device.counters().1.sends;
        for _ in 0..POSTS {
            a.post(SendOp::Write(remote), &[a.sge(0, 64)]);
        }
        complete(&a, POSTS);
        let sends = a.device.counters().1.sends - before;
        // Not from the first: the background thread must have seen the program poll.
        if sends <= POSTS as u64 / 4 {
            break;
        }
        assert!(Instant::now() < deadline, "{POSTS} posts took {sends} sends");
    }
}

#[test]
fn what_is_held_back_leaves_without_another_call() {
    let (a, b) = (Side::new(), Side::new());
    a.connect(&b);
    b.connect(&a);
    let remote = nonic_core::RemoteAddress { va: 0, rkey: b.key };
    for round in 1..=100u8 {
        for _ in 0..10 {
            a.post(SendOp::Write(remote), &[a.sge(1000, 8)]);
            complete(&a, 1);
        }
        a.pages.write(0, &[round; 8]).expect("in bounds");
        // The first is under way when the second is posted. Then the program makes no call.
        a.post(SendOp::Write(remote), &[a.sge(1000, 8)]);
        a.post(SendOp::Write(remote), &[a.sge(0, 8)]);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut seen = [0; 8];
        while seen != [round; 8] {
            assert!(Instant::now() < deadline, "round {round}: it never left");
            std::thread::yield_now();
            b.pages.read(0, &mut seen).expect("in bounds");
        }
        complete(&a, 2);
    }
}
