//! `modify` for RoCE queue pairs: checks the values against this NIC's limits, and applies them.
//!
//! Which attributes a transition needs and allows is decided by the table in [`crate::queue_pair`]; iWARP queue pairs are moved
//! in `streams.rs`.

use super::Nic;
use super::queue_pairs::Transport;
use crate::queue_pair::{AttributeMask, ModifyError, Named, Path, QpAttributes, QpState, check_transition};
use crate::record::QpEvent;
use crate::roce::context::RoceContext;
use crate::time::Time;
use nonic_wire::{Flow, Qpn, ROCE_PORT, Service};

impl Nic {
    /// Changes a queue pair's attributes, its state among them.
    pub fn modify_qp(&mut self, now: Time, qpn: Qpn, set: &QpAttributes) -> Result<(), ModifyError> {
        let slot = self.qps.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let common = match &self.qps[slot].transport {
            Transport::Roce(qp) => &qp.roce.common,
            Transport::Iwarp(_) => return self.modify_stream_qp(now, slot, set),
        };
        let from = common.state;
        let to = check_transition(common.service, from, set.state, set.mask())?;
        self.check_values(set)?;
        if to == QpState::Reset {
            self.reset_qp(now, slot);
            self.resources.recorder.record(now, qpn, QpEvent::Moved(to));
            return Ok(());
        }
        if let (Some(path), Service::Rc | Service::Uc | Service::Xrc) = (set.path, common.service) {
            self.route_qp(slot, path);
        }
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let qp = nic.qps.roce_mut(slot);
        if to == QpState::Error {
            qp.enter_error(resources);
        } else {
            apply(&mut qp.roce, set);
            if let Some(rate) = set.rate_limit {
                qp.set_rate(now, rate);
            }
            qp.start(resources, to);
            if to != from {
                resources.record(qpn, QpEvent::Moved(to));
            }
            qp.publish(resources);
            qp.report_drained(resources);
        }
        self.touch(slot);
        Ok(())
    }

    /// Points a connected queue pair to its peer. What it has under way moves to the new peer's window.
    fn route_qp(&mut self, slot: usize, path: Path) {
        let old = self.leave_line(slot);
        let qp = self.qps.roce_mut(slot);
        let own = self.resources.endpoints[usize::from(path.gid_index)];
        qp.roce.flow = Flow {
            src: own.ip,
            dst: path.remote,
            src_port: own.port,
            dst_port: ROCE_PORT,
        };
        let new = self.resources.peers.join(path.remote, &self.config.window);
        qp.roce.peer = Some(new);
        let in_flight = qp.in_flight();
        if let (Some(old), Some(share)) = (old, qp.share()) {
            self.resources.peers.peer(old).account(share, 0, false);
            self.resources.peers.peer(new).account(share, in_flight, false);
        }
        if let Some(old) = old {
            self.resources.peers.leave(old);
            self.wake_waiting(old);
        }
    }

    fn check_values(&self, set: &QpAttributes) -> Result<(), ModifyError> {
        let invalid = |mask| Err(ModifyError::Invalid(Named(mask)));
        if set.retry_count.is_some_and(|count| count > 7) {
            return invalid(AttributeMask::RETRY_CNT);
        }
        if set.rnr_retry.is_some_and(|count| count > 7) {
            return invalid(AttributeMask::RNR_RETRY);
        }
        if set
            .max_rd_atomic
            .is_some_and(|count| count > self.config.max_rd_atomic)
        {
            return invalid(AttributeMask::MAX_RD_ATOMIC);
        }
        if set
            .max_dest_rd_atomic
            .is_some_and(|count| count > self.config.max_rd_atomic)
        {
            return invalid(AttributeMask::MAX_DEST_RD_ATOMIC);
        }
        if set.path_mtu.is_some_and(|mtu| mtu > self.config.port_mtu) {
            return invalid(AttributeMask::PATH_MTU);
        }
        if set.port.is_some_and(|port| port != 1) {
            return invalid(AttributeMask::PORT);
        }
        if set.pkey_index.is_some_and(|index| index != 0) {
            return invalid(AttributeMask::PKEY_INDEX);
        }
        if let Some(path) = set.path {
            let own = self.resources.endpoints.get(usize::from(path.gid_index));
            if own.is_none_or(|own| own.ip.is_ipv4() != path.remote.is_ipv4()) {
                return invalid(AttributeMask::PATH);
            }
        }
        Ok(())
    }
}

fn apply(roce: &mut RoceContext, set: &QpAttributes) {
    macro_rules! take {
        ($into:expr; $($field:ident),*) => { $( if let Some(value) = set.$field { $into.$field = value; } )* };
    }
    take!(roce.common; access, max_rd_atomic, max_dest_rd_atomic);
    take!(roce; qkey, timeout, retry_count, rnr_retry, rq_psn, min_rnr_timer, sq_psn, dest_qpn);
    if let Some(path) = set.path {
        roce.path = Some(path);
    }
    if let Some(mtu) = set.path_mtu {
        roce.mtu = mtu.bytes();
    }
}
