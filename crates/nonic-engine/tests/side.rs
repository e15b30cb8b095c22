//! Devices of one process, with memory and a queue pair each: to each other they are peers on one host like any other.

use nonic_core::{
    Access, AckTimeout, CompletionQueue, Data, KeySpec, Path, PathMtu, PdId, Psn, QpAttributes, QpCapacity,
    QpInit, QpState, Qpn, Region, RemoteAddress, RnrTimer, SendFlags, SendOp, SendRequest, Service, Sge,
    Status,
};
use nonic_engine::memory::Pages;
use nonic_engine::{Config, Device};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const LEN: usize = 64 * 1024;
pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
/// What anything may take, several times what it does on a machine at rest.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A device with memory of its own, and one queue pair.
pub(crate) struct Side {
    pub(crate) device: Device,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) qpn: Qpn,
    pub(crate) local: Arc<Pages>,
    pub(crate) lkey: u32,
}

impl Side {
    pub(crate) fn new(direct: bool) -> Side {
        let mut config = Config::default();
        config.direct = direct;
        let device = Device::open_with("roce_lo", &config).expect("loopback is there");
        let pd = device.alloc_pd();
        let cq = device.create_cq(64, None);
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
        let local = Arc::new(Pages::new(LEN).expect("memory"));
        let mut side = Side {
            device,
            pd,
            cq,
            qpn,
            local: Arc::clone(&local),
            lkey: 0,
        };
        side.lkey = side.register(&local, 0..LEN, Access::LOCAL_WRITE);
        side
    }

    pub(crate) fn register(&self, pages: &Arc<Pages>, range: std::ops::Range<usize>, access: Access) -> u32 {
        let spec = KeySpec {
            pd: self.pd,
            region: pages.clone(),
            offset: range.start,
            length: range.len() as u64,
            iova: 0,
            access,
            bound_qp: None,
            invalidatable: false,
        };
        self.device.register(spec).expect("registered").value()
    }

    pub(crate) fn connect(&self, peer: &Side) {
        let set = |attributes| {
            let modified = self.device.modify_qp(self.qpn, &attributes);
            modified.expect("a legal transition");
        };
        set(QpAttributes {
            state: Some(QpState::Init),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        });
        let remote = peer.device.gids()[0].address.ip;
        set(QpAttributes {
            state: Some(QpState::Rtr),
            path: Some(Path { gid_index: 0, remote }),
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

    /// Executes a request with the first bytes of our memory; how it ended.
    pub(crate) fn execute(&self, op: SendOp, length: u32) -> Status {
        let sge = Sge {
            addr: 0,
            length,
            lkey: self.lkey,
        };
        let sges = [sge];
        let request = SendRequest {
            wr_id: 1,
            op,
            data: Data::Sges(&sges),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(self.qpn, &request).expect("posted");
        let deadline = Instant::now() + SOON;
        let mut status = None;
        while status.is_none() {
            let taken = self
                .device
                .poll(&self.cq, 1, |completion| status = Some(completion.status));
            taken.expect("no overflow");
            assert!(Instant::now() < deadline, "no completion in time");
        }
        status.expect("just found")
    }

    pub(crate) fn mapped(&self) -> u64 {
        self.device.counters().1.direct_mapped
    }

    /// Whether what a key covers is mapped, soon after it is first read.
    pub(crate) fn maps(&self, rkey: u32) -> bool {
        self.is_mapped_within(SOON, rkey)
    }

    /// READs until what they read is mapped, or they have gone on for so long without packets.
    pub(crate) fn is_mapped_within(&self, time: Duration, rkey: u32) -> bool {
        let (before, begun) = (self.mapped(), Instant::now());
        let mut direct_since = None;
        loop {
            let direct = self.device.counters().0.direct_reads;
            assert_eq!(self.execute(SendOp::Read(at(rkey, 0)), 8), Status::Success);
            if self.mapped() > before {
                return true;
            }
            if self.device.counters().0.direct_reads > direct {
                let since: &Instant = direct_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= time {
                    return false;
                }
            }
            assert!(begun.elapsed() < 2 * SOON, "no READ without packets");
        }
    }
}

pub(crate) fn pair() -> (Side, Side) {
    let (a, b) = (Side::new(true), Side::new(true));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

pub(crate) fn at(rkey: u32, va: u64) -> RemoteAddress {
    RemoteAddress { va, rkey }
}

pub(crate) fn word(pages: &Pages, offset: usize) -> u64 {
    pages.fetch_add(offset, 0).expect("aligned")
}
