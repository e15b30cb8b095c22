//! The receive half of a queue pair.

use super::handle::QpHandle;
use crate::memory::Buffers;
use crate::posting::post_receive;
use crate::refused::Refused;
use crate::transport::{Datagram, Transport};
use nonic_core::PostError;
use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

/// Where receives are posted.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let queue = device.completion_queue(16)?;
/// # let pair = domain.queue_pair::<nonic::Rc>(&queue)?;
/// # let here = pair.endpoint();
/// # let mut pair = pair.connect(&here)?;
/// pair.rq.recv(1, domain.lease(64)?)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ReceiveQueue<T: Transport> {
    handle: Arc<QpHandle>,
    transport: PhantomData<T>,
}

impl<T: Transport> ReceiveQueue<T> {
    pub(super) fn new(handle: Arc<QpHandle>) -> Self {
        ReceiveQueue {
            handle,
            transport: PhantomData,
        }
    }

    /// Posts a receive; refused, it gives the buffers back.
    ///
    /// A datagram needs 40 bytes more than its payload: the network header comes first.
    #[doc(alias = "ibv_post_recv")]
    pub fn recv(&mut self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        let buffers = buffers.into();
        if self.handle.srq.is_some() {
            return Err(Refused {
                error: PostError::SharedReceiveQueue,
                buffers,
            });
        }
        let qpn = self.handle.qpn;
        let engine = &self.handle.domain.device.engine;
        let QpHandle {
            recv_queue,
            receive_work_queue,
            ..
        } = &*self.handle;
        post_receive(recv_queue, *receive_work_queue, id, buffers, |request| {
            engine.post_recv(qpn, request)
        })
    }
}

impl<T: Datagram> ReceiveQueue<T> {
    /// Also receives what is sent to a multicast group.
    #[doc(alias("ibv_attach_mcast", "rdma_join_multicast"))]
    pub fn join(&mut self, group: IpAddr) -> io::Result<()> {
        self.handle
            .domain
            .device
            .engine
            .attach_multicast(self.handle.qpn, group)
    }

    /// No longer does. Answers whether it did.
    #[doc(alias("ibv_detach_mcast", "rdma_leave_multicast"))]
    pub fn leave(&mut self, group: IpAddr) -> bool {
        self.handle
            .domain
            .device
            .engine
            .detach_multicast(self.handle.qpn, group)
    }
}
