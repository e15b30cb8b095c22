//! Creates what was planned: NICs, memory, queues and connections.

use super::model::{Half, Life, Mark};
use super::ops::{MAX_INLINE, MAX_SGE};
use super::placement::WatchedRegion;
use super::{Check, World};
use crate::program::content::PoolRegion;
use crate::program::post::ALL_RIGHTS;
use nonic_core::{
    Access, AckTimeout, CompletionQueue, CqId, Endpoint, KeySpec, KeyTable, Nic, NicConfig, Path,
    QpAttributes, QpCapacity, QpInit, QpState, ReceiveQueue, Region, ReorderConfig, SeededEntropy, Service,
    SrqId, WindowBind, WindowKind, XrcDomain,
};
use std::sync::Arc;

/// What a host does about packets that come early. Most keep them and say so; some go by the book and keep nothing (rxe), some keep
/// them and report a gap, some have hardly any room.
fn reordering_of(seed: u64) -> ReorderConfig {
    let usual = ReorderConfig::default();
    match seed % 10 {
        0..=5 => usual,
        6 | 7 => ReorderConfig::NONE,
        8 => ReorderConfig {
            selective: false,
            ..usual
        },
        _ => ReorderConfig {
            queue_pair_bytes: 4 << 10,
            total_bytes: 6 << 10,
            ..usual
        },
    }
}

impl World {
    /// A NIC without queue pairs for a host.
    pub(super) fn new_nic(&self, host: usize) -> Nic {
        let host = &self.hosts[host];
        let mut config = NicConfig {
            window: self.scenario.window,
            lenient_icrc: self.scenario.lenient_icrc,
            reorder: reordering_of(host.seed),
            ..NicConfig::default()
        };
        if let Some(direct) = &self.scenario.direct {
            (config.direct_piece, config.direct_worth) = (direct.piece, direct.worth);
            config.pull_worth = direct.pull_worth;
        }
        if let Some(lanes) = &self.scenario.lanes {
            config.record_piece = lanes.piece;
        }
        let keys = Arc::new(KeyTable::new());
        let mut nic = Nic::new(config, keys, Box::new(SeededEntropy::new(host.seed)));
        nic.add_endpoint(Endpoint {
            ip: host.ip,
            port: 49_152 + (host.seed % 16_384) as u16,
        });
        if let Some(shared_host) = &self.shared_host {
            shared_host.attach(&mut nic);
        }
        if let Some(lanes) = self.fabric.lanes() {
            lanes.attach(&mut nic);
        }
        nic
    }

    /// A host's NIC is in place: register its memory and make its queues.
    pub(super) fn bring_up(&mut self, host: usize) -> Check {
        let station = self.hosts[host].station;
        let pd = self.fabric.nic(station).keys().alloc_pd();
        self.hosts[host].pd = Some(pd);
        self.hosts[host].up = true;
        self.hosts[host].pool_key = self.register(host, PoolRegion::key_spec(pd))?;
        self.build_arena(self.hosts[host].commons)?;
        for cq in self.hosts[host].cqs.clone() {
            let queue = CompletionQueue::new(CqId(cq as u32), self.cqs[cq].capacity);
            if let Some(arm) = self.cqs[cq].arming {
                queue.arm(arm);
            }
            self.cqs[cq].queue = Some(Arc::new(queue));
        }
        for srq in self.hosts[host].srqs.clone() {
            self.build_arena(self.model.srqs[srq].arena)?;
            let depth = self.model.srqs[srq].depth;
            let queue = ReceiveQueue::shared(SrqId(srq as u32), pd, depth, MAX_SGE as usize);
            self.model.srqs[srq].queue = Some(Arc::new(queue));
        }
        Ok(())
    }

    pub(super) fn register(&mut self, host: usize, spec: KeySpec) -> Result<u32, String> {
        let station = self.hosts[host].station;
        let key = self.fabric.nic_mut(station).register(spec);
        key.map(|key| key.value())
            .map_err(|error| format!("register refused: {error}"))
    }

    fn build_arena(&mut self, arena: usize) -> Check {
        self.model.arenas[arena].build();
        let (covered, iova) = (self.model.arenas[arena].covered(), self.model.arenas[arena].iova);
        self.model.arenas[arena].key = self.register_part(arena, 0, covered as u32, iova, false)?;
        Ok(())
    }

