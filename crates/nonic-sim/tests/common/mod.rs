//! Shared parts of the fabric tests: NICs with one memory region, and connections between them.

use nonic_core::{
    Access, AckTimeout, CompletionQueue, CqId, Endpoint, HeapRegion, Key, KeySpec, KeyTable, Nic, NicConfig,
    Path, PathMtu, QpAttributes, QpCapacity, QpInit, QpState, Qpn, RnrTimer, SeededEntropy, Service, Sge,
};
use nonic_sim::Fabric;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A NIC in a fabric with what a program would have around it.
pub(crate) struct Node {
    pub(crate) station: usize,
    pub(crate) ip: IpAddr,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) region: Arc<HeapRegion>,
    pub(crate) key: Arc<Key>,
    pd: nonic_core::PdId,
}

impl Node {
    /// Adds a NIC with `memory` zero bytes to the fabric.
    pub(crate) fn add<T>(fabric: &mut Fabric<T>, memory: usize) -> Node {
        let number = fabric.len() as u32 + 1;
        let [_, b, c, d] = number.to_be_bytes();
        let ip = IpAddr::V4(Ipv4Addr::new(10, b, c, d));
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let entropy = SeededEntropy::new(u64::from(number));
        let mut nic = Nic::new(NicConfig::default(), keys, Box::new(entropy));
        nic.add_endpoint(Endpoint { ip, port: 49_152 });
        let region = Arc::new(HeapRegion::zeroed(memory));
        let spec = KeySpec {
            pd,
            region: region.clone(),
            offset: 0,
            length: memory as u64,
            iova: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            bound_qp: None,
            invalidatable: false,
        };
        let key = nic.register(spec).unwrap();
        Node {
            station: fabric.add(nic, &[ip]),
            ip,
            cq: Arc::new(CompletionQueue::new(CqId(0), 1 << 16)),
            region,
            key,
            pd,
        }
    }

    pub(crate) fn create_qp<T>(&self, fabric: &mut Fabric<T>) -> Qpn {
        let init = QpInit {
            service: Service::Rc,
            pd: self.pd,
            send_cq: self.cq.clone(),
            recv_cq: self.cq.clone(),
            srq: None,
            capacity: QpCapacity {
                max_send_wr: 8192,
                max_recv_wr: 8192,
                ..QpCapacity::default()
            },
            signal_all: true,
        };
        fabric.nic_mut(self.station).create_qp(init).unwrap()
    }

    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: offset,
            length,
            lkey: self.key.value(),
        }
    }
}

/// Connects a queue pair of `node` to one of `peer`.
pub(crate) fn connect<T>(fabric: &mut Fabric<T>, node: &Node, qpn: Qpn, peer: &Node, peer_qpn: Qpn) {
    let psn = nonic_core::Psn::new(0xff_fff0);
    let steps = [
        QpAttributes {
            state: Some(QpState::Init),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::Rtr),
            path: Some(Path {
                gid_index: 0,
                remote: peer.ip,
            }),
            path_mtu: Some(PathMtu::Mtu1024),
            dest_qpn: Some(peer_qpn),
            rq_psn: Some(psn),
            max_dest_rd_atomic: Some(8),
            min_rnr_timer: RnrTimer::from_code(4),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(psn),
            timeout: AckTimeout::from_exponent(10),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(8),
            ..QpAttributes::default()
        },
    ];
    let now = fabric.now();
    for step in steps {
        fabric.nic_mut(node.station).modify_qp(now, qpn, &step).unwrap();
    }
}
