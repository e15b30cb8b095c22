//! Creates what was planned: memory, queues and queue pairs.

use super::model::{Cause, Mark, Trouble};
use super::program::{MAX_INLINE, MAX_SGE};
use super::{Check, Streams};
use crate::program::content::PoolRegion;
use nonic_core::{
    Access, KeySpec, QpAttributes, QpCapacity, QpInit, QpState, ReceiveQueue, Region, Service, SrqId,
};
use nonic_wire::iwarp::TerminateCode;
use std::sync::Arc;

const EVERYTHING: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

impl Streams {
    pub(super) fn set_up(&mut self) -> Check {
        for host in 0..self.hosts.len() {
            let pd = self.hosts[host].pd;
            self.hosts[host].pool_key = self.register(host, PoolRegion::key_spec(pd))?;
        }
        for arena in 0..self.model.arenas.len() {
            self.model.arenas[arena].build();
            let covered = self.model.arenas[arena].covered() as u32;
            self.model.arenas[arena].key = self.register_part(arena, 0, covered, false)?;
        }
        self.model.predict_words();
        for export in 0..self.model.exports.len() {
            let part = &self.model.exports[export];
            let key = self.register_part(part.arena, part.offset, part.length, true)?;
            self.model.exports[export].key = key;
        }
        for number in 0..self.model.srqs.len() {
            let srq = &self.model.srqs[number];
            let pd = self.hosts[srq.host].pd;
            let queue = ReceiveQueue::shared(SrqId(number as u32), pd, srq.depth, MAX_SGE as usize);
            self.model.srqs[number].queue = Some(Arc::new(queue));
            self.mark(0, Mark::SharedReceive(number));
        }
        for side in 0..self.sides.len() {
            self.create(side)?;
            self.explain_slow_shared_queue(side);
            self.mark(0, Mark::Receive(side));
            self.mark(0, Mark::Post(side));
        }
        for number in 0..self.connections.len() {
            self.mark(self.connections[number].connect_at_ns, Mark::Connect(number));
            self.mark(
                self.connections[number].connect_at_ns + 50_000,
                Mark::Look(number),
            );
        }
        Ok(())
    }

    fn register(&mut self, host: usize, spec: KeySpec) -> Result<u32, String> {
        let key = self.hosts[host].nic.register(spec);
        key.map(|key| key.value())
            .map_err(|error| format!("register refused: {error}"))
    }

    fn register_part(
        &mut self,
        arena: usize,
        offset: usize,
        length: u32,
        invalidatable: bool,
    ) -> Result<u32, String> {
        let host = self.model.arenas[arena].host;
        let region = self.model.arenas[arena]
            .region
            .clone()
            .ok_or("the arena is not built")?;
        let spec = KeySpec {
            pd: self.hosts[host].pd,
            region: region as Arc<dyn Region>,
            offset,
            length: u64::from(length),
            iova: self.model.arenas[arena].iova + offset as u64,
            access: EVERYTHING,
            bound_qp: None,
            invalidatable,
        };
        self.register(host, spec)
    }

    fn create(&mut self, number: usize) -> Check {
        let (side, program) = (&self.sides[number], &self.model.programs[number]);
        let host = program.host;
        let init = QpInit {
            service: Service::Rc,
            pd: self.hosts[host].pd,
            send_cq: Arc::clone(&side.send_cq),
            recv_cq: Arc::clone(&side.recv_cq),
            srq: match program.srq {
                Some(srq) => self.model.srqs[srq].queue.clone(),
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
        for (cq, arming) in [&side.send_cq, &side.recv_cq].into_iter().zip(side.arming) {
            if let Some(arm) = arming {
                cq.arm(arm);
            }
        }
        let nic = &mut self.hosts[host].nic;
        let qpn = nic.create_iwarp_qp(init);
        let qpn = qpn.map_err(|error| format!("create_iwarp_qp refused: {error}"))?;
        let permit = QpAttributes {
            access: Some(EVERYTHING - Access::LOCAL_WRITE),
            ..QpAttributes::default()
        };
        let now = self.now();
        let nic = &mut self.hosts[host].nic;
        nic.modify_qp(now, qpn, &permit)
            .map_err(|error| format!("modify_qp refused: {error}"))?;
        if nic.qp_state(qpn) != Some(QpState::Init) {
            return Err("a new queue pair is not in INIT".into());
        }
        self.model.programs[number].qpn = qpn;
        self.model.programs[number].pool_key = self.hosts[host].pool_key;
        self.by_qpn.insert((host, qpn.value()), number);
        Ok(())
    }

    /// Receives come to a shared queue one by one, and others may take them: a stream may wait for too long.
    fn explain_slow_shared_queue(&mut self, side: usize) {
        let Some(srq) = self.model.programs[side].srq else {
            return;
        };
        // Requests that are never answered leave receives that no message takes, so the queue may also stay full.
        let quiet = self
            .connections
            .iter()
            .all(|other| other.trouble == Trouble::Quiet);
        let needed_ns = 6_000 * self.model.srqs[srq].receives.len() as u64;
        if !quiet || needed_ns * 4 > self.config.receive_grace.as_nanos() as u64 * 3 {
            let cause = Cause::Fault(side, TerminateCode::DDP_UNTAGGED_NO_BUFFER);
            self.connections[side / 2].causes.push(cause);
        }
    }
}
