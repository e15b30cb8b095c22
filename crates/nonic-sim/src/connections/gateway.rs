//! A host of the connection workload: a NIC with queue pair 1, and the connection manager behind it.
//!
//! Messages travel as the engine sends them: through queue pair 1 of the NIC, its ICRC and the faulty links of the
//! fabric.

use crate::fabric::Fabric;
use nonic_core::cm::{Cm, CmConfig};
use nonic_core::{Endpoint, KeyTable, Nic, NicConfig, Qpn, SeededEntropy};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub(super) struct Gateway {
    pub(super) station: usize,
    pub(super) ip: IpAddr,
    pub(super) cm: Cm,
}

impl Gateway {
    /// A NIC and its connection manager; `station` is to be set once the fabric has it.
    pub(super) fn build(number: usize, seed: u64, config: CmConfig) -> (Nic, Gateway) {
        let ip = IpAddr::V4(Ipv4Addr::new(10, 1, 0, number as u8 + 1));
        let keys = Arc::new(KeyTable::new());
        let mut nic = Nic::new(NicConfig::default(), keys, Box::new(SeededEntropy::new(seed)));
        nic.add_endpoint(Endpoint { ip, port: 49_152 });
        let gateway = Gateway {
            station: 0,
            ip,
            cm: Cm::new(config, Box::new(SeededEntropy::new(!seed))),
        };
        (nic, gateway)
    }

    /// Hands the connection manager what arrived, and the NIC the messages to send.
    pub(super) fn exchange<T>(&mut self, fabric: &mut Fabric<T>) {
        let now = fabric.now();
        let nic = fabric.nic_mut(self.station);
        self.cm.exchange(now, nic, |_| Qpn::GSI);
        if nic.has_management_to_send() {
            fabric.kick(self.station);
        }
    }
}
