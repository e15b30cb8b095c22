//! Reliable connections for the measuring workloads: both ends alike, with as many retries as there are.

use nonic_core::{
    Access, AckTimeout, CompletionQueue, Nic, Path, PathMtu, PdId, Psn, QpAttributes, QpCapacity, QpInit,
    QpState, Qpn, RnrTimer, Service, Time,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Shortly before sequence numbers begin again.
const FIRST_PSN: Psn = Psn::new(0xff_fff0);

/// A queue pair whose requests all complete in one queue.
pub(crate) fn init(pd: PdId, cq: &Arc<CompletionQueue>) -> QpInit {
    QpInit {
        service: Service::Rc,
        pd,
        send_cq: Arc::clone(cq),
        recv_cq: Arc::clone(cq),
        srq: None,
        capacity: QpCapacity::default(),
        signal_all: true,
    }
}

/// Connects a new queue pair to another.
pub(crate) fn connect(
    nic: &mut Nic,
    qpn: Qpn,
    (remote, dest_qpn): (IpAddr, Qpn),
    mtu: PathMtu,
    timeout: AckTimeout,
) {
    let steps = [
        QpAttributes {
            state: Some(QpState::Init),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::Rtr),
            path: Some(Path { gid_index: 0, remote }),
            path_mtu: Some(mtu),
            dest_qpn: Some(dest_qpn),
            rq_psn: Some(FIRST_PSN),
            max_dest_rd_atomic: Some(8),
            min_rnr_timer: RnrTimer::from_code(12),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(FIRST_PSN),
            timeout: Some(timeout),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(8),
            ..QpAttributes::default()
        },
    ];
    for step in steps {
        nic.modify_qp(Time::ZERO, qpn, &step).expect("a legal transition");
    }
}
