//! Our NIC in the place of one of the recorded hosts.

use super::capture::{CLIENT, Cast, MEMORY, QKEY, Recorded, SERVER, SERVER_PSN};
use nonic_core::{
    Access, AckTimeout, Arrival, Completion, CompletionQueue, CqId, Data, Destination, Endpoint, HeapRegion,
    KeySpec, KeyTable, MAX_BATCH_LEN, Nic, NicConfig, Path, PdId, Psn, QpAttributes, QpCapacity, QpInit,
    QpState, Qpn, ReceiveQueue, RecvRequest, ReorderConfig, RnrTimer, SeededEntropy, SendFlags, SendOp,
    SendRequest, Service, Sge, SrqId, Time,
};
use nonic_wire::Packet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// No other host knows the client's own memory, so its key and address can be anything.
const CLIENT_KEY: u32 = 0x4242;
const CLIENT_ADDR: u64 = 0x1000_0000;

pub(crate) struct Host {
    pub(crate) nic: Nic,
    pub(crate) now: Time,
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    pub(crate) keys: Arc<KeyTable>,
    pub(crate) memory: Arc<HeapRegion>,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    srq: Option<Arc<ReceiveQueue>>,
    key: u32,
    addr: u64,
    destination: Option<Destination>,
}

impl Host {
    pub(crate) fn client(cast: &Cast) -> Host {
        let remote = (cast.server(), SERVER, Psn::new(SERVER_PSN));
        let local = (cast.client(), CLIENT, Psn::new(cast.client_psn));
        Host::new(
            NicConfig::default(),
            cast,
            local,
            remote,
            (CLIENT_KEY, CLIENT_ADDR),
            false,
        )
    }

    pub(crate) fn server(cast: &Cast, srq: bool) -> Host {
        Host::server_with(NicConfig::default(), cast, srq)
    }

    /// One that keeps nothing that comes early and reports gaps at once, as rxe does.
    pub(crate) fn go_back_n_server(cast: &Cast) -> Host {
        let config = NicConfig {
            reorder: ReorderConfig::NONE,
            ..NicConfig::default()
        };
        Host::server_with(config, cast, false)
    }

    fn server_with(config: NicConfig, cast: &Cast, srq: bool) -> Host {
        let remote = (cast.client(), CLIENT, Psn::new(cast.client_psn));
        let local = (cast.server(), SERVER, Psn::new(SERVER_PSN));
        Host::new(
            config,
            cast,
            local,
            remote,
            (cast.server_rkey, cast.server_addr),
            srq,
        )
    }

    fn new(
        config: NicConfig,
        cast: &Cast,
        local: (Qpn, IpAddr, Psn),
        remote: (Qpn, IpAddr, Psn),
        (key, addr): (u32, u64),
        srq: bool,
    ) -> Host {
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let entropy = Box::new(SeededEntropy::new(1));
        let mut nic = Nic::new(config, Arc::clone(&keys), entropy);
        nic.add_endpoint(Endpoint {
            ip: local.1,
            port: 50_000,
        });
        let memory = Arc::new(HeapRegion::zeroed(MEMORY));
        let send_cq = Arc::new(CompletionQueue::new(CqId(1), 200));
        let recv_cq = Arc::new(CompletionQueue::new(CqId(2), 200));
        let srq = srq.then(|| Arc::new(ReceiveQueue::shared(SrqId(1), pd, 50, 4)));
        let capacity = QpCapacity {
            max_send_wr: 64,
            max_recv_wr: 64,
            ..QpCapacity::default()
        };
        let init = QpInit {
            service: cast.service,
            pd,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: srq.clone(),
            capacity,
            signal_all: true,
        };
        let qpn = nic.create_qp_with(local.0, init).expect("the number is free");
        let now = Time::from_ns(1_000_000_000);
        for set in bring_up(cast, local.2, remote) {
            nic.modify_qp(now, qpn, &set).expect("the way to RTS is open");
        }
        let destination = (cast.service == Service::Ud).then_some(Destination {
            gid_index: 0,
            ip: remote.1,
            qpn: remote.0,
            qkey: QKEY,
        });
        let mut host = Host {
            nic,
            now,
            qpn,
            pd,
            keys,
            memory: memory.clone(),
            send_cq,
            recv_cq,
            srq,
            key,
            addr,
            destination,
        };
        host.register(key, addr, memory, None);
        host
    }

