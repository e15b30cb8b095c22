//! The send half.

use super::{Buffers, Handle, Refused};
use crate::endpoint::Endpoint;
use crate::memory::RemoteSlice;
use crate::transport::{Connected, Datagram, Reliable, Transport};
use nonic_core::{Data, Destination, PostError, SendFlags, SendOp, SendRequest};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

/// Where sends, writes, reads and atomics are posted.
///
/// Every request is given an `id` of your choice and yields exactly one completion with that id, in the
/// order of posting, which returns the buffers.
#[derive(Debug)]
pub struct SendQueue<T: Transport> {
    pub(super) handle: Arc<Handle>,
    transport: PhantomData<T>,
}

/// Where a datagram goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    ip: IpAddr,
    qpn: nonic_core::Qpn,
    qkey: u32,
}

impl From<&Endpoint> for Peer {
    fn from(endpoint: &Endpoint) -> Self {
        Peer {
            ip: endpoint.ip,
            qpn: endpoint.qpn,
            qkey: endpoint.qkey,
        }
    }
}

impl Peer {
    /// Every member of a multicast group that has this Q_Key.
    pub fn group(ip: IpAddr, qkey: u32) -> Self {
        Peer {
            ip,
            qpn: nonic_core::Qpn::MULTICAST,
            qkey,
        }
    }
}

impl<T: Transport> SendQueue<T> {
    pub(super) fn new(handle: Arc<Handle>) -> Self {
        SendQueue {
            handle,
            transport: PhantomData,
        }
    }

    fn post(
        &mut self,
        id: u64,
        op: SendOp,
        flags: SendFlags,
        destination: Option<Destination>,
        buffers: Buffers,
    ) -> Result<(), Refused> {
        let Handle {
            domain,
            qpn,
            send_queue,
            ..
        } = &*self.handle;
        let sges = buffers.sges();
        let wr_id = send_queue.admit(id, Some(*qpn), buffers);
        let request = SendRequest {
            wr_id,
            op,
            data: Data::Sges(&sges),
            flags,
            destination,
        };
        match domain.device.engine.post_send(*qpn, &request) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused {
                error,
                buffers: send_queue.withdraw(wr_id),
            }),
        }
    }

    fn post_checked(
        &mut self,
        id: u64,
        op: SendOp,
        remote: &RemoteSlice,
        buffers: Buffers,
    ) -> Result<(), Refused> {
        let length: u64 = buffers.0.iter().map(|lease| lease.len() as u64).sum();
        if length > remote.len {
            return Err(Refused {
                error: PostError::Length,
                buffers,
            });
        }
        self.post(id, op, SendFlags::empty(), None, buffers)
    }
}

impl<T: Connected> SendQueue<T> {
    /// Sends a message into the peer's next receive.
    pub fn send(&mut self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        self.post(id, SendOp::Send, SendFlags::empty(), None, buffers.into())
    }

    /// The same, with 32 bits for the peer's completion, waking it if it waits for solicited ones.
    pub fn send_with_immediate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        immediate: u32,
    ) -> Result<(), Refused> {
        self.post(
            id,
            SendOp::SendWithImmediate(immediate),
            SendFlags::SOLICITED,
            None,
            buffers.into(),
        )
    }

    /// Writes to the peer's memory. Its program is not involved.
    pub fn write(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        remote: RemoteSlice,
    ) -> Result<(), Refused> {
        self.post_checked(id, SendOp::Write(remote.address()), &remote, buffers.into())
    }

    /// Writes to the peer's memory and consumes one of its receives to say so.
    pub fn write_with_immediate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        remote: RemoteSlice,
        immediate: u32,
    ) -> Result<(), Refused> {
        let op = SendOp::WriteWithImmediate(remote.address(), immediate);
        self.post_checked(id, op, &remote, buffers.into())
    }
}

impl<T: Reliable> SendQueue<T> {
    /// Reads the peer's memory. Its program is not involved.
    ///
    /// ```compile_fail,E0599
    /// # fn f(mut pair: nonic::QueuePair<nonic::Ud>, lease: nonic::Lease, remote: nonic::RemoteSlice) {
    /// pair.sq.read(1, lease, remote); // datagrams cannot read
    /// # }
    /// ```
    pub fn read(&mut self, id: u64, buffers: impl Into<Buffers>, remote: RemoteSlice) -> Result<(), Refused> {
        self.post_checked(id, SendOp::Read(remote.address()), &remote, buffers.into())
    }

    /// Sends a message and revokes one of the peer's keys.
    pub fn send_with_invalidate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        rkey: u32,
    ) -> Result<(), Refused> {
        self.post(
            id,
            SendOp::SendWithInvalidate(rkey),
            SendFlags::empty(),
            None,
            buffers.into(),
        )
    }

    /// Adds to the peer's 8-byte word; the old value lands in `buffer`, of 8 bytes, in native byte order.
    pub fn fetch_add(
        &mut self,
        id: u64,
        buffer: impl Into<Buffers>,
        remote: RemoteSlice,
        add: u64,
    ) -> Result<(), Refused> {
        let op = SendOp::FetchAdd {
            remote: remote.address(),
            add,
        };
        self.post_checked(id, op, &remote, buffer.into())
    }

    /// Replaces the peer's 8-byte word by `swap` if it equals `compare`; the old value lands in `buffer`.
    pub fn compare_swap(
        &mut self,
        id: u64,
        buffer: impl Into<Buffers>,
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Result<(), Refused> {
        let op = SendOp::CompareSwap {
            remote: remote.address(),
            compare,
            swap,
        };
        self.post_checked(id, op, &remote, buffer.into())
    }
}

impl<T: Datagram> SendQueue<T> {
    /// Sends a datagram, of at most the path MTU.
    pub fn send_to(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        peer: impl Into<Peer>,
    ) -> Result<(), Refused> {
        let destination = self.destination(peer.into());
        self.post(
            id,
            SendOp::Send,
            SendFlags::empty(),
            Some(destination),
            buffers.into(),
        )
    }

    /// The same, with 32 bits for the peer's completion.
    pub fn send_to_with_immediate(
        &mut self,
        id: u64,
        buffers: impl Into<Buffers>,
        peer: impl Into<Peer>,
        immediate: u32,
    ) -> Result<(), Refused> {
        let destination = self.destination(peer.into());
        let op = SendOp::SendWithImmediate(immediate);
        self.post(id, op, SendFlags::SOLICITED, Some(destination), buffers.into())
    }

    fn destination(&self, Peer { ip, qpn, qkey }: Peer) -> Destination {
        Destination {
            gid_index: self.handle.gid_index,
            ip,
            qpn,
            qkey,
        }
    }
}
