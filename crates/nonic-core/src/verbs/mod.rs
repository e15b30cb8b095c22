//! The verbs objects of a NIC, whatever the transport: work requests and their completions, receive and completion
//! queues, events, and registered memory.

pub(crate) mod cq;
pub(crate) mod event;
pub mod memory;
pub(crate) mod rq;
pub(crate) mod work;
pub(crate) mod wqe;