    /// Registers memory under a key and address that the recording dictates.
    pub(crate) fn register(&mut self, key: u32, addr: u64, memory: Arc<HeapRegion>, bound_qp: Option<Qpn>) {
        let length = memory.snapshot().len() as u64;
        let spec = KeySpec {
            pd: self.pd,
            region: memory,
            offset: 0,
            length,
            iova: addr,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            bound_qp,
            invalidatable: bound_qp.is_some(),
        };
        let registered = self.keys.register_as(key, spec).expect("a valid range");
        assert!(registered.is_some(), "the key is free");
    }

    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        self.memory
            .with(|memory| memory[offset..offset + bytes.len()].copy_from_slice(bytes));
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.memory
            .with(|memory| memory[offset..offset + length].to_vec())
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: self.addr + offset as u64,
            length,
            lkey: self.key,
        }
    }

    pub(crate) fn send(&mut self, op: SendOp, offset: usize, length: u32, flags: SendFlags) {
        let sges = [self.sge(offset, length)];
        let request = SendRequest {
            wr_id: 0,
            op,
            data: Data::Sges(&sges),
            flags,
            destination: self.destination,
        };
        self.nic
            .post_send(self.now, self.qpn, &request)
            .expect("the request is posted");
    }

    /// Posts a receive of `length` bytes in the middle of the memory.
    pub(crate) fn recv(&mut self, length: u32) {
        let request = RecvRequest {
            wr_id: 0,
            sges: &[self.sge(MEMORY / 2, length)],
        };
        match &self.srq {
            Some(srq) => srq.post(&request).expect("posted"),
            None => self.nic.post_recv(self.qpn, &request).expect("posted"),
        }
    }

    pub(crate) fn feed(&mut self, recorded: &Recorded) {
        let arrival = Arrival {
            src: SocketAddr::new(recorded.flow.src, recorded.flow.src_port),
            dst: recorded.flow.dst,
            stride: recorded.bytes.len(),
            congested: false,
        };
        self.nic.handle_datagram(self.now, &arrival, &recorded.bytes);
    }

    /// What the NIC has to send now.
    pub(crate) fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut buffer = vec![0; MAX_BATCH_LEN];
        while let Some(batch) = self.nic.poll_transmit(self.now, 16, &mut buffer) {
            packets.extend(buffer[..batch.len].chunks(batch.segment_size).map(<[u8]>::to_vec));
            assert!(packets.len() < 10_000, "the NIC sends without end");
        }
        for bytes in &packets {
            Packet::parse(bytes).expect("the NIC sends nothing but packets");
        }
        self.nic.publish();
        packets
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        self.nic.publish();
        drain(&self.send_cq)
    }

    pub(crate) fn receptions(&mut self) -> Vec<Completion> {
        self.nic.publish();
        drain(&self.recv_cq)
    }
}

fn drain(cq: &CompletionQueue) -> Vec<Completion> {
    let mut completions = Vec::new();
    cq.poll(1000, |completion| completions.push(completion))
        .expect("the queue is large enough");
    completions
}

fn bring_up(cast: &Cast, sq_psn: Psn, remote: (Qpn, IpAddr, Psn)) -> [QpAttributes; 3] {
    let (connected, reliable) = (cast.service != Service::Ud, cast.service == Service::Rc);
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let state = |state| QpAttributes {
        state: Some(state),
        ..QpAttributes::default()
    };
    let init = QpAttributes {
        pkey_index: Some(0),
        port: Some(1),
        access: connected.then_some(access),
        qkey: (!connected).then_some(QKEY),
        ..state(QpState::Init)
    };
    let rtr = QpAttributes {
        path: connected.then_some(Path {
            gid_index: 0,
            remote: remote.1,
        }),
        path_mtu: connected.then_some(cast.mtu),
        dest_qpn: connected.then_some(remote.0),
        rq_psn: connected.then_some(remote.2),
        max_dest_rd_atomic: reliable.then_some(4),
        min_rnr_timer: RnrTimer::from_code(cast.rnr_timer_code).filter(|_| reliable),
        ..state(QpState::Rtr)
    };
    let rts = QpAttributes {
        sq_psn: Some(sq_psn),
        timeout: AckTimeout::from_exponent(14).filter(|_| reliable),
        retry_count: reliable.then_some(cast.retry_count),
        rnr_retry: reliable.then_some(7),
        max_rd_atomic: reliable.then_some(4),
        ..state(QpState::Rts)
    };
    [init, rtr, rts]
}