    fn register_part(
        &mut self,
        arena: usize,
        offset: usize,
        length: u32,
        iova: u64,
        invalidatable: bool,
    ) -> Result<u32, String> {
        let host = self.model.arenas[arena].host;
        let region = self.model.arenas[arena]
            .region
            .clone()
            .ok_or("the arena is not built")?;
        let region: Arc<dyn Region> = match &self.recorder {
            Some(recorder) => Arc::new(WatchedRegion {
                inner: region,
                arena,
                log: recorder.placements.clone(),
            }),
            None => region,
        };
        let spec = KeySpec {
            pd: self.hosts[host].pd.ok_or("the host is not up")?,
            region,
            offset,
            length: u64::from(length),
            iova,
            access: ALL_RIGHTS,
            bound_qp: None,
            invalidatable,
        };
        self.register(host, spec)
    }

    /// Starts the queue pair `first`, with its peer if it has one.
    pub(super) fn start(&mut self, first: usize) -> Check {
        let members: Vec<usize> = match self.model.programs[first].peer {
            Some(peer) => vec![first, peer],
            None => vec![first],
        };
        let unusable = |number: &usize| {
            let qp = &self.qps[*number];
            let lost = self.cqs[qp.send_cq].overflowed || self.cqs[qp.recv_cq].overflowed;
            lost || !self.hosts[self.model.programs[*number].host].up
        };
        if members.iter().any(unusable) {
            // Its host or a completion queue went down before its time.
            members.iter().for_each(|qp| self.qps[*qp].life = Life::Gone);
            return Ok(());
        }
        for qp in &members {
            self.create(*qp)?;
        }
        for qp in &members {
            self.connect(*qp)?;
        }
        for qp in members {
            let delay = self.prng.below(2_000);
            self.fabric.mark(delay, Mark::Post(qp));
            if self.model.programs[qp].srq.is_none() && self.qps[qp].half.is_none() {
                let delay = self.prng.below(1 + self.model.programs[qp].recv_pace_ns);
                self.fabric.mark(delay, Mark::Receive(qp));
            }
        }
        Ok(())
    }

    fn create(&mut self, number: usize) -> Check {
        let (qp, program) = (&self.qps[number], &self.model.programs[number]);
        let (host, station) = (program.host, self.hosts[program.host].station);
        let missing = "the queue is not built";
        let init = QpInit {
            service: qp.service,
            pd: self.hosts[host].pd.ok_or("the host is not up")?,
            send_cq: self.cqs[qp.send_cq].queue.clone().ok_or(missing)?,
            recv_cq: self.cqs[qp.recv_cq].queue.clone().ok_or(missing)?,
            srq: match program.srq {
                Some(srq) => Some(self.model.srqs[srq].queue.clone().ok_or(missing)?),
                None => None,
            },
            capacity: QpCapacity {
                max_send_wr: program.send_depth,
                max_recv_wr: program.recv_depth,
                max_send_sge: MAX_SGE,
                max_recv_sge: MAX_SGE,
                max_inline_data: MAX_INLINE,
            },
            signal_all: program.signal_all,
        };
        let (half, nic) = (qp.half, self.fabric.nic_mut(station));
        let created = match (half, init) {
            (
                Some(Half::Target),
                QpInit {
                    srq: Some(srq),
                    recv_cq,
                    ..
                },
            ) => {
                // A domain of its own, so that the failure of one target says nothing about others.
                let domain = XrcDomain(number as u32);
                let added = nic.add_xrc_srq(domain, srq, recv_cq);
                self.qps[number].srq_number = added.map_err(|error| format!("no SRQ number: {error}"))?;
                nic.create_xrc_target(domain)
            }
            (Some(_), init) => nic.create_qp(QpInit {
                service: Service::Xrc,
                ..init
            }),
            (None, init) => nic.create_qp(init),
        };
        let qpn = created.map_err(|error| format!("create_qp refused: {error}"))?;
        self.model.programs[number].qpn = qpn;
        self.model.programs[number].pool_key = self.hosts[host].pool_key;
        self.by_qpn.insert((host, qpn.value()), number);
        self.build_arena(self.model.programs[number].arena)?;
        for export in self.model.programs[number].exports.clone() {
            self.model.exports[export].key = self.register_export(export)?;
        }
        Ok(())
    }

