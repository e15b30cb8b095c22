//! A UD queue pair at one of our addresses, with its memory cut into slots of one message each.

use super::super::completions::CompletionQueue;
use super::super::identifier::Identifier;
use super::super::memory::Memory;
use super::super::protocol::datagram::{DatagramSource, Lookup, Purpose};
use super::super::settings::Settings;
use crate::address;
use crate::convert::{ah_attributes, gid_of};
use crate::qp;
use crate::refusal;
use nonic_abi::errno::{self, Errno, expected};
use nonic_abi::libibverbs::{ibv_create_ah, ibv_destroy_ah};
use nonic_abi::rdma_cma::{RDMA_PS_UDP, RDMA_UDP_QKEY};
use nonic_abi::verbs::*;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

/// The longest message with its header, as in rdma-core.
pub(super) const SLOT: usize = 2048;

/// What tells a completed receive from a completed send.
const RECEIVE: u64 = 1 << 63;

/// Completions taken at a time.
const BATCH: usize = 16;

/// What stands before each received message.
const GRH: usize = size_of::<ibv_grh>();

/// A queue pair.
pub(crate) struct Port {
    // In this order: the queue pair is destroyed with its identifier, before what it uses.
    identifier: Identifier,
    queue: CompletionQueue,
    sending: Memory,
    receiving: Memory,
    local: SocketAddr,
    header: Vec<u8>,
    /// Slots to send from.
    free: Vec<u16>,
    slots: u16,
    max_payload: usize,
    inline: usize,
}

/// The way to a peer's queue pair.
pub(crate) struct Route {
    ah: *mut ibv_ah,
    qpn: u32,
}

// SAFETY: an address handle may be used from any thread.
unsafe impl Send for Route {}

impl Route {
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: the handle is ours.
        unsafe { ibv_destroy_ah(self.ah) };
    }
}

