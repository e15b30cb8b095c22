//! Helpers that several tests of this crate need.

use nonic_core::{
    Access, AckTimeout, CompletionQueue, KeySpec, Path, PathMtu, PdId, Psn, QpAttributes, QpCapacity, QpInit,
    QpState, Qpn, Region, RnrTimer, Service,
};
use std::sync::Arc;

/// A reliable connection whose completions all go to one queue.
pub(crate) fn reliable(pd: PdId, cq: &Arc<CompletionQueue>) -> QpInit {
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

/// The steps from RESET to RTS.
pub(crate) fn steps_to_rts(path: Path, peer: Qpn, mtu: PathMtu, timeout_exponent: u8) -> [QpAttributes; 3] {
    let init = QpAttributes {
        state: Some(QpState::Init),
        access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
        pkey_index: Some(0),
        port: Some(1),
        ..QpAttributes::default()
    };
    let rtr = QpAttributes {
        state: Some(QpState::Rtr),
        path: Some(path),
        path_mtu: Some(mtu),
        dest_qpn: Some(peer),
        rq_psn: Some(Psn::new(7)),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: RnrTimer::from_code(12),
        ..QpAttributes::default()
    };
    let rts = QpAttributes {
        state: Some(QpState::Rts),
        sq_psn: Some(Psn::new(7)),
        timeout: AckTimeout::from_exponent(timeout_exponent),
        retry_count: Some(2),
        rnr_retry: Some(2),
        max_rd_atomic: Some(4),
        ..QpAttributes::default()
    };
    [init, rtr, rts]
}

/// All of a region, for peers to read and write, at addresses from zero on.
pub(crate) fn exposed(pd: PdId, region: Arc<dyn Region>, length: usize) -> KeySpec {
    KeySpec {
        pd,
        region,
        offset: 0,
        length: length as u64,
        iova: 0,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        bound_qp: None,
        invalidatable: false,
    }
}