    /// Registers an export's memory under a new key, or makes a memory window for it.
    pub(super) fn register_export(&mut self, number: usize) -> Result<u32, String> {
        let export = &self.model.exports[number];
        let (arena, offset, length) = (export.arena, export.offset, export.length);
        let Some(qp) = export.bound_to else {
            let iova = self.model.arenas[arena].iova + offset as u64;
            return self.register_part(arena, offset, length, iova, true);
        };
        let host = self.model.arenas[arena].host;
        let pd = self.hosts[host].pd.ok_or("the host is not up")?;
        let (qpn, bound_later) = (self.model.programs[qp].qpn, export.bound_later);
        let nic = self.fabric.nic_mut(self.hosts[host].station);
        let window = nic
            .alloc_window(pd, WindowKind::Type2)
            .map_err(|error| format!("no window: {error}"))?;
        let keys = Arc::clone(nic.keys());
        if !bound_later {
            let bind = WindowBind {
                window,
                rkey: window,
                ..self.model.window_bind(number)
            };
            keys.bind_window(&bind, pd, qpn)
                .map_err(|error| format!("the window is not bound: {error}"))?;
        }
        Ok(window)
    }

    fn connect(&mut self, number: usize) -> Check {
        let steps = match self.model.programs[number].peer {
            Some(peer) => self.connected_steps(number, peer),
            None => self.datagram_steps(number),
        };
        let station = self.hosts[self.model.programs[number].host].station;
        let (now, qpn) = (self.fabric.now(), self.model.programs[number].qpn);
        for step in steps {
            let nic = self.fabric.nic_mut(station);
            nic.modify_qp(now, qpn, &step)
                .map_err(|error| format!("modify_qp refused: {error}"))?;
        }
        if self.qps[number].in_group {
            let group = self.scenario.group();
            if !self.fabric.nic_mut(station).attach_multicast(qpn, group) {
                return Err("a datagram queue pair could not join a group".into());
            }
        }
        self.qps[number].life = Life::Alive;
        Ok(())
    }

    fn connected_steps(&self, number: usize, peer: usize) -> Vec<QpAttributes> {
        let (qp, peer_psn) = (&self.qps[number], self.qps[peer].psn);
        let peer = &self.model.programs[peer];
        let terms = qp.terms;
        let reliable = qp.service == Service::Rc;
        let init = QpAttributes {
            state: Some(QpState::Init),
            access: Some(ALL_RIGHTS - Access::LOCAL_WRITE - Access::MW_BIND - qp.withheld),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        };
        let to_receive = QpAttributes {
            state: Some(QpState::Rtr),
            path: Some(Path {
                gid_index: 0,
                remote: self.hosts[peer.host].ip,
            }),
            path_mtu: Some(terms.mtu),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(peer_psn),
            max_dest_rd_atomic: reliable.then_some(terms.max_rd_atomic),
            min_rnr_timer: reliable.then_some(terms.rnr_timer),
            ..QpAttributes::default()
        };
        let to_send = QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(qp.psn),
            timeout: reliable
                .then(|| AckTimeout::from_exponent(terms.timeout_exponent))
                .flatten(),
            retry_count: reliable.then_some(terms.retry_count),
            rnr_retry: reliable.then_some(terms.rnr_retry),
            max_rd_atomic: reliable.then_some(terms.max_rd_atomic),
            ..QpAttributes::default()
        };
        vec![init, to_receive, to_send]
    }

    fn datagram_steps(&self, number: usize) -> Vec<QpAttributes> {
        let qp = &self.qps[number];
        let init = QpAttributes {
            state: Some(QpState::Init),
            qkey: Some(qp.qkey),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        };
        let to_receive = QpAttributes {
            state: Some(QpState::Rtr),
            ..QpAttributes::default()
        };
        let to_send = QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(qp.psn),
            ..QpAttributes::default()
        };
        vec![init, to_receive, to_send]
    }
}
