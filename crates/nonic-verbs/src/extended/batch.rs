//! The work requests of an extended queue pair, while they are being built.

use super::call_lock::CallLock;
use nonic_abi::errno::{Errno, refused};
use nonic_core::{Data, Destination, SendFlags, SendOp, SendRequest, Sge};
use std::cell::UnsafeCell;
use std::ops::Range;

/// The requests of a queue pair that is being posted to.
#[derive(Default)]
pub(crate) struct Builder {
    pub(super) lock: CallLock,
    pub(super) batch: UnsafeCell<Batch>,
}

#[derive(Default)]
pub(super) struct Batch {
    pub(super) drafts: Vec<Draft>,
    pub(super) sges: Vec<Sge>,
    pub(super) bytes: Vec<u8>,
    pub(super) mistake: Option<Errno>,
}

pub(super) struct Draft {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) content: Content,
    pub(super) destination: Option<Destination>,
}

/// Where a draft's data is: a part of the batch's lists.
pub(super) enum Content {
    Sges(Range<usize>),
    Inline(Range<usize>),
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.drafts.clear();
        self.sges.clear();
        self.bytes.clear();
        self.mistake = None;
    }

    pub(super) fn set_sges(&mut self, sges: impl Iterator<Item = Sge>) {
        let start = self.sges.len();
        self.sges.extend(sges);
        self.set_content(Content::Sges(start..self.sges.len()));
    }

    pub(super) fn set_content(&mut self, content: Content) {
        match self.drafts.last_mut() {
            Some(draft) => draft.content = content,
            None => {
                self.mistake = Some(refused(
                    libc::EINVAL,
                    "data was set before any request was begun",
                    "call ibv_wr_send, ibv_wr_rdma_write or another of them first",
                ))
            }
        }
    }

    pub(super) fn request<'a>(&'a self, draft: &'a Draft) -> SendRequest<'a> {
        let data = match &draft.content {
            Content::Sges(range) => Data::Sges(&self.sges[range.clone()]),
            Content::Inline(range) => Data::Inline(&self.bytes[range.clone()]),
        };
        SendRequest {
            wr_id: draft.wr_id,
            op: draft.op,
            data,
            flags: draft.flags,
            destination: draft.destination,
        }
    }
}
