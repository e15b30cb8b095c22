//! What a refused request gives back.

use crate::memory::Buffers;
use nonic_core::PostError;
use std::fmt;

/// A request that was not taken, and its buffers back.
///
/// ```
/// use nonic::Ud;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// let queue = device.completion_queue(16)?;
/// let pair = domain.queue_pair::<Ud>(&queue)?.activate()?;
/// # let mut pair = pair;
/// # let endpoint = pair.endpoint();
/// let refused = pair.sq.send_to(1, domain.lease(1 << 20)?, &endpoint).expect_err("longer than a packet");
/// println!("{refused}");
/// let lease = refused.buffers.into_iter().next();
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: PostError,
    /// What it was posted with.
    pub buffers: Buffers,
}

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.error)
    }
}
