//! Devices of one process, with memory and a queue pair each: to each other they are peers on one host like any other.

use nonic_core::{
    Access, AckTimeout, Completion, CompletionQueue, Data, KeySpec, Path, PathMtu, PdId, Psn, QpAttributes,
    QpCapacity, QpInit, QpState, Qpn, Region, RemoteAddress, RnrTimer, SendFlags, SendOp, SendRequest,
    Service, Sge, Status,
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
        Side::open(&config, LEN, 64)
    }

    /// As the environment asks for, so that these tests can be run with other settings too.
    pub(crate) fn from_environment(memory: usize, completions: usize) -> Side {
        let config = Config::from_environment().expect("legal settings");
        Side::open(&config, memory, completions)
    }

    fn open(config: &Config, memory: usize, completions: usize) -> Side {
        let device = Device::open_with("roce_lo", config).expect("loopback is there");
        let pd = device.alloc_pd();
        let cq = device.create_cq(completions, None);
        let qpn = create_qp(&device, pd, &cq);
        let local = Arc::new(Pages::new(memory).expect("memory"));
        let mut side = Side {
            device,
            pd,
            cq,
            qpn,
            local: Arc::clone(&local),
            lkey: 0,
        };
        side.lkey = side.register(&local, 0..memory, Access::LOCAL_WRITE);
        side
    }

    /// Another queue pair, with the same completion queue.
    pub(crate) fn create_qp(&self) -> Qpn {
        create_qp(&self.device, self.pd, &self.cq)
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
        self.connect_qp(self.qpn, peer, peer.qpn);
    }

    pub(crate) fn connect_qp(&self, qpn: Qpn, peer: &Side, dest_qpn: Qpn) {
        let set = |attributes| {
            let modified = self.device.modify_qp(qpn, &attributes);
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
            dest_qpn: Some(dest_qpn),
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

    /// A part of our memory.
    pub(crate) fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: self.lkey,
        }
    }

    /// Posts a request to one of our queue pairs.
    pub(crate) fn post(&self, qpn: Qpn, wr_id: u64, op: SendOp, sge: Sge) {
        let sges = [sge];
        let request = SendRequest {
            wr_id,
            op,
            data: Data::Sges(&sges),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        self.device.post_send(qpn, &request).expect("posted");
    }

    /// The next completion, which must come within this time.
    pub(crate) fn wait_within(&self, time: Duration) -> Completion {
        let deadline = Instant::now() + time;
        let mut found = None;
        while found.is_none() {
            let taken = self
                .device
                .poll(&self.cq, 1, |completion| found = Some(completion));
            taken.expect("no overflow");
            assert!(Instant::now() < deadline, "no completion in time");
        }
        found.expect("just found")
    }

    /// Executes a request with the first bytes of our memory; how it ended.
    pub(crate) fn execute(&self, op: SendOp, length: u32) -> Status {
        self.post(self.qpn, 1, op, self.sge(0, length));
        self.wait_within(SOON).status
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
    connected(Side::new(true), Side::new(true))
}

pub(crate) fn connected(a: Side, b: Side) -> (Side, Side) {
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

fn create_qp(device: &Device, pd: PdId, cq: &Arc<CompletionQueue>) -> Qpn {
    let init = QpInit {
        service: Service::Rc,
        pd,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        srq: None,
        capacity: QpCapacity::default(),
        signal_all: true,
    };
    device.create_qp(init).expect("a queue pair")
}

pub(crate) fn at(rkey: u32, va: u64) -> RemoteAddress {
    RemoteAddress { va, rkey }
}

pub(crate) fn word(pages: &Pages, offset: usize) -> u64 {
    pages.fetch_add(offset, 0).expect("aligned")
}
