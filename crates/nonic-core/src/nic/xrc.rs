//! The NIC's part of extended reliable connections: SRQs that peers can name, and target queue pairs.

use super::{CreateError, Nic, QpInit};
use crate::queue_pair::QpCapacity;
use crate::roce::xrc::{XrcDomain, XrcSrq, XrcTable};
use crate::verbs::cq::{CompletionQueue, CqId};
use crate::verbs::rq::ReceiveQueue;
use nonic_wire::{Qpn, Service};
use std::sync::Arc;

impl Nic {
    /// Lets the target queue pairs of `domain` serve an SRQ, whose receives complete to `cq`. Returns the number by
    /// which peers name it: 24 bits that no peer can guess.
    pub fn add_xrc_srq(
        &mut self,
        domain: XrcDomain,
        rq: Arc<ReceiveQueue>,
        cq: Arc<CompletionQueue>,
    ) -> Result<u32, CreateError> {
        const TRIES: usize = 64;
        if self.resources.xrc.len() >= XrcTable::MAX {
            return Err(CreateError::NoSrqNumber);
        }
        for _ in 0..TRIES {
            let number = self.entropy.next_u32() & 0xff_ffff;
            if number != 0 && !self.resources.xrc.contains(number) {
                self.resources.xrc.insert(XrcSrq {
                    number,
                    domain,
                    rq,
                    cq,
                });
                return Ok(number);
            }
        }
        Err(CreateError::NoSrqNumber)
    }

    /// Ends the service of an SRQ: peers that name it are refused from now on. Returns whether it was there.
    pub fn remove_xrc_srq(&mut self, number: u32) -> bool {
        self.resources.xrc.remove(number)
    }

    /// Creates the receiving half of an extended reliable connection, in RESET. It has no queues of its own.
    pub fn create_xrc_target(&mut self, domain: XrcDomain) -> Result<Qpn, CreateError> {
        // Never used: an SRQ brings its own.
        let cq = Arc::new(CompletionQueue::new(CqId(0), 1));
        let qpn = self.create_qp(QpInit {
            service: Service::Xrc,
            pd: self.resources.keys.alloc_pd(),
            send_cq: Arc::clone(&cq),
            recv_cq: cq,
            srq: None,
            capacity: QpCapacity {
                max_send_wr: 0,
                max_recv_wr: 0,
                max_send_sge: 0,
                max_recv_sge: 0,
                max_inline_data: 0,
            },
            signal_all: false,
        })?;
        if let Some(slot) = self.qps.slot(qpn) {
            self.qps.roce_mut(slot).roce.domain = Some(domain);
        }
        Ok(qpn)
    }
}
