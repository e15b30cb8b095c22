//! The extended interface: completions read field by field ([`readers`]), work requests built call by call ([`calls`]).
//!
//! What a queue must remember between two such calls is in [`current`] and [`batch`], below the queues that have it; the
//! calls are above them.

mod batch;
mod call_lock;
mod calls;
mod current;
mod readers;

pub(crate) use batch::Builder;
pub(crate) use calls::create_qp_ex;
pub(crate) use current::Current;
pub(crate) use readers::create_cq_ex;
