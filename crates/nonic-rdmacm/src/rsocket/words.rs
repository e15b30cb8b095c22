//! The receives in which the peer's words come: without buffers if these are immediate data, otherwise with one each.

use super::memory::Memory;
use super::protocol::{Carrier, Message};
use crate::refusal;
use libc::c_int;
use nonic_abi::errno::{self, Errno};
use nonic_abi::verbs::*;

/// What tells a completed receive from a completed send. Below it is which it was.
const RECEIVE: u64 = 1 << 63;

/// Receives posted at a time.
pub(super) const BATCH: usize = 16;

/// The receives of a queue pair.
pub(super) struct Words {
    count: u32,
    buffers: Option<Memory>,
}

impl Words {
    /// # Safety
    ///
    /// The domain is alive, and outlives this.
    pub(super) unsafe fn new(pd: *mut ibv_pd, carrier: Carrier, count: u32) -> Result<Self, Errno> {
        let length = count as usize * Message::LEN;
        let buffers = match carrier {
            Carrier::Immediate => None,
            Carrier::Send => {
                // SAFETY: the caller's promise.
                Some(unsafe { Memory::new(pd, length, IBV_ACCESS_LOCAL_WRITE) }?)
            }
        };
        Ok(Words { count, buffers })
    }

    /// Which receive has completed; `None` if it was none.
    pub(super) fn index(completion: &ibv_wc) -> Option<u32> {
        (completion.wr_id & RECEIVE != 0).then_some(completion.wr_id as u32)
    }

    /// The word that came in a receive; `None` if it was something else.
    pub(super) fn read(&self, completion: &ibv_wc) -> Option<u32> {
        if completion.wc_flags & IBV_WC_WITH_IMM != 0 {
            return Some(u32::from_be(completion.imm_data));
        }
        let index = Self::index(completion)?;
        let is_word = completion.byte_len as usize == Message::LEN;
        let buffers = self.buffers.as_ref().filter(|_| is_word)?;
        Some(u32::from_ne_bytes(buffers.read(offset(index))))
    }

    /// Posts all receives.
    ///
    /// # Safety
    ///
    /// The queue pair is alive, and has room for them.
    pub(super) unsafe fn post_all(&self, qp: *mut ibv_qp) -> Result<(), Errno> {
        let all: Vec<u32> = (0..self.count).collect();
        all.chunks(BATCH).try_for_each(|indices| {
            // SAFETY: the caller's promise.
            unsafe { self.post(qp, indices) }
        })
    }

    /// Posts these receives, at most [`BATCH`], of which none is posted.
    ///
    /// # Safety
    ///
    /// The queue pair is alive, and has room for them.
    pub(super) unsafe fn post(&self, qp: *mut ibv_qp, indices: &[u32]) -> Result<(), Errno> {
        let mut sges = [ibv_sge {
            addr: 0,
            length: Message::LEN as u32,
            lkey: 0,
        }; BATCH];
        let mut wrs = [const {
            ibv_recv_wr {
                wr_id: RECEIVE,
                next: std::ptr::null_mut(),
                sg_list: std::ptr::null_mut(),
                num_sge: 0,
            }
        }; BATCH];
        let mut next = std::ptr::null_mut();
        for ((wr, sge), index) in wrs.iter_mut().zip(&mut sges).zip(indices).rev() {
            wr.wr_id |= u64::from(*index);
            if let Some(buffers) = &self.buffers {
                (sge.addr, sge.lkey) = (buffers.address(offset(*index)), buffers.lkey());
                (wr.sg_list, wr.num_sge) = (sge, 1 as c_int);
            }
            wr.next = std::mem::replace(&mut next, wr);
        }
        if next.is_null() {
            return Ok(());
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the caller's promise; the chain is in our arrays, and the buffers live as long as we do.
        unsafe {
            let post_recv = (*(*qp).context)
                .ops
                .post_recv
                .ok_or_else(refusal::no_such_operation)?;
            errno::check(post_recv(qp, next, &raw mut bad))
        }
    }
}

/// Where a receive's buffer is.
fn offset(index: u32) -> u32 {
    index * Message::LEN as u32
}
