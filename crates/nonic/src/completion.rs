//! Completions: finished requests, as the program sees them.

use crate::cm_dispatcher::CloseReason;
use crate::memory::Buffers;
use nonic_core::{CompletionOpcode, Qpn, Status};

/// A finished request, and its buffers back.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let queue = device.completion_queue(16)?;
/// # let pair = domain.queue_pair::<nonic::Rc>(&queue)?;
/// # let here = pair.endpoint();
/// # let mut pair = pair.connect(&here)?;
/// pair.rq.recv(7, domain.lease(64)?)?;
/// pair.sq.send(8, domain.lease_from(b"to myself")?)?;
/// for _ in 0..2 {
///     let done = queue.wait(None)?.expect("no time limit was given");
///     let length = done.result?;
///     if done.id == 7 {
///         assert_eq!(&done.buffers[0][..length], b"to myself");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Completion {
    /// The number given when it was posted.
    #[doc(alias = "wr_id")]
    pub id: u64,
    /// Bytes received or fetched (zero for sends and writes), or what went wrong.
    pub result: Result<usize, Status>,
    /// The operation.
    pub opcode: CompletionOpcode,
    /// The queue pair that it was posted to.
    #[doc(alias = "qp_num")]
    pub qpn: Qpn,
    /// The peer's immediate data.
    #[doc(alias("imm_data", "IBV_WC_WITH_IMM"))]
    pub immediate: Option<u32>,
    /// For datagrams: the queue pair that sent it. The first 40 bytes of the buffer are the network header.
    #[doc(alias("src_qp", "IBV_WC_GRH"))]
    pub source: Option<Qpn>,
    /// Our key that the peer's message invalidated: of exposed memory, or of a window.
    #[doc(alias("invalidated_rkey", "IBV_WC_WITH_INV"))]
    pub invalidated: Option<u32>,
    /// If it was flushed because its connection had ended: why the connection ended.
    pub closed: Option<CloseReason>,
    /// The buffers the request was posted with, whatever the result.
    pub buffers: Buffers,
}