impl Port {
    pub(crate) fn new(local: SocketAddr, settings: &Settings) -> Result<Self, Errno> {
        let identifier = Identifier::without_events(RDMA_PS_UDP)?;
        let id = identifier.id();
        let device = address::bind_to_device(&id, local)?;
        let (slots, receives) = settings.datagram_queues(SLOT);
        let queue = CompletionQueue::new(device.context, u32::from(slots) + u32::from(receives))?;
        // SAFETY: all zeros are attributes.
        let mut attr: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        attr.send_cq = queue.cq();
        attr.recv_cq = queue.cq();
        attr.qp_type = IBV_QPT_UD;
        attr.sq_sig_all = 1;
        attr.cap = ibv_qp_cap {
            max_send_wr: slots.into(),
            max_recv_wr: receives.into(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: settings.inline.into(),
        };
        // SAFETY: there is no domain of our own, and the queue lives as long as the port.
        unsafe { qp::create(&id, std::ptr::null_mut(), &mut attr) }?;
        // SAFETY: the device's domain lives for ever.
        let (sending, receiving) = unsafe {
            let memory = |len| Memory::new(device.pd, len, IBV_ACCESS_LOCAL_WRITE);
            (
                memory(usize::from(slots) * SLOT)?,
                memory(usize::from(receives) * (GRH + SLOT))?,
            )
        };
        let header = DatagramSource(local).emit();
        let mtu = 128_usize << device.path_mtu;
        let port = Port {
            identifier,
            queue,
            sending,
            receiving,
            local,
            max_payload: mtu.min(SLOT) - header.len(),
            header,
            free: (0..slots).collect(),
            slots,
            inline: attr.cap.max_inline_data as usize,
        };
        for slot in 0..receives {
            port.post_receive(slot)?;
        }
        Ok(port)
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The longest message of a program's that fits the device's MTU.
    pub(crate) fn max_payload(&self) -> usize {
        self.max_payload
    }

    pub(crate) fn has_slot(&self) -> bool {
        !self.free.is_empty()
    }

    /// Everything sent has left.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == usize::from(self.slots)
    }

    /// What peers are told of it.
    pub(crate) fn lookup(&self, purpose: Purpose) -> Lookup {
        Lookup {
            purpose,
            // SAFETY: the queue pair is alive.
            qpn: unsafe { (*self.qp()).qp_num },
            address: self.local.ip(),
        }
    }

    /// The way to a queue pair at an address.
    pub(crate) fn route(&self, remote: IpAddr, qpn: u32) -> Result<Route, Errno> {
        let id = self.identifier.id();
        let device = id.device()?;
        let gid_index = device.gid_index(&gid_of(self.local.ip()))?;
        let mut attr = ah_attributes(gid_of(remote), gid_index, 0);
        // SAFETY: the domain is the device's; the attributes are our variable.
        let ah = errno::check_pointer(unsafe { ibv_create_ah(device.pd, &raw mut attr) })?;
        Ok(Route { ah, qpn })
    }

    fn qp(&self) -> *mut ibv_qp {
        // SAFETY: the identifier is alive, and its queue pair as long as it.
        unsafe { (*self.identifier.as_c()).qp }
    }

    /// Sends a message no longer than [`max_payload`](Self::max_payload) from a free slot.
    pub(crate) fn send(&mut self, route: &Route, bytes: &[u8]) -> Result<(), Errno> {
        let slot = self.free.pop().ok_or_else(|| expected(libc::EAGAIN))?;
        let offset = u32::from(slot) * SLOT as u32;
        self.sending.write(offset, &self.header);
        self.sending.write(offset + self.header.len() as u32, bytes);
        let length = self.header.len() + bytes.len();
        let mut sge = ibv_sge {
            addr: self.sending.address(offset),
            length: length as u32,
            lkey: self.sending.lkey(),
        };
        // SAFETY: all zeros are a work request.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = slot.into();
        wr.sg_list = &raw mut sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = if length <= self.inline { IBV_SEND_INLINE } else { 0 };
        wr.wr.ud = ibv_wr_ud {
            ah: route.ah,
            remote_qpn: route.qpn,
            remote_qkey: RDMA_UDP_QKEY,
        };
        let qp = self.qp();
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive; the slot is left alone until the request has completed.
        let posted = unsafe {
            let post_send = (*(*qp).context)
                .ops
                .post_send
                .ok_or_else(refusal::no_such_operation)?;
            errno::check(post_send(qp, &raw mut wr, &raw mut bad))
        };
        posted.inspect_err(|_| self.free.push(slot))
    }

    fn post_receive(&self, slot: u16) -> Result<(), Errno> {
        let length = GRH + SLOT;
        let mut sge = ibv_sge {
            addr: self.receiving.address(u32::from(slot) * length as u32),
            length: length as u32,
            lkey: self.receiving.lkey(),
        };
        let mut wr = ibv_recv_wr {
            wr_id: RECEIVE | u64::from(slot),
            next: std::ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let qp = self.qp();
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is alive; the slot is left alone until the request has completed.
        unsafe {
            let post_recv = (*(*qp).context)
                .ops
                .post_recv
                .ok_or_else(refusal::no_such_operation)?;
            errno::check(post_recv(qp, &raw mut wr, &raw mut bad))
        }
    }

    /// Takes what has completed: messages go to `arrived`. Tells whether there was anything.
    pub(crate) fn take_completions(&mut self, arrived: &mut Vec<Vec<u8>>) -> bool {
        // SAFETY: all zeros are completions.
        let mut completions: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        let taken = self.queue.poll(&mut completions);
        for completion in &completions[..taken] {
            let slot = completion.wr_id as u16;
            if completion.wr_id & RECEIVE == 0 {
                self.free.push(slot);
                continue;
            }
            let length = (completion.byte_len as usize).min(GRH + SLOT);
            if completion.status == 0 && length > GRH {
                let offset = u32::from(slot) * (GRH + SLOT) as u32 + GRH as u32;
                let mut bytes = vec![0; length - GRH];
                let from = self.receiving.at(offset, bytes.len() as u32);
                // SAFETY: `at` has seen to the length; the device is done with the slot.
                unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
                arrived.push(bytes);
            }
            // A queue pair in error takes none; it will never receive again.
            let _ = self.post_receive(slot);
        }
        taken > 0
    }

    pub(crate) fn arm(&mut self) {
        self.queue.arm();
    }

    pub(crate) fn event_fd(&self) -> RawFd {
        self.queue.fd()
    }

    pub(crate) fn take_event(&mut self) {
        self.queue.take_event();
    }
}
