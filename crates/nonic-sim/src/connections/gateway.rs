//! A host as far as connecting is concerned: a NIC with queue pair 1, and the connection manager behind it.
//!
//! Messages travel as the engine sends them: UD SENDs between queue pairs 1, through the NIC, its ICRC and the
//! faulty links of the fabric.

use crate::fabric::Fabric;
use nonic_core::cm::{Cm, CmConfig, Route};
use nonic_core::{
    Access, CompletionQueue, CqId, Data, Destination, Endpoint, HeapRegion, KeySpec, KeyTable, Nic,
    NicConfig, Psn, QpAttributes, QpCapacity, QpInit, QpState, Qpn, RecvRequest, SeededEntropy, SendFlags,
    SendOp, SendRequest, Service, Sge, Status,
};
use nonic_wire::mad::{GSI_QKEY, MAD_LEN};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The routing header in front of a datagram.
const HEADER: usize = 40;
const SLOT: usize = HEADER + MAD_LEN;
/// Receives posted at a time: more than a fault-free run ever has waiting.
const RECEIVES: usize = 1024;

pub(super) struct Gateway {
    pub(super) station: usize,
    pub(super) ip: IpAddr,
    pub(super) cm: Cm,
    queue: Arc<CompletionQueue>,
    region: Arc<HeapRegion>,
    lkey: u32,
}

impl Gateway {
    /// A NIC and what is behind it; `station` is to be set once the fabric has it.
    pub(super) fn build(number: usize, seed: u64, config: CmConfig) -> (Nic, Gateway) {
        let ip = IpAddr::V4(Ipv4Addr::new(10, 1, 0, number as u8 + 1));
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let mut nic = Nic::new(NicConfig::default(), keys, Box::new(SeededEntropy::new(seed)));
        nic.add_endpoint(Endpoint { ip, port: 49_152 });
        let region = Arc::new(HeapRegion::zeroed(RECEIVES * SLOT));
        let key = nic
            .register(KeySpec {
                pd,
                region: region.clone(),
                offset: 0,
                length: (RECEIVES * SLOT) as u64,
                iova: 0,
                access: Access::LOCAL_WRITE,
                bound_qp: None,
                invalidatable: false,
            })
            .expect("an empty table has room");
        let queue = Arc::new(CompletionQueue::new(CqId(0), 2 * RECEIVES));
        let init = QpInit {
            service: Service::Ud,
            pd,
            send_cq: queue.clone(),
            recv_cq: queue.clone(),
            srq: None,
            capacity: QpCapacity {
                max_send_wr: 4096,
                max_recv_wr: RECEIVES as u32,
                max_inline_data: MAD_LEN as u32,
                ..QpCapacity::default()
            },
            signal_all: false,
        };
        nic.create_qp_with(Qpn::GSI, init).expect("the number is free");
        ready(&mut nic);
        let gateway = Gateway {
            station: 0,
            ip,
            cm: Cm::new(config, Box::new(SeededEntropy::new(!seed))),
            queue,
            region,
            lkey: key.value(),
        };
        for slot in 0..RECEIVES {
            gateway.post(&mut nic, slot as u64);
        }
        (nic, gateway)
    }

    fn post(&self, nic: &mut Nic, slot: u64) {
        let sge = Sge {
            addr: slot * SLOT as u64,
            length: SLOT as u32,
            lkey: self.lkey,
        };
        let request = RecvRequest {
            wr_id: slot,
            sges: &[sge],
        };
        nic.post_recv(Qpn::GSI, &request)
            .expect("every slot is posted once");
    }

    /// Hands what arrived to the connection manager.
    pub(super) fn receive<T>(&mut self, fabric: &mut Fabric<T>) -> Result<(), String> {
        let now = fabric.now();
        let mut arrived = Vec::new();
        self.queue
            .poll(usize::MAX, |completion| arrived.push(completion))
            .map_err(|_| "the completion queue of queue pair 1 overflowed")?;
        for completion in arrived {
            if completion.status != Status::Success {
                return Err(format!("queue pair 1: {}", completion.status));
            }
            let start = completion.wr_id as usize * SLOT;
            let slot = self.region.with(|bytes| bytes[start..start + SLOT].to_vec());
            self.post(fabric.nic_mut(self.station), completion.wr_id);
            let address = |at: usize| IpAddr::from([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
            let route = Route {
                local: address(36),
                remote: address(32),
            };
            let length = (completion.byte_len as usize).clamp(HEADER, SLOT);
            self.cm.handle_mad(now, route, &slot[HEADER..length]);
        }
        Ok(())
    }

    /// Sends what the connection manager has to say.
    pub(super) fn transmit<T>(&mut self, fabric: &mut Fabric<T>) -> Result<(), String> {
        let now = fabric.now();
        while let Some(transmit) = self.cm.poll_transmit() {
            let request = SendRequest {
                wr_id: 0,
                op: SendOp::Send,
                data: Data::Inline(&transmit.mad),
                flags: SendFlags::empty(),
                destination: Some(Destination {
                    gid_index: 0,
                    ip: transmit.route.remote,
                    qpn: Qpn::GSI,
                    qkey: GSI_QKEY,
                }),
            };
            fabric
                .nic_mut(self.station)
                .post_send(now, Qpn::GSI, &request)
                .map_err(|error| format!("queue pair 1 refused a send: {error}"))?;
            fabric.kick(self.station);
        }
        Ok(())
    }
}

fn ready(nic: &mut Nic) {
    let steps = [
        QpAttributes {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(GSI_QKEY),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::Rtr),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(Psn::new(0)),
            ..QpAttributes::default()
        },
    ];
    for step in steps {
        nic.modify_qp(nonic_core::Time::ZERO, Qpn::GSI, &step)
            .expect("the way to RTS");
    }
}
